"""NumPy's broadcasting, which TensorFlow's ops do implicitly and the builder does not."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError


def broadcast_dims(*dims: Sequence[int]) -> tuple[int, ...]:
    """The dims that all of these broadcast to.

    Raises: ShapeError  two sizes of an axis differ and none is 1.
    """
    rank = max(map(len, dims), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = [d[axis] for d in dims if len(d) >= -axis and d[axis] != 1]
        if any(size != sizes[0] for size in sizes):
            raise ShapeError(f"Incompatible shapes: {' vs. '.join(str(list(d)) for d in dims)}")
        result.append(sizes[0] if sizes else 1)
    return tuple(result)


def broadcast_to(b: ComputationBuilder, operand: Operand, dims: Sequence[int]) -> Operand:
    """The operand stretched to these dims, its axes being the last ones."""
    shape, dims = b.get_shape(operand), tuple(dims)
    if shape.dims == dims:
        return operand
    if broadcast_dims(shape.dims, dims) != dims:
        raise ShapeError(f"Incompatible shapes: {list(shape.dims)} vs. {list(dims)}")
    operand_axes = [
        axis for axis, size in enumerate(shape.dims) if size != 1 or dims[len(dims) - shape.rank + axis] == 1
    ]
    if len(operand_axes) != shape.rank:
        operand = b.reshape(operand, [shape.dims[a] for a in operand_axes])
    return b.broadcast_in_dim(operand, dims, [len(dims) - shape.rank + a for a in operand_axes])


def broadcast(b: ComputationBuilder, *operands: Operand) -> list[Operand]:
    """All operands stretched to their common dims."""
    parts = list(operands)
    if any(b.get_shape(o).dynamic for o in parts):
        parts = _with_same_sizes(b, parts)
    dims = broadcast_dims(*(b.get_shape(o).dims for o in parts))
    return [broadcast_to(b, o, dims) for o in parts]


def _with_same_sizes(b: ComputationBuilder, operands: list[Operand]) -> list[Operand]:
    """Assumes that sizes known at run time only are those of the other operands: TensorFlow stretches a size that
    happens to be 1, or has an error."""
    for axis in range(-max(b.get_shape(o).rank for o in operands), 0):
        there = [
            (k, b.get_shape(o).rank + axis) for k, o in enumerate(operands) if b.get_shape(o).rank >= -axis
        ]
        there = [
            (k, a)
            for k, a in there
            if b.get_shape(operands[k]).dims[a] != 1 or a in b.get_shape(operands[k]).dynamic
        ]
        for (k, _), same in zip(there, with_same_size(b, [(operands[k], a) for k, a in there])):
            operands[k] = same
    return operands


def with_same_size(b: ComputationBuilder, places: Sequence[tuple[Operand, int]]) -> list[Operand]:
    """The operands of places, (operand, axis), with sizes that are assumed to be the same, as `assume_same_size`, cut
    to the least of their bounds. Where none is known at run time only, they stay."""
    operands = [o for o, _ in places]
    if not any(axis in b.get_shape(operand).dynamic for operand, axis in places):
        return operands
    assume_same_size(b, places)
    bound = min(b.get_shape(operand).dims[axis] for operand, axis in places)
    return [
        o if b.get_shape(o).dims[axis] == bound else b.slice_in_dim(o, 0, bound, 1, axis)
        for o, axis in places
    ]


def assume_same_size(b: ComputationBuilder, places: Sequence[tuple[Operand, int]]) -> None:
    """Leaves the run where the sizes of these axes, (operand, axis), differ and are known at run time only."""
    if any(axis in b.get_shape(operand).dynamic for operand, axis in places):
        first, *rest = (b.get_dimension_size(operand, axis) for operand, axis in places)
        for other in rest:
            b.bail_out_if(b.ne(first, other), "sizes that depend on data differ, which is not compiled")
