"""Factorizations of matrices, solutions of linear systems, determinants.

A matrix without an inverse ends the run with TensorFlow's error.
"""

from __future__ import annotations

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.lu import solved
from ....compiler.builder.lib.matrices import adjoint, axis_numbers, diagonal, widened
from ....compiler.errors import ShapeError
from ..math.broadcasting import broadcast_dims, broadcast_to
from ..math.reductions import reduce
from ..node import Node
from ..registry import translates


def _square(node: Node, which: int | str) -> tuple[int, ...]:
    dims = node.shape(which)
    if len(dims) < 2 or dims[-1] != dims[-2]:
        raise ShapeError(f"Input matrix must be square, got {list(dims)}")
    return dims


@translates("Cholesky")
def cholesky(node: Node) -> Operand:
    """A matrix that is not positive definite gives NaN (complex: zeros) in the lower triangle."""
    b, dims = node.b, _square(node, 0)
    factor, rank = b.cholesky(node[0], True), len(dims)
    if not dims[-1]:
        return factor
    rows, columns = axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1)
    is_complex = node.element_type(0).is_complex
    size = b.real(factor) if is_complex else factor
    bad = b.and_(b.eq(rows, columns), b.not_(b.gt(size, b.full_like(size, 0))))
    bad = broadcast_to(b, reduce(b, bad, "or_", [rank - 2, rank - 1], True), dims)
    return b.select(
        b.and_(bad, b.ge(rows, columns)), b.full_like(factor, 0 if is_complex else float("nan")), factor
    )


@translates("MatrixTriangularSolve")
def triangular_solve(node: Node) -> Operand:
    b, dims, right = node.b, _square(node, "matrix"), node.shape("rhs")
    if right[-2] != dims[-1]:
        raise ShapeError(f"Input matrix and rhs are incompatible: {list(dims)} vs. {list(right)}")
    outer = broadcast_dims(dims[:-2], right[:-2])
    matrix = broadcast_to(b, node["matrix"], (*outer, *dims[-2:]))
    rhs = broadcast_to(b, node["rhs"], (*outer, *right[-2:]))
    return b.triangular_solve(
        matrix,
        rhs,
        True,
        bool(node.attr("lower")),
        False,
        "ADJOINT" if node.attr("adjoint") else "NO_TRANSPOSE",
    )


@translates("MatrixSolve", "MatrixInverse")
def solve(node: Node) -> Operand:
    b, dims = node.b, _square(node, 0)
    matrix = adjoint(b, node[0]) if node.attr("adjoint") else node[0]
    rank = len(dims)
    if node.op == "MatrixSolve":
        rhs = node["rhs"]
        if node.shape("rhs")[:-1] != dims[:-1]:
            raise ShapeError(
                f"Input matrix and rhs are incompatible: {list(dims)} vs. {list(node.shape('rhs'))}"
            )
    else:
        ones = b.eq(axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1))
        rhs = b.convert_element_type(ones, node.element_type(0))
    solution, pivots = solved(b, matrix, rhs)
    fail_if_singular(
        b,
        pivots,
        "Input matrix is not invertible." if node.op == "MatrixSolve" else "Input is not invertible.",
    )
    return solution


def fail_if_singular(b: ComputationBuilder, pivots: Operand, message: str) -> None:
    """Ends the run where a pivot is zero, or NaN."""
    sizes = b.abs(pivots)
    bad = b.not_(b.gt(sizes, b.full_like(sizes, 0)))
    b.fail_if(reduce(b, bad, "or_", range(b.get_shape(bad).rank)), message)


@translates("MatrixDeterminant", "LogMatrixDeterminant")
def determinant(node: Node) -> Operand | tuple[Operand, Operand]:
    b, dims, kind = node.b, _square(node, 0), node.element_type(0)
    axis = len(dims) - 2
    lu, exchanged, _ = (b.get_tuple_element(b.lu_decomposition(widened(b, node[0])), k) for k in range(3))
    pivots, stays = diagonal(b, lu), b.eq(exchanged, axis_numbers(b, dims[:-1], axis))
    ones = b.full_like(pivots, 1)
    sign = reduce(b, b.select(stays, ones, -ones), "mul", [axis])
    if node.op == "MatrixDeterminant":
        return b.convert_element_type(reduce(b, pivots, "mul", [axis]) * sign, kind)
    sizes = b.abs(pivots)
    signs = b.select(
        b.eq(sizes, b.full_like(sizes, 0)),
        pivots,
        pivots / b.convert_element_type(sizes, b.get_shape(pivots).element_type),
    )
    log = reduce(b, b.log(sizes), "add", [axis])
    return (
        b.convert_element_type(sign * reduce(b, signs, "mul", [axis]), kind),
        b.convert_element_type(log, kind),
    )
