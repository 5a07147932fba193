"""Eigenvalues and eigenvectors of general matrices, by their Schur form in complex arithmetic: Hessenberg form, then QR
steps with Wilkinson's shift. Batches at once; each step works on the matrices that are not finished.

Source: Golub and Van Loan, Matrix Computations, 7.5 and 7.6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from ..derived import binary_computation
from .loops import repeated, until
from .matrices import adjoint, axis_numbers, column_sum, line, product, real_type, unit, with_line
from .qr import qr, reflected, reflection

_S32 = ElementType.S32
_STEPS = 30  # QR steps that an eigenvalue takes at most
_EXCEPTIONAL = 10  # period of exceptional shifts: some matrices do not converge with Wilkinson's


def hessenberg(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(h, q) with x = q h q^H and h zero below its first subdiagonal."""
    dims, type_ = b.get_shape(x).dims, b.get_shape(x).element_type
    rank = len(dims)

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        h, q = values
        v, tau = reflection(b, line(b, h, number, rank - 1), number + b.constant(1, _S32))
        h = reflected(b, h, v, tau)
        return [adjoint(b, reflected(b, adjoint(b, one), v, tau)) for one in (h, q)]

    h, q = repeated(b, max(dims[-1] - 2, 0), [x, unit(b, dims, type_)], step)
    return b.select(_below(b, dims, 1), b.full_like(h, 0), h), q


