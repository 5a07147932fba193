"""Transcendental functions of float and double lanes: polynomial kernels, written inline where they are used.

Every f32 kernel is vector code on every target. So is every f64 kernel but erf, erfc, power and remainder, and the
sine, cosine and tangent of arguments above 1e5: those call libm lane by lane (`LIBM` in llvm/external_functions.py).
Polynomials are Horner's: one iteration's chain overlaps the next one's, and the fewest instructions win.
All handle NaN, infinities, -0.0 and denormals.

`ULP` states the largest error of each, in units in the last place of the exact result.

Source: Cody and Waite's reductions; fdlibm's and Cephes' published coefficients; Payne and Hanek, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.addressing import Int, Ptr
from ....runtime.llvm.lane_control import function_of, map_lanes, rarely
from ....runtime.llvm.vector_value import VectorValue, has_fma, has_scaling, horner, per_lane

# (opcode, type) -> largest error in ulp.
ULP: dict[tuple[str, str], float] = {
    ("exponential", "f32"): 1.5,
    ("exponential", "f64"): 1.5,
    ("exponential-minus-one", "f32"): 2.0,
    ("exponential-minus-one", "f64"): 2.0,
    ("log", "f32"): 1.0,
    ("log", "f64"): 1.0,
    ("log-plus-one", "f32"): 2.0,
    ("log-plus-one", "f64"): 2.0,
    ("logistic", "f32"): 2.5,
    ("logistic", "f64"): 2.5,
    ("tanh", "f32"): 2.0,
    ("tanh", "f64"): 3.0,
    ("sinh", "f32"): 2.0,
    ("sinh", "f64"): 2.5,
    ("erf", "f32"): 6.5,
    ("erf", "f64"): 1.0,
    ("erfc", "f32"): 8.0,
    ("erfc", "f64"): 4.0,
    ("sine", "f32"): 2.0,
    ("sine", "f64"): 2.0,
    ("cosine", "f32"): 2.0,
    ("cosine", "f64"): 2.0,
    ("tan", "f32"): 4.0,
    ("tan", "f64"): 4.0,
    ("cbrt", "f32"): 1.0,
    ("cbrt", "f64"): 1.0,
    ("rsqrt", "f32"): 1.6,
    ("rsqrt", "f64"): 1.6,
    ("power", "f32"): 1.0,
    ("power", "f64"): 1.0,
    ("atan2", "f32"): 3.0,
    ("atan2", "f64"): 3.0,
}

_INF, _NAN = math.inf, math.nan


# -- exponentials

# ln 2 in two parts; products of the first with an exponent are exact.
_LN2 = {32: (0.693359375, -2.12194440e-4), 64: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
# (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2, highest degree first; for f64 the Taylor series.
# fmt: off
_EXP = {
    32: (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
         5.0000001201e-1),
    64: tuple(1.0 / math.factorial(k) for k in range(13, 1, -1)),
}
# fmt: on


def _exp_reduce(x: VectorValue) -> tuple[VectorValue, VectorValue, VectorValue]:
    """(n, n, r) with x = n ln 2 + r: n in lanes of x's type, and as integers as wide. |x| must be below 2^16."""
    magic = 1.5 * 2.0 ** (23 if x.bits == 32 else 52)
    shifted = x.fma(1.0 / math.log(2.0), magic)
    whole = shifted - magic
    high, low = _LN2[x.bits]
    r = whole.fma(-low, whole.fma(-high, x))
    return whole, shifted.as_bits() - shifted.number(magic).as_bits(), r


def _exp_reduced(r: VectorValue, factor: float = 1.0) -> VectorValue:
    """e^r times a power of two for |r| <= ln 2 / 2."""
    return horner(r, [c * factor for c in (*_EXP[r.bits], 1.0, 1.0)])


def _power_of_two(n: VectorValue) -> VectorValue:
    """2^n for integers n of normal exponents."""
    mantissa, bias = (23, 127) if n.bits == 32 else (52, 1023)
    return ((n + bias) << mantissa).as_float()


