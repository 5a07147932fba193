"""The IR: a module has computations, a computation has instructions in SSA form, an instruction applies one op.

Instructions and computations are immutable; passes build new ones. An instruction's identity is the object's; its name
is only for people and for text. Computations that an op calls (a reduction's, a loop's body) are attributes of the op.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .. import budget
from .shape import Shape

if TYPE_CHECKING:
    from ..ops.op import Op


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction comes from: TensorFlow op type and node name, source file and line; free attributes that
    are kept and printed but not interpreted (sharding, frontend_attributes, ...)."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    extra: tuple[tuple[str, str], ...] = ()


NO_METADATA = Metadata()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One application of an op to operands. Compared by identity."""

    op: Op
    operands: tuple[Instruction, ...]
    shape: Shape
    name: str = ""
    metadata: Metadata = NO_METADATA

    opcode = property(
        operator.attrgetter("op.opcode"), doc="The op's name in HLO text."
    )  # asked for most of all

    @property
    def has_side_effect(self) -> bool:
        """Whether running it does more than give its value, itself or in a computation that it calls: it is then never
        left out, repeated, or moved past another one."""
        op = self.op
        return op.has_side_effect or bool(op.calling) and op.calls_side_effects()

    def with_operands(self, operands: Iterable[Instruction]) -> Instruction:
        """The same instruction on other operands; itself where they are the same."""
        operands = tuple(operands)
        if operands == self.operands:  # compared by identity
            return self
        return Instruction(self.op, operands, self.shape, self.name, self.metadata)

    def __repr__(self) -> str:
        listed = ", ".join(o.name or "?" for o in self.operands)
        return f"%{self.name or '?'} = {self.shape} {self.opcode}({listed})"


def make(op: Op, *operands: Instruction, name: str = "", metadata: Metadata = NO_METADATA) -> Instruction:
    """Applies an op, with the shape that its shape rule infers.

    Raises: ShapeError  the op's own constraints.
    """
    return Instruction(op, operands, op.infer([o.shape for o in operands]), name, metadata)


class Computation:
    """A function of the IR: instructions in an order where operands come first, and the root, whose value it returns.

    Built from its root: what the root does not need is not in it, except parameters and `also` (instructions kept for
    their side effects).
    """

    __slots__ = ("_called", "_has_side_effect", "_users", "instructions", "name", "parameters", "root")

    def __init__(
        self,
        name: str,
        root: Instruction,
        parameters: Iterable[Instruction],
        also: Iterable[Instruction] = (),
    ) -> None:
        self.name = name
        self.root = root
        self.parameters = tuple(parameters)
        self.instructions = tuple(topological([*self.parameters, *also, root]))
        self._users: dict[Instruction, list[Instruction]] | None = None
        self._has_side_effect: bool | None = None
        self._called: tuple[Computation, ...] | None = None

    @property
    def has_side_effect(self) -> bool:
        """Whether one of the instructions has."""
        if self._has_side_effect is None:
            self._has_side_effect = any(i.has_side_effect for i in self.instructions)
        return self._has_side_effect

    def effects(self) -> list[Instruction]:
        """The instructions that have side effects, in order."""
        return [i for i in self.instructions if i.has_side_effect] if self.has_side_effect else []

    @property
    def users(self) -> Mapping[Instruction, list[Instruction]]:
        """For every instruction, those that have it as an operand (each once, in order)."""
        if self._users is None:
            users: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
            for instruction in self.instructions:
                for operand in dict.fromkeys(instruction.operands):
                    users[operand].append(instruction)
            self._users = users
        return self._users

    @property
    def parameter_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the parameters, in order."""
        return tuple(p.shape for p in self.parameters)

    def called(self) -> tuple[Computation, ...]:
        """Computations that the instructions call, in order, with repetitions."""
        if self._called is None:
            self._called = tuple([called for i in self.instructions for called in i.op.called()])
        return self._called

    def rewrite(
        self, change: Callable[[Instruction], Instruction | None], name: str | None = None
    ) -> Computation:
        """A new computation in which every instruction, its operands already rewritten, is replaced by
        `change(instruction)` (None: kept). Parameters are offered too and must stay parameters."""
        done: dict[Instruction, Instruction] = {}
        is_same = name is None
        for old in self.instructions:
            new = old if is_same or not old.operands else old.with_operands([done[o] for o in old.operands])
            made = done[old] = change(new) or new
            is_same = is_same and made is old
        if is_same:
            return self
        kept = [done[i] for i in self.effects()]
        return Computation(name or self.name, done[self.root], [done[p] for p in self.parameters], kept)

    def __repr__(self) -> str:
        return f"Computation({self.name}, {len(self.instructions)} instructions, {self.root.shape})"


class Module:
    """A program: its entry computation and, through it, all computations that are called."""

    __slots__ = ("attributes", "entry", "name")

    def __init__(self, name: str, entry: Computation, attributes: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.entry = entry
        self.attributes = dict(attributes or {})

    def computations(self) -> list[Computation]:
        """All computations, callees before callers, the entry last."""
        order: dict[Computation, None] = {}
        stack = [self.entry]
        while stack:
            computation = stack[-1]
            if computation not in order:
                if missing := [c for c in computation.called() if c not in order]:
                    stack += missing[::-1]
                    continue
                order[computation] = None
            stack.pop()
        return list(order)

    def map_computations(self, change: Callable[[Computation], Computation]) -> Module:
        """A new module in which `change` was applied to every computation, callees first; ops that call a changed
        computation call the new one."""
        done: dict[Computation, Computation] = {}

        def recall(instruction: Instruction) -> Instruction | None:
            op = instruction.op.with_called(done)
            if op is instruction.op:
                return None
            return Instruction(
                op, instruction.operands, instruction.shape, instruction.name, instruction.metadata
            )

        size = 0
        for computation in self.computations():
            calls = any(done[called] is not called for called in computation.called())
            done[computation] = made = change(computation.rewrite(recall) if calls else computation)
            size += len(made.instructions)
            budget.check(f"computation {made.name}", size)
        entry = done[self.entry]
        return self if entry is self.entry else Module(self.name, entry, self.attributes)

    def __str__(self) -> str:
        from ..hlo_text.printer import print_module

        return print_module(self)


def topological(roots: Iterable[Instruction]) -> list[Instruction]:
    """The roots and all they need, operands first, in a deterministic order. Iterative: graphs may be deep."""
    order: dict[Instruction, None] = {}
    for root in roots:
        stack = [root]
        while stack:
            instruction = stack[-1]
            if instruction not in order:
                if missing := [o for o in instruction.operands if o not in order]:
                    stack += missing[::-1]
                    continue
                order[instruction] = None
            stack.pop()
    return list(order)
