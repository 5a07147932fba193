"""Which instructions compute each row of their value from the same row of an operand.

The rows of an array are so many equal parts of it in the order of memory: the positions of its first axes, or some of
these after the other. Two arrays of equally many rows may have other axes. A matrix product computes the rows of its
left operand, an attention's products those of the batch and the heads, a softmax those that it sums over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, TypeAlias

from ...runtime.sizes import is_multiple
from ..ir.module import Instruction
from ..ops import (
    Broadcast,
    Concatenate,
    Constant,
    Convolution,
    Dot,
    Fusion,
    Iota,
    Pad,
    Parameter,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
    Tuple,
)

MOVED: Literal["moved"] = "moved"
Rows: TypeAlias = "int | Literal['moved'] | None"
"""Of a value: how many of its first axes the rows divide; MOVED where rows of the contraction lie in another order;
None where it has no rows, and is the same for all."""


@dataclasses.dataclass(frozen=True)
class LocalRows:
    """`leaves`: the rows of each leaf of an instruction's value. `contraction`: the axes of the contraction's value, in
    a fusion or by itself, that the rows divide; 0 where there is none, or it has no rows."""

    leaves: tuple[Rows, ...]
    contraction: int = 0


class _OtherRowsError(Exception):
    """An element is computed from other rows."""


def count_axes(dims: Sequence[int], rows: int) -> int | None:
    """How many of the first axes that many rows divide: have so many positions, or a multiple of them. None where none
    do."""
    positions: int = 1
    for k, size in enumerate(dims):
        positions = positions * size
        if is_multiple(positions, rows):
            return k + 1
    return None


def local_rows(
    instruction: Instruction, count: int, operands: Sequence[Rows], contraction_rows: int = 0
) -> LocalRows | None:
    """The rows of an instruction's value, `count` in all, where those of its operands' values are these, or they divide
    `contraction_rows` axes of its contraction whatever its operands are; None where it needs others."""
    try:
        op = instruction.op
        if not isinstance(op, Fusion):
            own = contraction_rows or _rows(instruction, count, operands)
            return LocalRows((own,), own if op.is_contraction and isinstance(own, int) else 0)
        rows: dict[Instruction, Rows] = dict(zip(op.computation.parameters, operands, strict=True))
        contraction = 0
        for inner in op.computation.instructions:
            if isinstance(inner.op, Parameter):
                continue
            if isinstance(inner.op, Tuple):
                break
            found = _rows(inner, count, [rows[o] for o in inner.operands])
            if inner.op.is_contraction:
                found = contraction_rows or found
                contraction = found if isinstance(found, int) else 0
            rows[inner] = found
    except _OtherRowsError:
        return None
    root = op.computation.root
    leaves = root.operands if isinstance(root.op, Tuple) else (root,)
    return LocalRows(tuple(rows[leaf] for leaf in leaves), contraction)


def _rows(instruction: Instruction, count: int, operands: Sequence[Rows]) -> Rows:
    known = [r for r in operands if r is not None]
    if not known or isinstance(instruction.op, Constant | Iota):
        return None
    if MOVED in known:
        if set(known) == {MOVED} and (instruction.op.is_elementwise or instruction.op.is_index_map):
            return MOVED
        raise _OtherRowsError
    found = {
        _kept(instruction, count, number, rows)
        for number, rows in enumerate(operands)
        if rows is not None and rows != MOVED
    }
    if len(found) != 1:
        raise _OtherRowsError
    return found.pop()


def _kept(reader: Instruction, count: int, number: int, axes: int) -> Rows:
    """The rows of a value, `count` in all, where they divide the first `axes` axes of its operand of that number."""
    op, shape, operand = reader.op, reader.shape, reader.operands[number].shape
    if not (shape.is_array and operand.is_array):
        raise _OtherRowsError
    first = tuple(range(axes))
    dims = operand.dims[:axes]
    kept, moved = False, False
    match op:
        case Broadcast():
            kept = op.dimensions[:axes] == first
        case Reshape():
            return _present(count_axes(shape.dims, count))
        case Transpose():
            kept, moved = op.dimensions[:axes] == first, True
        case Slice():
            kept = all((op.start[k], op.limit[k], op.strides[k]) == (0, dims[k], 1) for k in first)
        case Concatenate():
            kept = op.dimension >= axes
        case Pad():
            kept = number == 0 and not any((*op.low[:axes], *op.high[:axes], *op.interior[:axes]))
        case Reverse():
            kept = all(axis >= axes for axis in op.dimensions)
        case Reduce():
            kept = all(axis >= axes for axis in op.dimensions)
        case Dot():
            batch = op.rhs_batch if number else op.lhs_batch
            free = () if number else tuple(op.lhs_free(operand.rank))
            kept = (*batch, *free)[:axes] == first
        case Convolution():
            is_batch = op.dims.input_batch == op.dims.output_batch == 0 and op.batch_groups == 1
            kept = number == 0 and axes == 1 and is_batch
        case _:
            kept = op.is_elementwise and operand.rank == shape.rank
    if kept and shape.dims[:axes] == dims:
        return axes
    if moved:
        return MOVED
    raise _OtherRowsError


def _present(axes: int | None) -> int:
    if axes is None:
        raise _OtherRowsError
    return axes
