"""Batches of matrices of f32, f64, c64 and c128: rows and columns, transposes, products.

The algorithms beside this file are loops of steps on whole matrices, batches of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.element_types import ElementType
from ...ir.shape import Shape
from ..computation_builder import ComputationBuilder, Operand
from ..derived import binary_computation

_PRED, _S32 = ElementType.PRED, ElementType.S32


def line(b: ComputationBuilder, x: Operand, number: Operand, axis: int) -> Operand:
    """One row or column, its axis kept."""
    dims = b.get_shape(x).dims
    zero = b.constant(0, _S32)
    starts = [number if a == axis else zero for a in range(len(dims))]
    return b.dynamic_slice(x, starts, [1 if a == axis else d for a, d in enumerate(dims)])


def with_line(b: ComputationBuilder, x: Operand, new: Operand, number: Operand, axis: int) -> Operand:
    """The array with one row or column replaced."""
    zero = b.constant(0, _S32)
    starts = [number if a == axis else zero for a in range(len(b.get_shape(x).dims))]
    return b.dynamic_update_slice(x, new, starts)


def axis_numbers(b: ComputationBuilder, dims: Sequence[int], axis: int) -> Operand:
    """The number of every element's row or column, s32."""
    return b.iota(Shape(_S32, tuple(dims)), axis)


def transposed(b: ComputationBuilder, x: Operand) -> Operand:
    """The matrices transposed."""
    rank = b.get_shape(x).rank
    return b.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(b: ComputationBuilder, x: Operand) -> Operand:
    """The matrices transposed and conjugated."""
    return b.conj(transposed(b, x))


def axis_sum(b: ComputationBuilder, x: Operand, axes: Sequence[int], op: str = "add") -> Operand:
    """A sum, or another reduction that starts with zero."""
    type_ = b.get_shape(x).element_type
    return b.reduce(x, b.constant(0, type_), binary_computation(op, type_), tuple(axes))


def diagonal(b: ComputationBuilder, x: Operand) -> Operand:
    """The diagonals of square matrices."""
    dims = b.get_shape(x).dims
    on = b.eq(axis_numbers(b, dims, len(dims) - 2), axis_numbers(b, dims, len(dims) - 1))
    return axis_sum(b, b.select(on, x, b.full_like(x, 0)), [len(dims) - 2])


def column_sum(b: ComputationBuilder, x: Operand) -> Operand:
    """The sums of columns, their axis kept."""
    dims = b.get_shape(x).dims
    return b.reshape(axis_sum(b, x, [len(dims) - 2]), (*dims[:-2], 1, dims[-1]))


def sorted_rows(b: ComputationBuilder, rows: Operand, is_descending: bool) -> tuple[Operand, Operand]:
    """The elements of the last axis in order, and their original positions."""
    shape = b.get_shape(rows)
    before = b.create_sub_builder("before")
    x, y = (before.parameter(k, Shape(shape.element_type), name) for k, name in enumerate("xy"))
    for k, name in enumerate(("at_x", "at_y")):
        before.parameter(k + 2, Shape(_S32), name)
    order = before.build(before.gt(x, y) if is_descending else before.lt(x, y))
    both = b.sort([rows, axis_numbers(b, shape.dims, shape.rank - 1)], order, shape.rank - 1, is_stable=True)
    return b.get_tuple_element(both, 0), b.get_tuple_element(both, 1)


def permuted(b: ComputationBuilder, matrices: Operand, order: Operand) -> Operand:
    """The rows of matrices in an order."""
    dims = b.get_shape(matrices).dims
    axis = len(dims) - 2
    return b.gather(
        matrices,
        order,
        offset_dims=[axis + 1],
        collapsed_slice_dims=[axis],
        start_index_map=[axis],
        index_vector_dim=axis + 1,
        slice_sizes=[1] * (axis + 1) + [dims[-1]],
        operand_batching_dims=range(axis),
        start_indices_batching_dims=range(axis),
    )


def stretched(b: ComputationBuilder, x: Operand, dims: Sequence[int]) -> Operand:
    """With axes of size 1 as long as wanted."""
    return b.broadcast_in_dim(x, dims, range(len(dims)))


def real_type(b: ComputationBuilder, x: Operand) -> ElementType:
    return {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}.get(
        b.get_shape(x).element_type, b.get_shape(x).element_type
    )


def real_part(b: ComputationBuilder, x: Operand) -> Operand:
    return b.real(x) if b.get_shape(x).element_type.is_complex else x


def converted(b: ComputationBuilder, x: Operand, type_: ElementType) -> Operand:
    return b.convert_element_type(x, type_)


def widened(b: ComputationBuilder, x: Operand) -> Operand:
    """Floats below f32 as f32; others as they are."""
    kind = b.get_shape(x).element_type
    return converted(b, x, ElementType.F32) if kind.is_float and kind.bits < 32 else x


def squares(b: ComputationBuilder, x: Operand) -> Operand:
    """|x|^2, real."""
    if not b.get_shape(x).element_type.is_complex:
        return x * x
    return b.real(x) * b.real(x) + b.imag(x) * b.imag(x)


def product(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """The matrix product of two batches of matrices."""
    rank = b.get_shape(x).rank
    batch = list(range(rank - 2))
    return b.dot_general(x, y, ([rank - 1], [rank - 2]), (batch, batch))


def unit(b: ComputationBuilder, dims: Sequence[int], type_: ElementType) -> Operand:
    """Unit matrices."""
    rank = len(dims)
    return b.convert_element_type(
        b.eq(axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1)), type_
    )
