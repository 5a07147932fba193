"""The plan of the pass `fuse`: which instructions are computed together, in one fusion.

A value is computed inside its consumers where that costs less than storing and loading it: when it has one consumer
that reads each element about once, or when it is cheap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from ...runtime.sizes import heuristic
from .. import budget
from ..analysis.element_reuse import (
    MIN_VECTOR_ELEMENTS,
    element_count,
    elements_read,
    expensive_values,
    fills_vectors,
    inner_run,
    is_cheap_to_copy,
    is_scalar_loop,
    is_short_reduction,
    reduces_other_axes,
    row_length,
    uses_per_element,
)
from ..analysis.epilogue_chains import epilogue_chains, has_output_view
from ..analysis.fusion_size import FusionSize
from ..analysis.instruction_cost import is_expensive
from ..analysis.output_view import transposed_strides
from ..ir.module import Computation, Instruction
from ..ops import (
    BitcastConvert,
    Broadcast,
    Concatenate,
    Constant,
    Copy,
    DynamicSlice,
    Gather,
    GetTupleElement,
    Iota,
    Map,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from .multi_output_fusion import multi_output_fusion

_MAX_PARAMETERS = 64  # of a fusion, values that later become its members counted too
_SMALL = 1 << 13  # elements: a reduction of so few may be repeated by every thread
_ELEMENTS_A_CYCLE = 2  # stored by an inner loop; one expensive value takes as long as a vector of them
_SHORT_ROW = 16  # elements of a row that does not fill vectors
_EXPENSIVE_CYCLES = 10  # of values in short rows: from here on it is better to store their operands
_MAX_REPEATED = 8  # cheap instructions of a fusion that are evaluated more often than they have elements
_MANY_ROWS = 16  # for which an epilogue computes the same
_MOVES = (
    DynamicSlice,
    Gather,
    Pad,
    Reverse,
    Slice,
    Transpose,
)  # each reads its operand at indices of its own
_CHECKED_EVERY = 16  # instructions, the compilation's budget
_MAX_CONCATENATED = 4  # operands of a concatenation inside a fusion


@dataclasses.dataclass
class FusionPlan:
    """The instructions that become fusions.

    groups: by root, the members of each fusion, operands first; roots in the computation's order. An instruction may be
    in several groups. merged: roots whose groups become one fusion with several outputs.
    """

    groups: dict[Instruction, list[Instruction]]
    merged: list[list[Instruction]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{root.name or root.opcode}: {', '.join(m.name or m.opcode for m in members)}"
            for root, members in self.groups.items()
        ]
        lines += ["merged: " + ", ".join(r.name or r.opcode for r in roots) for roots in self.merged]
        return "\n".join(lines)


@dataclasses.dataclass(eq=False)
class _Group:
    """A fusion while members are added, consumers first.

    members: with the number of evaluations of each. repeated: members that are evaluated more often than they have
    elements. expensive: by number of elements, the cycles of the most expensive member. is_scalar_loop: the loop
    computes one element at a time.
    """

    root: Instruction
    members: dict[Instruction, float] = dataclasses.field(default_factory=dict)
    parameters: set[Instruction] = dataclasses.field(default_factory=set)
    repeated: int = 0
    contraction: Instruction | None = None
    size: FusionSize = dataclasses.field(default_factory=FusionSize)
    expensive: dict[int, int] = dataclasses.field(default_factory=dict)
    is_scalar_loop: bool = False

    def add(self, instruction: Instruction, evaluations: float, users: list[Instruction]) -> None:
        """Adds a member whose consumers in the group are members."""
        self.is_scalar_loop |= is_scalar_loop(instruction)
        self.size.add(instruction, users)
        self.members[instruction] = evaluations
        self.parameters.discard(instruction)
        for operand in instruction.operands:
            if operand not in self.parameters and operand not in self.members and not _is_free(operand):
                self.parameters.add(operand)

    def remove(self, instruction: Instruction) -> None:
        """Makes a member a parameter again."""
        del self.members[instruction]
        self.parameters.add(instruction)

    @property
    def most_cycles(self) -> int:
        """Of the most expensive member; 0 where none is large and expensive."""
        return max(self.expensive.values(), default=0)

    @property
    def moves_nothing(self) -> bool:
        """Whether all members are reshapes and elements of tuples: the scheduler forwards their buffers."""
        return all(isinstance(m.op, (Reshape, GetTupleElement)) for m in self.members)


Consumers = dict[_Group, float]
"""Groups in which a value is computed, with the number of its evaluations in each."""


@heuristic()
def decide(computation: Computation) -> FusionPlan:
    """The plan of one computation."""
    return _Planner(computation).plan()


class _Planner:
    """Assigns instructions to groups, consumers first.

    groups_of: the groups of every instruction that is planned. chains: possible epilogues of contractions. expensive:
    cycles of large expensive values. stored: values that are stored for the sake of expensive ones.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation, self.users = computation, computation.users
        self.chains = epilogue_chains(computation)
        self.expensive = expensive_values(computation)
        self.groups_of: dict[Instruction, list[_Group]] = {}
        self.groups: list[_Group] = []
        self.stored: set[Instruction] = set()

    def plan(self) -> FusionPlan:
        for number, instruction in enumerate(reversed(self.computation.instructions)):
            if number % _CHECKED_EVERY == 0:
                budget.check("pass fuse")
            if instruction.op.is_contraction:
                self.join_epilogue(instruction)
            if is_loop_like(instruction):
                consumers = self.consumers(instruction)
                self.place(instruction, self.new_group(instruction) if consumers is None else consumers)
        order = {i: k for k, i in enumerate(self.computation.instructions)}
        plan = FusionPlan(
            {
                group.root: sorted(group.members, key=order.__getitem__)
                for group in reversed(self.groups)
                if not group.moves_nothing
            }
        )
        sizes = {g.root: (len(g.members), g.size.code, g.size.nested) for g in self.groups}
        self.stored.update(g.root for g in self.groups if self.is_kept_apart(g))
        plan.merged = multi_output_fusion(self.computation, plan.groups, self.stored, sizes)
        return plan

    def is_kept_apart(self, group: _Group) -> bool:
        """Whether a group walks short rows, and what reads its root is expensive: that is computed in full vectors."""
        readers = [r for u in self.users[group.root] for r in self.groups_of.get(u, ()) if r is not group]
        return any(r.most_cycles >= _EXPENSIVE_CYCLES for r in readers) and any(
            row_length(m) < _SHORT_ROW for m in group.members
        )

    def place(self, instruction: Instruction, consumers: Consumers) -> None:
        """Makes an instruction a member of groups."""
        elements = element_count(instruction)
        for group, evaluations in consumers.items():
            group.add(instruction, evaluations, self.users[instruction])
            if cycles := self.expensive.get(instruction, 0):
                group.expensive[elements] = max(cycles, group.expensive.get(elements, 0))
            if evaluations > 1.5 * elements and instruction is not group.root:
                group.repeated += 1
        self.groups_of[instruction] = list(consumers)

    def new_group(self, instruction: Instruction) -> Consumers:
        """A group whose root is the instruction: its value is stored."""
        if instruction.shape.is_tuple:
            self.exclude_tuple_elements(instruction)
        group = _Group(instruction)
        self.groups.append(group)
        return {group: float(element_count(instruction))}

    def exclude_tuple_elements(self, reduction: Instruction) -> None:
        """Removes the results of a variadic reduction from the groups that read them: no fusion reads a tuple."""
        for element in filter(_is_tuple_element, self.users[reduction]):
            for group in self.groups_of.get(element, ()):
                if group.root is not element:
                    group.remove(element)
            self.groups_of[element] = []

    def join_epilogue(self, contraction: Instruction) -> None:
        """Adds a contraction to the group of its consumers, when they are one chain without another contraction."""
        users = self.users[contraction]
        groups = {g: None for u in users for g in self.groups_of.get(u, ())}
        if contraction is self.computation.root or len(groups) != 1:
            return
        (group,) = groups
        if all(isinstance(m.op, Reshape | Transpose) for m in group.members):
            is_joined = len(users) == 1 and transposed_strides(contraction, group.root) is not None
        else:
            is_joined = self.chains.issuperset(users) and self.is_epilogue(contraction, group)
        if is_joined:
            group.contraction = contraction
            group.add(contraction, float(element_count(contraction)), users)

    def is_epilogue(self, contraction: Instruction, group: _Group) -> bool:
        """Whether a group can be computed on the result of a contraction while that is in cache."""
        if group.most_cycles >= _EXPENSIVE_CYCLES and _has_narrow_rows(contraction):
            return False
        has_view = contraction.shape.dims == group.root.shape.dims or has_output_view(contraction, group.root)
        return group.contraction is None and group.root in self.chains and has_view

    def consumers(self, instruction: Instruction) -> Consumers | None:
        """The groups in which an instruction is computed; None when its value is stored."""
        is_chained = instruction in self.chains
        if is_chained and not self.chains.issuperset(self.users[instruction]):
            return None
        consumers = self.profitable_consumers(instruction)
        if consumers is None or is_chained and len(consumers) > 1:
            return None
        if self.is_better_stored(instruction, consumers):
            self.stored.add(instruction)
            return None
        return consumers

    def profitable_consumers(self, instruction: Instruction) -> Consumers | None:
        """All groups that read a value; None where computing it in them costs more than storing it."""
        users = self.users[instruction]
        if instruction is self.computation.root or not users:
            return None
        consumers: Consumers = {}
        for user in users:
            groups = self.groups_of.get(user)
            if groups is None:
                return None
            read = elements_read(user, instruction)
            for group in groups:
                evaluations, others = group.members[user] * read, consumers.get(group, 0.0)
                is_elsewhere = isinstance(user.op, _MOVES)
                consumers[group] = evaluations + others if is_elsewhere else max(evaluations, others)
        if _is_free(instruction):
            return consumers
        for group in consumers:
            if len(group.parameters) >= _MAX_PARAMETERS or not group.size.has_room(instruction, users):
                return None
            if not _fits(instruction, group, users):
                return None
        if len(consumers) > 1 and not is_cheap_to_copy(instruction):
            return None
        if sum(consumers.values()) / element_count(instruction) > 1.5 * len(consumers) and (
            is_expensive(instruction)
            or instruction.op.is_reduction
            or any(group.repeated >= _MAX_REPEATED for group in consumers)
            or self.is_row_of_epilogue(instruction, consumers)
        ):
            return None
        return consumers

    def is_row_of_epilogue(self, instruction: Instruction, consumers: Consumers) -> bool:
        """Whether an epilogue would compute a value of several others again for many rows: stored, it is one load in
        the place of two, and the epilogue may be the end of tiles (cpu/gemm/tile_end.py)."""
        elements = element_count(instruction)
        return (
            instruction.op.is_elementwise
            and sum(not _is_free(o) for o in instruction.operands) > 1
            and any(
                group.root in self.chains and evaluations >= _MANY_ROWS * elements
                for group, evaluations in consumers.items()
            )
        )

    def is_better_stored(self, instruction: Instruction, groups: Collection[_Group]) -> bool:
        """Whether expensive values are computed in full vectors only if this value is stored."""
        cycles = self.expensive.get(instruction, 0)
        if cycles:
            users = self.users[instruction]
            return (
                any(group.is_scalar_loop for group in groups)
                or any(uses_per_element(u, instruction) < _ELEMENTS_A_CYCLE * cycles for u in users)
                or cycles >= _EXPENSIVE_CYCLES
                and any(row_length(u) < _SHORT_ROW for u in users)
            )
        elements = element_count(instruction)
        expensive = [g for g in groups if g.root not in self.chains and g.expensive]
        if elements < MIN_VECTOR_ELEMENTS or not expensive:
            return False
        row = row_length(instruction)
        return (
            min(row, inner_run(instruction)) < _SHORT_ROW
            and max(g.most_cycles for g in expensive) >= _EXPENSIVE_CYCLES
            or any(row < _ELEMENTS_A_CYCLE * g.expensive.get(elements, 0) for g in expensive)
        )


