"""Special functions: the quantile of the normal distribution and Bessel functions, of f32 and f64; the next number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from .polynomials import chebyshev, polynomial

# -- the quantile of the normal distribution
# Source: Cephes, ndtri.
# fmt: off
_CENTRE = ((-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1,
            -1.23916583867381258016),
           (1.0, 1.95448858338141759834, 4.67627912898881538453, 8.63602421390890590575e1, -2.25462687854119370527e2,
            2.00260212380060660359e2, -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142))
_TAIL = ((4.05544892305962419923, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1,
          1.46849561928858024014e1, 2.18663306850790267539, -1.40256079171354495875e-1, -3.50424626827848203418e-2,
          -8.57456785154685413611e-4),
         (1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1,
          2.50464946208309415979, -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4))
_FAR_TAIL = ((3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389,
              2.01485389549179081538e-1, 1.23716634817820021358e-2, 3.01581553508235416007e-4,
              2.65806974686737550832e-6, 6.23974539184983293730e-9),
             (1.0, 6.02427039364742014255, 3.67983563956160859403, 1.37702099489081330271, 2.16236993594496635890e-1,
              1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6,
              6.79019408009981274425e-9))
# fmt: on


def _ratio(b: ComputationBuilder, x: Operand, fraction: Sequence[Sequence[float]]) -> Operand:
    return polynomial(b, x, fraction[0]) / polynomial(b, x, fraction[1])


def ndtri(b: ComputationBuilder, p: Operand) -> Operand:
    """x with P(normal <= x) = p; -infinity at 0, infinity at 1, NaN outside."""

    def number(value: float) -> Operand:
        return b.scalar_like(p, value)

    edge = math.exp(-2)
    upper = b.gt(p, number(1 - edge))
    y = b.select(upper, number(1) - p, p)
    centred = y - number(0.5)
    square = centred * centred
    centre = (centred + centred * square * _ratio(b, square, _CENTRE)) * number(math.sqrt(2 * math.pi))
    root = b.sqrt(b.log(y) * number(-2))
    inverse = number(1) / root
    tail = b.select(b.lt(root, number(8)), _ratio(b, inverse, _TAIL), _ratio(b, inverse, _FAR_TAIL))
    distance = root - b.log(root) / root - inverse * tail
    outer = b.select(upper, distance, -distance)
    result = b.select(b.gt(y, number(edge)), centre, outer)
    result = b.select(b.eq(p, number(0)), b.full_like(p, -math.inf), result)
    result = b.select(b.eq(p, number(1)), b.full_like(p, math.inf), result)
    return b.select(b.or_(b.lt(p, number(0)), b.gt(p, number(1))), b.full_like(p, math.nan), result)


# Of f32: erfinv(x) / x, with w = -log(1 - x^2) a polynomial in w - 2.5 for w below 5, in sqrt(w) - 3 beyond.
# Highest degree first. Source: Giles, Approximating the erfinv function, 2010.
# fmt: off
_ERFINV_CENTRE = (2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 2.1858087e-4, -1.25372503e-3,
                  -4.17768164e-3, 2.46640727e-1, 1.50140941)
_ERFINV_TAIL = (-2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3, 5.73950773e-3, -7.6224613e-3,
                9.43887047e-3, 1.00167406, 2.83297682)
# fmt: on


def erfinv(b: ComputationBuilder, x: Operand) -> Operand:
    """The inverse of erf."""
    one = b.scalar_like(x, 1)
    if b.get_shape(x).element_type.bits > 32:
        return ndtri(b, (x + one) * b.scalar_like(x, 0.5)) * b.scalar_like(x, math.sqrt(0.5))
    w = -b.log((one - x) * (one + x))
    centre = polynomial(b, w - b.scalar_like(x, 2.5), _ERFINV_CENTRE)
    tail = polynomial(b, b.sqrt(w) - b.scalar_like(x, 3), _ERFINV_TAIL)
    result = b.select(b.lt(w, b.scalar_like(x, 5)), centre, tail) * x
    return b.select(b.eq(b.abs(x), one), x * b.scalar_like(x, math.inf), result)


# -- modified Bessel functions, scaled by exp(-|x|): Chebyshev series in x on [0, 8], and in 1/x beyond
# Coefficients below 1e-18 are left out; in f32 those below 1e-10.
_SMALLEST_IN_F32 = 1e-10
# fmt: off
_I0E_SMALL = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071,
    -0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357,
    -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05,
    -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
    -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11,
    -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14,
    -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I1E_SMALL = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516,
    -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758,
    -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06,
    -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
    -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11,
    -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15,
    -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18,
)
_I0E_LARGE = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18,
    -7.233180487874754e-18, 9.921475412173699e-19, 1.193650890845982e-18,
)
_I1E_LARGE = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
    7.517296310842105e-18, -9.314178867326884e-19, -1.242193275194891e-18,
)
# fmt: on


def bessel_i0e(b: ComputationBuilder, x: Operand) -> Operand:
    """exp(-|x|) I0(x)."""
    return _bessel(b, x, _I0E_SMALL, _I0E_LARGE, False)


def bessel_i1e(b: ComputationBuilder, x: Operand) -> Operand:
    """exp(-|x|) I1(x)."""
    return _bessel(b, x, _I1E_SMALL, _I1E_LARGE, True)


def _bessel(
    b: ComputationBuilder, x: Operand, small: Sequence[float], large: Sequence[float], odd: bool
) -> Operand:
    if b.get_shape(x).element_type.bits <= 32:
        small, large = ([c for c in series if abs(c) > _SMALLEST_IN_F32] for series in (small, large))
    size = b.abs(x)
    power_series = chebyshev(b, size * b.scalar_like(x, 0.25) - b.scalar_like(x, 1), small)
    power_series = power_series * size if odd else power_series
    beyond = b.max(size, b.scalar_like(x, 8))
    asymptotic = chebyshev(b, b.scalar_like(x, 16) / beyond - b.scalar_like(x, 1), large) * b.rsqrt(beyond)
    value = b.select(b.le(size, b.scalar_like(x, 8)), power_series, asymptotic)
    return b.select(b.lt(x, b.scalar_like(x, 0)), -value, value) if odd else value


def next_after(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """The float that follows x in the direction of y: its bits, as an integer, one up or down.

    Denormals are numbers of their own here, unless x = y."""
    type_ = {8: ElementType.S64, 4: ElementType.S32, 2: ElementType.S16}[
        b.get_shape(x).element_type.item_bytes
    ]
    bits, other = b.bitcast_convert_type(x, type_), b.bitcast_convert_type(y, type_)
    zero, one = b.scalar_like(bits, 0), b.scalar_like(bits, 1)
    sign = b.scalar_like(bits, np.iinfo(type_.dtype).min)
    # Below zero integers count the other way: of two negative numbers the one with more bits is the lower.
    inward = b.or_(b.gt(bits, other), b.and_(b.lt(bits, zero), b.ge(other, zero)))
    stepped = b.select(inward, bits - one, bits + one)
    smallest = b.or_(b.and_(other, sign), one)
    is_zero = b.eq(b.shift_left(bits, one), zero)
    moved = b.bitcast_convert_type(b.select(is_zero, smallest, stepped), b.get_shape(x).element_type)
    unordered = b.or_(b.ne(x, x), b.ne(y, y))
    return b.select(unordered, x + y, b.select(b.eq(x, y), y, moved))