def _times_power_of_two(x: VectorValue, n: VectorValue) -> VectorValue:
    """x * 2^n where x and the product are normal numbers; only n's low bits count. A NaN is lost."""
    return (x.as_bits() + (n << (23 if x.bits == 32 else 52))).as_float()


def exp(x: VectorValue) -> VectorValue:
    """e^x."""
    return exp_of_negative(x.at_most(89.0 if x.bits == 32 else 710.0))


def exp_of_negative(x: VectorValue) -> VectorValue:
    """e^x for an x that is known not to overflow."""
    whole, n, r = _exp_reduce(x.at_least(-104.0 if x.bits == 32 else -746.0))
    if has_scaling(x.f):
        return _exp_reduced(r).scaled(whole)
    # In two steps: the result may be denormal, and 2^128 is no float.
    half = n >> 1
    return _exp_reduced(r) * _power_of_two(half) * _power_of_two(n - half)


def expm1(x: VectorValue) -> VectorValue:
    """e^x - 1."""
    low, high = (-18.0, 89.0) if x.bits == 32 else (-38.0, 710.0)
    _, n, r = _exp_reduce(x.at_most(high).at_least(low))
    p = horner(r, _EXP[x.bits]).fma(r * r, r)
    half = _power_of_two(n - 1)
    result = half.fma(p, half - 0.5) * 2.0
    return (abs(x) < 1e-20).choose(x, result)  # also -0.0, and what has half of it denormal


def logistic(x: VectorValue) -> VectorValue:
    """1 / (1 + e^-x), accurate at both ends."""
    e = exp_of_negative(-abs(x))
    return (x < 0.0).choose(e, x.number(1.0)).quotient(e + 1.0, corrected=True)


_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(x: VectorValue) -> VectorValue:
    """Hyperbolic tangent."""
    size = abs(x)
    if x.bits == 64:
        t = expm1(size.at_most(22.0) * -2.0)
        return (-t).quotient(t + 2.0, corrected=True).copysign(x)
    whole, n, r = _exp_reduce(size.at_most(10.0) * 2.0)
    e = _exp_reduced(r).scaled(whole) if has_scaling(x.f) else _times_power_of_two(_exp_reduced(r), n)
    large = 1.0 - x.number(2.0).quotient(e + 1.0)
    square = x * x
    small = (horner(square, _TANH) * square).fma(size, size)
    return (size > 0.625).choose(large, small).copysign(x)


# Taylor series on |r| <= ln 2 / 2, in r^2, highest degree first: (sinh(r) - r) / r^3 and (cosh(r) - 1) / r^2.
_SINH = {bits: tuple(1.0 / math.factorial(k) for k in range(top, 1, -2)) for bits, top in ((32, 7), (64, 13))}
_COSH = {bits: tuple(1.0 / math.factorial(k) for k in range(top, 1, -2)) for bits, top in ((32, 8), (64, 14))}


def sinh(x: VectorValue) -> VectorValue:
    """Hyperbolic sine: of n ln 2 + r it is sinh(r) cosh(n ln 2) + cosh(r) sinh(n ln 2), with no division."""
    size = abs(x)
    # A little beyond where the result is infinite: 2^(n - 2) is still a number.
    _, n, r = _exp_reduce(size.at_most(89.7 if x.bits == 32 else 710.8))
    square = r * r
    sinh_r = horner(square, _SINH[x.bits]).fma(square * r, r)
    cosh_r_less_1 = horner(square, _COSH[x.bits]) * square
    grown, shrunk = _power_of_two(n - 2), _power_of_two(-2 - (n < 100).choose(n, n.number(100)))
    total, difference = grown + shrunk, grown - shrunk
    result = (sinh_r.fma(total, cosh_r_less_1 * difference) + difference) * 2.0
    return (size < 1e-20).choose(x, result.copysign(x))  # half of a small x may be denormal


