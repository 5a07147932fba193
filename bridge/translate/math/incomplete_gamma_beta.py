"""Incomplete gamma and beta functions, their gradients: series and continued fractions.

They are computed in f64 whatever the type, element by element till all have converged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.gamma_functions import MIN_FOR_STIRLING, digamma, lgamma, stirling
from ....compiler.builder.lib.loops import until
from ....compiler.builder.lib.polynomials import polynomial
from ....compiler.builder.lib.zeta import accuracy, any_nan, is_infinite, polygamma, zeta
from ....compiler.ir.element_types import ElementType
from ..node import Node
from ..registry import translates
from .broadcasting import broadcast

_F64 = ElementType.F64
_EPSILON = 2.0**-53
_MAX_STEPS = 2000
_MIN_SHAPE = 2.0**-960
_REAL = frozenset({ElementType.F16, ElementType.BF16, ElementType.F32, _F64})


# -- incomplete gamma
# The functions C_k(eta) of Temme's expansion, highest degree first: relative error below 1e-15 from a = 200 on.
# fmt: off
_TEMME = (
    (-5.0276692801141755e-12, 2.4361948020667415e-11, -5.830772132550426e-11, -2.5514193994946248e-11,
     9.14769958223679e-10, -4.382036018453353e-09, 1.0261809784240309e-08, 6.707853543401498e-09,
     -1.7665952736826078e-07, 8.296711340953087e-07, -1.85406221071516e-06, -2.185448510679992e-06,
     3.919263178522438e-05, -0.0001787551440329218, 0.0003527336860670194, 0.0011574074074074073,
     -0.014814814814814815, 0.08333333333333333, -0.3333333333333333),
    (4.162792991842583e-10, -1.0091543710600413e-09, -1.7543241719747647e-11, 1.1951628599778148e-08,
     -5.752545603517705e-08, 1.378633446915721e-07, 4.647127802807434e-09, -1.6120900894563446e-06,
     7.64916091608111e-06, -1.8098550334489977e-05, -4.018775720164609e-07, 0.00020576131687242798,
     -0.0009902263374485596, 0.0026455026455026454, -0.003472222222222222, -0.001851851851851852),
    (-1.409252991086752e-08, -2.0477098421990866e-10, 1.4280614206064242e-07, -6.298992138380055e-07,
     1.3721957309062934e-06, 3.423578734096138e-08, -1.2760635188618728e-05, 5.2923448829120125e-05,
     -0.0001073665322636516, 2.0093878600823047e-06, 0.0007716049382716049, -0.0026813271604938273,
     0.004133597883597883),
    (-2.7861080291528143e-11, 1.4230900732435883e-06, -5.6749528269915965e-06, 1.1082654115347302e-05,
     -2.396505113867297e-07, -7.561801671883977e-05, 0.00026772063206283885, -0.0004691894943952557,
     0.00022947209362139917, 0.0006494341563786008),
    (1.1375726970678419e-05, -3.968365047179435e-05, 6.641498215465122e-05, -1.4638452578843418e-06,
     -0.0002990724803031902, 0.0007840392217200666, -0.0008618882909167117),
)
# fmt: on
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
        is_unfinished = b.or_(b.gt(term, total * limit), b.gt(b.abs(slope), b.abs(total_slope) * limit))
        return a, x, r, term, total, slope, total_slope, is_unfinished

    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    values = until(b, _MAX_STEPS, [a, x, a, one, one, zero, zero, b.gt(x, zero)], step)
    return values[4], values[6]


def _gamma_fraction(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float) -> tuple[Operand, Operand]:
    """(the continued fraction of the upper function, its derivative by a)."""

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        a, x, p2, q2, p1, q1, dp2, dq2, dp1, dq1, old, slope, unfinished = values
        c = b.convert_element_type(number, _F64) + b.constant(1.0, _F64)
        y = c + b.constant(1.0, _F64) - a
        z = x + y + c + b.constant(1.0, _F64)
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        # A value that has converged stays: more steps would add their rounding errors.
        usable = b.and_(unfinished, b.ne(q, b.scalar_like(q, 0)))
        new = b.select(usable, p / q, old)
        new_slope = b.select(usable, (dp - new * dq) / q, slope)
        limit = b.scalar_like(x, epsilon)
        is_unfinished = b.or_(
            b.gt(b.abs(new - old), b.abs(new) * limit),
            b.gt(b.abs(new_slope - slope), (b.abs(new_slope) + b.abs(new)) * limit),
        )
        large = b.gt(b.abs(p), b.scalar_like(p, 1 / _EPSILON))
        is_unfinished = b.and_(unfinished, is_unfinished)
        rescaled = [
            b.select(large, v * b.scalar_like(v, _EPSILON), v) for v in (p1, q1, p, q, dp1, dq1, dp, dq)
        ]
        return a, x, *rescaled, new, new_slope, is_unfinished

    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    p1, q1 = x + one, (x - a + one + one) * x
    first = p1 / q1
    start = [a, x, one, x, p1, q1, zero, zero, zero, -x, first, first * x / q1, b.eq(a, a)]
    values = until(b, _MAX_STEPS, start, step)
    return values[10], values[11]


def _gamma_parts(
    b: ComputationBuilder, a: Operand, x: Operand, epsilon: float
) -> tuple[Operand, list[Operand], list[Operand]]:
    """(where the series holds, [value, derivative] of the lower function's series and of the upper's fraction).

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
    """x^a exp(-x) / gamma(a), by Stirling's series where powers and gamma function are large."""

    def number(value: float) -> Operand:
        return b.scalar_like(a, value)

    small = a * b.log(x) - x - lgamma(b, a)
    large = (b.log(a) - number(math.log(2 * math.pi))) * number(0.5) - a * _excess(b, a, x) - stirling(b, a)
    return b.exp(b.select(b.lt(a, number(MIN_FOR_STIRLING)), small, large))