def _fits(instruction: Instruction, group: _Group, users: list[Instruction]) -> bool:
    """Whether the code of a group stays good with an instruction as a member."""
    if instruction.op.is_reduction or _is_tuple_element(instruction):
        return _reduction_fits(instruction, group, [u for u in users if u in group.members])
    return not isinstance(instruction.op, Concatenate) or len(instruction.operands) <= _MAX_CONCATENATED


def _reduction_fits(result: Instruction, group: _Group, users: list[Instruction]) -> bool:
    """`_fits`, of a reduction, or of one result of a variadic one, whose users in the group are `users`."""
    if isinstance(group.root.op, Concatenate) and _is_operand(result, group):
        return isinstance(result.op, Reduce) and result.shape.is_array and is_short_reduction(result)
    if not all(
        u.op.is_elementwise or isinstance(u.op, (Broadcast, Copy, Reshape)) or _is_tuple_element(u)
        for u in users
    ):
        return False
    reduction = result if result.op.is_reduction else result.operands[0]
    elements = next(iter(result.shape.leaves())).elements
    is_large = reduction.operands[0].shape.elements > _SMALL
    is_expanded = element_count(group.root) > 2 * elements
    if is_large and any(reduces_other_axes(m, reduction) for m in group.members):
        return False
    if is_large and _times_walked(result, group) > 1:
        return False
    if is_large and is_expanded and (elements < 32 or _moves_rows(result, group)):
        return False
    if isinstance(reduction.op, Reduce) and is_expanded:
        return reduction.operands[0].shape.rank - 1 in reduction.op.dimensions or not is_large
    return isinstance(reduction.op, Reduce)