# erf(x) / x as a quotient of polynomials in x^2 on |x| <= 3.9, relative error 2^-25; above, erf rounds to 1.
_ERF_ABOVE = (2.29980229e-4, 3.53953964e-3, 5.13673015e-2, 1.88645765e-1, 1.12837911)
_ERF_BELOW = (-1.13468758e-7, 2.32401853e-5, 1.04502961e-3, 1.43408775e-2, 1.1236605e-1, 5.00515461e-1, 1.0)


def erf(x: VectorValue) -> VectorValue:
    """The error function."""
    if x.bits == 64:
        return per_lane(x.f, "erf", [x])
    clipped = x.at_most(3.9).at_least(-3.9)
    square = clipped * clipped
    result = (clipped * horner(square, _ERF_ABOVE)).quotient(horner(square, _ERF_BELOW))
    return result.at_most(1.0).at_least(-1.0)


_ERFC_LARGEST = 10.06  # from here on erfc rounds to 0
_ERFC_SHIFT = 2.0**32  # of e^-(x^2), which is no normal number there
# e^(x^2) erfc(x) for x up to 10.2 as a quotient of polynomials: least relative error, 2^-27. All terms are positive.
_ERFC_ABOVE = (3.28879805e-2, 2.29654753e-1, 7.32518742e-1, 1.23928351, 1.00000001)
_ERFC_BELOW = (5.82917434e-2, 4.07078434e-1, 1.32707584, 2.40413116, 2.36766327, 1.0)


def erfc(x: VectorValue) -> VectorValue:
    """1 - erf(x), exact also where erf is nearly 1."""
    if x.bits == 64:
        return per_lane(x.f, "erfc", [x])
    size = abs(x).at_most(_ERFC_LARGEST)
    above = [c / _ERFC_SHIFT for c in _ERFC_ABOVE]
    factor = horner(size, above).quotient(horner(size, _ERFC_BELOW))
    square = size * size
    if has_fma(x):
        lost = size.fma(size, -square)  # by rounding; e^-lost is 1 - lost
    else:
        high = (size.as_bits() & ~0xFFF).as_float()
        low = size - high
        lost = (high * high - square) + (high + high) * low + low * low
    whole, n, r = _exp_reduce(-square)
    e = _exp_reduced(r, _ERFC_SHIFT)
    e = e.scaled(whole) if has_scaling(x.f) else _times_power_of_two(e, n)
    tail = e.fma(-lost, e) * factor  # which has a NaN
    return (x < 0.0).choose(2.0 - tail, tail)


# -- logarithms

# log(1 + f) = f - f^2/2 + f^3 * (...), highest degree first.
# fmt: off
_LOG32 = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
          -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
# fmt: on
# The bits of sqrt(1/2): what mantissas are reduced to start at.
_ROOT = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
# log(1 + f) = 2s + s * R(s^2) with s = f / (2 + f).
# fmt: off
_LOG64 = (1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
          2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
          6.666666666666735130e-01)
# fmt: on


def _log1p_core(m: VectorValue, exponent: VectorValue) -> VectorValue:
    """exponent * ln 2 + log(1 + m), 1 + m between sqrt(1/2) and sqrt(2)."""
    high, low = _LN2[m.bits]
    square = m * m
    if m.bits == 32:
        tail = exponent.fma(low, m * square * horner(m, _LOG32))
        return exponent.fma(high, m + square.fma(-0.5, tail))
    s = m / (m + 2.0)
    z = s * s
    half = square * 0.5
    r = z * horner(z, _LOG64)
    return exponent.fma(high, m - (half - s.fma(half + r, exponent * low)))


def _log_special(x: VectorValue, result: VectorValue, infinite_at: float) -> VectorValue:
    """Puts in infinity for infinity, -infinity at the pole, NaN below it, and a NaN for itself."""
    result = (x < infinite_at).choose(x.number(_NAN), result)
    result = x.equals(infinite_at).choose(x.number(-_INF), result)
    # Infinity and NaN are their own logarithms here; neither is below the largest finite number.
    return (x < _INF).choose(result, x)


