"""Incomplete gamma and beta functions, their gradients, zeta and polygamma: series and continued fractions.

They are computed in f64 whatever the type, element by element till all have converged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...compiler.builder import ComputationBuilder, Operand
from ...compiler.loops import until
from ...compiler.types import ElementType
from .broadcasting import broadcast
from .node import Node
from .registry import translates
from .special_functions import digamma, lgamma

_F64 = ElementType.F64
_EPSILON = 2.0**-53
_MOST = 2000
_REAL = frozenset({ElementType.F16, ElementType.BF16, ElementType.F32, _F64})


def _accuracy(type_: ElementType) -> float:
    """The relative change below which a series has converged for results of a type."""
    return _EPSILON if type_ is _F64 else 2.0**-30


def _any_nan(b: ComputationBuilder, *operands: Operand) -> Operand:
    found = b.ne(operands[0], operands[0])
    for x in operands[1:]:
        found = b.or_(found, b.ne(x, x))
    return found


# -- incomplete gamma
# Source: Cephes, igam and igamc; the derivatives are those of the recurrences.

def _gamma_series(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> tuple[Operand, Operand]:
    """(sum of x^n / ((a + 1) ... (a + n)), its derivative by a)."""
    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        a, x, r, term, total, slope, total_slope, _ = values
        r = r + b.scalar_like(r, 1)
        slope = (slope - term / r) * (x / r)
        term = term * (x / r)
        total, total_slope = total + term, total_slope + slope
        limit = b.scalar_like(x, epsilon)
        left = b.or_(b.gt(term, total * limit), b.gt(b.abs(slope), b.abs(total_slope) * limit))
        return a, x, r, term, total, slope, total_slope, left

    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    values = until(b, _MOST, [a, x, a, one, one, zero, zero, b.gt(x, zero)], step)
    return values[4], values[6]


def _gamma_fraction(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> tuple[Operand, Operand]:
    """(the continued fraction of the upper function, its derivative by a)."""
    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        a, x, p2, q2, p1, q1, dp2, dq2, dp1, dq1, old, slope, _ = values
        c = b.convert_element_type(number, _F64) + b.constant(1.0, _F64)
        y = c + b.constant(1.0, _F64) - a
        z = x + y + c + b.constant(1.0, _F64)
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        usable = b.ne(q, b.scalar_like(q, 0))
        new = b.select(usable, p / q, old)
        new_slope = b.select(usable, (dp - new * dq) / q, slope)
        limit = b.scalar_like(x, epsilon)
        left = b.or_(b.gt(b.abs(new - old), b.abs(new) * limit),
                     b.gt(b.abs(new_slope - slope), (b.abs(new_slope) + b.abs(new)) * limit))
        large = b.gt(b.abs(p), b.scalar_like(p, 1 / _EPSILON))
        kept = [b.select(large, v * b.scalar_like(v, _EPSILON), v) for v in (p1, q1, p, q, dp1, dq1, dp, dq)]
        return a, x, *kept, new, new_slope, left

    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    p1, q1 = x + one, (x - a + one + one) * x
    first = p1 / q1
    start = [a, x, one, x, p1, q1, zero, zero, zero, -x, first, first * x / q1, b.eq(a, a)]
    values = until(b, _MOST, start, step)
    return values[10], values[11]


def _gamma_parts(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> tuple[Operand, list[Operand],
                                                                                        list[Operand]]:
    """(where the series holds, [value, derivative, x] of the lower function's series and of the upper's fraction).

    Both are to be multiplied by x^a exp(-x) / gamma(a + 1 or a); the derivatives are those of their products'
    logarithms times the products."""
    low = b.or_(b.le(x, b.scalar_like(x, 1)), b.le(x, a))
    one = b.full_like(a, 1)
    a_low, x_low = b.select(low, a, one), b.select(low, x, b.full_like(x, 0.5))
    # Of greater numbers exp(-x) is 0, and the fraction overflows.
    a_high, x_high = b.select(low, one, a), b.select(low, b.full_like(x, 2), b.min(x, b.full_like(x, 1e18)))
    series, series_slope = _gamma_series(b, a_low, x_low, epsilon)
    fraction, fraction_slope = _gamma_fraction(b, a_high, x_high, epsilon)
    log = b.log(x)
    series_slope = series_slope + series * (log - digamma(b, a + one))
    fraction_slope = fraction_slope + fraction * (log - digamma(b, a))
    return low, [series, series_slope], [fraction, fraction_slope]


def _gamma_scale(b: ComputationBuilder, a: Operand, x: Operand) -> Operand:
    """x^a exp(-x) / gamma(a), by logarithms about x = a where these are large."""
    return b.exp(a * b.log(x) - x - lgamma(b, a))


def igamma(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float, upper: bool = False) -> Operand:
    """The regularized incomplete gamma function, lower or upper."""
    low, (series, _), (fraction, _) = _gamma_parts(b, a, x, epsilon)
    scale = _gamma_scale(b, a, x)
    series, fraction = series * scale / a, fraction * scale
    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    value = b.select(low, one - series, fraction) if upper else b.select(low, series, one - fraction)
    ends = (a, x) if upper else (x, a)  # what is infinite last tells
    for end in ends:
        value = b.select(_is_infinite(b, end), (one if end is a else zero) if upper else (zero if end is a else one),
                         value)
    value = b.select(_wrong(b, a, x), b.full_like(a, math.nan), value)
    # The lower function at 0 is 0 whatever the other is.
    at_zero = b.and_(b.eq(x, zero), b.not_(_wrong(b, a, x))) if upper else b.eq(x, zero)
    return b.select(at_zero, one if upper else zero, value)


def _is_infinite(b: ComputationBuilder, x: Operand) -> Operand:
    return b.eq(x, b.scalar_like(x, math.inf))


def _wrong(b: ComputationBuilder, a: Operand, x: Operand) -> Operand:
    """Where the functions are not defined."""
    return b.or_(b.or_(b.lt(x, b.scalar_like(x, 0)), b.le(a, b.scalar_like(a, 0))), _any_nan(b, a, x))


def _with_ends(b: ComputationBuilder, a: Operand, x: Operand, slope: Operand) -> Operand:
    """A derivative by a, which is 0 at infinity and, whatever a is, where x is 0."""
    zero = b.full_like(a, 0)
    slope = b.select(b.or_(_is_infinite(b, a), _is_infinite(b, x)), zero, slope)
    slope = b.select(_wrong(b, a, x), b.full_like(a, math.nan), slope)
    return b.select(b.eq(x, zero), zero, slope)


def igamma_grad_a(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> Operand:
    """The derivative of the lower function by a."""
    low, (_, series), (_, fraction) = _gamma_parts(b, a, x, epsilon)
    scale = _gamma_scale(b, a, x)
    return _with_ends(b, a, x, b.select(low, series * scale / a, -(fraction * scale)))


def random_gamma_grad(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> Operand:
    """The derivative of a sample by a: that of the distribution function, over its density, negated."""
    low, (_, series), (_, fraction) = _gamma_parts(b, a, x, epsilon)
    return _with_ends(b, a, x, b.select(low, -(series * x / a), fraction * x))


# -- incomplete beta
# Source: Numerical Recipes, betacf (Lentz's method).

def _beta_fraction(b: ComputationBuilder, p: Operand, q: Operand, x: Operand, epsilon: float) -> Operand:
    tiny = 1e-300

    def away(b: ComputationBuilder, v: Operand) -> Operand:
        return b.select(b.lt(b.abs(v), b.scalar_like(v, tiny)), b.full_like(v, tiny), v)

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        p, q, x, c, d, total, _ = values
        one = b.scalar_like(p, 1)
        m = b.convert_element_type(number, _F64) + one
        place = p + m + m
        even = (q - m) * m * x / ((place - one) * place)
        odd = -((p + m) * (p + q + m) * x / (place * (place + one)))
        factor = one
        for term in (even, odd):
            d = one / away(b, term * d + one)
            c = away(b, term / c + one)
            factor = c * d
            total = total * factor
        return p, q, x, c, d, total, b.gt(b.abs(factor - one), b.scalar_like(p, epsilon * 4))

    one = b.full_like(p, 1)
    d = one / away(b, one - (p + q) * x / (p + one))
    return until(b, 600, [p, q, x, one, d, d, b.eq(x, x)], step)[5]


def betainc(b: ComputationBuilder, p: Operand, q: Operand, x: Operand, epsilon: float) -> Operand:
    """The regularized incomplete beta function."""
    one, zero = b.full_like(x, 1), b.full_like(x, 0)
    inside = b.and_(b.and_(b.gt(p, zero), b.gt(q, zero)), b.and_(b.gt(x, zero), b.lt(x, one)))
    safe = [b.select(inside, v, b.full_like(v, other)) for v, other in ((p, 1), (q, 1), (x, 0.5))]
    p_in, q_in, x_in = safe
    swap = b.gt(x_in, (p_in + one) / (p_in + q_in + one + one))
    p_in, q_in = b.select(swap, q_in, p_in), b.select(swap, p_in, q_in)
    log, log_rest = b.log(x_in), b.log1p(-x_in)
    log, log_rest = b.select(swap, log_rest, log), b.select(swap, log, log_rest)
    x_in = b.select(swap, one - x_in, x_in)
    beta = lgamma(b, p_in) + lgamma(b, q_in) - lgamma(b, p_in + q_in)
    value = b.exp(p_in * log + q_in * log_rest - beta) / p_in * _beta_fraction(b, p_in, q_in, x_in, epsilon)
    value = b.select(swap, one - value, value)
    value = b.select(_any_nan(b, p, q, x), b.full_like(x, math.nan), value)
    value = b.select(b.eq(x, zero), zero, b.select(b.eq(x, one), one, value))
    wrong = b.or_(b.or_(b.le(p, zero), b.le(q, zero)), b.or_(b.lt(x, zero), b.gt(x, one)))
    return b.select(wrong, b.full_like(x, math.nan), value)


# -- zeta
# Source: Cephes, zeta: the first terms, then Euler and Maclaurin's formula.
_MACLAURIN = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
              -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
              1.8152105401943546773e17, -7.1661652561756670113e18)


def zeta(b: ComputationBuilder, x: Operand, q: Operand, epsilon: float) -> Operand:
    """The sum of (q + k)^-x."""
    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        x, total, a, term, active = values
        grown = a + b.scalar_like(a, 1)
        new = b.pow(grown, -x)
        a, term = b.select(active, grown, a), b.select(active, new, term)
        total = b.select(active, total + new, total)
        early = b.lt(number, b.constant(8, ElementType.S32))
        return x, total, a, term, b.or_(b.broadcast(early, b.get_shape(a).dims), b.le(a, b.scalar_like(a, 9)))

    one, zero = b.full_like(x, 1), b.full_like(x, 0)
    usable = b.and_(b.gt(x, one), b.gt(q, b.scalar_like(q, -1e4)))
    x_in, q_in = b.select(usable, x, b.full_like(x, 2)), b.select(usable, q, one)
    start = b.pow(q_in, -x_in)
    _, total, a, term, _ = until(b, 20000, [x_in, start, q_in, zero, b.eq(one, one)], step)
    total = total + term * a / (x_in - one) - term * b.scalar_like(term, 0.5)
    factor = one
    for k, coefficient in enumerate(_MACLAURIN):
        factor = factor * (x_in + b.scalar_like(x, 2 * k))
        term = term / a
        total = total + factor * term / b.scalar_like(x, coefficient)
        factor = factor * (x_in + b.scalar_like(x, 2 * k + 1))
        term = term / a
    total = b.select(b.is_finite(start), total, start)
    return _zeta_ends(b, x, q, total)


def _zeta_ends(b: ComputationBuilder, x: Operand, q: Operand, value: Operand) -> Operand:
    """The function at its poles and outside of its domain."""
    zero, one = b.scalar_like(x, 0), b.scalar_like(x, 1)
    inf, nan = b.full_like(x, math.inf), b.full_like(x, math.nan)
    whole = b.eq(x, b.floor(x))
    even = b.and_(whole, b.eq(b.rem(x, b.scalar_like(x, 2)), zero))
    negative = b.le(q, zero)
    pole = b.and_(negative, b.eq(q, b.floor(q)))
    value = b.select(b.and_(negative, b.not_(whole)), nan, value)
    value = b.select(pole, b.select(even, inf, nan), value)
    far = b.select(b.gt(q, one), b.full_like(x, 0), b.select(b.eq(q, one), b.full_like(x, 1), inf))
    value = b.select(_is_infinite(b, x), far, b.select(_is_infinite(b, q), b.full_like(x, 0), value))
    value = b.select(_any_nan(b, x, q), nan, value)
    return b.select(b.lt(x, one), nan, b.select(b.eq(x, one), inf, value))


def polygamma(b: ComputationBuilder, n: Operand, x: Operand, epsilon: float) -> Operand:
    """The n-th derivative of digamma."""
    one, zero = b.full_like(n, 1), b.full_like(n, 0)
    odd = b.or_(b.eq(b.rem(n, b.scalar_like(n, 2)), one), _is_infinite(b, n))
    sign = b.select(odd, one, -one)
    value = sign * b.exp(lgamma(b, n + one)) * zeta(b, n + one, x, epsilon)
    value = b.select(b.eq(n, zero), digamma(b, x), value)
    wrong = b.or_(b.or_(b.lt(n, zero), b.ne(n, b.floor(n))), _any_nan(b, n, x))
    return b.select(wrong, b.full_like(n, math.nan), value)


FUNCTIONS: dict[str, Callable[..., Operand]] = {
    "Igamma": igamma, "Igammac": lambda b, a, x, epsilon: igamma(b, a, x, epsilon, True),
    "IgammaGradA": igamma_grad_a, "RandomGammaGrad": random_gamma_grad, "Betainc": betainc, "Zeta": zeta,
    "Polygamma": polygamma,
}


@translates(*FUNCTIONS, types={"T": _REAL})
def incomplete(node: Node) -> Operand:
    b, type_ = node.b, node.element_type(0)
    wide = [b.convert_element_type(node[k], _F64) for k in range(len(node.inputs))]
    return b.convert_element_type(FUNCTIONS[node.op](b, *broadcast(b, *wide), _accuracy(type_)), type_)