def _times_walked(result: Instruction, group: _Group) -> int:
    """How often a group with reductions of values of these dims walks all of them: each such reduction does, and what
    is made of it; so often it would compute a reduction again that is one of its values."""
    dims = next(iter(result.shape.leaves())).dims
    inner = [m for m in group.members if isinstance(m.op, Reduce) and m.operands[0].shape.dims == dims]
    return len(inner) + (group.root.shape.is_array and group.root.shape.dims == dims) if inner else 0


def _has_narrow_rows(contraction: Instruction) -> bool:
    """Whether a large contraction's rows fill no vectors by themselves, but some together do."""
    *outer, columns = contraction.shape.dims or (1,)
    is_large = element_count(contraction) >= MIN_VECTOR_ELEMENTS
    return is_large and (columns == 1 or fills_vectors(columns, math.prod(outer)))


def _moves_rows(reduction: Instruction, group: _Group) -> bool:
    """Whether a transpose between a reduction and the root puts an axis before those of the results: each result would
    be computed again for every index along it."""
    rank = next(iter(reduction.shape.leaves())).rank
    reached = {reduction}
    for member in reversed(list(group.members)):
        if not any(o in reached for o in member.operands):
            continue
        reached.add(member)
        if isinstance(member.op, Transpose):
            outer = member.op.dimensions[:rank]
            if any(axis >= rank and member.shape.dims[k] > 1 for k, axis in enumerate(outer)):
                return True
    return False