def log(x: VectorValue) -> VectorValue:
    """Natural logarithm."""
    mantissa, tiny = (23, 2.0**-126) if x.bits == 32 else (52, 2.0**-1022)
    root = _ROOT[x.bits]
    is_tiny = x < tiny
    bits = is_tiny.choose(x * 2.0**mantissa, x).as_bits()
    offset = bits - root
    whole = offset >> mantissa
    m = ((offset & ((1 << mantissa) - 1)) + root).as_float() - 1.0
    exponent = _exponent_as_float(whole)
    exponent = is_tiny.choose(exponent - float(mantissa), exponent)
    return _log_special(x, _log1p_core(m, exponent), 0.0)


def _exponent_as_float(n: VectorValue) -> VectorValue:
    """Small integers as floats of their width."""
    if n.bits == 32:
        return n.cast("sitofp", "float")
    magic = n.number(0).as_float().number(1.5 * 2.0**52)
    return (n + magic.as_bits()).as_float() - magic


def log1p(x: VectorValue) -> VectorValue:
    """log(1 + x)."""
    mantissa = 23 if x.bits == 32 else 52
    root = _ROOT[x.bits]
    # 1 + x = 2^n * (1 + m); m is got from x itself: what rounding 1 + x lost is still in it.
    offset = (x + 1.0).as_bits() - root
    whole = (offset >> mantissa) << mantissa
    four = (x.number(4.0).as_bits() - whole).as_float()  # times 2^-n, which may be too small itself
    m = (x * four).fma(0.25, four.fma(0.25, -1.0))
    result = _log1p_core(m, _exponent_as_float(offset >> mantissa))
    return x.equals(0.0).choose(x, _log_special(x, result, -1.0))


# -- powers


def rsqrt(x: VectorValue) -> VectorValue:
    """1 / sqrt(x)."""
    return x.inverse_sqrt()


def cbrt(x: VectorValue) -> VectorValue:
    """Cube root; f32 is computed in double."""
    size = abs(x)
    plain = (size > 0.0) & (size < _INF)
    if x.bits == 32:
        return plain.choose(_cbrt_positive(size.widen(), 2).narrow().copysign(x), x)
    # Away from both ends of the range, where cubes overflow or exponents are not stored.
    one = x.number(1.0)
    is_small = size < 1.0
    before = is_small.choose(one.number(2.0**54), one.number(2.0**-54))
    after = is_small.choose(one.number(2.0**-18), one.number(2.0**18))
    return plain.choose((_cbrt_positive(size * before, 3) * after).copysign(x), x)


def _cbrt_positive(a: VectorValue, steps: int) -> VectorValue:
    """A third of the exponent gives four bits; each of Halley's steps triples them."""
    high = a.as_bits().shift_right(32).cast("trunc", "i32")
    third = (high.cast("sitofp", "double") * (1.0 / 3.0)).cast("fptosi", "i32") + 715094163
    r = (third.cast("zext", "i64") << 32).as_float()
    for _ in range(steps):
        # Written as a correction of r: the last step's error is that of one addition.
        square = r * r
        cube = square * r
        r = r.fma((a - cube) / (cube + cube + a), r)
    return r


# log2((1 + s) / (1 - s)) / s in s^2, |s| <= 0.1716, relative error 2^-37.8; 2^r on |r| <= 1/2, 2^-28.5.
_LOG2 = (0.3407120415619086, 0.41167376623771057, 0.5770835660048659, 0.9617966734515485, 2.885390081789987)
# fmt: off
_EXP2 = (0.0001546144469856913, 0.0013400428177615838, 0.009618056678524637, 0.05550327226670302,
         0.24022650922288757, 0.6931472067028326, 1.0)
# fmt: on


