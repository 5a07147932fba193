"""Special functions: gamma family, inverse error function, Bessel functions, hyperbolic and inverse functions.

Types below f32 are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...compiler.builder import ComputationBuilder, Operand
from ...compiler.types import COMPLEXES, ElementType
from . import complex_functions
from .arrays import axis_of
from .broadcasting import broadcast
from .nn import narrowed, widened
from .node import Node
from .registry import translates
from .value_ranges import any_of

_B = ComputationBuilder
_F32, _F64 = ElementType.F32, ElementType.F64


def polynomial(b: ComputationBuilder, x: Operand, coefficients: Sequence[float]) -> Operand:
    """c[0] x^n + ... + c[n]."""
    total = b.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + b.scalar_like(x, c)
    return total


def chebyshev(b: ComputationBuilder, t: Operand, coefficients: Sequence[float]) -> Operand:
    """sum of c[k] T_k(t), by Clenshaw's recurrence."""
    twice = t * b.scalar_like(t, 2)
    last, before = b.full_like(t, 0), b.full_like(t, 0)
    for c in coefficients[:0:-1]:
        last, before = twice * last - before + b.scalar_like(t, c), last
    return t * last - before + b.scalar_like(t, coefficients[0])


# -- gamma functions
# Source: Lanczos' approximation with g = 7, n = 9.
_LANCZOS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
            -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
            9.984369578019570859563e-6, 1.50563273514931155834e-7)
_LANCZOS_BASE, _LANCZOS_G = 0.99999999999980993227684700473478, 7.0


def _lanczos(b: ComputationBuilder, z: Operand) -> tuple[Operand, Operand]:
    """The series and minus its derivative at z >= -0.5, z being the argument less one."""
    total, slope = b.full_like(z, _LANCZOS_BASE), b.full_like(z, 0)
    for k, c in enumerate(_LANCZOS):
        shifted = z + b.scalar_like(z, k + 1)
        term = b.scalar_like(z, c) / shifted
        total, slope = total + term, slope + term / shifted
    return total, slope


def lgamma(b: ComputationBuilder, x: Operand) -> Operand:
    """log |gamma(x)|; infinite at 0, -1, -2, ..."""
    def number(value: float) -> Operand:
        return b.scalar_like(x, value)

    reflected = b.lt(x, number(0.5))
    z = b.select(reflected, -x, x - number(1))
    total, _ = _lanczos(b, z)
    t = z + number(_LANCZOS_G + 0.5)
    log_t = number(math.log(_LANCZOS_G + 0.5)) + b.log1p(z / number(_LANCZOS_G + 0.5))
    value = (z + number(0.5) - t / log_t) * log_t + number(math.log(2 * math.pi) / 2) + b.log(total)
    fraction = b.abs(x) - b.floor(b.abs(x))
    fraction = b.select(b.gt(fraction, number(0.5)), number(1) - fraction, fraction)
    sine = b.log(b.sin(fraction * number(math.pi)))
    mirrored = b.select(b.is_finite(sine), number(math.log(math.pi)) - sine - value, -sine)
    result = b.select(reflected, mirrored, value)
    return b.select(b.eq(b.abs(x), number(math.inf)), b.full_like(x, math.inf), result)


def digamma(b: ComputationBuilder, x: Operand) -> Operand:
    """The derivative of log gamma; NaN at 0, -1, -2, ..."""
    def number(value: float) -> Operand:
        return b.scalar_like(x, value)

    reflected = b.lt(x, number(0.5))
    z = b.select(reflected, -x, x - number(1))
    total, slope = _lanczos(b, z)
    t = z + number(_LANCZOS_G + 0.5)
    log_t = number(math.log(_LANCZOS_G + 0.5)) + b.log1p(z / number(_LANCZOS_G + 0.5))
    value = log_t - slope / total - number(_LANCZOS_G) / t
    turned = (x + b.abs(b.floor(x + number(0.5)))) * number(math.pi)
    mirrored = value - number(math.pi) * b.cos(turned) / b.sin(turned)
    result = b.select(reflected, mirrored, value)
    pole = b.and_(b.le(x, number(0)), b.eq(x, b.floor(x)))
    return b.select(pole, b.full_like(x, math.nan), result)


# -- the quantile of the normal distribution
# Source: Cephes, ndtri.
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


def erfinv(b: ComputationBuilder, x: Operand) -> Operand:
    """The inverse of erf."""
    return ndtri(b, (x + b.scalar_like(x, 1)) * b.scalar_like(x, 0.5)) * b.scalar_like(x, math.sqrt(0.5))


