"""Arithmetic on NumPy arrays of every element type: the arithmetic of the references.

Floats narrower than f64 are computed in f64 and rounded once, c64 in c128; integers narrower than a byte are computed
in eight bits and wrapped; all integer arithmetic wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..ir.element_types import FORMATS, ElementType, Specials, element_type_of
from . import complex_numbers


def wide(array: np.ndarray) -> np.ndarray:
    """The array in the type that arithmetic on it uses."""
    kind = element_type_of(array.dtype)
    if kind.specials is Specials.POWERS:
        return _powers(array)
    if kind.is_float:
        return array.astype(np.float64)
    if kind.is_complex:
        return array.astype(np.complex128)
    if kind.is_small_integer:
        return array.astype(np.int8 if kind.is_signed else np.uint8)
    return array


def narrow(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result of wide arithmetic in the type that it came from: floats round, integers wrap.

    f64 reaches the types below f16 through f32, as compiled code does.
    """
    array = np.asarray(array)
    if array.dtype == dtype:
        return array
    kind = element_type_of(dtype)
    if kind.is_small_integer:
        size = 1 << kind.bits
        bits = array.astype(np.int8) & (size - 1)
        return np.where(kind.is_signed & (bits >= size // 2), bits - size, bits).astype(np.int8).astype(dtype)
    if kind.specials is Specials.POWERS:
        return _to_powers(array.astype(np.float64), dtype)
    # ml_dtypes gives a zero the sign that NaN does not have, and processors differ in the signs of NaNs.
    if kind.specials is Specials.FINITE:
        array = np.where(np.isnan(array), -0.0, array)
    if kind in FORMATS and kind is not ElementType.F16 and array.dtype == np.float64:
        array = array.astype(np.float32)
    return array.astype(dtype)


# f8e8m0fnu: ml_dtypes converts it through f32, which has no normal number for the lowest of its powers.


def _powers(array: np.ndarray) -> np.ndarray:
    exponents = bit_pattern(array).astype(np.int32)
    return np.where(exponents == 255, np.nan, np.ldexp(1.0, exponents - 127))


def _to_powers(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The nearest power of two, of two the higher. The lowest stands for smaller numbers; NaN for larger ones, also for
    those not above zero."""
    has_power = (array > 0) & (array < 1.5 * 2.0**127)
    fraction, exponent = np.frexp(np.where(has_power, array, 1.0))
    codes = np.maximum(exponent - 1 + (fraction >= 0.75) + 127, 0)
    return from_bit_pattern(np.where(has_power, codes, 255).astype(np.uint8), dtype)


def apply(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """`function` on the arrays in wide arithmetic, the result in the type of the last array."""
    with np.errstate(all="ignore"):
        return narrow(function(*(wide(a) for a in arrays)), arrays[-1].dtype)


def convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values in another element type: to pred by `!= 0`; float to integer truncates and saturates, NaN gives
    0; integer to integer wraps; to a narrower float rounds to nearest even."""
    old, new = element_type_of(array.dtype), element_type_of(dtype)
    with np.errstate(all="ignore"):
        if old is new:
            return array
        if new is ElementType.PRED:
            return np.asarray(wide(array) != 0)
        if old.is_float and new.is_integer:
            return _saturate(np.trunc(wide(array)), new)
        if old.is_integer or old is ElementType.PRED:
            wider = wide(array)
            narrow_float = new.is_float and new.bits < 32 and new.specials is not Specials.POWERS
            return narrow(wider.astype(np.float32) if narrow_float else wider, dtype)
        return narrow(wide(array) if old.is_float and (new.is_float or new.is_complex) else array, dtype)


def _saturate(array: np.ndarray, kind: ElementType) -> np.ndarray:
    low = -(1 << kind.bits - 1) if kind.is_signed else 0
    high = (1 << kind.bits - (1 if kind.is_signed else 0)) - 1
    holder = np.int64 if kind.is_signed else np.uint64
    # float(high) of 64 bits rounds up to 2**63 or 2**64, which does not fit: from there on the answer is
    # `high`.
    inside = np.where((array >= low) & (array < float(high)), array, 0).astype(holder)
    inside = np.where(array >= float(high), holder(high), inside)
    inside = np.where(array < low, holder(low), inside)
    return np.asarray(inside).astype(np.int8 if kind.is_small_integer else kind.dtype).astype(kind.dtype)


def bit_pattern(array: np.ndarray) -> np.ndarray:
    """The bits of integers or real floats as unsigned integers (those of types narrower than a byte in its low
    bits)."""
    kind = element_type_of(array.dtype)
    bits: np.ndarray = np.ascontiguousarray(array).view(f"u{kind.item_bytes}").reshape(array.shape)
    return bits & ((1 << kind.bits) - 1) if 1 < kind.bits < 8 else bits


def from_bit_pattern(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The inverse of `bit_pattern`."""
    if element_type_of(dtype).is_small_integer:
        return narrow(bits, dtype)
    return np.ascontiguousarray(bits).view(dtype).reshape(bits.shape)


def total_order(array: np.ndarray, are_zeros_equal: bool = False) -> np.ndarray:
    """Signed integers that are ordered as floats are in their total order: -NaN < -inf < ... < -0 < +0 < ...
    < +NaN."""
    if element_type_of(array.dtype).lacks_signs:  # the bits alone are in another order
        values = wide(array)
        array = np.where(np.isnan(values), np.nan, values)
    if are_zeros_equal:
        array = np.where(array == 0, np.abs(array), array)
    width = array.dtype.itemsize * 8
    signed = bit_pattern(array).view(f"i{array.dtype.itemsize}")
    result: np.ndarray = signed ^ ((signed >> (width - 1)) & ((1 << width - 1) - 1))
    return result


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; integers truncate toward zero, x / 0 is -1 (all bits one), the lowest value / -1 is itself."""
    if a.dtype.kind == "c":
        return complex_numbers.divide(a, b)
    if a.dtype.kind not in "iu":
        exact: np.ndarray = a / b
        return exact
    minus_one = b == -1 if a.dtype.kind == "i" else np.zeros_like(b, bool)
    safe = np.where((b == 0) | minus_one, b.dtype.type(1), b)
    quotient = (a - np.fmod(a, safe)) // safe
    ones = np.invert(np.zeros_like(a))
    result: np.ndarray = np.where(b == 0, ones, np.where(minus_one, np.negative(a), quotient))
    return result


def multiply_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The bits of the exact product of integers above those that a * b has."""
    width = element_type_of(a.dtype).bits
    if width < 64:
        kind = np.int64 if element_type_of(a.dtype).is_signed else np.uint64
        return narrow((wide(a).astype(kind) * wide(b).astype(kind)) >> kind(width), a.dtype)
    product = a.astype(object) * b.astype(object)
    result: np.ndarray = np.asarray(product >> width).astype(a.dtype)
    return result


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rest of truncating division, with the sign of a; of integers, x rem 0 is x and x rem -1 is 0."""
    if a.dtype.kind not in "iu":
        result: np.ndarray = np.fmod(a, b)
        return result
    minus_one = b == -1 if a.dtype.kind == "i" else np.zeros_like(b, bool)
    rest = np.fmod(a, np.where((b == 0) | minus_one, b.dtype.type(1), b))
    return np.where(b == 0, a, rest)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a to the b; of integers by repeated squaring, wrapping; a negative exponent gives 0 unless a is 1 or
    -1."""
    if a.dtype.kind == "c":
        return complex_numbers.power(a, b)
    if a.dtype == np.float64:  # NumPy's reads denormals in every floating-point mode
        a, b = (np.where(np.abs(v) < np.finfo(v.dtype).tiny, np.copysign(0.0, v), v) for v in (a, b))
    if a.dtype.kind not in "iu":
        result: np.ndarray = np.power(a, b)
        return result
    result, square = np.ones_like(a), a
    exponent = np.where(b < 0, b.dtype.type(0), b)
    while np.any(exponent != 0):
        result = np.where((exponent & 1) != 0, result * square, result)
        square, exponent = square * square, exponent >> 1
    minus_one = a == -1 if a.dtype.kind == "i" else np.zeros_like(a, bool)
    one = a.dtype.type(1)
    inverse = np.where(a == 1, one, np.where(minus_one, np.where((b & 1) != 0, np.negative(one), one), 0))
    return np.where(b < 0, inverse, result).astype(a.dtype)


def log_plus_one(a: np.ndarray) -> np.ndarray:
    """log(1 + a)."""
    return complex_numbers.log_plus_one(a) if a.dtype.kind == "c" else np.log1p(a)


def exponential_minus_one(a: np.ndarray) -> np.ndarray:
    """e to the a, minus 1."""
    return complex_numbers.exponential_minus_one(a) if a.dtype.kind == "c" else np.expm1(a)


def reciprocal_root(a: np.ndarray) -> np.ndarray:
    """1 / sqrt(a)."""
    return complex_numbers.reciprocal_root(a) if a.dtype.kind == "c" else 1 / np.sqrt(a)


def cubic_root(a: np.ndarray) -> np.ndarray:
    """The cubic root; of a complex number the one whose angle is a third."""
    if a.dtype.kind == "c":
        return np.where(a == 0, a, np.exp(np.log(a) / 3))
    result: np.ndarray = np.cbrt(a)
    return result


def angle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The angle of the point (x = b, y = a); of complex numbers -i log((x + iy) / sqrt(x^2 + y^2))."""
    if a.dtype.kind == "c":
        return complex_numbers.angle(a, b)
    result: np.ndarray = np.arctan2(a * 1.0, b * 1.0)  # denormals as in other arithmetic
    return result


def logistic(a: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-a)), without overflow for real a."""
    if a.dtype.kind == "c":
        return complex_numbers.logistic(a)
    small = np.exp(-np.abs(a))
    result: np.ndarray = np.where(a < 0, small, 1) / (1 + small)
    return result


def sign(a: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; -0.0 and NaN stay; of a complex number, the number of length 1 with its angle."""
    if a.dtype.kind == "c":
        return complex_numbers.sign(a)
    if a.dtype.kind != "f":
        result: np.ndarray = np.sign(a)
        return result
    return np.where((a == 0) | np.isnan(a), a, np.copysign(1.0, a))


def round_away(a: np.ndarray) -> np.ndarray:
    """To the nearest integer, ties away from zero."""
    whole = np.trunc(a)
    result: np.ndarray = np.where(np.abs(a - whole) >= 0.5, whole + np.copysign(1.0, a), whole)
    return result


def erf(a: np.ndarray) -> np.ndarray:
    """The error function of f64."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(a)).astype(np.float64)


def erfc(a: np.ndarray) -> np.ndarray:
    """1 - erf of f64."""
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(a)).astype(np.float64)


def shift(kind: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The shift of integers by amounts taken as unsigned: left, logical or arithmetic (kind "left", "right"
    or "sign"). Amounts from the width on give 0, or the sign repeated."""

    def shifted(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
        element = element_type_of(a.dtype)
        width = element.bits
        bits, count = bit_pattern(a), bit_pattern(amount)
        over = count >= width
        inside = np.where(over, 0, count).astype(bits.dtype)
        if kind == "left":
            moved = np.where(over, 0, bits << inside).astype(bits.dtype)
        else:
            moved = np.where(over, 0, bits >> inside).astype(bits.dtype)
        if kind == "sign":
            top = np.asarray(1 << width - 1, bits.dtype)
            ones = np.invert(np.zeros_like(bits))
            fill = np.where(
                over,
                ones,
                np.invert(
                    ones >> np.where(over, 0, count + (ones.dtype.itemsize * 8 - width)).astype(bits.dtype)
                ),
            )
            moved = np.where((bits & top) != 0, moved | fill, moved)
        return from_bit_pattern(moved, a.dtype)

    return shifted


def population(a: np.ndarray) -> np.ndarray:
    """Number of one bits."""
    return narrow(np.bitwise_count(bit_pattern(a)), a.dtype)


def leading_zeros(a: np.ndarray) -> np.ndarray:
    """Number of zero bits above the highest one bit; the width for 0."""
    rest = bit_pattern(a).astype(np.uint64)
    length = np.zeros(a.shape, np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        moved = np.where(rest >= np.uint64(1) << np.uint64(step), np.uint64(step), np.uint64(0))
        length, rest = length + moved, rest >> moved
    return narrow(element_type_of(a.dtype).bits - (length + rest).astype(np.int64), a.dtype)


def reduce_precision(a: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Rounds to `mantissa_bits` (ties to even) and an exponent of `exponent_bits`: too large gives infinity,
    too small a zero of the same sign (there are no subnormals); NaN stays."""
    info = np.finfo(a.dtype) if a.dtype.kind == "f" else None
    mantissa = info.nmant if info else 7
    width = a.dtype.itemsize * 8
    exponent = width - 1 - mantissa
    bits = bit_pattern(a)
    word = bits.dtype.type
    sign_bit, magnitude = bits & word(1 << width - 1), bits & word((1 << width - 1) - 1)
    infinity = word(((1 << exponent) - 1) << mantissa)
    if (cut := mantissa - mantissa_bits) > 0:
        odd = (magnitude >> word(cut)) & word(1)
        magnitude = (magnitude + word((1 << cut - 1) - 1) + odd) & word(((1 << width) - 1) ^ ((1 << cut) - 1))
    if exponent_bits < exponent:
        bias, new_bias = (1 << exponent - 1) - 1, (1 << exponent_bits - 1) - 1
        field = magnitude & infinity
        too_large = field > word(bias + new_bias << mantissa)
        too_small = field <= word(bias - new_bias << mantissa)
        magnitude = np.where(too_large, infinity, np.where(too_small, word(0), magnitude))
    rounded = from_bit_pattern((sign_bit | magnitude).astype(bits.dtype), a.dtype)
    return np.where(np.isnan(a), a, rounded)
