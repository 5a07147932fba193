"""LU decomposition, least squares, banded systems, functions of matrices, the gradient of Cholesky's decomposition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.loops import until
from ....compiler.builder.lib.lu import solved
from ....compiler.builder.lib.matrices import adjoint, axis_numbers, diagonal, product, unit
from ....compiler.builder.lib.qr import qr
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ..math.broadcasting import broadcast_dims, broadcast_to
from ..math.reductions import reduce
from ..node import Node
from ..operands.value_ranges import any_of
from ..registry import translates
from .solve import fail_if_singular

_S32 = ElementType.S32


def _square(node: Node, which: int) -> tuple[int, ...]:
    dims = node.shape(which)
    if len(dims) < 2 or dims[-1] != dims[-2]:
        raise ShapeError(f"Input must be square, got {list(dims)}")
    return dims


@translates("Lu")
def lu(node: Node) -> Sequence[Operand]:
    """(both triangles in one matrix, the row of the input that each row comes from)."""
    _square(node, 0)
    b = node.b
    both, _, order = (b.get_tuple_element(b.lu_decomposition(node[0]), k) for k in range(3))
    fail_if_singular(b, diagonal(b, both), "Input is not invertible.")
    return both, b.convert_element_type(order, node.attr("output_idx_type") or _S32)


@translates("MatrixSolveLs")
def least_squares(node: Node) -> Operand:
    """The smallest x that brings matrix x nearest to rhs; by QR, with the regularizer's root as rows more."""
    b, dims, right = node.b, node.shape("matrix"), node.shape("rhs")
    rows, columns = dims[-2:]
    if rows != right[-2]:
        raise ShapeError(f"Input matrix and rhs are incompatible: {list(dims)} vs. {list(right)}")
    type_, matrix, rhs = node.element_type("matrix"), node["matrix"], node["rhs"]
    weight = node["l2_regularizer"]
    node.bail_out_if(b.not_(b.ge(weight, b.scalar_like(weight, 0))), "l2_regularizer must be >= 0")
    if node.attr("fast"):
        return _regularized(node)
    if rows >= columns:
        q, r = qr(b, matrix, False)
        _bail_out_if_rank_deficient(node, r)
        return b.triangular_solve(r, product(b, adjoint(b, q), rhs), True, False, False, "NO_TRANSPOSE")
    q, r = qr(b, adjoint(b, matrix), False)
    _bail_out_if_rank_deficient(node, r)
    inner = b.triangular_solve(adjoint(b, r), rhs, True, True, False, "NO_TRANSPOSE")
    return b.convert_element_type(product(b, q, inner), type_)


def _bail_out_if_rank_deficient(node: Node, r: Operand) -> None:
    """TensorFlow solves matrices of less than full rank by a decomposition that finds their rank."""
    b, dims, type_ = node.b, node.b.get_shape(r).dims, node.b.get_shape(r).element_type
    if 0 in dims:
        return
    rank = len(dims)
    on_diagonal = b.eq(axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1))
    sizes = b.abs(r)
    axes = (rank - 2, rank - 1)
    largest = reduce(b, b.select(on_diagonal, sizes, b.full_like(sizes, 0)), "max", axes, True)
    limit = broadcast_to(b, b.mul(largest, b.full_like(largest, _rank_tolerance(type_, dims[-1]))), dims)
    small = b.and_(on_diagonal, b.not_(b.gt(sizes, limit)))
    node.bail_out_if(reduce(b, small, "or_", range(rank)), "a matrix is of less than full rank")


def _rank_tolerance(type_: ElementType, size: int) -> float:
    """The part of the largest pivot below which a pivot may be one of the rounding errors of an elimination."""
    return 32 * size * float(np.finfo(type_.real.dtype).eps)


def _regularized(node: Node) -> Operand:
    """By the normal equations, with the regularizer on their diagonal."""
    b, matrix, rhs = node.b, node["matrix"], node["rhs"]
    rows, columns = node.shape("matrix")[-2:]
    across, type_ = adjoint(b, matrix), node.element_type("matrix")
    gram = product(b, across, matrix) if rows >= columns else product(b, matrix, across)
    dims = b.get_shape(gram).dims
    weight = b.broadcast(b.convert_element_type(node["l2_regularizer"], type_), dims)
    gram = gram + unit(b, dims, type_) * weight
    if rows >= columns:
        return solved(b, gram, product(b, across, rhs))[0]
    return product(b, across, solved(b, gram, rhs)[0])


@translates("BandedTriangularSolve")
def banded_solve(node: Node) -> Operand:
    """The band as a triangular matrix, which is solved."""
    if not all(math.prod(node.shape(name)) for name in ("matrix", "rhs")):
        raise ShapeError("a banded matrix or its right sides must not be an empty tensor")
    b, (*outer, bands, size), lower = node.b, node.shape("matrix"), bool(node.attr("lower"))
    bands, size = int(bands), int(size)
    row, column = np.mgrid[:size, :size]
    band = row - column if lower else bands - 1 - (column - row)
    inside = (band >= 0) & (band < bands) & ((row >= column) if lower else (column >= row))
    flat = np.where(inside, np.clip(band, 0, bands - 1) * size + row, bands * size)
    padded = b.pad_in_dim(
        b.reshape(node["matrix"], (*outer, bands * size)), b.scalar_like(node["matrix"], 0), len(outer), 0, 1
    )
    picked = b.gather(
        padded,
        b.constant(flat.ravel()),
        offset_dims=list(range(len(outer))),
        collapsed_slice_dims=[len(outer)],
        start_index_map=[len(outer)],
        index_vector_dim=1,
        slice_sizes=[*outer, 1],
    )
    matrix = b.reshape(picked, (*outer, size, size))
    right = node.shape("rhs")
    batch = broadcast_dims(outer, right[:-2])
    return b.triangular_solve(
        broadcast_to(b, matrix, (*batch, size, size)),
        broadcast_to(b, node["rhs"], (*batch, *right[-2:])),
        True,
        lower,
        False,
        "ADJOINT" if node.attr("adjoint") else "NO_TRANSPOSE",
    )