def _is_operand(instruction: Instruction, group: _Group) -> bool:
    """Whether only the group's root reads a value, perhaps reshaped."""
    reached = {instruction}
    for member in reversed(list(group.members)):  # operands first
        if any(o in reached for o in member.operands) and member is not group.root:
            if not isinstance(member.op, Reshape):
                return False
            reached.add(member)
    return True


def is_loop_like(instruction: Instruction) -> bool:
    """Whether loops over elements compute an instruction."""
    if isinstance(instruction.op, BitcastConvert):
        return instruction.shape.rank == instruction.operands[0].shape.rank
    return (
        instruction.op.is_elementwise
        or instruction.op.is_index_map
        or instruction.op.is_reduction
        or isinstance(instruction.op, Map)
        or _is_tuple_element(instruction)
    )


def _is_tuple_element(instruction: Instruction) -> bool:
    """One result of a variadic reduction."""
    return isinstance(instruction.op, GetTupleElement) and instruction.operands[0].op.is_reduction


def is_scalar_constant(instruction: Instruction) -> bool:
    """Whether an instruction is a constant of one element."""
    return (
        isinstance(instruction.op, Constant)
        and instruction.shape.is_array
        and instruction.shape.elements == 1
    )


def _is_free(instruction: Instruction) -> bool:
    """Whether a value needs no load: every consumer computes it."""
    if isinstance(instruction.op, Broadcast):
        return is_scalar_constant(instruction.operands[0])
    return isinstance(instruction.op, Iota) or is_scalar_constant(instruction)
