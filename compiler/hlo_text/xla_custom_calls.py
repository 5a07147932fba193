"""Custom calls of XLA's and JAX's own libraries for CPUs, read as the operations that they are: text lowered for a CPU
runs without those libraries.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ...runtime.devices import custom_calls
from ..builder.computation_builder import ComputationBuilder, Operand
from ..builder.derived import binary_computation
from ..builder.lib.eig import eig, schur
from ..builder.lib.matrices import adjoint
from ..builder.lib.self_adjoint_eig import eigh
from ..builder.lib.svd import svd
from ..builder.lib.tridiagonal import tridiagonal
from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape, array
from ..ops import CustomCall
from ..ops.op import require

Write: TypeAlias = Callable[[ComputationBuilder, Sequence[Operand], Mapping[str, str], Shape], Operand | None]
"""Writes a call with a builder, given its operands, the fields of its backend_config, and the shape of its result; None
where it is not known what these fields ask for."""
_FIELD = re.compile(r"(\w+)\s*=\s*(-?\d{1,9})\b", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of a library: how it is written, the number of its operands, the numbers of results that it may have
    (None: one that is in no tuple), and the fewest axes of an operand."""

    write: Write
    operands: int
    results: tuple[int | None, ...]
    rank: int = 2


_LAPACK = re.compile(r"lapack_([sdcz])(\w+)_ffi")
_S32 = ElementType.S32


def library_call(op: CustomCall, operands: Sequence[Shape]) -> Computation | None:
    """The computation that a call of a known library is; None for other targets, and for those that somebody has
    registered.

    Raises: ShapeError  library_c1: the number of operands, or of results, is not the library's; library_c2: an operand
        is no batch of matrices; library_c3: the result has another shape than the one declared; those of the operations
        that the call is written with.
    """
    name = op.custom_call_target
    function = _function(name)
    if function is None or custom_calls.find(name) is not None:
        return None
    results = len(op.shape.tuple_shapes) if op.shape.is_tuple else None
    require(
        len(operands) == function.operands and results in function.results,
        f"{name}: {len(operands)} operands and {results or 'one'} results, {function.operands} and one of "
        f"{function.results} wanted (None: no tuple)",
        "library_c1",
    )
    require(
        all(s.is_array and s.rank >= function.rank for s in operands),
        f"{name}: operands are {', '.join(map(str, operands))}, arrays of {function.rank} axes or more are wanted",
        "library_c2",
    )
    b = ComputationBuilder(name)
    b.die_immediately_on_error = True
    parameters = [b.parameter(k, s.without_layout()) for k, s in enumerate(operands)]
    fields = {
        key: chr(int(value)) if 32 < int(value) < 127 else value
        for key, value in _FIELD.findall(op.backend_config)
    }
    try:
        result = function.write(b, parameters, fields, op.shape)
    except ShapeError as error:  # behind the first line: where the builder was called
        raise ShapeError(f"{name}: {str(error).splitlines()[0]}") from None
    if result is None:
        return None
    shape = b.get_shape(result)
    require(
        shape.compatible(op.shape), f"{name}: result is declared as {op.shape}, it is {shape}", "library_c3"
    )
    return b.build(result)


def is_of_library(name: str) -> bool:
    """Whether a custom-call target is one that `library_call` knows."""
    return _function(name) is not None


def _function(name: str) -> Function | None:
    match = _LAPACK.fullmatch(name)
    return LIBRARY.get(match[2] if match else name)


def _info(b: ComputationBuilder, matrix: Operand) -> Operand:
    """The status of LAPACK for each matrix of a batch: 0, success."""
    return b.zeros(array("s32", *b.get_shape(matrix).dims[:-2]))


