"""LAPACK's routines as JAX calls them on CPUs, written with a builder: packed factors, pivots and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ..builder.computation_builder import ComputationBuilder, Operand
from ..builder.derived import binary_computation
from ..builder.lib.eig import eig, left_eigenvectors, schur
from ..builder.lib.matrices import adjoint, axis_numbers, diagonal
from ..builder.lib.svd import svd
from ..builder.lib.tridiagonal import tridiagonal
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape, array

Fields: TypeAlias = Mapping[str, str]
_S32 = ElementType.S32


def success(b: ComputationBuilder, matrix: Operand) -> Operand:
    """The status of LAPACK for each matrix of a batch: 0, success."""
    return b.zeros(array("s32", *b.get_shape(matrix).dims[:-2]))


def potrf(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """potrf: the factor in one triangle, the operand's own elements in the other, and the number of the first
    minor that is not positive, here 0 or 1."""
    is_lower = fields.get("uplo") == "L"
    factor = b.cholesky(operands[0], is_lower)
    dims = b.get_shape(factor).dims
    square = array("s32", *dims[-2:])
    row, column = b.iota(square, 0), b.iota(square, 1)
    inside = b.ge(row, column) if is_lower else b.le(row, column)
    mask = b.broadcast_in_dim(inside, dims, (len(dims) - 2, len(dims) - 1))
    factor = b.select(mask, factor, operands[0])
    finite = b.convert_element_type(b.not_(b.is_finite(b.real(diagonal(b, factor)))), "s32")
    bad = b.reduce(finite, b.constant(0), binary_computation("maximum", _S32), (len(dims) - 2,))
    return b.tuple([factor, bad])


_OPERATION = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def trsm(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand | None:
    """trsm."""
    if fields.get("trans_x", "N") not in _OPERATION:
        return None
    return b.triangular_solve(
        operands[0],
        operands[1],
        left_side=fields.get("side") == "L",
        lower=fields.get("uplo") == "L",
        unit_diagonal=fields.get("diag") == "U",
        transpose_a=_OPERATION[fields.get("trans_x", "N")],
    )


def getrf(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """getrf: both factors in one matrix, the rows that were exchanged (from 1), and the first pivot that is zero."""
    lu, pivots, _ = (b.get_tuple_element(b.lu_decomposition(operands[0], one_norm=True), k) for k in range(3))
    of = b.get_shape(lu)
    rank, last = of.rank, np.iinfo(np.int32).max
    row, column = (axis_numbers(b, of.dims, axis) for axis in (rank - 2, rank - 1))
    is_zero = b.and_(b.eq(row, column), b.eq(lu, b.full_like(lu, 0)))
    numbers = b.select(is_zero, b.add(row, b.full_like(row, 1)), b.full_like(row, last))
    smallest = binary_computation("minimum", _S32)
    first = b.reduce(numbers, b.constant(last), smallest, (rank - 2, rank - 1))
    info = b.select(b.eq(first, b.full_like(first, last)), b.full_like(first, 0), first)
    return b.tuple([lu, b.add(pivots, b.full_like(pivots, 1)), info])


def lu_decomposition(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape
) -> Operand:
    """XLA's own: the factors, the rows that were exchanged (from 0), and the row that each row comes from."""
    return b.lu_decomposition(operands[0])