def _excess(b: ComputationBuilder, a: Operand, x: Operand) -> Operand:
    """t - log(1 + t) with t = (x - a) / a, exact also where x is near a: 2 s^2 / (1 - s) - 2 (s^3 / 3 + s^5 / 5 + ...)
    with s = t / (2 + t)."""
    t = (x - a) / a
    s = t / (t + b.scalar_like(t, 2))
    square = s * s
    series = polynomial(b, square, [1 / k for k in range(25, 1, -2)])
    expansion = s * t - b.scalar_like(s, 2) * s * square * series
    return b.select(b.lt(b.abs(s), b.scalar_like(s, 0.18)), expansion, t - b.log(x / a))


def _uniform(b: ComputationBuilder, a: Operand, x: Operand, upper: bool) -> Operand:
    """The incomplete gamma function for large a, and x near it.

    Source: N. M. Temme, The asymptotic expansion of the incomplete gamma functions, 1979."""
    excess = _excess(b, a, x)
    eta = b.sqrt(excess + excess)
    eta = b.select(b.lt(x, a), -eta, eta)
    total, inverse = b.full_like(a, 0), b.scalar_like(a, 1) / a
    for row in reversed(_TEMME):
        total = total * inverse + polynomial(b, eta, row)
    rest = b.exp(-a * excess) / b.sqrt(a * b.scalar_like(a, 2 * math.pi)) * total
    tail = b.erfc((eta if upper else -eta) * b.sqrt(a * b.scalar_like(a, 0.5))) * b.scalar_like(a, 0.5)
    return tail + rest if upper else tail - rest


def igamma(b: ComputationBuilder, a: Operand, x: Operand, epsilon: float, upper: bool = False) -> Operand:
    """The regularized incomplete gamma function, lower or upper."""
    one, zero = b.full_like(a, 1), b.full_like(a, 0)
    shape_parameter = a
    # Below, the scale would be zero; the functions are 1 and 0 long before.
    a = b.select(b.and_(b.le(x, one), b.gt(a, zero)), b.max(a, b.full_like(a, _MIN_SHAPE)), a)
    uniform = b.and_(
        b.gt(a, b.scalar_like(a, 200)),
        b.and_(b.gt(x, a * b.scalar_like(a, 0.7)), b.lt(x, a * b.scalar_like(a, 1.4))),
    )
    scale = _gamma_scale(b, a, x)
    needed = b.and_(b.gt(scale, zero), b.not_(uniform))
    low = b.or_(b.le(x, one), b.le(x, a))
    _, (series, _), (fraction, _) = _gamma_parts(
        b, b.select(needed, a, one), b.select(needed, x, one), epsilon
    )
    series, fraction = (b.select(needed, part, zero) for part in (series * (scale / a), fraction * scale))
    value = b.select(low, one - series, fraction) if upper else b.select(low, series, one - fraction)
    value = b.clamp(zero, b.select(uniform, _uniform(b, a, x, upper), value), one)
    a = shape_parameter
    ends = (a, x) if upper else (x, a)  # the last infinite operand decides
    for end in ends:
        value = b.select(
            is_infinite(b, end), (one if end is a else zero) if upper else (zero if end is a else one), value
        )
    value = b.select(_wrong(b, a, x), b.full_like(a, math.nan), value)
    # The lower function at 0 is 0 whatever the other is.
    at_zero = b.and_(b.eq(x, zero), b.not_(_wrong(b, a, x))) if upper else b.eq(x, zero)
    return b.select(at_zero, one if upper else zero, value)


def _wrong(b: ComputationBuilder, a: Operand, x: Operand) -> Operand:
    """Where the functions are not defined."""
    return b.or_(b.or_(b.lt(x, b.scalar_like(x, 0)), b.le(a, b.scalar_like(a, 0))), any_nan(b, a, x))


def _with_ends(b: ComputationBuilder, a: Operand, x: Operand, slope: Operand) -> Operand:
    """A derivative by a, which is 0 at infinity and, whatever a is, where x is 0."""
    zero = b.full_like(a, 0)
    slope = b.select(b.or_(is_infinite(b, a), is_infinite(b, x)), zero, slope)
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
    value = b.select(any_nan(b, p, q, x), b.full_like(x, math.nan), value)
    value = b.select(b.eq(x, zero), zero, b.select(b.eq(x, one), one, value))
    wrong = b.or_(b.or_(b.le(p, zero), b.le(q, zero)), b.or_(b.lt(x, zero), b.gt(x, one)))
    return b.select(wrong, b.full_like(x, math.nan), value)


FUNCTIONS: dict[str, Callable[..., Operand]] = {
    "Igamma": igamma,
    "Igammac": lambda b, a, x, epsilon: igamma(b, a, x, epsilon, True),
    "IgammaGradA": igamma_grad_a,
    "RandomGammaGrad": random_gamma_grad,
    "Betainc": betainc,
    "Zeta": zeta,
}


@translates("Polygamma", types={"T": _REAL})
def polygamma_of_type(node: Node) -> Operand:
    b, type_ = node.b, node.element_type(0)
    n, x = broadcast(b, *(b.convert_element_type(node[k], _F64) for k in range(2)))
    return b.convert_element_type(polygamma(b, n, x, type_), type_)


@translates(*FUNCTIONS, types={"T": _REAL})
def incomplete(node: Node) -> Operand:
    b, type_ = node.b, node.element_type(0)
    operands = [b.convert_element_type(node[k], _F64) for k in range(len(node.inputs))]
    return b.convert_element_type(FUNCTIONS[node.op](b, *broadcast(b, *operands), accuracy(type_)), type_)
