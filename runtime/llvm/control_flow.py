"""Blocks, loops and branches of a function under construction, with named values that change in them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeAlias

from .addressing import Index, Int, index_text
from .module_text import ModuleText
from .value import InstructionWriter, Value, same_type
from .vector_value import VectorValue

Carry: TypeAlias = Value | int | Sequence[Value]
_Edge: TypeAlias = tuple[str, Sequence[Value]]  # a jump: the block it leaves, and the carried values there
_RARELY = ', !prof !{!"branch_weights", i32 1, i32 100000}'


def _no_checkpoint(where: str) -> None:
    """Outside of a compiler there is nothing to check."""


_checkpoint: Callable[[str], None] = _no_checkpoint


def set_checkpoint(check: Callable[[str], None]) -> None:
    """Calls a function at the start of every block of code that is written: the compiler's budget is checked there."""
    global _checkpoint
    _checkpoint = check


# -- named values


class Carried:
    """Values that change in blocks, as attributes: `loop.total = loop.total + x`, also in a branch within.

    They are the attributes of the object itself, its `__dict__`: most are read often.
    """

    __slots__ = ("__dict__", "_f")
    _f: BlockWriter
    _takes_new_names = False

    def __init__(self, f: BlockWriter, values: dict[str, Carry]) -> None:
        for name, value in values.items():
            if isinstance(value, int):
                values[name] = Int("i64", str(value), f)
        object.__setattr__(self, "_f", f)
        object.__setattr__(self, "__dict__", values)

    def __getattr__(self, name: str) -> Any:
        """Raises: AttributeError  no value of that name is carried."""
        raise AttributeError(f"no value {name!r} is carried, these are: {', '.join(self.__dict__)}")

    def __setattr__(self, name: str, value: Any) -> None:
        values, f = self.__dict__, self._f
        before = values.get(name) if self._takes_new_names else getattr(self, name)
        _check(name, before, value)
        f.assignments.append((self, name, before))
        values[name] = Int("i64", str(value), f) if isinstance(value, int) else value


def _check(name: str, before: Carry | None, after: Carry) -> None:
    """Raises: TypeError  a value has another type than the one before."""
    if isinstance(before, Value) and isinstance(after, Value):
        if before.type != after.type:
            same_type(before, after, name)
    elif before is not None:
        old, new = _flat(before), _flat(after)
        if len(old) != len(new):
            raise TypeError(f"{name}: {len(old)} values are carried, these are {len(new)}")
        for a, b in zip(old, new):
            if a.type != b.type:
                same_type(a, b, name)


def _flat(carry: Carry) -> Sequence[Value]:
    if isinstance(carry, Value):
        return (carry,)
    return (Value("i64", str(carry)),) if isinstance(carry, int) else carry


def _phis(f: BlockWriter, edges: Sequence[_Edge]) -> list[Value]:
    """Writes a phi for each of several values at the start of a block that the edges enter."""
    phis: list[Value] = []
    for first, text in zip(edges[0][1], _edge_texts(edges)):
        type_ = first.type
        phis.append(type(first)(type_, f.assign(f"phi {type_} {text}"), f))
    return phis


def _edge_texts(edges: Sequence[_Edge]) -> list[str]:
    """What stands after the type of each phi."""
    if len(edges) == 2:
        (a, left), (b, right) = edges
        return [f"[{x.text}, %{a}], [{y.text}, %{b}]" for x, y in zip(left, right, strict=True)]
    blocks = [block for block, _ in edges]
    rows = zip(*(values for _, values in edges), strict=True)
    return [", ".join([f"[{v.text}, %{block}]" for v, block in zip(row, blocks)]) for row in rows]


def _merged(f: BlockWriter, blocks: Sequence[str], carries: Sequence[Carry]) -> Carry:
    """The phi of a value, or of each of several."""
    phis = _phis(f, [(block, _flat(carry)) for block, carry in zip(blocks, carries)])
    return phis[0] if isinstance(carries[0], Value) else phis


# -- loops


