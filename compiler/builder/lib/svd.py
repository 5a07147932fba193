"""Singular value decomposition, by one-sided Jacobi rotations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from .jacobi import even_sized, halves, jacobi_rotation, next_pairs, rotated, type_epsilon
from .loops import repeated, until
from .matrices import (
    adjoint,
    axis_sum,
    converted,
    diagonal,
    permuted,
    product,
    real_type,
    sorted_rows,
    squares,
    transposed,
    unit,
)
from .qr import qr

_PRED, _S32 = ElementType.PRED, ElementType.S32
_SWEEPS = 40
_TALL = 1.5  # rows to a column from which on it pays to take an orthogonal factor out before rotations


def svd(b: ComputationBuilder, x: Operand, full: bool) -> tuple[Operand, Operand, Operand]:
    """(singular values in descending order, u, v) with x = u diag(s) v^H, by one-sided rotations."""
    *outer, rows, columns = b.get_shape(x).dims
    if rows < columns:
        s, v, u = svd(b, adjoint(b, x), full)
        return s, u, v
    if rows > _TALL * columns:
        return _svd_of_tall(b, x, full)
    rank, type_ = len(outer) + 2, b.get_shape(x).element_type
    scaled, right = _svd_sweeps(b, x)
    s, order = sorted_rows(b, b.sqrt(axis_sum(b, squares(b, scaled), [rank - 2])), True)
    left_rows = permuted(b, transposed(b, scaled), order)
    right_rows = permuted(b, transposed(b, right), order)
    divisor = b.select(b.eq(s, b.full_like(s, 0)), b.full_like(s, 1), s)
    left_dims = b.get_shape(left_rows).dims
    left_rows = left_rows / converted(b, b.broadcast_in_dim(divisor, left_dims, range(rank - 1)), type_)
    # Columns of zeros become a basis of the rest; the others change their sign at most.
    q, r = qr(b, transposed(b, left_rows), full)
    signs = diagonal(b, b.slice_in_dim(r, 0, columns, 1, rank - 2))
    nothing = b.eq(b.abs(signs), b.full_like(b.abs(signs), 0))
    signs = b.select(
        nothing,
        b.full_like(signs, 1),
        signs / converted(b, b.select(nothing, b.full_like(b.abs(signs), 1), b.abs(signs)), type_),
    )
    more = b.get_shape(q).dims[-1] - columns
    signs = b.pad_in_dim(signs, b.constant(1, type_), rank - 2, 0, more)
    u = q * b.broadcast_in_dim(signs, b.get_shape(q).dims, [*range(rank - 2), rank - 1])
    return s, u, transposed(b, right_rows)


def _svd_of_tall(b: ComputationBuilder, x: Operand, full: bool) -> tuple[Operand, Operand, Operand]:
    """With x = q r, u is q times that of r, which has fewer rows to rotate."""
    columns = b.get_shape(x).dims[-1]
    q, r = qr(b, x, full)
    rank = b.get_shape(q).rank
    s, u, v = svd(b, b.slice_in_dim(r, 0, columns, 1, rank - 2), False)
    size = b.get_shape(q).dims[-1]
    u = product(b, b.slice_in_dim(q, 0, columns, 1, rank - 1), u)
    if size > columns:
        u = b.concat_in_dim([u, b.slice_in_dim(q, columns, size, 1, rank - 1)], rank - 1)
    return s, u, v


def _svd_sweeps(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(x v with orthogonal columns, v)."""
    *outer, _, columns = b.get_shape(x).dims
    rank, epsilon = len(outer) + 2, type_epsilon(b, x)
    vectors = unit(b, (*outer, columns, columns), b.get_shape(x).element_type)
    if columns < 2:
        return x, vectors
    x, vectors = even_sized(b, x, -1), even_sized(b, vectors, -1)
    half = b.get_shape(x).dims[-1] // 2
    real = real_type(b, x)

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        left, right, v_left, v_right, worst = values
        first, last = (axis_sum(b, squares(b, v), [rank - 2]) for v in (left, right))
        cross = axis_sum(b, b.conj(left) * right, [rank - 2])
        size = b.sqrt(first) * b.sqrt(last)
        floor = b.full_like(size, float(np.finfo(real.dtype).tiny))
        angle = b.select(b.gt(size, floor), b.abs(cross) / b.max(size, floor), b.full_like(size, 0))
        small = b.le(angle, b.full_like(angle, epsilon))
        cross = b.select(small, b.full_like(cross, 0), cross)
        rotation = jacobi_rotation(b, first, last, cross)
        left, right = rotated(b, left, right, rotation, -1)
        v_left, v_right = rotated(b, v_left, v_right, rotation, -1)
        worst = b.max(worst, axis_sum(b, angle, [rank - 2], "maximum"))
        return *next_pairs(b, left, right, -1), *next_pairs(b, v_left, v_right, -1), worst

    def sweep(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        worst = b.broadcast(b.constant(0, real), outer)
        *after, worst = repeated(b, 2 * half - 1, [*values[:-1], worst], step)
        return *after, b.gt(worst, b.scalar_like(worst, epsilon * 4))

    start = b.broadcast(b.constant(True, _PRED), outer)
    left, right, v_left, v_right, _ = until(
        b, _SWEEPS, [*halves(b, x, -1), *halves(b, vectors, -1), start], sweep
    )
    scaled, vectors = b.concat_in_dim([left, right], rank - 1), b.concat_in_dim([v_left, v_right], rank - 1)
    return b.slice_in_dim(scaled, 0, columns, 1, rank - 1), b.slice_in_dim(vectors, 0, columns, 1, rank - 1)
