"""The zeta function of Hurwitz, and polygamma, computed in f64 element by element till all have converged.

Source: Cephes, zeta: the first terms, then Euler and Maclaurin's formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from .gamma_functions import digamma, lgamma
from .loops import until

_F64 = ElementType.F64
_EPSILON = 2.0**-53


def accuracy(type_: ElementType) -> float:
    """The relative change below which a series has converged for results of a type."""
    return _EPSILON if type_ is _F64 else 2.0**-30


def any_nan(b: ComputationBuilder, *operands: Operand) -> Operand:
    """Where one of the arrays is NaN."""
    is_nan = b.ne(operands[0], operands[0])
    for x in operands[1:]:
        is_nan = b.or_(is_nan, b.ne(x, x))
    return is_nan


def is_infinite(b: ComputationBuilder, x: Operand) -> Operand:
    """Where an array is +infinity."""
    return b.eq(x, b.scalar_like(x, math.inf))


# fmt: off
_MACLAURIN = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
              -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
              1.8152105401943546773e17, -7.1661652561756670113e18)
# fmt: on


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
    factor, rest = one, zero
    last = term
    for k, coefficient in enumerate(_MACLAURIN):
        factor = factor * (x_in + b.scalar_like(x, 2 * k))
        term = term / a
        rest = rest + factor * term / b.scalar_like(x, coefficient)
        factor = factor * (x_in + b.scalar_like(x, 2 * k + 1))
        term = term / a
    total = b.select(b.eq(last, zero), total, total + rest)  # the factor may be infinite
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
    limit = b.select(b.gt(q, one), b.full_like(x, 0), b.select(b.eq(q, one), b.full_like(x, 1), inf))
    value = b.select(is_infinite(b, x), limit, b.select(is_infinite(b, q), b.full_like(x, 0), value))
    value = b.select(any_nan(b, x, q), nan, value)
    return b.select(b.lt(x, one), nan, b.select(b.eq(x, one), inf, value))


def polygamma(b: ComputationBuilder, n: Operand, x: Operand, type_: ElementType) -> Operand:
    """The n-th derivative of digamma; n + 1 is a number of the type."""
    one, zero = b.full_like(n, 1), b.full_like(n, 0)
    order = b.convert_element_type(b.convert_element_type(n + one, type_), _F64)
    sign = b.select(b.eq(b.rem(order, b.scalar_like(n, 2)), one), -one, one)
    value = sign * b.exp(lgamma(b, order)) * zeta(b, order, x, accuracy(type_))
    value = b.select(b.eq(n, zero), digamma(b, x), value)
    wrong = b.or_(b.or_(b.lt(n, zero), b.ne(n, b.floor(n))), any_nan(b, n, x))
    return b.select(wrong, b.full_like(n, math.nan), value)
