"""Builder operations that move elements: broadcast, reshape, transpose, slice, pad, gather, scatter, ..."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Concatenate,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Scatter,
    SizeConstant,
    Slice,
    Transpose,
)
from .core import Dims, Operand, TypeName, operation
from .elementwise import ElementwiseOperations


class ArrayOperations(ElementwiseOperations):
    """Operations that move data."""

    @operation
    def broadcast(self, operand: Operand, broadcast_sizes: Dims) -> Operand:
        """New axes of these sizes in front of the operand's.

        Shapes: operand [..d..], result [..broadcast_sizes.., ..d..].
        """
        dims, sizes = self.shape_of(operand).dims, tuple(broadcast_sizes)
        return self.apply(Broadcast(sizes + dims, tuple(range(len(sizes), len(sizes) + len(dims)))), operand)

    @operation
    def broadcast_in_dim(self, operand: Operand, out_dim_size: Dims, broadcast_dimensions: Dims) -> Operand:
        """The operand's axis i at axis broadcast_dimensions[i] of the result; axes of size 1 are stretched.

        Shapes: result out_dim_size; axis broadcast_dimensions[i] of it has the size of the operand's axis i, or that
            axis has size 1.
        Raises: ShapeError  broadcast_c4: not one axis of the result, ascending or not, per axis of the
            operand.
        """
        shape, sizes, axes = self.shape_of(operand), tuple(out_dim_size), tuple(broadcast_dimensions)
        if (
            len(axes) != shape.rank
            or len(set(axes)) != len(axes)
            or not all(0 <= a < len(sizes) for a in axes)
            or any(shape.dims[i] not in (1, sizes[a]) for i, a in enumerate(axes))
        ):
            raise ShapeError(
                f"broadcast_in_dim: broadcast_dimensions {list(axes)} must place every axis of {shape} at "
                f"an axis of {list(sizes)} of the same size, or have size 1 (broadcast_c4)"
            )
        return self.stretch(operand, sizes, axes)

    @operation
    def reshape(self, operand: Operand, dimensions: Dims, new_sizes: Dims | None = None) -> Operand:
        """`reshape(x, new_sizes)`, or `reshape(x, dimensions, new_sizes)`: the axes taken in that order
        first.

        Shapes: result new_sizes, with as many elements as the operand.
        Raises: ShapeError  transpose's and reshape's.
        """
        if new_sizes is None:
            return self.apply(Reshape(tuple(dimensions)), operand)
        order = tuple(dimensions)
        if order != tuple(range(len(order))):
            operand = self.apply(Transpose(order), operand)
        return self.apply(Reshape(tuple(new_sizes)), operand)

    @operation
    def collapse(self, operand: Operand, dimensions: Dims) -> Operand:
        """Consecutive axes as one.

        Shapes: the axes become one, whose size is their product.
        Raises: ShapeError  collapse_c1: the axes are not consecutive axes of the operand.
        """
        shape, axes = self.shape_of(operand), tuple(dimensions)
        if not axes:
            return operand
        first, last = axes[0], axes[-1]
        if axes != tuple(range(first, last + 1)) or first < 0 or last >= shape.rank:
            raise ShapeError(
                f"collapse: dimensions {list(axes)} are not consecutive axes of {shape} (collapse_c1)"
            )
        dims = shape.dims
        return self.apply(
            Reshape((*dims[:first], math.prod(dims[first : last + 1]), *dims[last + 1 :])), operand
        )

    @operation
    def transpose(self, operand: Operand, permutation: Dims) -> Operand:
        """Axis i of the result is the operand's axis permutation[i].

        Shapes: axis i of the result has the size of the operand's axis permutation[i].
        """
        return self.apply(Transpose(tuple(permutation)), operand)

    @operation
    def trans(self, operand: Operand) -> Operand:
        """A matrix transposed: all axes in reverse order.

        Shapes: operand [a, .., z], result [z, .., a].
        """
        return self.apply(Transpose(tuple(range(self.shape_of(operand).rank - 1, -1, -1))), operand)

    @operation
    def rev(self, operand: Operand, dimensions: Dims) -> Operand:
        """Elements in reverse order along these axes.

        Shapes: the result's are the operand's.
        """
        return self.apply(Reverse(tuple(dimensions)), operand)

    @operation
    def slice(
        self, operand: Operand, start_indices: Dims, limit_indices: Dims, strides: Dims | None = None
    ) -> Operand:
        """Elements start, start + stride, ... below limit, along every axis.

        Shapes: axis i of the result has ceil((limit_indices[i] - start_indices[i]) / strides[i]) elements.
        """
        steps = tuple(strides) if strides is not None else (1,) * len(start_indices)
        return self.apply(Slice(tuple(start_indices), tuple(limit_indices), steps), operand)

    @operation
    def slice_in_dim(
        self, operand: Operand, start_index: int, limit_index: int, stride: int, dimno: int
    ) -> Operand:
        """A slice along one axis, whole along the others.

        Shapes: axis dimno of the result has ceil((limit_index - start_index) / stride) elements, the others are the
            operand's.
        """
        dims = self.shape_of(operand).dims
        axis = self.axis("slice_in_dim", dimno, len(dims))
        start, limit, strides = [0] * len(dims), list(dims), [1] * len(dims)
        start[axis], limit[axis], strides[axis] = start_index, limit_index, stride
        return self.apply(Slice(tuple(start), tuple(limit), tuple(strides)), operand)

    @operation
    def dynamic_slice(
        self, operand: Operand, start_indices: Operand | Sequence[Operand], size_indices: Dims
    ) -> Operand:
        """A box of a fixed size from a start known at run time: one scalar per axis, or a vector of all.

        Shapes: result size_indices; a start outside is clamped so that the box lies in the operand.
        """
        return self.apply(DynamicSlice(tuple(size_indices)), operand, *self._starts(start_indices))

    @operation
    def dynamic_update_slice(
        self, operand: Operand, update: Operand, start_indices: Operand | Sequence[Operand]
    ) -> Operand:
        """The operand with the update written at a start known at run time.

        Shapes: update [..u..] with u <= d on every axis of the operand [..d..]; the result's are the operand's.
        """
        return self.apply(DynamicUpdateSlice(), operand, update, *self._starts(start_indices))

    def _starts(self, starts: Operand | Sequence[Operand]) -> list[Operand]:
        if not isinstance(starts, Operand):
            return list(starts)
        shape = self.shape_of(starts)
        if shape.rank != 1:
            raise ShapeError(f"start_indices must be scalars or one vector, got {shape} (dynamic_slice_c4)")
        return [
            self.apply(Reshape(()), self.apply(Slice((i,), (i + 1,), (1,)), starts))
            for i in range(shape.dims[0])
        ]

    @operation
    def pad(
        self, operand: Operand, padding_value: Operand, padding_config: Sequence[Sequence[int]]
    ) -> Operand:
        """padding_config: (low, high) or (low, high, interior) per axis; negative low and high cut.

        Shapes: axis i of the result has low + d + max(d - 1, 0) * interior + high elements.
        """
        if any(len(p) not in (2, 3) for p in padding_config):
            raise ShapeError(
                f"pad: padding_config {list(map(list, padding_config))} must have (low, high) or "
                "(low, high, interior) per axis (pad_c1)"
            )
        low, high, interior = zip(*((*p, 0)[:3] for p in padding_config)) if padding_config else ((), (), ())
        return self.apply(Pad(low, high, interior), operand, padding_value)

    @operation
    def pad_in_dim(
        self, operand: Operand, padding_value: Operand, dimno: int, pad_lo: int, pad_hi: int
    ) -> Operand:
        """Padding along one axis.

        Shapes: axis dimno of the result has pad_lo + d + pad_hi elements, the others are the operand's.
        """
        rank = self.shape_of(operand).rank
        axis = self.axis("pad_in_dim", dimno, rank)
        config = [(pad_lo, pad_hi, 0) if i == axis else (0, 0, 0) for i in range(rank)]
        return self.pad(operand, padding_value, config)

    @operation
    def concat_in_dim(self, operands: Sequence[Operand], dimension: int) -> Operand:
        """The operands one after the other along an axis.

        Shapes: operands of the same dims but along the axis; along it the sizes add up.
        """
        return self.apply(Concatenate(dimension), *operands)

    concatenate = concat_in_dim

    @operation
    def size(self, value: int, element_type: TypeName = ElementType.S32) -> Operand:
        """A number, which may be a size that is known at run time only, as a scalar of an integer type.

        Shapes: result [].
        """
        return self.apply(SizeConstant(value, ElementType(element_type)))

    @operation
    def iota(self, shape: Shape | TypeName, iota_dimension: int) -> Operand:
        """`iota(shape, axis)`: 0, 1, ... along the axis; `iota(type, size)`: a vector of 0 .. size - 1.

        Shapes: result as given.
        """
        if isinstance(shape, Shape):
            return self.apply(Iota(shape, iota_dimension))
        return self.apply(Iota(Shape(ElementType(shape), (iota_dimension,)), 0))

    @operation
    def gather(
        self,
        operand: Operand,
        start_indices: Operand,
        offset_dims: Dims,
        collapsed_slice_dims: Dims,
        slice_sizes: Dims,
        start_index_map: Dims,
        index_vector_dim: int | None = None,
        indices_are_sorted: bool = False,
        operand_batching_dims: Dims = (),
        start_indices_batching_dims: Dims = (),
    ) -> Operand:
        """Slices of the operand at the given starts. index_vector_dim is the last axis of the starts when
        not given.

        Shapes: result: the axes of the starts without index_vector_dim, and at offset_dims those of slice_sizes that
            are not collapsed.
        """
        vector_dim = (
            max(self.shape_of(start_indices).rank - 1, 0) if index_vector_dim is None else index_vector_dim
        )
        return self.apply(
            Gather(
                tuple(offset_dims),
                tuple(collapsed_slice_dims),
                tuple(start_index_map),
                vector_dim,
                tuple(slice_sizes),
                tuple(operand_batching_dims),
                tuple(start_indices_batching_dims),
                indices_are_sorted,
            ),
            operand,
            start_indices,
        )

    @operation
    def scatter(
        self,
        operands: Operand | Sequence[Operand],
        scatter_indices: Operand,
        updates: Operand | Sequence[Operand],
        update_computation: Computation | None,
        index_vector_dim: int,
        update_window_dims: Dims,
        inserted_window_dims: Dims,
        scatter_dims_to_operand_dims: Dims,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        input_batching_dims: Dims = (),
        scatter_indices_batching_dims: Dims = (),
    ) -> Operand:
        """The operands with the updates combined in at the given starts; several operands give a tuple.

        Shapes: results have the operands' dims; updates have the axes of the indices without index_vector_dim, and at
            update_window_dims the window's.
        """
        op = Scatter(
            tuple(update_window_dims),
            tuple(inserted_window_dims),
            tuple(scatter_dims_to_operand_dims),
            index_vector_dim,
            self.computation(update_computation),
            tuple(input_batching_dims),
            tuple(scatter_indices_batching_dims),
            indices_are_sorted,
            unique_indices,
        )
        return self.apply(op, *listed(operands), scatter_indices, *listed(updates))

    def axis(self, name: str, axis: int, rank: int) -> int:
        """An axis number, checked.

        Raises: ShapeError  axis_c1: outside 0..rank-1.
        """
        if not 0 <= axis < rank:
            raise ShapeError(f"{name}: axis {axis} of an operand with {rank} axes (axis_c1)")
        return axis


def listed(operands: Operand | Sequence[Operand]) -> list[Operand]:
    """One operand, or a sequence of them, as a list."""
    return [operands] if isinstance(operands, Operand) else list(operands)