def geqrf(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """geqrf: the upper factor with the Householder vectors below its diagonal, and their scales; a step a column."""
    of = b.get_shape(operands[0])
    if 0 in of.dims:
        return _zeros(b, shape)
    rows, columns = of.dims[-2:]
    count, steps = int(np.prod(of.dims[:-2], dtype=np.int64)), min(rows, columns)
    state = Shape.tuple(
        [array("s32"), Shape(of.element_type, (count, rows, columns)), Shape(of.element_type, (count, steps))]
    )
    start = b.tuple(
        [b.constant(0), b.reshape(operands[0], state.tuple_shapes[1].dims), b.zeros(state.tuple_shapes[2])]
    )
    loop = b.while_(_less_than(state, steps), _qr_step(state), start)
    packed, scales = (b.get_tuple_element(loop, k) for k in (1, 2))
    return b.tuple([b.reshape(packed, of.dims), b.reshape(scales, (*of.dims[:-2], steps))])


def _less_than(state: Shape, limit: int) -> Computation:
    b = ComputationBuilder("more")
    b.lt(b.get_tuple_element(b.parameter(0, state), 0), b.constant(limit))
    return b.build()


def _qr_step(state: Shape) -> Computation:
    b = ComputationBuilder("reflect")
    b.die_immediately_on_error = True
    parameter = b.parameter(0, state)
    k, matrix, scales = (b.get_tuple_element(parameter, n) for n in range(3))
    of = state.tuple_shapes[1]
    (count, rows, _), kind = of.dims, of.element_type
    zero, none, one = b.constant(0), b.constant(0, kind), b.constant(1, kind)
    column = b.reshape(b.dynamic_slice(matrix, [zero, zero, k], (count, rows, 1)), (count, rows))
    numbers = b.iota(array("s32", count, rows), 1)
    head = b.reshape(b.dynamic_slice(column, [zero, k], (count, 1)), (count,))
    below = b.select(b.gt(numbers, k), column, none)
    size, rest = (b.real(b.mul(v, b.conj(v))) for v in (head, below))
    rest = b.reduce(rest, b.constant(0, kind.real), binary_computation("add", kind.real), (1,))
    length = b.sqrt(b.add(size, rest))
    real = b.real(head)
    beta = b.select(b.lt(real, b.constant(0, kind.real)), length, b.neg(length))
    idle = b.eq(rest, b.constant(0, kind.real))
    if kind.is_complex:
        idle = b.and_(idle, b.eq(b.imag(head), b.constant(0, kind.real)))
        beta = b.complex(beta, b.mul(beta, b.constant(0, kind.real)))
    divisor = b.select(idle, one, beta)
    scale = b.select(idle, none, b.div(b.sub(beta, head), divisor))
    value = b.select(idle, head, beta)
    vector = b.div(below, b.select(idle, one, b.sub(head, beta)), (0,))
    vector = b.select(b.eq(numbers, k), one, vector)
    reflected = _reflected(b, matrix, vector, b.conj(scale))
    stored = b.select(b.eq(numbers, k), b.broadcast_in_dim(value, (count, rows), (0,)), vector)
    stored = b.select(b.ge(numbers, k), stored, column)
    here = b.eq(b.iota(array("s32", *of.dims), 2), k)
    right = b.gt(b.iota(array("s32", *of.dims), 2), k)
    packed = b.select(here, b.broadcast_in_dim(stored, of.dims, (0, 1)), b.select(right, reflected, matrix))
    scales = b.dynamic_update_slice(scales, b.reshape(scale, (count, 1)), [zero, k])
    return b.build(b.tuple([b.add(k, b.constant(1)), packed, scales]))


def _reflected(b: ComputationBuilder, matrix: Operand, vector: Operand, scale: Operand) -> Operand:
    """(I - scale v v^H) matrix, for each of a batch."""
    dims = b.get_shape(matrix).dims
    seen = b.dot_general(b.conj(vector), matrix, ((1,), (1,)), ((0,), (0,)))
    weighted = b.mul(vector, scale, (0,))
    return b.sub(
        matrix, b.mul(b.broadcast_in_dim(weighted, dims, (0, 1)), b.broadcast_in_dim(seen, dims, (0, 2)))
    )


def orgqr(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """orgqr, ungqr: the first columns of the product of the reflections that geqrf packs; the last is applied first."""
    of, scales = b.get_shape(operands[0]), b.get_shape(operands[1])
    (rows, columns), steps, kind = of.dims[-2:], scales.dims[-1], of.element_type
    count = int(np.prod(of.dims[:-2], dtype=np.int64))
    dims = (count, rows, columns)
    numbers = [b.iota(array("s32", *dims), axis) for axis in (1, 2)]
    identity = b.convert_element_type(b.eq(*numbers), kind)
    if 0 in (*of.dims, steps):
        return b.reshape(identity, of.dims)
    state = Shape.tuple([array("s32"), Shape(kind, dims), Shape(kind, dims), Shape(kind, (count, steps))])
    start = b.tuple(
        [b.constant(0), identity, b.reshape(operands[0], dims), b.reshape(operands[1], (count, steps))]
    )
    loop = b.while_(_less_than(state, steps), _orthogonal_step(state, steps), start)
    return b.reshape(b.get_tuple_element(loop, 1), of.dims)


def _orthogonal_step(state: Shape, steps: int) -> Computation:
    b = ComputationBuilder("unpack")
    b.die_immediately_on_error = True
    parameter = b.parameter(0, state)
    turn, product, packed, scales = (b.get_tuple_element(parameter, n) for n in range(4))
    (count, rows, _), kind = state.tuple_shapes[1].dims, state.tuple_shapes[1].element_type
    zero = b.constant(0)
    k = b.sub(b.constant(steps - 1), turn)
    column = b.reshape(b.dynamic_slice(packed, [zero, zero, k], (count, rows, 1)), (count, rows))
    numbers = b.iota(array("s32", count, rows), 1)
    below = b.select(b.gt(numbers, k), column, b.constant(0, kind))
    vector = b.select(b.eq(numbers, k), b.constant(1, kind), below)
    scale = b.reshape(b.dynamic_slice(scales, [zero, k], (count, 1)), (count,))
    return b.build(
        b.tuple([b.add(turn, b.constant(1)), _reflected(b, product, vector, scale), packed, scales])
    )


def syevd(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """syevd, heevd: eigenvectors, eigenvalues in ascending order, zero: there is always an answer."""
    is_lower = fields.get("uplo") == "L"
    return b.tuple([*eigenvectors_and_values(b, operands[0], is_lower), success(b, operands[0])])


def eigenvectors_and_values(
    b: ComputationBuilder, matrix: Operand, is_lower: bool
) -> tuple[Operand, Operand]:
    """Those of Hermitian matrices, of which one triangle is read, in ascending order."""
    both = b.self_adjoint_eig(matrix if is_lower else adjoint(b, matrix))
    return b.get_tuple_element(both, 1), b.get_tuple_element(both, 0)


def geev(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """geev: eigenvalues (of real matrices real and imaginary parts), left eigenvectors, right ones, zero."""
    kind = b.get_shape(operands[0]).element_type
    if 0 in b.get_shape(operands[0]).dims:
        return _zeros(b, shape)
    is_complex = kind.is_complex
    zero = b.full_like(operands[0], 0) if not is_complex else operands[0]
    matrix = operands[0] if is_complex else b.complex(operands[0], zero)
    values, vectors = eig(b, matrix)
    is_left = fields.get("compute_left") == "V"
    left = left_eigenvectors(b, matrix) if is_left else b.zeros(b.get_shape(vectors))
    parts = [values] if is_complex else [b.real(values), b.imag(values)]
    return b.tuple([*parts, left, vectors, success(b, operands[0])])


def gees(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand | None:
    """gees of complex matrices: the triangular form, Schur vectors, eigenvalues, a number of chosen ones, zero."""
    if not b.get_shape(operands[0]).element_type.is_complex or fields.get("sort", "N") != "N":
        return None
    if 0 in b.get_shape(operands[0]).dims:
        return _zeros(b, shape)
    t, q = schur(b, operands[0])
    return b.tuple([t, q, diagonal(b, t), success(b, t), success(b, t)])


def gesdd(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """gesdd, gesvd: the operand; singular values in descending order; u, the adjoint of v; zero.
    With mode A u and v are square, with N they are not wanted."""
    matrix, mode = operands[0], fields.get("mode") or fields.get("jobu")
    if 0 in b.get_shape(matrix).dims:
        return _zeros(b, shape)
    s, u, v = svd(b, matrix, mode == "A")
    vectors = [
        b.zeros(one.without_layout()) for one in shape.tuple_shapes[2:4]
    ]  # of the shape that is asked for
    return b.tuple([matrix, s, *(vectors if mode == "N" else (u, adjoint(b, v))), success(b, matrix)])


def _zeros(b: ComputationBuilder, shape: Shape) -> Operand:
    return b.tuple([b.zeros(one.without_layout()) for one in shape.tuple_shapes])


def gtsv(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand:
    """gtsv: the diagonals, x, zero."""
    lower, main, upper, rhs = operands
    dims = b.get_shape(main).dims
    if 0 in b.get_shape(rhs).dims:
        return _zeros(b, shape)
    rows = [b.reshape(one, (*dims[:-1], 1, dims[-1])) for one in (upper, main, lower)]
    x = tridiagonal(b, b.concat_in_dim(rows, len(dims) - 1), rhs, True)
    return b.tuple([lower, main, upper, x, success(b, rhs)])
