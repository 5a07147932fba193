"""Eigenvalues and eigenvectors of Hermitian matrices, by Jacobi rotations."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from .jacobi import even_sized, halves, jacobi_rotation, next_pairs, rotated, type_epsilon
from .loops import repeated, until
from .matrices import (
    adjoint,
    axis_numbers,
    converted,
    diagonal,
    permuted,
    real_part,
    sorted_rows,
    transposed,
    unit,
)
from .svd import _norms

_PRED, _S32 = ElementType.PRED, ElementType.S32
_SWEEPS = 40


def eigh(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(eigenvalues in ascending order, eigenvectors as columns) of Hermitian matrices, whose lower halves are read."""
    dims, type_ = b.get_shape(x).dims, b.get_shape(x).element_type
    rank, size = len(dims), dims[-1]
    lower, across = b.gt(axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1)), adjoint(b, x)
    on = b.eq(axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1))
    x = b.select(lower, x, b.select(on, converted(b, real_part(b, x), type_), across))
    if size > 1:
        values, vectors = _eigh_sweeps(b, x)
    else:
        values, vectors = b.reshape(real_part(b, x), dims[:-1]), b.broadcast(b.constant(1, type_), dims)
    values, order = sorted_rows(b, values, False)
    return values, transposed(b, permuted(b, transposed(b, vectors), order))


def _eigh_sweeps(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    dims, rank = b.get_shape(x).dims, b.get_shape(x).rank
    size, epsilon = dims[-1], type_epsilon(b, x)
    x = even_sized(b, even_sized(b, x, -1), -2)
    half = b.get_shape(x).dims[-1] // 2
    quarters = [q for part in halves(b, x, -2) for q in halves(b, part, -1)]
    full = b.get_shape(x).dims
    vectors = list(halves(b, unit(b, full, b.get_shape(x).element_type), -1))

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        tl, tr, bl, br, left, right = values
        rotation = jacobi_rotation(
            b, real_part(b, diagonal(b, tl)), real_part(b, diagonal(b, br)), diagonal(b, tr)
        )
        tl, tr = rotated(b, tl, tr, rotation, -1)
        bl, br = rotated(b, bl, br, rotation, -1)
        tl, bl = rotated(b, tl, bl, rotation, -2)
        tr, br = rotated(b, tr, br, rotation, -2)
        left, right = rotated(b, left, right, rotation, -1)
        on = unit(b, b.get_shape(tr).dims, _PRED)
        tr, bl = (b.select(on, b.full_like(v, 0), v) for v in (tr, bl))
        (tl, tr), (bl, br) = next_pairs(b, tl, tr, -1), next_pairs(b, bl, br, -1)
        (tl, bl), (tr, br) = next_pairs(b, tl, bl, -2), next_pairs(b, tr, br, -2)
        return tl, tr, bl, br, *next_pairs(b, left, right, -1)

    def sweep(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        after = repeated(b, 2 * half - 1, values[:-1], step)
        quarters = after[:4]
        total = _norms(b, quarters)
        inner = unit(b, b.get_shape(quarters[0]).dims, _PRED)
        off = [b.select(inner, b.full_like(q, 0), q) for q in (quarters[0], quarters[3])]
        left = b.gt(_norms(b, [*off, *quarters[1:3]]), total * b.scalar_like(total, epsilon * epsilon))
        return *after, left

    outer = dims[:-2]
    start = b.broadcast(b.constant(True, _PRED), outer)
    tl, _, _, br, left, right, _ = until(b, _SWEEPS, [*quarters, *vectors, start], sweep)
    values = b.concat_in_dim([real_part(b, diagonal(b, tl)), real_part(b, diagonal(b, br))], rank - 2)
    vectors_joined = b.concat_in_dim([left, right], rank - 1)
    # The line that was added keeps its position: it is never rotated.
    return (
        b.slice_in_dim(values, 0, size, 1, rank - 2),
        b.slice_in_dim(b.slice_in_dim(vectors_joined, 0, size, 1, rank - 1), 0, size, 1, rank - 2),
    )
