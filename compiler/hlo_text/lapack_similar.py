"""LAPACK's routines that make a matrix similar to a simpler one, as JAX calls them on CPUs, packed as LAPACK packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..builder.computation_builder import ComputationBuilder, Operand
from ..builder.lib.loops import repeated
from ..builder.lib.matrices import adjoint, axis_numbers, column_sum, line, real_part, with_line
from ..builder.lib.qr import reflected, reflection
from ..ir.element_types import ElementType
from ..ir.shape import Shape
from .lapack import success

Fields: TypeAlias = Mapping[str, str]
_S32 = ElementType.S32


def gehrd(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand | None:
    """gehrd: the matrix without elements below its first subdiagonal, in their place the Householder vectors, their
    scales, and zero. Of all rows and columns only."""
    n = b.get_shape(operands[0]).dims[-1]
    if fields.get("low", "1") != "1" or fields.get("high", str(n)) != str(n):
        return None
    h, vectors, taus = _similar(b, operands[0])
    return b.tuple([_below(b, 2, vectors, h), taus, success(b, h)])


def sytrd(b: ComputationBuilder, operands: Sequence[Operand], fields: Fields, shape: Shape) -> Operand | None:
    """sytrd, hetrd: of the one triangle that is read, the diagonal and the one beside it, and the Householder vectors
    beyond; both diagonals, the scales, and zero. The upper triangle is the lower one of the reversed matrix."""
    if fields.get("uplo") not in ("L", "U"):
        return None
    rank = b.get_shape(operands[0]).rank
    is_upper = fields["uplo"] == "U"
    x = b.rev(operands[0], (rank - 2, rank - 1)) if is_upper else operands[0]
    zero = b.full_like(x, 0)
    lower = _below(b, 1, x, zero)
    diagonal = _below(b, 0, _below(b, 1, zero, x), zero)
    if b.get_shape(x).element_type.is_complex:
        diagonal = b.convert_element_type(b.real(diagonal), b.get_shape(x).element_type)
    t, vectors, taus = _similar(b, lower + diagonal + adjoint(b, lower))
    own, beside = _diagonal(b, t, 0), _diagonal(b, t, 1)
    packed = _below(b, 2, vectors, _below(b, 0, t, x))
    if is_upper:
        packed = b.rev(packed, (rank - 2, rank - 1))
        own, beside, taus = (b.rev(one, (rank - 2,)) for one in (own, beside, taus))
    return b.tuple([packed, own, beside, taus, success(b, packed)])


def _similar(b: ComputationBuilder, x: Operand) -> tuple[Operand, Operand, Operand]:
    """q^H x q, which has zeros below its first subdiagonal up to a rounding, the Householder vectors of q as columns,
    and LAPACK's scales of them."""
    *outer, n, _ = b.get_shape(x).dims
    rank, steps, kind = len(outer) + 2, max(n - 1, 0), b.get_shape(x).element_type
    taus, vectors = b.zeros(Shape(kind, (*outer, 1, steps))), b.full_like(x, 0)

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        h, vectors, taus = values
        v, tau = reflection(b, line(b, h, number, rank - 1), number + b.constant(1, _S32))
        h = adjoint(b, reflected(b, adjoint(b, reflected(b, h, v, tau)), v, tau))
        scales = with_line(b, taus, b.conj(tau), number, rank - 1)
        return [h, with_line(b, vectors, v, number, rank - 1), scales]

    h, vectors, taus = repeated(b, steps, [x, vectors, taus], step) if steps else (x, vectors, taus)
    return h, vectors, b.reshape(taus, (*outer, steps))


def _below(b: ComputationBuilder, diagonal: int, x: Operand, y: Operand) -> Operand:
    """x from a subdiagonal on (0: the diagonal), y above it."""
    dims = b.get_shape(x).dims
    rows, columns = (axis_numbers(b, dims, axis) for axis in (len(dims) - 2, len(dims) - 1))
    return b.select(b.ge(rows, columns + b.constant(diagonal, _S32)), x, y)


def _diagonal(b: ComputationBuilder, x: Operand, number: int) -> Operand:
    """The real parts of a subdiagonal."""
    dims = b.get_shape(x).dims
    rank, size = len(dims), max(dims[-1] - number, 0)
    rows, columns = (axis_numbers(b, dims, axis) for axis in (rank - 2, rank - 1))
    inside = b.eq(rows, columns + b.constant(number, _S32))
    sums = column_sum(b, b.select(inside, real_part(b, x), b.full_like(real_part(b, x), 0)))
    return b.reshape(b.slice_in_dim(sums, 0, size, 1, rank - 1), (*dims[:-2], size))
