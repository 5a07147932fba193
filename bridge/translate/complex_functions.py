"""Hyperbolic and inverse functions of complex numbers, right on both sides of every branch cut.

Source: W. Kahan, Branch Cuts for Complex Elementary Functions, or Much Ado About Nothing's Sign Bit, 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...compiler.builder import ComputationBuilder, Operand


def _parts(b: ComputationBuilder, z: Operand) -> tuple[Operand, Operand]:
    return b.real(z), b.imag(z)


def _product(b: ComputationBuilder, factor: Operand, x: Operand) -> Operand:
    """factor * x, but 0 where x is 0 and the factor infinite."""
    return b.select(b.eq(x, b.full_like(x, 0)), x, factor * x)


def _cosh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    return b.complex(_product(b, b.cosh(x), b.cos(y)), _product(b, b.sinh(x), b.sin(y)))


def _sinh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    return b.complex(_product(b, b.sinh(x), b.cos(y)), _product(b, b.cosh(x), b.sin(y)))


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


def _asin(b: ComputationBuilder, z: Operand) -> Operand:
    below, above = _roots(b, z)
    real = b.real(below) * b.real(above) - b.imag(below) * b.imag(above)
    real = b.select(b.and_(b.ne(real, real), b.eq(z, z)), b.full_like(real, 0), real)  # infinity less infinity
    return b.complex(b.atan2(b.real(z), real), b.asinh(_cross(b, below, above)))


def _acos(b: ComputationBuilder, z: Operand) -> Operand:
    below, above = _roots(b, z)
    half = b.atan2(b.real(below), b.real(above))
    return b.complex(half + half, b.asinh(_cross(b, above, below)))


def _acosh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    one = b.full_like(x, 1)
    below, above = b.sqrt(b.complex(x - one, y)), b.sqrt(b.complex(x + one, y))
    real = b.real(below) * b.real(above) + b.imag(below) * b.imag(above)
    half = b.atan2(b.imag(below), b.real(above))
    return b.complex(b.asinh(real), half + half)


def _atanh(b: ComputationBuilder, z: Operand) -> Operand:
    x, y = _parts(b, z)
    one, zero = b.full_like(x, 1), b.full_like(x, 0)
    size = b.abs(x)
    gap = (one - size) * (one - size) + y * y
    length = b.log1p(b.scalar_like(x, 4) * size / gap) * b.scalar_like(x, 0.25)
    angle = b.atan2(y + y, (one - size) * (one + size) - y * y)
    far = b.eq(gap, b.full_like(gap, math.inf))
    length = b.select(far, zero, length)
    angle = b.select(far, b.atan2(b.clamp(-one, y, one), b.full_like(y, -math.inf)), angle) * b.scalar_like(x, 0.5)
    return b.complex(b.select(b.lt(x, zero), -length, length), angle)


def _turned(function: Callable[[ComputationBuilder, Operand], Operand]) \
        -> Callable[[ComputationBuilder, Operand], Operand]:
    """-i f(iz)."""
    def turned(b: ComputationBuilder, z: Operand) -> Operand:
        x, y = _parts(b, z)
        result = function(b, b.complex(-y, x))
        return b.complex(b.imag(result), -b.real(result))

    return turned


UNARY: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "Cosh": _cosh, "Sinh": _sinh, "Asin": _asin, "Acos": _acos, "Acosh": _acosh, "Atanh": _atanh,
    "Asinh": _turned(_asin), "Atan": _turned(_atanh),
}
