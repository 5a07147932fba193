"""The IR: a module has computations, a computation has instructions in SSA form, an instruction applies one op.

Instructions and computations are immutable; passes build new ones. An instruction's identity is the object's; its name
is only for people and for text. Computations that an op calls (a reduction's, a loop's body) are attributes of the op.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from .. import budget
from ..errors import UnsupportedError
from .shape import Shape

Value: TypeAlias = "np.ndarray | tuple[Value, ...]"
"""What an instruction gives: an array, or a tuple of values; a token is an empty one."""


def array_of(value: Value) -> np.ndarray:
    """The value, which is no tuple."""
    assert not isinstance(value, tuple)
    return value


class Evaluate(Protocol):
    """Evaluates a computation that an op calls; on every element where its parameters are scalars and the arguments
    arrays."""

    def __call__(self, computation: Computation, /, *arguments: Value) -> Value:
        """The computation's value on these arguments."""


OPS: dict[str, type[Op]] = {}
"""Every op class by opcode (elementwise opcodes that are rows of one class map to that class)."""


@dataclasses.dataclass(frozen=True)
class Op:
    """Base of all ops. A subclass is a frozen dataclass with `opcode`; CONTRIBUTING.md says how to add one.

    Passes, analyses and code generation ask these attributes and methods, and compare no opcodes.
    """

    opcode: ClassVar[str] = ""
    has_side_effect: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    """Each element of the result depends on the elements of the operands with the same index."""
    is_index_map: ClassVar[bool] = False
    """Each element of the result is one element of an operand, or follows from the index alone."""
    is_contraction: ClassVar[bool] = False
    """Sums of products: a dot or a convolution, which may have an epilogue."""
    is_reduction: ClassVar[bool] = False
    """Each element of the result combines many of an operand: a reduce or a reduce-window."""
    is_control_flow: ClassVar[bool] = False
    """Runs the computations that it calls once each, not for each element."""
    reads_part: ClassVar[bool] = False
    """Reads as many elements of its first operand as its result has, not all."""
    forwards_operands: ClassVar[bool] = False
    """The result consists of the buffers of the operands: the op takes no code and no memory."""
    cycles: ClassVar[int] = 1
    """Rough cost, in cycles for a full vector register of f32 results."""
    calling: ClassVar[dict[str, bool]] = {}
    """The fields that hold a computation, and of each whether it holds several."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        kinds = {
            name: f.metadata.get("kind") for name, f in vars(cls).items() if isinstance(f, dataclasses.Field)
        }
        cls.calling = cls.calling | {
            name: kind == "computations"
            for name, kind in kinds.items()
            if kind in ("computation", "computations")
        }
        if isinstance(cls.opcode, str) and cls.opcode:
            OPS[cls.opcode] = cls

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The result's shape: the shape rule and the verifier in one.

        Raises: ShapeError  a numbered constraint of the op is broken.
        """
        raise NotImplementedError(f"{self.opcode}: no shape rule")

    def reference(self, *operands: Any, **call: Any) -> Value:
        """The meaning, in NumPy: arrays (tuples: Python tuples) in, array or tuple out. Called with valid
        operands; of an op with computations also with `call(computation, *arguments)`, which evaluates one,
        on every element where its parameters are scalars and the arguments arrays."""
        raise UnsupportedError(f"{self.opcode}: has no reference of its own")

    def flops(self, instruction: Instruction) -> int:
        """Arithmetic operations of an instruction with this op, each counted once whatever it costs."""
        return 0

    @property
    def inner_rank(self) -> int:
        """How many of the last axes are worked on together, as lines or matrices; those before them are a batch. 0 for
        ops that have no such axes."""
        return 0

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """(number of an array of the result, number of an operand) pairs: the array is the operand, updated."""
        return ()

    def updated_bytes(self, instruction: Instruction) -> int:
        """Bytes read and written of an array that is an operand, updated."""
        return 2 * next(iter(instruction.shape.leaves())).bytes

    def called(self) -> Iterator[Computation]:
        """Computations among the attributes."""
        return self._called() if self.calling else iter(())

    def _called(self) -> Iterator[Computation]:
        for name, is_list in self.calling.items():
            value = getattr(self, name)
            if is_list:
                yield from value
            elif value is not None:
                yield value

    def calls_side_effects(self) -> bool:
        """Whether a computation among the attributes has side effects."""
        return bool(self.calling) and any(c.has_side_effect for c in self.called())

    def with_called(self, mapping: Mapping[Computation, Computation]) -> Op:
        """The op with its computations replaced through the mapping; itself where nothing changes."""
        if not self.calling:
            return self
        changes: dict[str, object] = {}
        for name, is_list in self.calling.items():
            value = getattr(self, name)
            if is_list:
                changes[name] = tuple(mapping.get(v, v) for v in value)
            elif value is not None:
                changes[name] = mapping.get(value, value)
        if all(v == getattr(self, k) for k, v in changes.items()):
            return self
        return dataclasses.replace(self, **changes)


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
    )  # a slot of this class would be slower

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

    __slots__ = (
        "_called",
        "_effects",
        "_op_types",
        "_users",
        "instructions",
        "name",
        "parameters",
        "root",
    )

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
        self._effects: list[Instruction] | None = None
        self._called: tuple[Computation, ...] | None = None
        self._op_types: frozenset[type[Op]] | None = None

    def has_op(self, *types: type[Op]) -> bool:
        """Whether one of the instructions has an op of these types."""
        if self._op_types is None:
            self._op_types = frozenset([type(i.op) for i in self.instructions])
        return any(issubclass(t, types) for t in self._op_types)

    @property
    def has_side_effect(self) -> bool:
        """Whether one of the instructions has."""
        return bool(self.effects())

    def effects(self) -> list[Instruction]:
        """The instructions that have side effects, in order."""
        if self._effects is None:  # as `Instruction.has_side_effect`; its calls took 1.6 % of emission
            self._effects = [
                i
                for i in self.instructions
                if i.op.has_side_effect or (i.op.calling and i.op.calls_side_effects())
            ]
        return self._effects

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
            new = old
            if not is_same and old.operands:
                new = old.with_operands(tuple([done[o] for o in old.operands]))
            replacement = done[old] = change(new) or new
            is_same = is_same and replacement is old
        if is_same:
            return self
        return self.mapped(done, name)

    def mapped(self, done: Mapping[Instruction, Instruction], name: str | None = None) -> Computation:
        """The computation of the new instructions; `done` has those of the root, the parameters and the effects."""
        effects = [done[i] for i in self.effects()]
        return Computation(name or self.name, done[self.root], [done[p] for p in self.parameters], effects)

    def __repr__(self) -> str:
        return f"Computation({self.name}, {len(self.instructions)} instructions, {self.root.shape})"


