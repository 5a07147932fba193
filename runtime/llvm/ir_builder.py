"""Writing LLVM IR as text: a module with its declarations, and functions built from values, blocks and loops.

A value is its LLVM type and its name or constant. Types are LLVM's spelling: `i64`, `float`, `<8 x float>`, `ptr`.
Text is written, not objects: it builds ten times faster than `llvmlite.ir` and parses in microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .target import Target

_HEADS = re.compile(r"^define .*", re.MULTILINE)
_VECTOR = re.compile(r"<(\d+) x (.+)>")
GLUE = "nounwind noinline optnone"
_MEMORY_FUNCTIONS = frozenset({"memcpy", "memmove", "memset"})
_INTRINSIC_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


def _without_budget(where: str) -> None:
    """No compiler is there that could have one."""


checkpoint: Callable[[str], None] = _without_budget
"""Called at the start of every block of code that is written: `compiler.budget` puts its check here."""


def is_glue(text: str) -> bool:
    """Whether all functions that a text defines are glue."""
    return all(GLUE in head for head in _HEADS.findall(text))


class Value(NamedTuple):
    """An SSA value or a constant: `text` is what stands after the type."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    """`<lanes x element>`, or the element type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.lru_cache(1024)
def split_vector(type_: str) -> tuple[str, int]:
    """(element type, lanes); a scalar has one lane."""
    match = _VECTOR.fullmatch(type_)
    return (match[2], int(match[1])) if match else (type_, 1)


def suffix(type_: str) -> str:
    """The part of an intrinsic's name that names a type: `v8f32`, `i64`."""
    element, lanes = split_vector(type_)
    name = _INTRINSIC_SUFFIX.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def constant(type_: str, number: float | int | bool) -> Value:
    """A constant of a scalar or (splat) of a vector type."""
    element, lanes = split_vector(type_)
    if element in ("float", "half", "bfloat"):
        if element == "float":
            value = _round_to_f32(float(number))
            text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        elif element == "half":
            text = f"0xH{_half_bits(number):04X}"
        else:
            text = f"0xR{_bfloat_bits(number):04X}"
    elif element == "double":
        text = f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    elif element == "i1":
        text = "true" if number else "false"
    else:
        text = str(int(number))
    return Value(type_, text if lanes == 1 else f"splat ({element} {text})")


def _round_to_f32(number: float) -> float:
    return ctypes.c_float(number).value


def _half_bits(number: float) -> int:
    import numpy as np

    with np.errstate(over="ignore"):
        return int(np.float16(number).view(np.uint16))


def _bfloat_bits(number: float) -> int:
    import ml_dtypes
    import numpy as np

    return int(np.asarray(number, ml_dtypes.bfloat16).view(np.uint16))


class ModuleText:
    """A module's text: functions, globals and declarations, each written once.

    `target` is the machine that code is written for; without one, code uses no instruction that a machine may lack.
    `define` returns a name for a function's text; equal text given twice is written once. That is how equal kernels are
    compiled once. With `embed_libraries` the library functions that are called are written into the module. `plans` are
    the kernels written so far, by what they compute; `outlined` the functions of elements that kernels call.
    """

    def __init__(self, target: Target | None = None, embed_libraries: bool = False) -> None:
        self.target = target
        self.embed_libraries = embed_libraries
        self.triple = target.triple if target else ""
        self.functions: dict[str, str] = {}
        self.plans: dict[Hashable, Any] = {}
        self.outlined: dict[Hashable, str] = {}
        self._by_text: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}

    @property
    def libraries(self) -> list[str]:
        """The library functions that are called and not written here."""
        return sorted(n for n in self.declarations if n.startswith("tfb_") and n not in self.functions)

    def declare(self, name: str, result: str, parameters: Sequence[str], attributes: str = "") -> str:
        """Declares an external function or an intrinsic; returns its name."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)}) {attributes}".rstrip()
        return name

    def add_global(self, name: str, text: str) -> str:
        """Adds `@name = text`; returns the name."""
        self.globals[name] = text
        return name

    def has(self, name: str) -> bool:
        """Whether a function of that name is defined here."""
        return name in self.functions

    def add(self, name: str, text: str) -> str:
        """Adds a function's whole text under its own name; a second one of the same name is ignored."""
        self.functions.setdefault(name, text)
        return name

    def define(self, prefix: str, function: Function) -> str:
        """Adds a function built with the name `SELF`; returns its name: `prefix.N`, or that of its equal."""
        text = function.text()
        name = self._by_text.get(text)
        if name is None:
            name = f"{prefix}.{len(self.functions)}"
            self._by_text[text] = name
            self.functions[name] = text.replace("@SELF(", f"@{name}(", 1)
        return name

    def text(self) -> str:
        """The module."""
        head = [f'target triple = "{self.triple}"'] if self.triple else []
        defined = [d for n, d in self.declarations.items() if n not in self.functions]
        made = [f"@{n} = {t}" for n, t in self.globals.items()]
        loop = ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}', "!2 = !{i32 1}"]
        return "\n".join([*head, *made, *defined, *self.functions.values(), *loop]) + "\n"


