"""Roots, hyperbolic and inverse functions of complex numbers, right on both sides of every branch cut.

c64 is computed in c128.
Source: W. Kahan, Branch Cuts for Complex Elementary Functions, or Much Ado About Nothing's Sign Bit, 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand


def _parts(b: ComputationBuilder, z: Operand) -> tuple[Operand, Operand]:
    return b.real(z), b.imag(z)


def _cosh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    return b.cos(b.complex(-y, x))


def _sqrt(b: ComputationBuilder, z: Operand) -> Operand:
    """The square root; that of 0 is 0 whatever the zeros' signs."""
    return b.select(b.eq(z, b.full_like(z, 0)), b.full_like(z, 0), b.sqrt(z))


def _rsqrt(b: ComputationBuilder, z: Operand) -> Operand:
    """1 / sqrt(z), where a negative zero is no negative number."""
    x, y = _parts(b, z)
    zero, size = b.full_like(x, 0), b.abs(z)
    root = b.sqrt(b.complex(x, b.abs(y)))
    real, imaginary = b.real(root) / size, b.imag(root) / size
    imaginary = b.select(b.lt(y, zero), imaginary, -imaginary)
    result = b.complex(real, b.select(b.and_(b.eq(y, zero), b.gt(x, zero)), -y, imaginary))
    infinity = b.full_like(x, math.inf)
    result = b.select(b.eq(size, infinity), b.complex(zero, zero), result)
    return b.select(b.eq(size, zero), b.complex(infinity, b.full_like(x, math.nan)), result)


def _roots(b: ComputationBuilder, z: Operand) -> tuple[Operand, Operand]:
    """Real and imaginary parts are changed one by one: a zero keeps its sign, which picks the side of the cut.

    Shapes: the square roots of 1 - z and of 1 + z, as z.
    """
    x, y = _parts(b, z)
    one = b.full_like(x, 1)
    return b.sqrt(b.complex(one - x, -y)), b.sqrt(b.complex(one + x, y))


def _cross(b: ComputationBuilder, p: Operand, q: Operand) -> Operand:
    """The imaginary part of conj(p) * q."""
    return b.real(p) * b.imag(q) - b.imag(p) * b.real(q)


def _signed(b: ComputationBuilder, size: Operand, x: Operand) -> Operand:
    """A positive number with the sign of x, also where that is a zero; a NaN has none."""
    bits = b.bitcast_convert_type(x, ElementType.S64)
    return b.select(b.and_(b.lt(bits, b.scalar_like(bits, 0)), b.eq(x, x)), -size, size)


def _is_infinite(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    infinity = b.full_like(x, math.inf)
    return b.or_(b.eq(b.abs(x), infinity), b.eq(b.abs(y), infinity))


def _with_ends(b: ComputationBuilder, z: Operand, result: Operand, end: Operand, at_zero: Operand) -> Operand:
    """A result, another one where a part of z is infinite, and a third one for 0 + NaN i."""
    x, y = _parts(b, z)
    unknown = b.and_(b.eq(x, b.full_like(x, 0)), b.ne(y, y))
    return b.select(unknown, at_zero, b.select(_is_infinite(b, x, y), end, result))


def _asin(b: ComputationBuilder, z: Operand) -> Operand:
    below, above = _roots(b, z)
    x, y = _parts(b, z)
    real = b.real(below) * b.real(above) - b.imag(below) * b.imag(above)
    result = b.complex(b.atan2(x, real), b.asinh(_cross(b, below, above)))
    end = b.complex(b.atan2(x, b.abs(y)), _signed(b, b.full_like(y, math.inf), y))
    return _with_ends(b, z, result, end, z)


def _acos(b: ComputationBuilder, z: Operand) -> Operand:
    below, above = _roots(b, z)
    x, y = _parts(b, z)
    half = b.atan2(b.real(below), b.real(above))
    result = b.complex(half + half, b.asinh(_cross(b, above, below)))
    end = b.complex(b.atan2(b.abs(y), x), -_signed(b, b.full_like(y, math.inf), y))
    return _with_ends(b, z, result, end, b.complex(b.full_like(x, math.pi / 2), y))


def _acosh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    one = b.full_like(x, 1)
    below, above = b.sqrt(b.complex(x - one, y)), b.sqrt(b.complex(x + one, y))
    real = b.real(below) * b.real(above) + b.imag(below) * b.imag(above)
    half = b.atan2(b.imag(below), b.real(above))
    end = b.complex(b.full_like(x, math.inf), b.atan2(y, x))
    at_zero = b.complex(y, b.full_like(x, math.pi / 2))
    return _with_ends(b, z, b.complex(b.asinh(real), half + half), end, at_zero)


def _atanh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    one, zero = b.full_like(x, 1), b.full_like(x, 0)
    size = b.abs(x)
    gap = (one - size) * (one - size) + y * y
    length = b.log1p(b.scalar_like(x, 4) * size / gap) * b.scalar_like(x, 0.25)
    angle = b.atan2(y + y, (one - size) * (one + size) - y * y)
    is_infinite = b.eq(gap, b.full_like(gap, math.inf))
    length = b.select(is_infinite, zero, length)
    angle = b.select(
        is_infinite, b.atan2(b.clamp(-one, y, one), b.full_like(y, -math.inf)), angle
    ) * b.scalar_like(x, 0.5)
    right = b.select(b.ne(y, y), y, _signed(b, b.full_like(y, math.pi / 2), y))
    return _with_ends(b, z, b.complex(_signed(b, length, x), angle), b.complex(_signed(b, zero, x), right), z)


def _turned(
    function: Callable[[ComputationBuilder, Operand], Operand],
) -> Callable[[ComputationBuilder, Operand], Operand]:
    """-i f(iz)."""

    def turned(b: ComputationBuilder, z: Operand) -> Operand:
        x, y = _parts(b, z)
        result = function(b, b.complex(-y, x))
        return b.complex(b.imag(result), -b.real(result))

    return turned


UNARY: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "Cosh": _cosh,
    "Sinh": ComputationBuilder.sinh,
    "Sqrt": _sqrt,
    "Rsqrt": _rsqrt,
    "Asin": _asin,
    "Acos": _acos,
    "Acosh": _acosh,
    "Atanh": _atanh,
    "Asinh": _turned(_asin),
    "Atan": _turned(_atanh),
}


def apply(b: ComputationBuilder, op: str, z: Operand) -> Operand:
    """A function of `UNARY`; that of c64 is computed in c128."""
    type_ = b.get_shape(z).element_type
    return b.convert_element_type(UNARY[op](b, b.convert_element_type(z, ElementType.C128)), type_)