class _Head:
    """The head of a loop: a block with a phi for every carried value, written when the jumps back are known."""

    __slots__ = ("_at", "_phis", "before", "f", "label", "mark", "values")

    def __init__(self, f: BlockWriter, values: Carried) -> None:
        self.f, self.values, self.mark = f, values, len(f.assignments)
        self.before = self.edge()

    def edge(self) -> _Edge:
        """A jump from here."""
        flat: list[Value] = []
        for carry in self.values.__dict__.values():
            if isinstance(carry, Value):
                flat.append(carry)
            else:
                flat += _flat(carry)
        return self.f.block, flat

    def set_values(self, flat: Sequence[Value]) -> None:
        """The carried values from here on."""
        values, at = self.values.__dict__, 0
        for name, carry in values.items():
            if isinstance(carry, Value):
                values[name] = flat[at]
                at += 1
            else:
                end = at + len(_flat(carry))
                values[name] = flat[at:end]
                at = end

    def start(self, label: str) -> None:
        """Goes to the head and starts it."""
        self.label = label
        self.f.jump(label)
        self.f.start_block(label)

    def reserve_phis(self) -> None:
        """Makes room for the phis, which are the carried values from here on."""
        f, before = self.f, self.before[1]
        self._at, self._phis = len(f.lines), list[Value]()
        if before:
            first = f.reserve_names(len(before))
            self._phis = [type(v)(v.type, f"%c{number}", f) for number, v in enumerate(before, first)]
            self.set_values(self._phis)
            f.lines.extend([""] * len(before))

    def write_phis(self, edges: Sequence[_Edge]) -> None:
        """The jumps to the head are known."""
        if not self._phis:
            return
        lines, at = self.f.lines, self._at
        for phi, text in zip(self._phis, _edge_texts(edges)):
            lines[at] = f"  {phi.text} = phi {phi.type} {text}"
            at += 1

    def merge(self, edges: Sequence[_Edge]) -> None:
        """Writes the phis of a block behind the loop, which several edges enter."""
        if self._phis:
            self.set_values(_phis(self.f, edges))

    def end_assignments(self) -> None:
        """Those in the loop concern nothing outside.

        Raises: ValueError  a statement around the loop carries a value that was assigned in it.
        """
        f = self.f
        for carrier, name, _ in f.assignments[self.mark :]:
            if carrier is not self.values and carrier in f.carriers:
                raise ValueError(f"{name!r} is assigned in an inner loop, which does not carry it")
        del f.assignments[self.mark :]


class Loop(Carried):
    """The values of a counting loop, and its `index`."""

    __slots__ = ("index",)
    index: Int


class LoopStatement:
    """`with f.loop(0, n, total=zero) as loop:` for loop.index in range(0, n). After it, the last values."""

    def __init__(
        self, f: BlockWriter, low: Index, high: Index, step: Index, guard: bool, carried: dict[str, Carry]
    ) -> None:
        self._f = f
        self._low, self._high, self._step = [index_text(f, b) for b in (low, high, step)]
        is_constant = "%" not in (self._low[0], self._high[0])
        self._never = is_constant and int(self._low) >= int(self._high)
        self._guard = guard and not is_constant
        self._values = Loop(f, carried)
        target = f.module.target
        self._type = "i32" if target is not None and target.counts_in_32_bits else "i64"

    def __enter__(self) -> Loop:
        f = self._f
        if self._never:
            self._discarded = f.discarded()
            self._discarded.__enter__()
        self._head = _Head(f, self._values)
        f.carriers.append(self._values)
        self._exit = f.fresh("exit")
        if self._guard:
            first = f.fresh("guard")
            runs = f.assign(f"icmp slt i64 {self._low}, {self._high}")
            f.do(f"br i1 {runs}, label %{first}, label %{self._exit}")
            f.start_block(first)
        bounds = self._low, self._high, self._step
        self._counted = bounds if self._type == "i64" else [self._narrowed(text) for text in bounds]
        self._entering = f.block, self._head.before[1]
        self._head.start(f.fresh("loop"))
        self._counter = "%" + f.fresh("i")
        self._index_at = len(f.lines)
        f.lines.append("")
        self._head.reserve_phis()
        wide = self._counter
        if self._type == "i32":
            self._extension_at = len(f.lines)
            wide = f.assign(f"sext i32 {wide} to i64")
        object.__setattr__(self._values, "index", Int("i64", wide, f))
        return self._values

    def _has_masks(self) -> bool:
        """Whether lanes are masked in the loop. Arm's M profile has instructions for loops that count in 32 bits, and
        LLVM ends at some of those loops that have predicated instructions."""
        return any(" x i1>" in line for line in self._f.lines[self._index_at :])

    def _narrowed(self, text: str) -> str:
        """A bound in 32 bits."""
        return self._f.assign(f"trunc i64 {text} to i32") if text[0] == "%" else text

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._f.carriers.pop()
        if kind is None:
            self._finish()
        if self._never:
            self._discarded.__exit__(kind, error, trace)
            self._head.set_values(self._head.before[1])

    def _finish(self) -> None:
        f, head, counter = self._f, self._head, self._counter
        low, high, step = self._counted
        head.end_assignments()
        if self._type == "i32" and self._has_masks():
            f.lines[self._extension_at] = ""
            self._type, counter = "i64", self._values.index.text
            low, high, step = self._low, self._high, self._step
        following = f.assign(f"add nsw {self._type} {counter}, {step}")
        more = f.assign(f"icmp slt {self._type} {following}, {high}")
        last = head.edge()
        f.lines[self._index_at] = (
            f"  {counter} = phi {self._type} [{low}, %{self._entering[0]}], [{following}, %{last[0]}]"
        )
        head.write_phis([self._entering, last])
        f.do(f"br i1 {more}, label %{head.label}, label %{self._exit}, !llvm.loop !0")
        f.start_block(self._exit)
        if self._guard:
            head.merge([head.before, last])


