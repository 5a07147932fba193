"""Complex arithmetic and functions on pairs of float or double lanes.

Functions of c64 are computed in double and rounded at the end: nothing in between overflows or cancels.
Source: Kahan, "Branch cuts for complex elementary functions", 1987; C99 annex G for quotients of infinities.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ....runtime.llvm.vector_value import VectorValue
from . import vector_math

_INF = math.inf
_Result = TypeVar("_Result", "Complex", VectorValue)


class Complex(NamedTuple):
    """A complex number's parts."""

    real: VectorValue
    imaginary: VectorValue


def _in_double(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """The function with float parts computed in double."""

    @functools.wraps(function)
    def widened(*arguments: Complex) -> _Result:
        if arguments[0].real.bits == 64:
            return function(*arguments)
        result = function(*(Complex(a.real.widen(), a.imaginary.widen()) for a in arguments))
        if isinstance(result, VectorValue):
            return result.narrow()
        return Complex(result.real.narrow(), result.imaginary.narrow())

    return widened


def _choose(condition: VectorValue, yes: Complex, no: Complex) -> Complex:
    return Complex(condition.choose(yes.real, no.real), condition.choose(yes.imaginary, no.imaginary))


def _is_first(x: Complex, y: Complex, first: VectorValue, same: VectorValue) -> VectorValue:
    """Whether x is the larger, or the smaller: by the real parts, `first`, and where they are equal, `same`, by the
    imaginary ones. A number that is NaN is."""
    y_is_nan = y.real.is_nan() | y.imaginary.is_nan()
    return x.real.is_nan() | x.imaginary.is_nan() | ((first | (x.real.equals(y.real) & same)) & ~y_is_nan)


def _maximum(x: Complex, y: Complex) -> Complex:
    return _choose(_is_first(x, y, x.real > y.real, x.imaginary >= y.imaginary), x, y)


def _minimum(x: Complex, y: Complex) -> Complex:
    return _choose(_is_first(x, y, x.real < y.real, x.imaginary <= y.imaginary), x, y)


def _scale(x: Complex, factor: VectorValue | float) -> Complex:
    return Complex(x.real * factor, x.imaginary * factor)


# -- arithmetic


def _add(x: Complex, y: Complex) -> Complex:
    return Complex(x.real + y.real, x.imaginary + y.imaginary)


def _subtract(x: Complex, y: Complex) -> Complex:
    return Complex(x.real - y.real, x.imaginary - y.imaginary)


def _negate(x: Complex) -> Complex:
    return Complex(-x.real, -x.imaginary)


def _multiply(x: Complex, y: Complex) -> Complex:
    return Complex(x.real * y.real - x.imaginary * y.imaginary, x.real * y.imaginary + x.imaginary * y.real)


@_in_double
def _divide(x: Complex, y: Complex) -> Complex:
    """Smith's quotient; a zero divisor gives infinities, an infinite one zeros."""
    steep = abs(y.imaginary) > abs(y.real)
    large, small = steep.choose(y.imaginary, y.real), steep.choose(y.real, y.imaginary)
    ratio = small / large
    ratio = large.equals(0.0).choose(small, ratio)
    scale = 1.0 / (large + small * ratio)
    real = steep.choose(x.real * ratio + x.imaginary, x.imaginary * ratio + x.real) * scale
    imaginary = steep.choose(x.imaginary * ratio - x.real, x.imaginary - x.real * ratio) * scale
    zero = large.equals(0.0) & small.equals(0.0)
    sign = large.number(_INF).copysign(y.real)
    real = zero.choose(sign * x.real, real)
    imaginary = zero.choose(sign * x.imaginary, imaginary)
    infinite = abs(large).equals(_INF) & (abs(x.real) < _INF) & (abs(x.imaginary) < _INF)
    return Complex(infinite.choose(real.number(0.0), real), infinite.choose(real.number(0.0), imaginary))


def _ordered_sizes(x: Complex) -> tuple[VectorValue, VectorValue]:
    real, imaginary = abs(x.real), abs(x.imaginary)
    steep = imaginary > real
    return steep.choose(imaginary, real), steep.choose(real, imaginary)


def _abs(x: Complex) -> VectorValue:
    """The modulus; infinite where a part is, whatever the other."""
    if x.real.bits == 32:  # the squares of floats stay within the range of double
        real, imaginary = x.real.widen(), x.imaginary.widen()
        result = real.fma(real, imaginary * imaginary).sqrt().narrow()
    else:
        large, small = _ordered_sizes(x)
        ratio = large.equals(0.0).choose(small, small / large)
        result = large * ratio.fma(ratio, 1.0).sqrt()
    infinite = abs(x.real).equals(_INF) | abs(x.imaginary).equals(_INF)
    return infinite.choose(result.number(_INF), result)


@_in_double
def _sign(x: Complex) -> Complex:
    size = _abs(x)
    return _choose(size.equals(0.0), x, Complex(x.real / size, x.imaginary / size))


# -- exponentials and logarithms


def _zero_or_product(x: VectorValue, y: VectorValue) -> VectorValue:
    """x * y, a zero of their signs where one is zero: also where the other is infinite or NaN, which has no sign."""
    one = x.number(1.0)
    signs = (v.is_nan().choose(one, one.copysign(v)) for v in (x, y))
    zero = x.number(0.0).copysign(next(signs) * next(signs))
    return (x.equals(0.0) | y.equals(0.0)).choose(zero, x * y)


def _is_finite(x: VectorValue) -> VectorValue:
    return abs(x) < _INF


@_in_double
def _exp(x: Complex) -> Complex:
    # Two halves: a component can be finite where e^real is not. e^-inf is 0 whatever the angle, e^inf infinite.
    half = vector_math.exp(x.real * 0.5)
    real = vector_math.cosine(x.imaginary) * half * half
    sine = vector_math.sine(x.imaginary)
    end = ~_is_finite(x.imaginary) & abs(x.real).equals(_INF)
    imaginary = sine.equals(0.0).choose(sine, sine * half * half)
    imaginary = (end & half.equals(0.0)).choose(half.copysign(x.imaginary), imaginary)
    return Complex(end.choose(half, real), imaginary)


@_in_double
def _expm1(x: Complex) -> Complex:
    half = vector_math.sine(x.imaginary * 0.5)
    real = vector_math.expm1(x.real).fma(vector_math.cosine(x.imaginary), half * half * -2.0)
    sine = vector_math.sine(x.imaginary)
    return Complex(real, sine.equals(0.0).choose(sine, sine * vector_math.exp(x.real)))


@_in_double
def _log(x: Complex) -> Complex:
    """log|x| with log1p where |x| is near 1."""
    large, small = _ordered_sizes(x)
    ratio = large.equals(0.0).choose(small, small / large)
    infinite = abs(x.real).equals(_INF) | abs(x.imaginary).equals(_INF)
    general = vector_math.log(large) + vector_math.log1p(ratio * ratio) * 0.5
    near_one = vector_math.log1p((large - 1.0).fma(large + 1.0, small * small)) * 0.5
    real = ((large > 0.5) & (large < 2.0)).choose(near_one, general)
    return Complex(infinite.choose(real.number(_INF), real), vector_math.atan2(x.imaginary, x.real))


@_in_double
def _log1p(x: Complex) -> Complex:
    shifted = _log(Complex(x.real + 1.0, x.imaginary))
    close = (abs(x.real) < 0.5) & (abs(x.imaginary) < 0.5)
    real = vector_math.log1p(x.real.fma(x.real + 2.0, x.imaginary * x.imaginary)) * 0.5
    return Complex(close.choose(real, shifted.real), shifted.imaginary)


@_in_double
def _logistic(x: Complex) -> Complex:
    grown = _exp(_negate(x))
    one = Complex(
        x.real.number(1.0), x.real.number(-0.0)
    )  # a quotient of 1 and a real number has the other zero
    return _divide(one, Complex(grown.real + 1.0, grown.imaginary))


# -- powers


@_in_double
def _sqrt(x: Complex) -> Complex:
    large, _ = _ordered_sizes(x)
    # Sums of very large or very small squares leave the range: scale by an even power of two.
    up, down = large < 2.0**-900, large > 2.0**900
    one = large.number(1.0)
    before = up.choose(one.number(2.0**110), down.choose(one.number(2.0**-110), one))
    after = up.choose(one.number(2.0**-55), down.choose(one.number(2.0**55), one))
    scaled = _scale(x, before)
    t = ((abs(scaled.real) + _abs(scaled)) * 0.5).sqrt()
    other = abs(scaled.imaginary) / (t + t)
    right = x.real >= 0.0
    result = Complex(right.choose(t, other) * after, (right.choose(other, t) * after).copysign(x.imaginary))
    zero, infinity, nan = one.number(0.0), one.number(_INF), one.number(math.nan)
    unknown = x.imaginary.is_nan()
    result = _choose(x.real.equals(0.0) & x.imaginary.equals(0.0), Complex(zero, x.imaginary), result)
    along = Complex(right.choose(infinity, zero), right.choose(zero, infinity).copysign(x.imaginary))
    along = _choose(unknown, Complex(right.choose(infinity, nan), right.choose(nan, infinity)), along)
    result = _choose(unknown, Complex(nan, nan), result)
    result = _choose(abs(x.real).equals(_INF), along, result)
    return _choose(abs(x.imaginary).equals(_INF), Complex(infinity, x.imaginary), result)


@_in_double
def _rsqrt(x: Complex) -> Complex:
    return _divide(Complex(x.real.number(1.0), x.real.number(0.0)), _sqrt(x))


def _product_with_ends(x: Complex, y: Complex) -> Complex:
    """The product of C99's Annex G: infinite where a factor or a partial product is, though other parts be NaN."""
    one, zero = x.real.number(1.0), x.real.number(0.0)

    def end(v: Complex) -> tuple[VectorValue, Complex]:
        infinite = abs(v.real).equals(_INF) | abs(v.imaginary).equals(_INF)
        corner = Complex(*(abs(part).equals(_INF).choose(one, zero).copysign(part) for part in v))
        finite = Complex(*(part.is_nan().choose(zero.copysign(part), part) for part in v))
        return infinite, _choose(infinite, corner, finite)

    result = _multiply(x, y)
    (x_infinite, x_end), (y_infinite, y_end) = end(x), end(y)
    infinite = x_infinite | y_infinite
    for part in (x.real * y.real, x.imaginary * y.imaginary, x.real * y.imaginary, x.imaginary * y.real):
        infinite = infinite | abs(part).equals(_INF)
    infinite = infinite & result.real.is_nan() & result.imaginary.is_nan()
    return _choose(infinite, _scale(_multiply(x_end, y_end), _INF), result)


@_in_double
def _power(x: Complex, y: Complex) -> Complex:
    """exp(y log x); x^0 is 1."""
    result = _exp(_product_with_ends(y, _log(x)))
    return _choose(
        y.real.equals(0.0) & y.imaginary.equals(0.0), Complex(x.real.number(1.0), x.real.number(0.0)), result
    )


@_in_double
def _cbrt(x: Complex) -> Complex:
    result = _exp(_scale(_log(x), 1.0 / 3.0))
    return _choose(x.real.equals(0.0) & x.imaginary.equals(0.0), x, result)


# -- trigonometry


def _sinh_cosh(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    less_one = vector_math.expm1(abs(x))
    e = less_one + 1.0
    inverse = 1.0 / e
    sinh = (less_one + less_one * inverse) * 0.5
    # Beyond the range of e^x both are infinite; infinity times the zero above is not.
    sinh = less_one.equals(_INF).choose(less_one, sinh)
    return sinh.copysign(x), (e + inverse) * 0.5


@_in_double
def _sinh(x: Complex) -> Complex:
    """Where the angle is infinite or NaN: infinite along the real axis, positive as C libraries have it."""
    sinh, cosh = _sinh_cosh(x.real)
    real = _zero_or_product(sinh, vector_math.cosine(x.imaginary))
    end = abs(x.real).equals(_INF) & ~_is_finite(x.imaginary)
    return Complex(end.choose(abs(x.real), real), _zero_or_product(cosh, vector_math.sine(x.imaginary)))


def _cosh(x: Complex) -> Complex:
    sinh, cosh = _sinh_cosh(x.real)
    end = abs(x.real).equals(_INF) & ~_is_finite(x.imaginary)
    real = end.choose(abs(x.real), cosh * vector_math.cosine(x.imaginary))
    imaginary = _zero_or_product(sinh, vector_math.sine(x.imaginary))
    at_zero = x.real.equals(0.0) & ~_is_finite(x.imaginary)
    return Complex(real, at_zero.choose(abs(x.real), imaginary))


@_in_double
def _sine(x: Complex) -> Complex:
    turned = _sinh(Complex(x.imaginary, -x.real))
    return Complex(-turned.imaginary, turned.real)


@_in_double
def _cosine(x: Complex) -> Complex:
    return _cosh(Complex(-x.imaginary, x.real))


@_in_double
def _tanh(x: Complex) -> Complex:
    # Beyond 300 the imaginary part is below every number that matters, and squares of sinh stay in range.
    size = abs(x.real)
    sinh, cosh = _sinh_cosh(size.at_most(300.0).copysign(x.real))
    t = vector_math.tan(x.imaginary)
    beta = t.fma(t, 1.0)
    scale = 1.0 / (beta * sinh).fma(sinh, 1.0)
    real, imaginary = beta * cosh * sinh * scale, t * scale
    is_large, zero = size > 300.0, size.number(0.0)
    one = size.number(1.0).copysign(x.real)
    end = size.equals(_INF) & ~_is_finite(x.imaginary)
    real = x.real.equals(0.0).choose(x.real, (is_large & (_is_finite(x.imaginary) | end)).choose(one, real))
    imaginary = end.choose(zero.copysign(x.imaginary), is_large.choose(imaginary * 0.0, imaginary))
    return Complex(real, x.imaginary.equals(0.0).choose(x.imaginary, imaginary))


def _tan(x: Complex) -> Complex:
    turned = _tanh(Complex(-x.imaginary, x.real))
    return Complex(turned.imaginary, -turned.real)


@_in_double
def _atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + i y) / sqrt(x^2 + y^2)).

    On and near the cut, where the quotient is about -1, the sign of the angle is that of -re(y conj(x)): rounding
    has no say in it. On the cut the angle is pi.
    """
    turned = Complex(x.real - y.imaginary, x.imaginary + y.real)
    size = _sqrt(_add(_multiply(x, x), _multiply(y, y)))
    quotient = _divide(turned, size)
    below = x.real * y.real + x.imaginary * y.imaginary > 0.0
    side = abs(quotient.imaginary)
    side = (quotient.real < -side).choose(below.choose(-side, side), quotient.imaginary)
    result = _log(Complex(quotient.real, side))
    return Complex(result.imaginary, -result.real)


RULES: dict[str, Callable[..., Complex | VectorValue]] = {
    "abs": _abs,
    "negate": _negate,
    "sign": _sign,
    "real": lambda x: x.real,
    "imag": lambda x: x.imaginary,
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _maximum,
    "minimum": _minimum,
    "exponential": _exp,
    "exponential-minus-one": _expm1,
    "log": _log,
    "log-plus-one": _log1p,
    "logistic": _logistic,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "power": _power,
    "sine": _sine,
    "cosine": _cosine,
    "tan": _tan,
    "tanh": _tanh,
    "sinh": _sinh,
    "atan2": _atan2,
}