def power(x: VectorValue, y: VectorValue) -> VectorValue:
    """x^y as C's pow; f32 as 2^(y log2 x) in double."""
    if x.bits == 64:
        # libm's takes denormals for what they are; a comparison knows whether they are zeros here.
        zero = x.number(0.0)
        return per_lane(x.f, "pow", [v.equals(0.0).choose(zero.copysign(v), v) for v in (x, y)])
    size = abs(x)
    is_tiny = size < 2.0**-126
    offset = is_tiny.choose(size * 2.0**24, size).as_bits() - _ROOT[32]
    whole = (offset >> 23) - is_tiny.choose(offset.number(24), offset.number(0))
    m = ((offset & 0x7FFFFF) + _ROOT[32]).as_float().widen()
    s = (m - 1.0).quotient(m + 1.0)
    logarithm = horner(s * s, _LOG2).fma(s, whole.cast("sitofp", "double"))
    t = (logarithm * y.widen()).at_most(200.0).at_least(-200.0)
    shifted = t + 1.5 * 2.0**52
    r = t - (shifted - 1.5 * 2.0**52)
    result = _times_power_of_two(horner(r, _EXP2), shifted.as_bits()).narrow()
    # |x| is 0 or infinite, or y is infinite: what is left depends on the sides alone.
    y_size = abs(y)
    grows = (size > 1.0) ^ (y < 0.0)
    limit = grows.choose(x.number(_INF), x.number(0.0))
    at_end = size.equals(0.0) | size.equals(_INF) | y_size.equals(_INF)
    result = at_end.choose(limit, result)
    # A negative base: integers only, and odd ones keep the sign.
    is_integer = y.trunc().equals(y)
    half = y * 0.5
    is_odd = is_integer & half.trunc().differs(half) & (y_size < 2.0**24)
    negative = x.as_bits() < 0
    result = (negative & is_odd).choose(-result, result)
    bad = (x < 0.0) & ~is_integer & (size < _INF)
    result = (bad | x.is_nan() | y.is_nan()).choose(x.number(_NAN), result)
    # pow(x, 0), pow(1, y) and pow(-1, +-inf) are 1 whatever the other is.
    one = y.equals(0.0) | x.equals(1.0) | (x.equals(-1.0) & y_size.equals(_INF))
    return one.choose(x.number(1.0), result)


# -- trigonometry

# fmt: off
_SIN = {
    32: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    64: (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
         -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01),
}
_COS = {
    32: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    64: (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
         2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02),
}
# fmt: on
# pi/2 in parts. f64: two of 33 bits, so that products with 20-bit integers are exact, and the rest.
_HALF_PI32 = (1.57079637e00, -4.37113883e-08, -1.71512489e-15)
_HALF_PI64 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_HUGE = {32: 1.0e5, 64: 1.0e5}
# The bits of 2/pi after the binary point, behind a word of zeros; three more: any index below 8 is good.
# fmt: off
_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
                0, 0, 0)
# fmt: on