class Repeat(Carried):
    """The values of a loop without a count, and the ways to leave it and to go on."""

    __slots__ = ("_statement",)
    _statement: RepeatStatement

    def while_(self, condition: VectorValue) -> None:
        """Leaves the loop unless the condition holds."""
        self._statement.while_(condition)

    def break_(self) -> None:
        """Leaves the loop; ends the block."""
        self._statement.break_()

    def continue_(self) -> None:
        """Begins the next round; ends the block."""
        self._statement.continue_()


class RepeatStatement:
    """`with f.repeat(p=first) as loop:` again and again, until `while_` or `break_` leaves it."""

    def __init__(self, f: BlockWriter, carried: dict[str, Carry]) -> None:
        self._f, self._values = f, Repeat(f, carried)
        object.__setattr__(self._values, "_statement", self)
        self._exits: list[_Edge] = []

    def __enter__(self) -> Repeat:
        f = self._f
        self._head = _Head(f, self._values)
        f.carriers.append(self._values)
        self._end = f.fresh("end")
        self._backs = [self._head.before]
        self._head.start(f.fresh("repeat"))
        self._head.reserve_phis()
        return self._values

    def while_(self, condition: VectorValue) -> None:
        """Leaves the loop unless the condition holds."""
        f = self._f
        self._exits.append(self._head.edge())
        inside = f.fresh("body")
        f.do(f"br {condition}, label %{inside}, label %{self._end}")
        f.start_block(inside)

    def break_(self) -> None:
        """Leaves the loop."""
        self._exits.append(self._head.edge())
        self._f.jump(self._end)

    def continue_(self) -> None:
        """Begins the next round."""
        self._backs.append(self._head.edge())
        self._f.jump(self._head.label, ", !llvm.loop !0")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        f = self._f
        f.carriers.pop()
        if kind is not None:
            return
        self._head.end_assignments()
        if f.is_open:
            self.continue_()
        self._head.write_phis(self._backs)
        if len(self._exits) > 1:
            f.start_block(self._end)
            self._head.merge(self._exits)
        elif self._exits:
            f.start_block(self._end)
            self._head.set_values(self._exits[0][1])


# -- branches

_Changes: TypeAlias = dict[tuple[Carried, str], tuple["Carry | None", "Carry | None"]]  # (before, after)


class If(Carried):
    """The values of a branch, and the other branch."""

    __slots__ = ("_statement",)
    _statement: IfStatement
    _takes_new_names = True

    def else_(self) -> ElseStatement:
        """The other branch; directly behind the first one."""
        return ElseStatement(self._statement)