class Function:
    """Builds one function. Give it the name `SELF` when `ModuleText.define` shall name it.

    `attributes` as LLVM writes them after the parameter list; `linkage` before the result type. With GLUE as
    attributes, LLVM works little on it: code that prepares and calls kernels.
    """

    def __init__(
        self,
        module: ModuleText,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        attributes: str = "nounwind",
        linkage: str = "internal",
    ) -> None:
        self.module = module
        self.parameters = {n: Value(t.split(" ", 1)[0], f"%{n}") for t, n in parameters}
        listed = ", ".join(f"{t} %{n}" for t, n in parameters)
        self._head = f"define {linkage} {result} @{name}({listed}) {attributes} {{"
        self.lines: list[str] = ["entry:"]
        self._count = 0
        self.block = "entry"
        self._entry_slots: list[str] = []

    def __getitem__(self, parameter: str) -> Value:
        return self.parameters[parameter]

    # -- raw text
    def fresh(self, prefix: str = "v") -> str:
        """A name not used yet in this function, without `%`."""
        self._count += 1
        return f"{prefix}{self._count}"

    def do(self, text: str) -> None:
        """Writes one instruction without a result."""
        self.lines.append("  " + text)

    def op(self, type_: str, text: str) -> Value:
        """Writes one instruction; returns its result of the given type."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return Value(type_, name)

    def start_block(self, label: str) -> None:
        """Starts the block `label`; the block before must have ended."""
        checkpoint("a kernel's code")
        self.lines.append(f"{label}:")
        self.block = label

    def stack_slot(self, type_: str, align: int = 64) -> Value:
        """An alloca in the entry block (made once, however often the code runs)."""
        name = "%" + self.fresh("slot")
        self._entry_slots.append(f"  {name} = alloca {type_}, align {align}")
        return Value("ptr", name)

    # -- scalars and vectors
    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode a, b`; the operands have one type."""
        return self.op(a.type, f"{opcode} {a.type} {a.text}, {b.text}")

    def compare(self, opcode: str, a: Value, b: Value) -> Value:
        """`icmp slt`, `fcmp olt`, ...: i1 per lane."""
        return self.op(vector_type("i1", split_vector(a.type)[1]), f"{opcode} {a.type} {a.text}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition holds, else `b`; one condition per lane, or one for all."""
        return self.op(
            a.type, f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}"
        )

    def cast(self, opcode: str, a: Value, type_: str) -> Value:
        """`opcode a to type`; nothing where the type is the same."""
        return a if a.type == type_ else self.op(type_, f"{opcode} {a} to {type_}")

    def intrinsic(
        self, name: str, result: str, arguments: Sequence[Value], types: Sequence[str] = ()
    ) -> Value:
        """Calls `llvm.name.<suffix of result, or of the listed types>`; returns its result."""
        full = f"llvm.{name}." + ".".join(suffix(t) for t in (types or (result,)))
        return self.call(full, result, arguments)

    def call(self, name: str, result: str, arguments: Sequence[Value]) -> Value:
        """Calls a function, declaring it; returns its result (of type `void`: meaningless)."""
        if name in _MEMORY_FUNCTIONS:  # the intrinsic takes a 64-bit length on every target
            to, what, length = arguments
            what = self.cast("trunc", what, "i8") if what.type == "i32" else what
            result, arguments = "void", [to, what, length, constant("i1", False)]
            name = f"llvm.{name}.p0.{'' if what.type == 'i8' else 'p0.'}i64"
        self.module.declare(name, result, [a.type for a in arguments])
        text = f"call {result} @{name}({', '.join(map(str, arguments))})"
        if result == "void":
            self.do(text)
            return Value("void", "")
        return self.op(result, text)

    def prefetch(self, address: Value, locality: int = 3, writes: bool = False) -> None:
        """Asks for the cache line of an address, to be read or written soon; locality 3: into L1, 2: into L2."""
        self.call(
            "llvm.prefetch.p0", "void", [address, *(constant("i32", n) for n in (int(writes), locality, 1))]
        )

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A vector with the scalar in every lane; the scalar itself for one lane."""
        if lanes == 1:
            return scalar
        if not scalar.text.startswith("%"):
            return Value(vector_type(scalar.type, lanes), f"splat ({scalar})")
        vector = vector_type(scalar.type, lanes)
        one = self.op(vector, f"insertelement {vector} poison, {scalar}, i64 0")
        return self.op(
            vector, f"shufflevector {vector} {one.text}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def extract(self, vector: Value, lane: int) -> Value:
        """One lane of a vector."""
        element, lanes = split_vector(vector.type)
        return vector if lanes == 1 else self.op(element, f"extractelement {vector}, i64 {lane}")

    # -- i64 arithmetic on Python ints and values alike; constants fold
    def add(self, a: Value | int, b: Value | int) -> Value | int:
        """a + b in i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.binary("add nsw", i64(a), i64(b))

    def sub(self, a: Value | int, b: Value | int) -> Value | int:
        """a - b in i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.binary("sub nsw", i64(a), i64(b))

    def mul(self, a: Value | int, b: Value | int) -> Value | int:
        """a * b in i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.binary("mul nsw", i64(a), i64(b))

    def minimum(self, a: Value | int, b: Value | int) -> Value | int:
        """Signed min in i64."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("smin", "i64", [i64(a), i64(b)])

    def maximum(self, a: Value | int, b: Value | int) -> Value | int:
        """Signed max in i64."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.intrinsic("smax", "i64", [i64(a), i64(b)])

    def divide(self, a: Value | int, b: int) -> Value | int:
        """a / b in i64, both non-negative."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.binary("udiv", a, i64(b))

    def remainder(self, a: Value | int, b: int) -> Value | int:
        """a % b in i64, both non-negative."""
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.binary("urem", a, i64(b))

    # -- memory
    def offset(self, pointer: Value, index: Value | int, type_: str = "i8") -> Value:
        """Address of element `index` (of `type_`) after `pointer`. Tables of pointers have 8 bytes for each, always."""
        if isinstance(index, int) and index == 0:
            return pointer
        if type_ == "ptr":
            type_ = "i64"
        at = i64(index)
        return self.op(
            "ptr", f"getelementptr inbounds {type_}, {pointer.type} {pointer.text}, {at.type} {at.text}"
        )

    def load(self, type_: str, pointer: Value, align: int = 1, note: str = "") -> Value:
        """Loads; `align` in bytes, `note` is metadata such as `!invariant.load !2`."""
        end = f", {note}" if note else ""
        return self.op(type_, f"load {type_}, {pointer.type} {pointer.text}, align {align}{end}")

    def store(self, value: Value, pointer: Value, align: int = 1, nontemporal: bool = False) -> None:
        """Stores; `align` in bytes."""
        self.do(
            f"store {value.type} {value.text}, {pointer.type} {pointer.text}, align {align}"
            f"{', !nontemporal !2' if nontemporal else ''}"
        )

    # -- control flow
    def loop(
        self,
        low: Value | int,
        high: Value | int,
        step: Value | int,
        body: Callable[[Value, list[Value]], Sequence[Value] | None],
        carried: Sequence[Value] = (),
        guard: bool = True,
    ) -> list[Value]:
        """for i in range(low, high, step): carried = body(i, carried). Returns the last carried values.

        Without `guard` the body must run at least once. A constant range that never runs writes nothing.
        """
        if isinstance(low, int) and isinstance(high, int):
            if low >= high:
                return list(carried)
            guard = False
        exit_label, before = self.fresh("exit"), self.block
        if guard:
            first = self.fresh("guard")
            runs = self.compare("icmp slt", i64(low), i64(high))
            self.do(f"br {runs}, label %{first}, label %{exit_label}")
            self.start_block(first)
        head, came_from = self.fresh("loop"), self.block
        self.do(f"br label %{head}")
        self.start_block(head)
        index = Value("i64", "%" + self.fresh("i"))
        at = len(self.lines)
        entering = [Value(c.type, "%" + self.fresh("c")) for c in carried]
        self.lines.extend([""] * (1 + len(entering)))
        leaving = list(body(index, entering) or [])
        following = self.binary("add nsw", index, i64(step))
        more = self.compare("icmp slt", following, i64(high))
        self.lines[at] = (
            f"  {index.text} = phi i64 [{i64(low).text}, %{came_from}], [{following.text}, %{self.block}]"
        )
        for k, (name, start, end) in enumerate(zip(entering, carried, leaving, strict=True)):
            self.lines[at + 1 + k] = (
                f"  {name.text} = phi {name.type} [{start.text}, %{came_from}], [{end.text}, %{self.block}]"
            )
        last = self.block
        self.do(f"br {more}, label %{head}, label %{exit_label}, !llvm.loop !0")
        self.start_block(exit_label)
        if not guard:
            return leaving
        return [
            self.op(s.type, f"phi {s.type} [{s.text}, %{before}], [{e.text}, %{last}]")
            for s, e in zip(carried, leaving, strict=True)
        ]

    def while_(
        self,
        carried: Sequence[Value],
        condition: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """while condition(carried): carried = body(carried). Returns the last carried values."""
        head, inside, end, before = self.fresh("while"), self.fresh("body"), self.fresh("end"), self.block
        self.do(f"br label %{head}")
        self.start_block(head)
        entering = [Value(c.type, "%" + self.fresh("c")) for c in carried]
        at = len(self.lines)
        self.lines.extend([""] * len(entering))
        goes_on = condition(entering)
        self.do(f"br {goes_on}, label %{inside}, label %{end}")
        self.start_block(inside)
        leaving = body(entering)
        for k, (name, start, last) in enumerate(zip(entering, carried, leaving, strict=True)):
            self.lines[at + k] = (
                f"  {name.text} = phi {name.type} [{start.text}, %{before}], [{last.text}, %{self.block}]"
            )
        self.do(f"br label %{head}, !llvm.loop !0")
        self.start_block(end)
        return entering

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
    ) -> list[Value]:
        """if condition: then() else: otherwise(). Both return values of the same types; returns the merged ones."""
        yes, no, end = self.fresh("then"), self.fresh("else"), self.fresh("end")
        self.do(f"br {condition}, label %{yes}, label %{no if otherwise else end}")
        before = self.block
        self.start_block(yes)
        a, a_block = list(then() or []), self.block
        self.do(f"br label %{end}")
        b: list[Value] = []
        b_block = before
        if otherwise:
            self.start_block(no)
            b, b_block = list(otherwise() or []), self.block
            self.do(f"br label %{end}")
        self.start_block(end)
        return [
            self.op(x.type, f"phi {x.type} [{x.text}, %{a_block}], [{y.text}, %{b_block}]")
            for x, y in zip(a, b, strict=True)
        ]

    @contextlib.contextmanager
    def redirected(self, lines: list[str]) -> Iterator[None]:
        """Within, text goes to `lines` instead: for code that is placed later (an outer loop's head, say)."""
        kept, self.lines = self.lines, lines
        try:
            yield
        finally:
            self.lines = kept

    def ret(self, value: Value | None = None) -> None:
        """Returns."""
        self.do(f"ret {value}" if value else "ret void")

    def text(self) -> str:
        """The function."""
        return "\n".join([self._head, self.lines[0], *self._entry_slots, *self.lines[1:], "}"])


def i64(value: Value | int) -> Value:
    """A Python int as an i64 constant; a value as it is."""
    return Value("i64", str(value)) if isinstance(value, int) else value