def _cholesky(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """potrf: the factor in one triangle, and the number of the first minor that is not positive, here 0 or 1."""
    factor = b.cholesky(operands[0], fields.get("uplo") == "L")
    dims = b.get_shape(factor).dims
    finite = b.convert_element_type(b.not_(b.is_finite(b.real(_diagonal(b, factor)))), "s32")
    bad = b.reduce(finite, b.constant(0), binary_computation("maximum", _S32), (len(dims) - 2,))
    return b.tuple([factor, bad])


def _diagonal(b: ComputationBuilder, matrix: Operand) -> Operand:
    """The diagonals of square matrices."""
    shape = b.get_shape(matrix)
    rank, n = shape.rank, shape.dims[-1]
    square = array("s32", n, n)
    mask = b.broadcast_in_dim(b.eq(b.iota(square, 0), b.iota(square, 1)), shape.dims, (rank - 2, rank - 1))
    zero = b.constant(0, shape.element_type)
    return b.reduce(
        b.select(mask, matrix, b.broadcast(zero, shape.dims)),
        zero,
        binary_computation("add", shape.element_type),
        (rank - 1,),
    )


_OPERATION = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _triangular_solve(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand | None:
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


def _lu(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """getrf: both factors in one matrix, the rows that were exchanged (from 1), and the first pivot that is zero.

    One step a column: the row of the largest element below the diagonal comes up, then what it times its multiples
    make is taken off the rest.
    """
    matrix = operands[0]
    of = b.get_shape(matrix)
    rows, columns = of.dims[-2:]
    count = int(np.prod(of.dims[:-2], dtype=np.int64))
    flat = array(of.element_type.value, count, rows, columns)
    steps = min(rows, columns)
    state = Shape.tuple([array("s32"), flat, array("s32", count, steps), array("s32", count)])
    start = b.tuple(
        [
            b.constant(0),
            b.reshape(matrix, flat.dims),
            b.zeros(state.tuple_shapes[2]),
            b.zeros(state.tuple_shapes[3]),
        ]
    )
    condition = ComputationBuilder("more")
    condition.lt(condition.get_tuple_element(condition.parameter(0, state), 0), condition.constant(steps))
    loop = b.while_(condition.build(), _lu_step(state, rows, columns), start)
    parts = [b.get_tuple_element(loop, k) for k in (1, 2, 3)]
    batch = of.dims[:-2]
    return b.tuple([b.reshape(p, dims) for p, dims in zip(parts, (of.dims, (*batch, steps), batch))])


def _lu_step(state: Shape, rows: int, columns: int) -> Computation:
    b = ComputationBuilder("step")
    b.die_immediately_on_error = True
    parameter = b.parameter(0, state)
    k, matrix, pivots, info = (b.get_tuple_element(parameter, n) for n in range(4))
    flat = state.tuple_shapes[1]
    count, kind = flat.dims[0], flat.element_type
    zero = b.constant(0)
    column = b.reshape(b.dynamic_slice(matrix, [zero, zero, k], (count, rows, 1)), (count, rows))
    numbers = b.iota(array("s32", count, rows), 1)
    size = b.abs(column) if not kind.is_complex else b.add(b.abs(b.real(column)), b.abs(b.imag(column)))
    open_rows = b.select(b.ge(numbers, k), size, b.constant(-1, kind.real))
    pivot = _largest(b, open_rows, numbers)
    here = b.eq(numbers, k)
    there = b.eq(numbers, pivot, (0,))
    top = _row(b, matrix, there)
    old = _row(b, matrix, here)
    whole = flat.dims
    exchanged = b.select(
        b.broadcast_in_dim(there, whole, (0, 1)), b.broadcast_in_dim(old, whole, (0, 2)), matrix
    )
    exchanged = b.select(
        b.broadcast_in_dim(here, whole, (0, 1)), b.broadcast_in_dim(top, whole, (0, 2)), exchanged
    )
    value = b.reshape(b.dynamic_slice(top, [zero, k], (count, 1)), (count,))
    singular = b.eq(value, b.constant(0, kind))
    divisor = b.select(singular, b.constant(1, kind), value)
    moved = b.reshape(b.dynamic_slice(exchanged, [zero, zero, k], (count, rows, 1)), (count, rows))
    multiples = b.div(moved, divisor, (0,))
    below = b.gt(numbers, k)
    column_numbers = b.iota(array("s32", count, columns), 1)
    right = b.select(b.gt(column_numbers, k), top, b.constant(0, kind))
    eliminated = b.mul(
        b.broadcast_in_dim(b.select(below, multiples, b.constant(0, kind)), whole, (0, 1)),
        b.broadcast_in_dim(right, whole, (0, 2)),
    )
    reduced = b.sub(exchanged, eliminated)
    in_column = b.and_(
        b.broadcast_in_dim(below, whole, (0, 1)), b.broadcast_in_dim(b.eq(column_numbers, k), whole, (0, 2))
    )
    reduced = b.select(in_column, b.broadcast_in_dim(multiples, whole, (0, 1)), reduced)
    one = b.constant(1)
    pivots = b.dynamic_update_slice(pivots, b.reshape(b.add(pivot, one), (count, 1)), [zero, k])
    first = b.and_(singular, b.eq(info, b.constant(0)))
    info = b.select(first, b.broadcast(b.add(k, one), (count,)), info)
    return b.build(b.tuple([b.add(k, one), reduced, pivots, info]))


def _largest(b: ComputationBuilder, sizes: Operand, numbers: Operand) -> Operand:
    """For each row of `sizes` the number of the largest element, the first of equal ones."""
    kind = b.get_shape(sizes).element_type
    c = ComputationBuilder("larger")
    x, i, y, j = (c.parameter(n, array(t, *())) for n, t in enumerate((kind.value, "s32", kind.value, "s32")))
    better = c.or_(c.gt(y, x), c.and_(c.eq(y, x), c.lt(j, i)))
    c.tuple([c.select(better, y, x), c.select(better, j, i)])
    last = b.constant(np.iinfo(np.int32).max)
    pair = b.reduce([sizes, numbers], [b.constant(-2, kind), last], c.build(), (1,))
    largest = b.get_tuple_element(pair, 1)
    dims = b.get_shape(sizes).dims
    return b.min(largest, b.constant(max(dims[1] - 1, 0)))  # where all are NaN


def _row(b: ComputationBuilder, matrix: Operand, row: Operand) -> Operand:
    """The row of each matrix that is chosen, exactly: what is not chosen is left out, not multiplied by zero."""
    shape = b.get_shape(matrix)
    zero = b.constant(0, shape.element_type)
    mask = b.broadcast_in_dim(row, shape.dims, (0, 1))
    alone = b.select(mask, matrix, b.broadcast(zero, shape.dims))
    return b.reduce(alone, zero, binary_computation("add", shape.element_type), (1,))


def _qr(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """geqrf: the upper factor with the Householder vectors below its diagonal, and their scales; a step a column."""
    of = b.get_shape(operands[0])
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


def _orthogonal(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """orgqr, ungqr: the first columns of the product of the reflections that geqrf packs; the last is applied first."""
    of, scales = b.get_shape(operands[0]), b.get_shape(operands[1])
    (rows, columns), steps, kind = of.dims[-2:], scales.dims[-1], of.element_type
    count = int(np.prod(of.dims[:-2], dtype=np.int64))
    dims = (count, rows, columns)
    numbers = [b.iota(array("s32", *dims), axis) for axis in (1, 2)]
    identity = b.convert_element_type(b.eq(*numbers), kind)
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


def _eigh(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """syevd, heevd: eigenvectors, eigenvalues in ascending order, zero: there is always an answer."""
    matrix = operands[0] if fields.get("uplo") == "L" else adjoint(b, operands[0])
    if 0 in shape.tuple_shapes[0].dims:
        return _zeros(b, shape)
    values, vectors = eigh(b, matrix)
    return b.tuple([vectors, values, _info(b, matrix)])


def _eig(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand | None:
    """geev: eigenvalues (of real matrices real and imaginary parts), left eigenvectors, which must not be wanted, right
    ones, zero."""
    if fields.get("compute_left") == "V":
        return None
    kind = b.get_shape(operands[0]).element_type
    if 0 in b.get_shape(operands[0]).dims:
        return _zeros(b, shape)
    is_complex = kind.is_complex
    zero = b.full_like(operands[0], 0) if not is_complex else operands[0]
    values, vectors = eig(b, operands[0] if is_complex else b.complex(operands[0], zero))
    parts = [values] if is_complex else [b.real(values), b.imag(values)]
    return b.tuple([*parts, b.zeros(b.get_shape(vectors)), vectors, _info(b, operands[0])])


def _schur(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand | None:
    """gees of complex matrices: the triangular form, Schur vectors, eigenvalues, a number of chosen ones, zero."""
    if not b.get_shape(operands[0]).element_type.is_complex or fields.get("sort", "N") != "N":
        return None
    if 0 in b.get_shape(operands[0]).dims:
        return _zeros(b, shape)
    t, q = schur(b, operands[0])
    return b.tuple([t, q, _diagonal(b, t), _info(b, t), _info(b, t)])


def _svd(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """gesdd, gesvd: the operand; singular values in descending order; u, the adjoint of v; zero.
    With mode A u and v are square, with N they are not wanted."""
    matrix, mode = operands[0], fields.get("mode") or fields.get("jobu")
    if 0 in b.get_shape(matrix).dims:
        return _zeros(b, shape)
    s, u, v = svd(b, matrix, mode == "A")
    vectors = [
        b.zeros(one.without_layout()) for one in shape.tuple_shapes[2:4]
    ]  # of the shape that is asked for
    return b.tuple([matrix, s, *(vectors if mode == "N" else (u, adjoint(b, v))), _info(b, matrix)])


def _zeros(b: ComputationBuilder, shape: Shape) -> Operand:
    return b.tuple([b.zeros(one.without_layout()) for one in shape.tuple_shapes])


def _tridiagonal_solve(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """gtsv: the diagonals, x, zero."""
    lower, main, upper, rhs = operands
    dims = b.get_shape(main).dims
    if 0 in b.get_shape(rhs).dims:
        return _zeros(b, shape)
    rows = [b.reshape(one, (*dims[:-1], 1, dims[-1])) for one in (upper, main, lower)]
    x = tridiagonal(b, b.concat_in_dim(rows, len(dims) - 1), rhs, True)
    return b.tuple([lower, main, upper, x, _info(b, rhs)])


def _top_k(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand:
    """XLA's TopK."""
    require(shape.tuple_shapes[0].rank > 0, f"TopK: result is {shape}, arrays are wanted", "library_c3")
    return b.top_k(
        operands[0], shape.tuple_shapes[0].dims[-1], fields.get("largest", "1") not in ("0", "false")
    )


def _unchanged(
    b: ComputationBuilder, operands: Sequence[Operand], fields: Mapping[str, str], shape: Shape
) -> Operand | None:
    """How an array is to be divided among devices; there is one device."""
    return b.copy(operands[0]) if b.get_shape(operands[0]).dims == shape.dims else None


LIBRARY: dict[str, Function] = {
    **dict.fromkeys(
        ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"), Function(_unchanged, 1, (None,), 0)
    ),
    "TopK": Function(_top_k, 1, (2,), 1),
    "gees": Function(_schur, 1, (5,)),
    "geev": Function(_eig, 1, (4, 5)),
    "geqrf": Function(_qr, 1, (2, 3)),
    "gesdd": Function(_svd, 1, (5,)),
    "gesvd": Function(_svd, 1, (5,)),
    "getrf": Function(_lu, 1, (3,)),
    "gtsv": Function(_tridiagonal_solve, 4, (5,), 1),
    "heevd": Function(_eigh, 1, (3,)),
    "orgqr": Function(_orthogonal, 2, (None,), 1),
    "potrf": Function(_cholesky, 1, (2,)),
    "syevd": Function(_eigh, 1, (3,)),
    "trsm": Function(_triangular_solve, 2, (None,)),
    "ungqr": Function(_orthogonal, 2, (None,), 1),
}
"""By target, or the part of it behind the type letter for LAPACK, what it computes."""