class InputOutputAlias(NamedTuple):
    """A part of the result that may be written to the memory of a part of a parameter. An index names a part of a
    tuple."""

    result_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    kind: str = "may-alias"


class Module:
    """A program: its entry computation and, through it, all computations that are called. `str` of it is HLO text.

    >>> from tfbridge.compiler import ComputationBuilder, Module, array
    >>> b = ComputationBuilder("main")
    >>> x = b.parameter(0, array("f32", 2), "x")
    >>> print(Module("m", b.build(b.neg(x))))
    HloModule m
    <BLANKLINE>
    ENTRY main {
      x = f32[2] parameter(0)
      ROOT negate.1 = f32[2] negate(x)
    }
    <BLANKLINE>

    `input_output_aliases` says which results may be written to the memory of parameters. `invariant_parameters` are
    the numbers of the parameters that have the same value in most calls. `sized_results` are the numbers of the
    results whose first dim is a bound; the last results are their sizes, s32. `attributes` are all others, as text.
    """

    __slots__ = (
        "attributes",
        "entry",
        "input_output_aliases",
        "invariant_parameters",
        "name",
        "sized_results",
    )

    printer: ClassVar[Callable[[Module, bool], str]] = lambda module, _: object.__repr__(module)
    """What `str` of a module returns, and `key`; `hlo_text.printer` puts HLO text here when it is imported."""

    def __init__(
        self,
        name: str,
        entry: Computation,
        attributes: Mapping[str, str] | None = None,
        *,
        input_output_aliases: Iterable[InputOutputAlias] = (),
        invariant_parameters: Iterable[int] = (),
        sized_results: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.entry = entry
        self.attributes = dict(attributes or {})
        self.input_output_aliases = tuple(input_output_aliases)
        self.invariant_parameters = tuple(invariant_parameters)
        self.sized_results = tuple(sized_results)

    def with_entry(self, entry: Computation) -> Module:
        """The module with another entry computation; itself where it is the same."""
        if entry is self.entry:
            return self
        changed = copy.copy(self)
        changed.entry, changed.attributes = entry, dict(self.attributes)
        return changed

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
            done[computation] = changed = change(computation.rewrite(recall) if calls else computation)
            size += len(changed.instructions)
            budget.check(f"computation {changed.name}", size)
        return self.with_entry(done[self.entry])

    def rewrite_ops(
        self, types: Sequence[type[Op]], change: Callable[[Instruction], Instruction | None]
    ) -> Module:
        """A new module whose instructions were replaced as by `Computation.rewrite`. `change` replaces ops of these
        types alone: computations without one are not walked."""
        return self.map_computations(lambda c: c.rewrite(change) if c.has_op(*types) else c)

    def __str__(self) -> str:
        return type(self).printer(self, False)

    def key(self) -> str:
        """A text that only equal modules have, short even where their constants are large."""
        return type(self).printer(self, True)


def topological(roots: Iterable[Instruction]) -> list[Instruction]:
    """The roots and all they need, operands first, in a deterministic order. Iterative: graphs may be deep."""
    order: dict[Instruction, None] = {}
    for root in roots:
        stack = [root]
        while stack:
            instruction = stack[-1]
            if instruction not in order:
                missing = [o for o in instruction.operands[::-1] if o not in order]
                if missing:
                    stack += missing
                    continue
                order[instruction] = None
            stack.pop()
    return list(order)