# -- modified Bessel functions, scaled by exp(-|x|): Chebyshev series in x on [0, 8], and in 1/x beyond
_I0E_SMALL = (
    0.338397637204738, -0.3046826723431983, 0.17162090152220869, -0.09490109704804753, 0.049305284239670594,
    -0.02373741480589935, 0.010546460394594835, -0.004324309995050414, 0.001639475616941116,
    -0.0005763755745383327, 0.00018850288509543477, -5.754195010048048e-05, 1.6448448070252944e-05,
    -4.416738358115606e-06, 1.1173875386833436e-06, -2.6707938501830377e-07, 6.046994956736765e-08,
    -1.3000249522944887e-08, 2.65982282077551e-09, -5.189788831658126e-10, 9.675713142884559e-11,
    -1.7267453484096175e-11, 2.9538517689179257e-12, -4.846629370237932e-13, 7.531788812703017e-14,
    -1.0626804096190309e-14, 3.0172996717635303e-16, 8.255045392777374e-16, -1.36584292263361e-15,
    1.1066416600295914e-15, -1.4394847321299156e-15,
)
_I0E_LARGE = (
    0.40224520550705434, 0.003369116478255688, 6.889758346912283e-05, 2.8913705208197464e-06,
    2.048918588724537e-07, 2.266668989255786e-08, 3.396231919626193e-09, 4.940602328960499e-10,
    1.188901541318352e-11, -3.149915798280526e-11, -1.3215977457702567e-11, -1.7941588385912593e-12,
    7.179427992280824e-13, 3.85282074110679e-13, 1.5700048099194402e-14, -4.150846333317304e-14,
    -9.242606680004428e-15, 3.8174591692880385e-15, 2.1307741895690506e-15, -3.2452673027504574e-16,
    5.081405381938216e-16, 5.337610695313253e-17, 1.09954780323453e-15, 1.0483067405595227e-15,
    -1.2810265668751807e-17,
)
_I1E_SMALL = (
    0.12629359322181682, -0.17641651835783403, 0.10264365868984708, -0.052945981208094954, 0.024726449030626468,
    -0.010564084894626149, 0.004156422944312832, -0.001513572450631191, 0.0005122859561684905,
    -0.0001617608158257912, 4.7815651075352454e-05, -1.3273163655881015e-05, 3.4702513079473874e-06,
    -8.568720262908025e-07, 2.003294751468054e-07, -4.445059105931941e-08, 9.38153708258098e-09,
    -1.8872494186816445e-09, 3.6255861764872095e-10, -6.66345063244528e-11, 1.1735744404722625e-11,
    -1.983529296233391e-12, 3.2183188685715044e-13, -4.9869382816806805e-14, 6.9639634560761836e-15,
    -5.02510219815217e-16, -4.712851972476345e-16, 5.712276529926209e-16, -6.279698983036042e-16,
    5.809644879868132e-16, -6.527316769526279e-16,
)
_I1E_LARGE = (
    0.38928811750914005, -0.009761097491361465, -0.00011058893876264148, -3.882564808859862e-06,
    -2.512236238696794e-07, -2.6314688453906634e-08, -3.835380483293486e-09, -5.589743369026879e-10,
    -1.8975103539713264e-11, 3.2526054499343745e-11, 1.412562588266352e-11, 2.035653696890012e-12,
    -7.199572135044937e-13, -4.083425408871669e-13, -2.0751562861238864e-14, 4.271262830603571e-14,
    1.0726462453301512e-14, -3.802513859341161e-15, -1.5436370130845926e-15, 3.0744637605004334e-16,
    1.0525768291157733e-15, -6.191628406563373e-17, 9.65040013712636e-16, -3.416070845000482e-17,
    1.0621845283673372e-15, -3.042438096328554e-17,
)


def _bessel(b: ComputationBuilder, x: Operand, small: Sequence[float], large: Sequence[float], odd: bool) -> Operand:
    size = b.abs(x)
    near = chebyshev(b, size * b.scalar_like(x, 0.25) - b.scalar_like(x, 1), small)
    near = near * x if odd else near
    beyond = b.max(size, b.scalar_like(x, 8))
    far = chebyshev(b, b.scalar_like(x, 16) / beyond - b.scalar_like(x, 1), large) * b.rsqrt(beyond)
    far = far * b.sign(x) if odd else far
    return b.select(b.le(size, b.scalar_like(x, 8)), near, far)