def _reduce(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    """(n, r) with x = n pi/2 + r, |r| <= pi/4, for |x| up to `_HUGE`; n is an integer as wide as x."""
    if x.bits == 32 and not has_fma(x):
        n, r = _reduce(x.widen())
        return n.cast("trunc", "i32"), r.narrow()
    magic = 1.5 * 2.0 ** (23 if x.bits == 32 else 52)
    shifted = x.fma(2.0 / math.pi, magic)
    whole = shifted - magic
    r = x
    for part in _HALF_PI32 if x.bits == 32 else _HALF_PI64:
        r = whole.fma(-part, r)
    return shifted.as_bits() - shifted.number(magic).as_bits(), r


def _reduce_huge(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    """`_reduce` for one float of any finite size above 2^7: the product with 2/pi modulo 4 in integers.

    The bits of 2/pi that give multiples of 4 are left out; 64 of the product are kept, 62 of them fraction.
    """
    bits = x.as_bits()
    mantissa = ((bits & 0x7FFFFF) | 0x800000).cast("zext", "i64")
    offset = (bits.shift_right(23) & 0xFF) - 120
    word, shift = ((offset >> 5) & 7).cast("zext", "i64"), (offset & 31).cast("zext", "i64")
    f = x.f
    entries = ", ".join(f"i32 {word}" for word in _TWO_OVER_PI)
    table = f.module.add_global(
        "tfbridge.two_over_pi",
        f"private unnamed_addr constant [{len(_TWO_OVER_PI)} x i32] [{entries}], align 4",
    )
    at = Ptr("ptr", f"@{table}", f).at(Int.of(f, word), "i32")
    words = [at.at(k, "i32").load("i32").cast("zext", "i64") for k in range(4)]
    window = [(((a << 32) | b) << shift).shift_right(32) for a, b in zip(words, words[1:])]
    product = ((mantissa * window[0]) << 32) + mantissa * window[1] + (mantissa * window[2]).shift_right(32)
    n = (product + (1 << 61)).shift_right(62)
    rest = product - (n << 62)
    high = (rest >> 32).cast("trunc", "i32").cast("sitofp", "double")
    low = (rest & 0xFFFFFFFF).cast("trunc", "i32").cast("uitofp", "double")
    r = (high * 2.0**32 + low) * (math.pi / 2.0 * 2.0**-62)
    negative = bits < 0
    n = n.cast("trunc", "i32")
    r32 = r.narrow()
    return negative.choose(-n, n), negative.choose(-r32, r32)


def _reduce_any(x: VectorValue) -> tuple[VectorValue, VectorValue]:
    """`_reduce` for float lanes of any size."""
    n, r = _reduce(x)
    huge = ~(abs(x) <= _HUGE[32])

    def reduce_huge() -> tuple[VectorValue, VectorValue]:
        # One lane after the other: such arguments are rare, and scalar code compiles in a fifth of the time.
        huge_parts = map_lanes(x, _reduce_huge, (n, r))
        # Infinities and NaNs become NaN.
        huge_r = (abs(x) < _INF).choose(huge_parts[1], x - x)
        return huge.choose(huge_parts[0], n), huge.choose(huge_r, r)

    result = rarely(huge.any(), reduce_huge, (n, r))
    return result[0], result[1]


def _sin_cos_polynomials(r: VectorValue) -> tuple[VectorValue, VectorValue]:
    z = r * r
    sine = (horner(z, _SIN[r.bits]) * z).fma(r, r)
    cosine = (z * z).fma(horner(z, _COS[r.bits]), z.fma(-0.5, 1.0))
    return sine, cosine


def _sin_cos(x: VectorValue, quarter: int) -> VectorValue:
    """sin(x + quarter * pi/2)."""
    if x.bits == 64:
        return _with_libm(x, "cos" if quarter else "sin", lambda: _sin_cos_reduced(*_reduce(x), quarter))
    return _sin_cos_reduced(*_reduce_any(x), quarter)


def _sin_cos_reduced(n: VectorValue, r: VectorValue, quarter: int) -> VectorValue:
    sine, cosine = _sin_cos_polynomials(r)
    if quarter:
        n = n + quarter
    result = (n & 1).equals(0).choose(sine, cosine).as_bits()
    return (result ^ ((n & 2) << (r.bits - 2))).as_float()


def _with_libm(x: VectorValue, name: str, compute: Callable[[], VectorValue]) -> VectorValue:
    """The kernel's result, libm's where a lane is too large for it (or infinite or NaN)."""
    result = compute()
    huge = ~(abs(x) <= _HUGE[64])
    return rarely(huge.any(), lambda: [huge.choose(per_lane(x.f, name, [x]), result)], [result])[0]


def sine(x: VectorValue) -> VectorValue:
    """Sine; x in radians."""
    result = _sin_cos(x, 0)
    return x.equals(0.0).choose(x, result)


def cosine(x: VectorValue) -> VectorValue:
    """Cosine; x in radians."""
    return _sin_cos(x, 1)


def tan(x: VectorValue) -> VectorValue:
    """Tangent; x in radians."""
    if x.bits == 64:
        result = _with_libm(x, "tan", lambda: _tan_reduced(*_reduce(x)))
    else:
        result = _tan_reduced(*_reduce_any(x))
    return x.equals(0.0).choose(x, result)


def _tan_reduced(n: VectorValue, r: VectorValue) -> VectorValue:
    sine_r, cosine_r = _sin_cos_polynomials(r)
    odd = (n & 1).differs(0)
    return odd.choose(-cosine_r, sine_r) / odd.choose(sine_r, cosine_r)


# (atan(q)/q - 1) / q^2 in q^2: q in [0, 1] for f32; a quotient of polynomials, |q| <= 2/3, for f64.
# fmt: off
_ATAN32 = (0.00282363896258175373077393, -0.0159569028764963150024414, 0.0425049886107444763183594,
           -0.0748900920152664184570312, 0.106347933411598205566406, -0.142027363181114196777344,
           0.199926957488059997558594, -0.333331018686294555664062)
_ATAN64 = ((-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
            -1.228866684490136173410e2, -6.485021904942025371773e1),
           (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
            4.853903996359136964868e2, 1.945506571482613964425e2))
# fmt: on


def atan2(y: VectorValue, x: VectorValue) -> VectorValue:
    """The angle of the point (x, y), in (-pi, pi]."""
    x_size, y_size = abs(x), abs(y)
    steep = y_size > x_size
    large, small = steep.choose(y_size, x_size), steep.choose(x_size, y_size)
    if x.bits == 32:
        q = _ratio(small, large)
        square = q * q
        angle = (horner(square, _ATAN32) * square).fma(q, q)
    else:
        # Near the diagonal: atan(q) = pi/4 + atan((q - 1) / (q + 1)).
        diagonal = (small * 1.5 > large) | small.equals(_INF)
        half_difference, half_sum = (small * 0.5 - large * 0.5), (small * 0.5 + large * 0.5)
        half_difference = small.equals(large).choose(half_difference.number(0.0), half_difference)
        q = _ratio(diagonal.choose(half_difference, small), diagonal.choose(half_sum, large))
        square = q * q
        above, below = _ATAN64
        angle = (square * horner(square, above) / horner(square, below)).fma(q, q)
        angle = diagonal.choose(angle + math.pi / 4, angle)
    angle = steep.choose(math.pi / 2 - angle, angle)
    angle = (x.as_bits() < 0).choose(math.pi - angle, angle)
    return (x.is_nan() | y.is_nan()).choose(x + y, angle.copysign(y))


def _ratio(small: VectorValue, large: VectorValue) -> VectorValue:
    """small / large; 0/0 is 0 (the angle of the origin), inf/inf is 1 (the diagonal)."""
    q = small / large
    q = abs(small).equals(_INF).choose(small.number(1.0), q)
    return small.equals(0.0).choose(small, q)


def remainder(x: VectorValue, y: VectorValue) -> VectorValue:
    """x - y * trunc(x / y), exact, with the sign of x."""
    if x.bits == 64:
        return per_lane(x.f, "fmod", [x, y])
    a, b = abs(x).widen(), abs(y).widen()

    def step(rest: VectorValue, divisor: VectorValue) -> VectorValue:
        # The quotient is below 2^28, so its product with 24 bits is exact in 53; it is off by one at most.
        rest = rest - (rest / divisor).trunc() * divisor
        rest = (rest < 0.0).choose(rest + divisor, rest)
        return (rest >= divisor).choose(rest - divisor, rest)

    def reduce_many() -> list[VectorValue]:
        # No quotient of floats reaches 2^280: ten times 28 bits.
        with function_of(a.f).loop(0, 9, rest=a, divisor=b * 2.0**252) as loop:
            loop.rest, loop.divisor = step(loop.rest, loop.divisor), loop.divisor * 2.0**-28
        return [loop.rest]

    many = (a >= b * 2.0**28) & (a < _INF)
    rest = rarely(many.any(), reduce_many, [a])[0]
    result = step(rest, b).narrow().copysign(x)
    return (abs(y).equals(_INF) & (abs(x) < _INF)).choose(x, result)
