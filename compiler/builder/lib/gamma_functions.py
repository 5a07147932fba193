"""The logarithm of the gamma function and its derivative, computed in f64 for every type.

Source: Stirling's series; the coefficients about 2 are a Chebyshev approximation, relative error 2^-55.
"""

from __future__ import annotations

import math

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from .polynomials import polynomial

_F64 = ElementType.F64

# log(gamma(2 + z)) / (z (1 + z)) for |z| <= 1/2, highest degree first.
# fmt: off
_ABOUT_2 = (
    -5.92040521469848e-08, 1.2214643213741007e-07, -1.8229839429968167e-07, 3.863544519859701e-07,
    -8.559931121605004e-07, 1.8133549578469549e-06, -3.846726989592049e-06, 8.221240004748173e-06,
    -1.7661750083179033e-05, 3.816899503003537e-05, -8.30951206263574e-05, 0.00018255263193523976,
    -0.00040570739777042537, 0.0009153769225280214, -0.0021081308339491508, 0.004998641164691887,
    -0.012384192193371356, 0.032965000621155864, -0.10031730167435392, 0.42278433509846713,
)
# fmt: on
# Stirling's series in 1/x, of powers 1, 3, 5, ..; the derivative's, of powers 2, 4, 6, ..; highest first.
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_STIRLING_SLOPE = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
MIN_FOR_STIRLING = 8
_MIN_FOR_SLOPE = 10


def stirling(b: ComputationBuilder, x: Operand) -> Operand:
    """log(gamma(x)) - (x - 1/2) log x + x - log(2 pi) / 2 for x of at least `MIN_FOR_STIRLING`."""
    inverse = b.scalar_like(x, 1) / x
    return polynomial(b, inverse * inverse, _STIRLING) * inverse


def lgamma(b: ComputationBuilder, x: Operand) -> Operand:
    """log |gamma(x)|; infinite at 0, -1, -2, ...

    Between -7 and 8 it is that of the argument shifted to 2 + z, |z| <= 1/2, and of a product; beyond, Stirling's.
    """
    type_ = b.get_shape(x).element_type
    x = b.convert_element_type(x, _F64)

    def number(value: float) -> Operand:
        return b.scalar_like(x, value)

    whole = b.round_nearest_even(x)
    z, shift, one = x - whole, whole - number(2), b.full_like(x, 1)
    product = one
    for k in range(MIN_FOR_STIRLING + 1):  # x - 1 .. x - shift above, x .. x - shift - 1 below
        product = product * b.select(b.gt(shift, number(k)), x - number(k + 1), one)
        product = product * b.select(b.lt(shift, number(-k)), x + number(k), one)
    log = b.log(b.abs(product))
    rational = z * (z + one) * polynomial(b, z, _ABOUT_2) + b.select(b.lt(shift, number(0)), -log, log)

    is_negative = b.lt(x, number(0))
    size = b.max(b.select(is_negative, one - x, x), number(MIN_FOR_STIRLING))
    asymptotic = (size - number(0.5)) * (b.log(size) - one) + (
        number(math.log(2 * math.pi) / 2 - 0.5) + stirling(b, size)
    )
    mirrored = number(math.log(math.pi)) - b.log(b.abs(b.sin(z * number(math.pi)))) - asymptotic
    asymptotic = b.select(
        is_negative, b.select(b.eq(z, number(0)), b.full_like(x, math.inf), mirrored), asymptotic
    )
    is_near = b.and_(b.gt(x, number(1 - MIN_FOR_STIRLING)), b.lt(x, number(MIN_FOR_STIRLING)))
    result = b.select(is_near, rational, asymptotic)
    return b.convert_element_type(
        b.select(b.eq(b.abs(x), number(math.inf)), b.full_like(x, math.inf), result), type_
    )


def digamma(b: ComputationBuilder, x: Operand) -> Operand:
    """The derivative of log gamma; NaN at 0, -1, -2, ..."""
    type_ = b.get_shape(x).element_type
    x = b.convert_element_type(x, _F64)

    def number(value: float) -> Operand:
        return b.scalar_like(x, value)

    one, zero = b.full_like(x, 1), b.full_like(x, 0)
    is_negative = b.le(x, number(0))
    start = b.select(is_negative, one - x, x)
    shifted, total = start, zero
    for _ in range(_MIN_FOR_SLOPE):
        is_small = b.lt(shifted, number(_MIN_FOR_SLOPE))
        total = total + b.select(is_small, one / shifted, zero)
        shifted = b.select(is_small, shifted + one, shifted)
    inverse = one / shifted
    square = inverse * inverse
    value = b.log(shifted) - inverse * number(0.5) - square * polynomial(b, square, _STIRLING_SLOPE) - total

    z = x - b.round_nearest_even(x)
    pi = number(math.pi)
    cosine, sine = b.sin((number(0.5) - b.abs(z)) * pi), b.sin(z * pi)
    value = b.select(is_negative, value - pi * cosine / sine, value)
    pole = b.and_(is_negative, b.eq(z, zero))
    return b.convert_element_type(b.select(pole, b.full_like(x, math.nan), value), type_)
