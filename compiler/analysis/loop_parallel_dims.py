"""Which axes of the values in a loop's body are one and the same: those along which the loop can be cut in parts.

Two axes belong together where an op takes an element of one to the same place along the other. A set of axes is
`parted` where some op does more with it than that: slices it, reverses it, counts along it, sums over it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..ir.module import Computation, Instruction
from ..ops import (
    Broadcast,
    Concatenate,
    Constant,
    Dot,
    DynamicSlice,
    GetTupleElement,
    Iota,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
    reducer_kind,
)
from ..ops.reshape import axis_groups

Axis = tuple[Instruction | int, int]  # of an instruction, or of a part of the loop's state by its number
_SUMS = frozenset({"add"})


@dataclasses.dataclass
class LoopAxes:
    """The sets of axes of a loop's body, each named by one of its axes."""

    body: Computation
    above: dict[Axis, Axis] = dataclasses.field(default_factory=dict)
    parted: list[Axis] = dataclasses.field(default_factory=list)
    summed: list[tuple[Instruction, Axis]] = dataclasses.field(default_factory=list)  # a sum, and over what

    def __post_init__(self) -> None:
        state = self.body.parameters[0]
        for instruction in self.body.instructions:
            if instruction in (state, self.body.root):
                continue
            if isinstance(instruction.op, GetTupleElement) and instruction.operands[0] is state:
                self._join_all(instruction, instruction.op.index, instruction.shape.rank)
            else:
                self._link(instruction)
        for number, value in enumerate(self.body.root.operands):
            self._join_all(number, value, value.shape.rank)

    def find(self, axis: Axis) -> Axis:
        """The name of the set of an axis."""
        while (above := self.above.get(axis, axis)) != axis:
            self.above[axis] = axis = self.above.get(above, above)
        return axis

    def axis_in(self, value: Instruction | int, rank: int, chosen: Axis) -> int | None:
        """The axis of a value that is in a set; None where none is. Raises: ValueError  there are several."""
        found = [k for k in range(rank) if self.find((value, k)) == chosen]
        if len(found) > 1:
            raise ValueError("several axes of one value are in the set")
        return found[0] if found else None

    def _join(self, a: Axis, b: Axis) -> None:
        self.above[self.find(a)] = self.find(b)

    def _join_all(self, a: Instruction | int, b: Instruction | int, rank: int) -> None:
        for axis in range(rank):
            self._join((a, axis), (b, axis))

    def _part(self, value: Instruction, axes: Sequence[int] | None = None) -> None:
        if value.shape.is_array:
            self.parted += [(value, k) for k in (range(value.shape.rank) if axes is None else axes)]

    def _link(self, i: Instruction) -> None:
        op, operands = i.op, i.operands
        if not i.shape.is_array or any(not o.shape.is_array for o in operands):
            for value in (i, *operands):
                self._part(value)
        elif (op.is_elementwise or i.opcode == "copy") and all(
            o.shape.rank in (0, i.shape.rank) for o in operands
        ):
            for operand in operands:
                self._join_all(operand, i, operand.shape.rank)
        elif isinstance(op, Broadcast):
            for k, axis in enumerate(op.dimensions):
                if operands[0].shape.dims[k] == i.shape.dims[axis]:
                    self._join((operands[0], k), (i, axis))
        elif isinstance(op, Reshape):
            self._link_reshape(i, operands[0])
        elif isinstance(op, Transpose):
            for k, axis in enumerate(op.dimensions):
                self._join((operands[0], axis), (i, k))
        elif isinstance(op, Dot):
            self._link_dot(i, op)
        elif isinstance(op, Reduce) and reducer_kind(op.to_apply) in _SUMS and len(operands) == 2:
            kept = [k for k in range(operands[0].shape.rank) if k not in op.dimensions]
            for k, axis in enumerate(kept):
                self._join((operands[0], axis), (i, k))
            start = operands[1]
            for axis in op.dimensions:
                if isinstance(start.op, Constant) and not start.op.literal.array:
                    self.summed.append((i, (operands[0], axis)))
                else:
                    self._part(operands[0], [axis])
        elif (
            isinstance(op, (Slice, DynamicSlice, Pad, Reverse, Concatenate))
            or i.opcode == "dynamic-update-slice"
        ):
            self._link_places(i)
        elif isinstance(op, Iota):
            self._part(i, [op.iota_dimension])
        elif not (isinstance(op, Constant) and i.shape.is_scalar):
            for value in (i, *operands):
                self._part(value)

    def _link_reshape(self, i: Instruction, operand: Instruction) -> None:
        if not i.shape.elements:
            self._part(i)
            self._part(operand)
            return
        for old, new in axis_groups(operand.shape.dims, i.shape.dims):
            if len(old) == len(new) == 1:
                self._join((operand, old[0]), (i, new[0]))
            else:
                self._part(operand, old)
                self._part(i, new)

    def _link_dot(self, i: Instruction, op: Dot) -> None:
        left, right = i.operands
        at = 0
        for a, b in zip(op.lhs_batch, op.rhs_batch):
            self._join((left, a), (i, at))
            self._join((right, b), (i, at))
            at += 1
        for side, free in ((left, op.lhs_free(left.shape.rank)), (right, op.rhs_free(right.shape.rank))):
            for axis in free:
                self._join((side, axis), (i, at))
                at += 1
        for a, b in zip(op.lhs_contracting, op.rhs_contracting):
            self._join((left, a), (right, b))
            self.summed.append((i, (left, a)))

    def _link_places(self, i: Instruction) -> None:
        """Ops that keep some axes as they are."""
        op, x = i.op, i.operands[0]
        arrays = [o for o in i.operands if o.shape.rank == i.shape.rank]
        for axis, size in enumerate(i.shape.dims):
            if isinstance(op, Slice):
                keeps = (op.start[axis], op.limit[axis], op.strides[axis]) == (0, x.shape.dims[axis], 1)
            elif isinstance(op, Pad):
                keeps = not (op.low[axis] or op.high[axis] or op.interior[axis])
            elif isinstance(op, Reverse):
                keeps = axis not in op.dimensions
            elif isinstance(op, Concatenate):
                keeps = axis != op.dimension
            else:
                keeps = all(o.shape.dims[axis] == size for o in arrays)
            for operand in arrays:
                if keeps:
                    self._join((operand, axis), (i, axis))
                else:
                    self._part(operand, [axis])
            if not keeps:
                self._part(i, [axis])
