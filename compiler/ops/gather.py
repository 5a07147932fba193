"""Gather: slices of an array at offsets given by an array of indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays, require_axes


@dataclasses.dataclass(frozen=True)
class Gather(Op):
    """For every index vector in the indices, the slice of slice_sizes that begins there.

    An index vector lies along index_vector_dim of the indices (if that is their rank, each index is a vector
    of one number); its k-th number is the start along the operand's axis start_index_map[k], starts along
    other axes are 0, and each start is clamped so that the slice lies inside. Axes of the slice in
    collapsed_slice_dims and operand_batching_dims, of size 1, are dropped; the others are the result's axes
    offset_dims, in order. The remaining axes of the result are those of the indices without index_vector_dim,
    in order. Along the operand's axis operand_batching_dims[k] the start is the position along the indices'
    axis start_indices_batching_dims[k].

    gather_c1: two array operands.
    gather_c2: the indices are integers.
    gather_c3: index_vector_dim is in 0..rank of the indices.
    gather_c4: slice_sizes has one entry per axis of the operand, between 0 and the size of the axis.
    gather_c5: start_index_map has as many entries as an index vector, distinct axes of the operand.
    gather_c6: collapsed_slice_dims and operand_batching_dims, sorted each, are distinct axes of the operand
    with slice size 1, or 0 where the result has no elements.
    gather_c7: operand_batching_dims are not in start_index_map, and match start_indices_batching_dims,
    distinct axes of the indices other than index_vector_dim, in number and sizes.
    gather_c8: offset_dims are sorted, distinct axes of the result, as many as the slice has axes that are
    kept.
    Source: operation semantics, Gather.
    """

    opcode: ClassVar[str] = "gather"
    is_index_map: ClassVar[bool] = True
    reads_part: ClassVar[bool] = True
    cycles: ClassVar[int] = 12
    offset_dims: tuple[int, ...] = attribute("dims", "offset_dims")
    collapsed_slice_dims: tuple[int, ...] = attribute("dims", "collapsed_slice_dims")
    start_index_map: tuple[int, ...] = attribute("dims", "start_index_map")
    index_vector_dim: int = attribute("int", "index_vector_dim")
    slice_sizes: tuple[int, ...] = attribute("sizes", "slice_sizes")
    operand_batching_dims: tuple[int, ...] = attribute("dims", "operand_batching_dims", default=())
    start_indices_batching_dims: tuple[int, ...] = attribute(
        "dims", "start_indices_batching_dims", default=()
    )
    indices_are_sorted: bool = attribute("bool", "indices_are_sorted", default=False)

    def takes_rows(self, operand: Shape, indices: Shape) -> bool:
        """Whether it takes whole rows of a matrix, one for each index."""
        rank, is_sorted = indices.rank, self.indices_are_sorted
        return operand.rank == 2 and self == Gather(
            (rank,), (0,), (0,), rank, (1, operand.dims[1]), indices_are_sorted=is_sorted
        )

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """Dims of the indices without their vectors, with the kept slice sizes at offset_dims."""
        require_arrays("gather", operands, 2, "gather_c1")
        operand, indices = operands
        vector = require_index_vectors("gather", indices, self.index_vector_dim, ("gather_c2", "gather_c3"))
        require(
            len(self.slice_sizes) == operand.rank
            and all(0 <= size <= dim for size, dim in zip(self.slice_sizes, operand.dims)),
            f"gather: slice_sizes is {self.slice_sizes}, operand is {operand}",
            "gather_c4",
        )
        require(
            len(self.start_index_map) == vector,
            f"gather: start_index_map has {len(self.start_index_map)} entries, index vectors of "
            f"{indices} have {vector}",
            "gather_c5",
        )
        require_axes("gather", "start_index_map", self.start_index_map, operand.rank, "gather_c5")
        dropped = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        require_axes(
            "gather", "collapsed_slice_dims and operand_batching_dims", dropped, operand.rank, "gather_c6"
        )
        require(
            all(self.slice_sizes[axis] <= 1 for axis in dropped)
            and list(dropped) == [*sorted(self.collapsed_slice_dims), *sorted(self.operand_batching_dims)],
            f"gather: axes {dropped} are dropped, sorted ones of size 1 are wanted in {self.slice_sizes}",
            "gather_c6",
        )
        require_batching(
            "gather",
            operand,
            indices,
            self.index_vector_dim,
            self.start_index_map,
            self.operand_batching_dims,
            self.start_indices_batching_dims,
            "gather_c7",
        )
        batch = [d for axis, d in enumerate(indices.dims) if axis != self.index_vector_dim]
        slice_dims = [d for axis, d in enumerate(self.slice_sizes) if axis not in dropped]
        require(
            len(self.offset_dims) == len(slice_dims) and list(self.offset_dims) == sorted(self.offset_dims),
            f"gather: offset_dims is {self.offset_dims}, {len(slice_dims)} sorted axes are wanted",
            "gather_c8",
        )
        require_axes("gather", "offset_dims", self.offset_dims, len(batch) + len(slice_dims), "gather_c8")
        require(
            0 in (*batch, *slice_dims) or 0 not in self.slice_sizes,
            f"gather: slices of sizes {self.slice_sizes} have no elements, the result has",
            "gather_c6",
        )
        rest, inner = iter(batch), iter(slice_dims)
        return operand.with_dims(
            next(inner) if axis in self.offset_dims else next(rest)
            for axis in range(len(batch) + len(slice_dims))
        )

    def reference(self, operand: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Index arrays for every axis of the operand, broadcast over the result."""
        slots = index_slots(
            indices,
            self.index_vector_dim,
            self.start_index_map,
            operand.ndim,
            self.operand_batching_dims,
            self.start_indices_batching_dims,
        )
        dropped = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        slice_axes = [axis for axis in range(operand.ndim) if axis not in dropped]
        batch_rank = slots[0].ndim if slots else indices.ndim - (self.index_vector_dim < indices.ndim)
        positions = []
        for axis, start in enumerate(slots):
            start = np.clip(start, 0, operand.shape[axis] - self.slice_sizes[axis])
            start = start.reshape((*start.shape, *[1] * len(slice_axes)))
            offset = np.zeros((), np.int64)
            if axis in slice_axes:
                position = batch_rank + slice_axes.index(axis)
                offset = np.arange(self.slice_sizes[axis]).reshape(
                    [-1 if i == position else 1 for i in range(batch_rank + len(slice_axes))]
                )
            positions.append(start + offset)
        dims = tuple(d for axis, d in enumerate(indices.shape) if axis != self.index_vector_dim)
        dims = (*dims, *(self.slice_sizes[axis] for axis in slice_axes))
        if 0 in dims or not positions:
            result = (
                np.broadcast_to(operand.reshape(-1)[:1].reshape([1] * len(dims)), dims)
                if not positions
                else np.empty(dims, operand.dtype)
            )
        else:
            result = np.broadcast_to(operand[tuple(positions)], dims)
        return np.moveaxis(result, range(batch_rank, batch_rank + len(slice_axes)), self.offset_dims)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element at the clamped start plus the offset."""
        operand, indices = operands
        batch = [i for axis, i in enumerate(index) if axis not in self.offset_dims]
        offsets = iter([index[axis] for axis in self.offset_dims])
        dropped = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        operand_index = [e.index(0) if axis in dropped else next(offsets) for axis in range(operand.rank)]
        for number, axis in enumerate(self.start_index_map):
            limit = operand.dims[axis] - self.slice_sizes[axis]
            if limit == 0:
                continue
            position = list(batch)
            if self.index_vector_dim < indices.rank:
                position.insert(self.index_vector_dim, e.index(number))
            start = e.index_operand(1, position, limit)
            operand_index[axis] = start if axis in dropped else e.add(start, operand_index[axis])
        for axis, source in zip(self.operand_batching_dims, self.start_indices_batching_dims):
            operand_index[axis] = batch[source - (source > self.index_vector_dim)]
        return e.operand(0, operand_index)


def require_index_vectors(opcode: str, indices: Shape, index_vector_dim: int, labels: tuple[str, str]) -> int:
    """Checks the indices of gather or scatter; returns how many numbers an index vector has.

    Raises: ShapeError  labels[0]: not integers; labels[1]: index_vector_dim is no axis of them nor their
    rank.
    """
    require(
        indices.element_type.is_integer, f"{opcode}: indices are {indices}, integers are wanted", labels[0]
    )
    require(
        0 <= index_vector_dim <= indices.rank,
        f"{opcode}: index_vector_dim is {index_vector_dim}, indices {indices} have {indices.rank} axes",
        labels[1],
    )
    return (*indices.dims, 1)[index_vector_dim]


def require_batching(
    opcode: str,
    operand: Shape,
    indices: Shape,
    index_vector_dim: int,
    index_map: Sequence[int],
    operand_axes: Sequence[int],
    indices_axes: Sequence[int],
    label: str,
) -> None:
    """The check of the batching axes of gather or scatter.

    Raises: ShapeError  they are not distinct, differ in number or size, or overlap with index vectors or the
    index map.
    """
    require_axes(opcode, "batching axes of the indices", indices_axes, indices.rank, label)
    fits = (
        len(operand_axes) == len(indices_axes)
        and not set(operand_axes) & set(index_map)
        and index_vector_dim not in indices_axes
        and all(operand.dims[a] == indices.dims[b] for a, b in zip(operand_axes, indices_axes))
    )
    require(
        fits,
        f"{opcode}: axes {tuple(operand_axes)} of {operand} do not match axes {tuple(indices_axes)} "
        f"of {indices} as batching axes",
        label,
    )


def index_slots(
    indices: np.ndarray,
    index_vector_dim: int,
    index_map: Sequence[int],
    rank: int,
    operand_axes: Sequence[int],
    indices_axes: Sequence[int],
) -> list[np.ndarray]:
    """For every axis of the operand the start, as an array over the indices' axes without their vectors.

    Unsigned numbers too large for s64 stay out of bounds, above.
    """
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max // 2))
    indices = indices.astype(np.int64)
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, index_vector_dim, 0)
    slots = [np.zeros(vectors.shape[1:], np.int64)] * rank
    for number, axis in enumerate(index_map):
        slots[axis] = vectors[number]
    for axis, source in zip(operand_axes, indices_axes):
        position = source - (source > index_vector_dim)
        counted = np.arange(vectors.shape[1:][position])
        slots[axis] = np.broadcast_to(
            counted.reshape([-1 if i == position else 1 for i in range(vectors.ndim - 1)]), vectors.shape[1:]
        )
    return slots
