"""Linear systems of any square matrices, by their LU decomposition."""

from __future__ import annotations

from ..computation_builder import ComputationBuilder, Operand
from .matrices import converted, diagonal, permuted, widened


def solved(b: ComputationBuilder, matrix: Operand, rhs: Operand) -> tuple[Operand, Operand]:
    """(x with matrix x = rhs, the pivots). Where a pivot is zero x has infinities or NaN.

    Shapes: matrix [.., n, n], rhs and x [.., n, k], the pivots [.., n]. Floats below f32 are computed in f32, the
        pivots stay f32.
    """
    kind = b.get_shape(matrix).element_type
    matrix, rhs = widened(b, matrix), widened(b, rhs)
    lu, _, permutation = (b.get_tuple_element(b.lu_decomposition(matrix), k) for k in range(3))
    x = b.triangular_solve(lu, permuted(b, rhs, permutation), True, True, True)
    x = b.triangular_solve(lu, x, True, False, False)
    return converted(b, x, kind), diagonal(b, lu)