class IfStatement:
    """`with f.if_(condition, x=default) as branch:` assigns `branch.x`. `with branch.else_():` may follow; names that
    both assign need no default."""

    def __init__(
        self, f: BlockWriter, condition: VectorValue, rare: bool, defaults: dict[str, Carry]
    ) -> None:
        self._f, self._condition, self._rare = f, condition, rare
        self._values = If(f, defaults)
        object.__setattr__(self._values, "_statement", self)

    def __enter__(self) -> If:
        f = self._f
        f.carriers.append(self._values)
        inside, self._end = f.fresh("then"), f.fresh("end")
        self._before, self._branch_at, self._mark = f.block, len(f.lines), len(f.assignments)
        f.do(f"br {self._condition}, label %{inside}, label %{self._end}{_RARELY if self._rare else ''}")
        f.start_block(inside)
        return self._values

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        f = self._f
        f.carriers.pop()
        if kind is not None:
            return
        self._changes, self._block = self._changed(), self._leave()
        self._end_at = len(f.lines)
        self._join((self._block, self._before), (self._changes, {}))
        self._after = len(f.lines)

    def _changed(self) -> _Changes:
        """Values of the statements around, and of this one, assigned since `_mark`."""
        changes: _Changes = {}
        if len(self._f.assignments) == self._mark:
            return changes
        for carrier, name, before in self._f.assignments[self._mark :]:
            if carrier is self._values or carrier in self._f.carriers:
                first = changes.get((carrier, name), (before, None))[0]
                changes[carrier, name] = first, carrier.__dict__.get(name)
        return changes

    def _leave(self) -> str:
        """Goes to the end; returns the block that did, or none where it had ended."""
        f = self._f
        if not f.is_open:
            return ""
        f.jump(self._end)
        return f.block

    def _join(self, blocks: Sequence[str], branches: Sequence[_Changes]) -> None:
        """Starts the block after two branches, with a phi for every value that one of them changed. `blocks` they end
        in; "" where one returned."""
        f, edges = self._f, [block for block in blocks if block]
        if not edges:
            return
        f.start_block(self._end)
        first, second = branches
        changed = {**second, **first} if second else first
        for key, (before, _) in changed.items():
            carrier, name = key
            values = [
                changes[key][1] if key in changes else before
                for block, changes in zip(blocks, branches)
                if block
            ]
            assigned = [v for v in values if v is not None]
            if len(assigned) < len(edges):
                carrier.__dict__.pop(name, None)
            else:
                carrier.__dict__[name] = _merged(f, edges, assigned) if len(edges) > 1 else assigned[0]

    def start_else(self) -> None:
        """Starts the other branch."""
        f = self._f
        if len(f.lines) != self._after:
            raise ValueError("else_ must follow its if_ directly")
        del f.lines[self._end_at :]
        otherwise = f.fresh("else")
        f.lines[self._branch_at] = f.lines[self._branch_at].replace(f"%{self._end}", f"%{otherwise}")
        f.start_block(otherwise)
        for (carrier, name), (before, _) in self._changes.items():
            if before is None:
                carrier.__dict__.pop(name, None)
            else:
                carrier.__dict__[name] = before
        self._mark = len(f.assignments)
        f.carriers.append(self._values)

    def end_else(self) -> None:
        """Ends the other branch."""
        self._f.carriers.pop()
        changes = self._changed()
        self._join((self._block, self._leave()), (self._changes, changes))


class ElseStatement:
    """`with branch.else_():`."""

    def __init__(self, statement: IfStatement) -> None:
        self._statement = statement

    def __enter__(self) -> None:
        self._statement.start_else()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._statement.end_else()


class BlockWriter(InstructionWriter):
    """Writes blocks."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.block = "entry"
        self.is_open = True  # no jump or return ended the block
        self.carriers: list[Carried] = []  # the loops and branches around, the outermost first
        self.assignments: list[
            tuple[Carried, str, Carry | None]
        ] = []  # of carried values: (carrier, name, before)

    def start_block(self, label: str) -> None:
        """Starts the block `label`; the block before must have ended."""
        _checkpoint("a kernel's code")
        self.lines.append(f"{label}:")
        self.block, self.is_open = label, True

    def jump(self, label: str, note: str = "") -> None:
        """Goes to a block; ends this one."""
        self.lines.append(f"  br label %{label}{note}")
        self.is_open = False

    def ret(self, value: Value | None = None) -> None:
        """Returns; ends the block."""
        self.do(f"ret {value}" if value else "ret void")
        self.is_open = False

    @contextlib.contextmanager
    def redirected(self, lines: list[str]) -> Iterator[None]:
        """Within, text goes to `lines` instead: for code that is placed later (an outer loop's head, say)."""
        usual, self.lines = self.lines, lines
        try:
            yield
        finally:
            self.lines = usual

    @contextlib.contextmanager
    def discarded(self) -> Iterator[None]:
        """Within, text and declarations are lost: of a loop that never runs."""
        block, declarations = self.block, dict(self.module.declarations)
        with self.redirected([]):
            yield
        self.block, self.is_open = block, True
        self.module.declarations = declarations

    # -- structured control flow
    def if_(self, condition: VectorValue, *, rare: bool = False, **defaults: Carry) -> IfStatement:
        """`with f.if_(condition):`; `rare`: it seldom holds, its code lies out of line."""
        return IfStatement(self, condition, rare, defaults)

    def repeat(self, **carried: Carry) -> RepeatStatement:
        """`with f.repeat(p=first) as loop:`, left by `loop.while_(condition)` or `loop.break_()`."""
        return RepeatStatement(self, carried)