def _next_after(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """The float that follows x in the direction of y: its bits, as an integer, one up or down."""
    type_ = ElementType.S64 if b.get_shape(x).element_type is _F64 else ElementType.S32
    bits = b.bitcast_convert_type(x, type_)
    one, sign = b.scalar_like(bits, 1), b.scalar_like(bits, np.iinfo(type_.dtype).min)
    zero = b.scalar_like(x, 0)
    away = b.ne(b.lt(x, y), b.lt(x, zero))  # the magnitude grows
    stepped = b.select(away, bits + one, bits - one)
    least = b.select(b.lt(y, zero), b.broadcast(b.or_(sign, one), b.get_shape(x).dims),
                     b.broadcast(one, b.get_shape(x).dims))
    moved = b.bitcast_convert_type(b.select(b.eq(x, zero), least, stepped), b.get_shape(x).element_type)
    unordered = b.or_(b.ne(x, x), b.ne(y, y))
    return b.select(unordered, x + y, b.select(b.eq(x, y), y, moved))


UNARY: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "Acos": _B.acos, "Asin": _B.asin, "Atan": _B.atan, "Acosh": _B.acosh, "Asinh": _B.asinh, "Atanh": _B.atanh,
    "Sinh": _B.sinh, "Cosh": _B.cosh, "Lgamma": lgamma, "Digamma": digamma, "Ndtri": ndtri, "Erfinv": erfinv,
    "Erfc": lambda b, x: b.erfc(x),
    "BesselI0e": lambda b, x: _bessel(b, x, _I0E_SMALL, _I0E_LARGE, False),
    "BesselI1e": lambda b, x: _bessel(b, x, _I1E_SMALL, _I1E_LARGE, True),
    "BesselI0": lambda b, x: _bessel(b, x, _I0E_SMALL, _I0E_LARGE, False) * b.exp(b.abs(x)),
    "BesselI1": lambda b, x: _bessel(b, x, _I1E_SMALL, _I1E_LARGE, True) * b.exp(b.abs(x)),
}
_REAL = frozenset({ElementType.F16, ElementType.BF16, _F32, _F64})


@translates(*(op for op in UNARY if op not in complex_functions.UNARY), types={"T": _REAL})
@translates(*complex_functions.UNARY, types={"T": _REAL | COMPLEXES})
def unary(node: Node) -> Operand:
    if node.element_type(0) in COMPLEXES:
        return complex_functions.UNARY[node.op](node.b, node[0])
    return narrowed(node.b, UNARY[node.op](node.b, widened(node.b, node[0])), node.element_type(0))


@translates("NextAfter")
def next_after(node: Node) -> Operand:
    return _next_after(node.b, *broadcast(node.b, node[0], node[1]))


@translates("PopulationCount")
def population_count(node: Node) -> Operand:
    return node.b.convert_element_type(node.b.population_count(node[0]), ElementType.U8)


@translates("ApproximateEqual")
def approximate_equal(node: Node) -> Operand:
    b = node.b
    distance = b.abs(node[0] - node[1])
    return b.le(distance, b.constant(np.float64(node.attr("tolerance")), b.get_shape(distance).element_type))


def logaddexp(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """log(exp(x) + exp(y)), without overflow."""
    larger = b.max(x, y)
    gap = b.select(b.eq(x, y), b.full_like(x, 0), b.min(x, y) - larger)
    return larger + b.log1p(b.exp(gap))


@translates("CumulativeLogsumexp", constants=("axis",))
def cumulative_logsumexp(node: Node) -> Operand:
    """Sums of 1, 2, 4, ... neighbours, each from two of the sums before."""
    b, shape = node.b, node.array_shape(0)
    x = widened(b, node[0])
    if not shape.elements or not shape.rank:
        return node[0]
    axis = axis_of(node.integers("axis")[0], shape.rank, node.op)
    nothing = b.scalar_like(x, -math.inf)
    # What NaN becomes depends on the order of the sums.
    node.leave_where(any_of(b, b.ne(x, x), range(shape.rank)), "a value is NaN")
    if node.attr("exclusive"):
        x = b.pad_in_dim(x, nothing, axis, *((-1, 1) if node.attr("reverse") else (1, -1)))
    step = 1
    while step < shape.dims[axis]:
        x = logaddexp(b, x, b.pad_in_dim(x, nothing, axis, *((-step, step) if node.attr("reverse") else (step, -step))))
        step *= 2
    return narrowed(b, x, shape.element_type)
