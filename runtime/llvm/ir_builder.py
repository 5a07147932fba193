"""Writing LLVM IR as text: functions built from typed values, blocks and loops.

    f = Function(module, "dot", parameters("ptr x, ptr y, i64 n"), result="float")
    x, y = f.pointers("x", "y")
    with f.loop(0, f.integer("n"), total=f.constant("float", 0)) as loop:
        a, b = (p.at(loop.index, "float").load("float") for p in (x, y))
        with f.if_(a < b):
            y.at(loop.index, "float").store(a)
        loop.total = a.fma(b, loop.total)
    f.ret(loop.total)
    module.add("dot", f.text())

Values are `Int` and `Ptr` (indices and addresses, addressing.py) and `VectorValue` (data and conditions, in one lane or
several, vector_value.py). Their operators write instructions, check types and take Python numbers. Loops and branches
are `with` statements (control_flow.py); values that change in them are attributes. Text is written, not objects: it
builds ten times faster than `llvmlite.ir` and parses in microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, overload

from ..run_context import OFFSETS
from ..sizes import Size
from .addressing import Index, Int, Ptr
from .control_flow import BlockWriter, Carry, LoopStatement
from .module_text import ModuleText
from .types import constant_text, split_vector, suffix, vector_type
from .value import Value
from .vector_value import VectorValue

__all__ = [
    "DRIVER_ATTRIBUTES",
    "Function",
    "Index",
    "Int",
    "ModuleText",
    "Ptr",
    "Value",
    "VectorValue",
    "constant",
    "is_driver_code",
    "split_vector",
    "suffix",
    "vector_type",
]

_HEADS = re.compile(r"^define .*", re.MULTILINE)
DRIVER_ATTRIBUTES = "nounwind noinline optnone"
_CLASSES: dict[str, type[Int] | type[Ptr]] = {"i64": Int, "ptr": Ptr}


def is_driver_code(text: str) -> bool:
    """Whether all functions that a text defines are driver code."""
    return all(DRIVER_ATTRIBUTES in head for head in _HEADS.findall(text))


def constant(type_: str, number: float | int | bool) -> Value:
    """A constant of a scalar or (splat) of a vector type, of no function."""
    return Value(type_, constant_text(type_, number))


class Function(BlockWriter):
    """Builds one function. Give it the name `SELF` when `ModuleText.define` shall name it.

    `attributes` as LLVM writes them after the parameter list; `linkage` before the result type. LLVM
    works little on a function with DRIVER_ATTRIBUTES: code that prepares and calls kernels.
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
        super().__init__(module)
        self.parameters: dict[str, Value] = {}
        for t, n in parameters:
            type_ = t.split(" ", 1)[0]
            self.parameters[n] = _CLASSES.get(type_, VectorValue)(type_, f"%{n}", self)
        listed = ", ".join(f"{t} %{n}" for t, n in parameters)
        self._head = f"define {linkage} {result} @{name}({listed}) {attributes} {{"
        self.lines.append("entry:")
        self._entry_slots: list[str] = []
        self._sizes: dict[Size, str] = {}

    def __getitem__(self, parameter: str) -> Value:
        return self.parameters[parameter]

    # -- typed values
    def integer(self, parameter: str) -> Int:
        """A parameter that is an index."""
        return Int.of(self, self.parameters[parameter])

    def pointer(self, parameter: str) -> Ptr:
        """A parameter that is an address."""
        return Ptr.of(self, self.parameters[parameter])

    def integers(self, *parameters: str) -> list[Int]:
        """Parameters that are indices."""
        return [self.integer(p) for p in parameters]

    def pointers(self, *parameters: str) -> list[Ptr]:
        """Parameters that are addresses."""
        return [self.pointer(p) for p in parameters]

    def i64(self, index: Index) -> Int:
        """A Python int as an index."""
        return Int.of(self, index)

    @property
    def null(self) -> Ptr:
        """The null address."""
        return Ptr("ptr", "null", self)

    def symbol(self, name: str) -> Ptr:
        """The address of a function or a global of the module."""
        return Ptr("ptr", f"@{name}", self)

    def constant(self, type_: str, number: float) -> VectorValue:
        """A constant of a scalar or (splat) of a vector type."""
        return VectorValue(type_, constant_text(type_, number), self)

    def zero(self, type_: str) -> VectorValue:
        """Zero in every lane."""
        text = "zeroinitializer" if type_.startswith("<") else constant_text(type_, 0)
        return VectorValue(type_, text, self)

    def poison(self, type_: str) -> VectorValue:
        """Any bits: lanes that are all inserted, or never read."""
        return VectorValue(type_, "poison", self)

    def stack_slot(self, type_: str, align: int = 64) -> Ptr:
        """An alloca in the entry block (made once, however often the code runs)."""
        name = "%" + self.fresh("slot")
        self._entry_slots.append(f"  {name} = alloca {type_}, align {align}")
        return Ptr("ptr", name, self)

    def size_text(self, size: Size) -> str:
        """The name of a size's value, which the entry block loads from the run context.

        Raises: TypeError  the function has no run context.
        """
        name = self._sizes.get(size)
        if name is None:
            if "context" not in self.parameters:
                return super().size_text(size)
            table, address, name = (f"%{self.fresh('size')}" for _ in range(3))
            number = self.module.sizes.setdefault(size, len(self.module.sizes))
            self._entry_slots += [
                f"  {table}.at = getelementptr i8, ptr %context, i64 {OFFSETS['sizes']}",
                f"  {table} = load ptr, ptr {table}.at, align 8",
                f"  {address} = getelementptr i64, ptr {table}, i64 {number}",
                f"  {name} = load i64, ptr {address}, align 8",
            ]
            self._sizes[size] = name
        return name

    # -- calls
    @overload
    def call(
        self,
        function: str | Ptr,
        result: Literal["i64"],
        arguments: Sequence[Value | Size | int],
        signature: str = "",
    ) -> Int: ...
    @overload
    def call(
        self,
        function: str | Ptr,
        result: Literal["ptr"],
        arguments: Sequence[Value | Size | int],
        signature: str = "",
    ) -> Ptr: ...
    @overload
    def call(
        self, function: str | Ptr, result: str, arguments: Sequence[Value | Size | int], signature: str = ""
    ) -> Value: ...
    def call(
        self, function: str | Ptr, result: str, arguments: Sequence[Value | Size | int], signature: str = ""
    ) -> Value:
        """Calls a function by its name, declaring it, or by its address; Python ints are i64. Returns its result (of
        type `void`: meaningless). `signature` is `i64 (i64, ...)` of a function with variable arguments."""
        values = [a if isinstance(a, Value) else Int.of(self, a) for a in arguments]
        if isinstance(function, Ptr):
            listed = ", ".join([f"{a.type} {a.text}" for a in values])
            text = f"call {signature or result} {function.text}({listed})"
        else:
            text = self.call_text(function, result, values, signature)
        if text.startswith("call void "):
            self.do(text)
            return Value("void", "")
        return _CLASSES.get(result, VectorValue)(result, self.assign(text), self)

    def intrinsic(
        self, name: str, result: str, arguments: Sequence[Value], types: Sequence[str] = ()
    ) -> Value:
        """Calls `llvm.name.<suffix of result, or of the listed types>`; returns its result."""
        full = f"llvm.{name}." + ".".join(suffix(t) for t in (types or (result,)))
        return self.call(full, result, arguments)

    def fence(self, ordering: str) -> None:
        """A memory barrier; the ordering as LLVM names it."""
        self.do(f"fence {ordering}")

    def unreachable(self) -> None:
        """Ends a block that is never reached."""
        self.do("unreachable")
        self.is_open = False

    # -- control flow
    def loop(
        self, low: Index, high: Index, step: Index = 1, *, guard: bool = True, **named: Carry
    ) -> LoopStatement:
        """`with f.loop(low, high, step, total=zero) as loop:` for loop.index in range(low, high, step). Values that
        change are attributes: `loop.total = loop.total + x`; after the loop they have their last values.

        Without `guard` the body must run at least once. A constant range that never runs writes nothing.
        """
        return LoopStatement(self, low, high, step, guard, named)

    def text(self) -> str:
        """The function."""
        return "\n".join([self._head, self.lines[0], *self._entry_slots, *self.lines[1:], "}"])