@translates("CholeskyGrad")
def cholesky_grad(node: Node) -> Operand:
    """l^-H phi(l^H grad) l^-1, its Hermitian part; phi is the lower triangle with half of the diagonal."""
    b, dims = node.b, _square(node, 0)
    rank, factor = len(dims), node["l"]
    row, column = axis_numbers(b, dims, rank - 2), axis_numbers(b, dims, rank - 1)
    nothing = b.full_like(factor, 0)
    factor = b.select(b.ge(row, column), factor, nothing)
    gradient = b.select(b.ge(row, column), node["grad"], nothing)
    middle = product(b, adjoint(b, factor), gradient)
    middle = b.select(
        b.gt(row, column), middle, b.select(b.eq(row, column), middle * b.full_like(middle, 0.5), nothing)
    )
    solved = b.triangular_solve(factor, middle, True, True, False, "ADJOINT")
    result = b.triangular_solve(factor, solved, False, True, False, "NO_TRANSPOSE")
    return (result + adjoint(b, result)) * b.full_like(result, 0.5)


@translates("MatrixSquareRoot")
def matrix_square_root(node: Node) -> Operand:
    """The principal root."""
    b, dims = node.b, _square(node, 0)
    if 0 in dims:
        return node[0]
    root, bad = _root(b, node[0])
    node.bail_out_if(any_of(b, bad, range(len(dims) - 2)), "the iteration for a root does not converge")
    return root


def _root(b: ComputationBuilder, matrices: Operand) -> tuple[Operand, Operand]:
    """(the principal roots of matrices by Denman's and Beavers' iteration, for which of them it found none).

    Source: Higham, Functions of Matrices, (6.29).
    """
    dims, type_ = b.get_shape(matrices).dims, b.get_shape(matrices).element_type
    rank, epsilon = len(dims), float(np.finfo(type_.dtype).eps)

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        root, other, _ = values
        one = unit(b, dims, type_)
        half = b.full_like(root, 0.5)
        inverse, other_inverse = solved(b, root, one)[0], solved(b, other, one)[0]
        new, new_other = (root + other_inverse) * half, (other + inverse) * half
        change, size = (reduce(b, b.abs(v), "max", [rank - 2, rank - 1]) for v in (new - root, new))
        return new, new_other, b.gt(change, size * b.full_like(size, 4 * epsilon))

    start = b.broadcast(b.constant(True, ElementType.PRED), dims[:-2])
    root = until(b, 40, [matrices, unit(b, dims, type_), start], step)[0]
    rest = product(b, root, root) - matrices
    error, size = (reduce(b, b.abs(v), "max", [rank - 2, rank - 1]) for v in (rest, matrices))
    return root, b.not_(b.le(error, size * b.full_like(size, math.sqrt(epsilon))))


_NEAR_ONE = 0.25  # the distance from one of a matrix whose logarithm the quadrature gives
_POINTS = 8


@translates("MatrixLogarithm")
def matrix_logarithm(node: Node) -> Operand:
    """The principal logarithm: that of a root that is near one, times the root's power.

    Source: Higham, Functions of Matrices, 11.5; the rational approximation is Gauss's quadrature of 11.4.
    """
    b, dims = node.b, _square(node, 0)
    rank, type_ = len(dims), node.element_type(0)
    if 0 in dims:
        return node[0]

    def is_far(b: ComputationBuilder, matrix: Operand) -> Operand:
        sums = reduce(b, b.abs(matrix - unit(b, dims, type_)), "add", [rank - 1])
        distance = reduce(b, sums, "max", [rank - 2])
        return b.gt(distance, b.full_like(distance, _NEAR_ONE))

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        matrix, power, bad, is_unfinished = values
        root, failed = _root(b, matrix)
        matrix = b.select(b.broadcast_in_dim(is_unfinished, dims, range(rank - 2)), root, matrix)
        power = b.select(is_unfinished, power + power, power)
        return (
            matrix,
            power,
            b.or_(bad, b.and_(is_unfinished, failed)),
            b.and_(is_unfinished, is_far(b, matrix)),
        )

    start_flag = is_far(b, node[0])
    start = [node[0], b.broadcast(b.constant(1, type_), dims[:-2]), b.ne(start_flag, start_flag), start_flag]
    matrix, power, bad, is_unfinished = until(b, 64, start, step)
    one = unit(b, dims, type_)
    rest, total = matrix - one, b.full_like(matrix, 0)
    for point, weight in zip(*np.polynomial.legendre.leggauss(_POINTS)):
        part = solved(b, one + rest * b.full_like(rest, (point + 1) / 2), rest)[0]
        total = total + part * b.full_like(rest, weight / 2)
    result = total * b.broadcast_in_dim(power, dims, range(rank - 2))
    wrong = reduce(b, b.ne(result, result), "or_", [rank - 2, rank - 1])
    node.bail_out_if(
        any_of(b, b.or_(b.or_(bad, is_unfinished), wrong), range(rank - 2)),
        "a root's iteration does not converge",
    )
    return result
