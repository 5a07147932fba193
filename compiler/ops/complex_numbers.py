"""Functions of complex numbers (arrays of c128) at infinities, zeros and NaN, where NumPy's differ from annex G.

Source: C99 annex G, but for quotients of and by infinite numbers, and signs of zeros.
"""

from __future__ import annotations

import numpy as np


def of_parts(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """real + i imaginary, where `+` and `*` would lose infinities and signs of zeros."""
    value = np.empty(np.broadcast(real, imaginary).shape, np.complex128)
    value.real, value.imag = real, imaginary
    return value


def _is_infinite(a: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.isinf(a.real) | np.isinf(a.imag)
    return result


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; a zero divisor gives infinities of the sign of its real part, an infinite one zero for finite a."""
    infinity = np.copysign(np.inf, b.real)
    value = np.where(b == 0, of_parts(a.real * infinity, a.imag * infinity), a / b)
    larger = np.where(np.abs(b.imag) > np.abs(b.real), b.imag, b.real)
    return np.where(np.isinf(larger) & np.isfinite(a), 0, value)


def sign(a: np.ndarray) -> np.ndarray:
    """a / |a|; a zero itself."""
    size = np.abs(a)
    return np.where(size == 0, a, of_parts(a.real / size, a.imag / size))


def exponential_minus_one(a: np.ndarray) -> np.ndarray:
    """e to the a, minus 1, exact near 0; real where a is, though e to the a be infinite."""
    half, sine = np.sin(a.imag * 0.5), np.sin(a.imag)
    real = np.expm1(a.real) * np.cos(a.imag) - 2 * half * half
    return of_parts(real, np.where(sine == 0, sine, sine * np.exp(a.real)))


def log_plus_one(a: np.ndarray) -> np.ndarray:
    """log(1 + a), exact near 0."""
    plain = np.log(of_parts(1 + a.real, a.imag))
    close = 0.5 * np.log1p(a.real * (2 + a.real) + a.imag * a.imag)
    return of_parts(np.where((np.abs(a.real) < 0.5) & (np.abs(a.imag) < 0.5), close, plain.real), plain.imag)


def reciprocal_root(a: np.ndarray) -> np.ndarray:
    """1 / sqrt(a)."""
    return divide(np.ones_like(a), np.sqrt(a))


def logistic(a: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-a)); the conjugate's is the conjugate, also of -0.0 i."""
    grown = np.exp(-a)
    return divide(np.full_like(a, complex(1, -0.0)), of_parts(1 + grown.real, grown.imag))


def angle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """-i log((b + ia) / sqrt(a^2 + b^2)).

    Near the cut, where the quotient is about -1, the sign of the angle is that of -re(a conj(b)), not one of rounding.
    """
    quotient = divide(of_parts(b.real - a.imag, b.imag + a.real), np.sqrt(b * b + a * a))
    side = np.where(b.real * a.real + b.imag * a.imag > 0, -1.0, 1.0)
    side = np.where(quotient.real < -np.abs(quotient.imag), np.copysign(quotient.imag, side), quotient.imag)
    value = np.log(of_parts(quotient.real, side))
    return of_parts(value.imag, -value.real)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """exp(b log a) with the product of annex G; a to the 0 is 1. Integer powers of finite numbers are NumPy's."""
    plain = np.power(a, b)
    by_logarithm = np.exp(_product_with_ends(b, np.log(a)))
    return np.where(b == 0, 1, np.where(np.isfinite(plain) & (a != 0), plain, by_logarithm))


def _product_with_ends(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b, infinite where a factor or a partial product is, though other parts be NaN."""
    products = np.stack([a.real * b.real, a.imag * b.imag, a.real * b.imag, a.imag * b.real])
    value = of_parts(products[0] - products[1], products[2] + products[3])
    infinite = _is_infinite(a) | _is_infinite(b) | np.isinf(products).any(0)
    a, b = _end(a), _end(b)
    end = of_parts((a.real * b.real - a.imag * b.imag) * np.inf, (a.real * b.imag + a.imag * b.real) * np.inf)
    return np.where(infinite & np.isnan(value.real) & np.isnan(value.imag), end, value)


def _end(a: np.ndarray) -> np.ndarray:
    """Infinite parts as 1 and the others as 0, if there are some; else with NaN as 0. Signs are kept."""

    def changed(part: np.ndarray) -> np.ndarray:
        magnitude = np.where(_is_infinite(a), np.isinf(part).astype(np.float64), np.abs(part))
        result: np.ndarray = np.copysign(np.where(np.isnan(part), 0.0, magnitude), part)
        return result

    return of_parts(changed(a.real), changed(a.imag))
