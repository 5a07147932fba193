"""NumPy's broadcasting, which TensorFlow's ops do implicitly and the builder does not."""

from __future__ import annotations

from collections.abc import Sequence

from ...compiler.builder import ComputationBuilder, Operand
from ...compiler.errors import ShapeError


def broadcast_dims(*dims: Sequence[int]) -> tuple[int, ...]:
    """The dims that all of these broadcast to.

    Raises: ShapeError  two sizes of an axis differ and none is 1.
    """
    rank = max(map(len, dims), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {d[axis] for d in dims if len(d) >= -axis} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"Incompatible shapes: {' vs. '.join(str(list(d)) for d in dims)}")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast_to(b: ComputationBuilder, operand: Operand, dims: Sequence[int]) -> Operand:
    """The operand stretched to these dims, its axes being the last ones."""
    shape, dims = b.get_shape(operand), tuple(dims)
    if shape.dims == dims:
        return operand
    if broadcast_dims(shape.dims, dims) != dims:
        raise ShapeError(f"Incompatible shapes: {list(shape.dims)} vs. {list(dims)}")
    kept = [axis for axis, size in enumerate(shape.dims) if size != 1 or dims[len(dims) - shape.rank + axis] == 1]
    if len(kept) != shape.rank:
        operand = b.reshape(operand, [shape.dims[a] for a in kept])
    return b.broadcast_in_dim(operand, dims, [len(dims) - shape.rank + a for a in kept])


def broadcast(b: ComputationBuilder, *operands: Operand) -> list[Operand]:
    """All operands stretched to their common dims."""
    dims = broadcast_dims(*(b.get_shape(o).dims for o in operands))
    if any(b.get_shape(o).dynamic for o in operands):
        _assume_same_sizes(b, operands, len(dims))
    return [broadcast_to(b, o, dims) for o in operands]


def _assume_same_sizes(b: ComputationBuilder, operands: Sequence[Operand], rank: int) -> None:
    """Assumes that sizes known at run time only are those of the other operands: TensorFlow stretches a size that
    happens to be 1, or has an error."""
    for axis in range(-rank, 0):
        there = [(o, b.get_shape(o).rank + axis) for o in operands if b.get_shape(o).rank >= -axis]
        assume_same_size(b, [(o, a) for o, a in there if b.get_shape(o).dims[a] != 1 or a in b.get_shape(o).dynamic])


def assume_same_size(b: ComputationBuilder, places: Sequence[tuple[Operand, int]]) -> None:
    """Leaves the run where the sizes of these axes, (operand, axis), differ and are known at run time only."""
    if any(axis in b.get_shape(operand).dynamic for operand, axis in places):
        first, *rest = (b.get_dimension_size(operand, axis) for operand, axis in places)
        for other in rest:
            b.leave_if(b.ne(first, other), "sizes that depend on data differ, which is not compiled")