def schur(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(t, q) with x = q t q^H and t upper triangular, of complex matrices."""
    outer = b.get_shape(x).dims[:-2]
    size = b.get_shape(x).dims[-1]
    flat = (int(np.prod(outer, dtype=np.int64)), size, size)
    last = b.broadcast(b.constant(size - 1, _S32), flat[:1])
    x = b.reshape(x, flat)
    scale = b.broadcast_in_dim(_scale(b, x), flat, [0])  # squares of elements must not overflow
    t, q = hessenberg(b, x / scale)
    t, q, _, _ = until(b, _STEPS * size, [t, q, last, b.gt(last, b.full_like(last, 0))], _qr_step)
    t = b.select(_below(b, flat, 0), b.full_like(t, 0), t * scale)
    return b.reshape(t, (*outer, size, size)), b.reshape(q, (*outer, size, size))


def _scale(b: ComputationBuilder, x: Operand) -> Operand:
    """The largest absolute value of each matrix of a batch; 1 for zeros."""
    sizes = b.abs(x)
    none = b.constant(0, real_type(b, x))
    largest = b.reduce(sizes, none, binary_computation("maximum", real_type(b, x)), (1, 2))
    largest = b.select(b.eq(largest, b.full_like(largest, 0)), b.full_like(largest, 1), largest)
    return b.convert_element_type(largest, b.get_shape(x).element_type)


def _below(b: ComputationBuilder, dims: Sequence[int], diagonal: int) -> Operand:
    """Where elements stand below a subdiagonal."""
    columns = axis_numbers(b, dims, len(dims) - 1)
    return b.gt(axis_numbers(b, dims, len(dims) - 2), columns + b.full_like(columns, diagonal))


def _qr_step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
    """A QR step on rows and columns up to `last`, or where the element left of the last one is zero, last - 1."""
    t, q, last, _ = values
    dims, type_ = b.get_shape(t).dims, b.get_shape(t).element_type
    real = real_type(b, t)
    rows, columns = axis_numbers(b, dims, 1), axis_numbers(b, dims, 2)
    ends = b.broadcast_in_dim(last, dims, [0])
    one = b.full_like(rows, 1)

    def element(up: bool, left: bool) -> Operand:
        is_here = b.and_(b.eq(rows, ends - one if up else ends), b.eq(columns, ends - one if left else ends))
        return b.reduce(
            b.select(is_here, t, b.full_like(t, 0)),
            b.constant(0, type_),
            binary_computation("add", type_),
            (1, 2),
        )

    corner, beside, above, before = (element(up, left) for up in (False, True) for left in (False, True))
    size = b.abs(corner) + b.abs(before)
    bound = size * b.full_like(size, float(np.finfo(real.dtype).eps))
    is_split = b.not_(b.gt(b.abs(beside), bound))  # NaN too: there is nothing to wait for
    half = (before - corner) * b.full_like(corner, 0.5)
    root = b.sqrt(half * half + above * beside)
    smaller, larger = half + root, half - root
    move = b.select(b.lt(b.abs(smaller), b.abs(larger)), smaller, larger)
    turn = b.rem(number, b.constant(_EXCEPTIONAL, _S32))
    is_other = b.broadcast(b.eq(turn, b.constant(_EXCEPTIONAL - 1, _S32)), dims[:1])
    shift = corner + b.select(is_other, b.convert_element_type(b.abs(beside), type_), move)
    is_moved = b.and_(b.not_(is_split), b.gt(last, b.full_like(last, 0)))
    inside = b.and_(b.and_(b.le(rows, ends), b.le(columns, ends)), b.broadcast_in_dim(is_moved, dims, [0]))
    ones = unit(b, dims, type_)
    turned, _ = qr(b, b.select(inside, t - b.broadcast_in_dim(shift, dims, [0]) * ones, ones), True)
    t = product(b, product(b, adjoint(b, turned), t), turned)
    at_split = b.and_(b.and_(b.eq(rows, ends), b.lt(columns, ends)), b.broadcast_in_dim(is_split, dims, [0]))
    t = b.select(b.or_(at_split, _below(b, dims, 1)), b.full_like(t, 0), t)
    last = b.select(is_split, b.max(last - b.full_like(last, 1), b.full_like(last, 0)), last)
    return t, product(b, q, turned), last, b.gt(last, b.full_like(last, 0))


def eig(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand]:
    """(eigenvalues, eigenvectors as columns of length 1 whose largest element is real) of complex matrices."""
    t, q = schur(b, x)
    values, vectors = _eigenvectors(b, t, q)
    return b.reshape(values, b.get_shape(x).dims[:-1]), vectors


def left_eigenvectors(b: ComputationBuilder, x: Operand) -> Operand:
    """Left eigenvectors as such columns, in the order of `eig`: the adjoint's, whose Schur form is that of x turned
    over."""
    last = len(b.get_shape(x).dims) - 1
    t, q = schur(b, x)
    _, vectors = _eigenvectors(b, b.rev(adjoint(b, t), (last - 1, last)), b.rev(q, (last,)))
    return b.rev(vectors, (last,))


def _eigenvectors(b: ComputationBuilder, t: Operand, q: Operand) -> tuple[Operand, Operand]:
    """Eigenvalues, [..., 1, n], and eigenvectors of q t q^H, t upper triangular."""
    dims, type_ = b.get_shape(t).dims, b.get_shape(t).element_type
    rank, size = len(dims), dims[-1]
    real = real_type(b, t)
    values = column_sum(b, b.select(unit(b, dims, ElementType.PRED), t, b.full_like(t, 0)))  # [..., 1, n]
    sizes = b.abs(t)
    norm = b.reduce(sizes, b.constant(0, real), binary_computation("maximum", real), (rank - 2, rank - 1))
    tiny = b.broadcast_in_dim(
        norm * b.full_like(norm, float(np.finfo(real.dtype).eps)), b.get_shape(values).dims, range(rank - 2)
    )
    tiny = b.max(tiny, b.full_like(tiny, float(np.finfo(real.dtype).tiny)))

    def step(b: ComputationBuilder, number: Operand, inputs: list[Operand]) -> Sequence[Operand]:
        """One row of the triangular matrix's eigenvectors, from the last one up."""
        t, values, tiny, vectors = inputs
        at = b.constant(size - 1, _S32) - number
        dots = product(b, line(b, t, at, rank - 2), vectors)
        gap = values - b.broadcast_in_dim(
            line(b, values, at, rank - 1), b.get_shape(values).dims, range(rank)
        )
        gap = b.select(b.lt(b.abs(gap), tiny), b.convert_element_type(tiny, type_), gap)
        columns = axis_numbers(b, b.get_shape(values).dims, rank - 1)
        row = b.select(b.gt(columns, at), dots / gap, b.convert_element_type(b.eq(columns, at), type_))
        growth = b.max(b.abs(row), b.full_like(tiny, 1))  # no eigenvector's largest element grows beyond 1
        growth = b.convert_element_type(growth, type_)
        vectors = vectors / b.broadcast_in_dim(growth, dims, range(rank))
        return t, values, tiny, with_line(b, vectors, row / growth, at, rank - 2)

    start = b.broadcast(b.constant(0, type_), dims)
    vectors = product(b, q, repeated(b, size, [t, values, tiny, start], step)[3])
    squares = b.real(vectors * b.conj(vectors))
    largest = b.reduce(squares, b.constant(0, real), binary_computation("maximum", real), (rank - 2,))
    is_largest = b.eq(squares, b.broadcast_in_dim(largest, dims, [*range(rank - 2), rank - 1]))
    numbers = axis_numbers(b, dims, rank - 2)
    first = b.reduce(
        b.select(is_largest, numbers, b.full_like(numbers, size)),
        b.constant(size, _S32),
        binary_computation("minimum", _S32),
        (rank - 2,),
    )
    is_first = b.eq(numbers, b.broadcast_in_dim(first, dims, [*range(rank - 2), rank - 1]))
    phase = column_sum(b, b.select(is_first, b.conj(vectors), b.full_like(vectors, 0)))
    phase = phase / b.convert_element_type(b.abs(phase), type_)
    scale = phase / b.convert_element_type(b.sqrt(column_sum(b, squares)), type_)
    vectors = vectors * b.broadcast_in_dim(scale, dims, range(rank))
    return values, vectors
