"""Gamma and Poisson numbers by rejection, with TensorFlow's bits, and shuffles by exchanges.

Every result draws from its own place of the stream; a loop goes on till all are accepted.
Source: tensorflow/core/kernels/stateless_random_gamma_op.cc, random_poisson_op.cc, random_shuffle_op.cc.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.gamma_functions import lgamma
from ....compiler.builder.lib.loops import repeated, until
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ..array.gather import gather_axis
from ..node import Node
from ..registry import translates
from .stateful import fresh, unsupported_seed
from .stateless import Generator, box_muller, philox_blocks, scrambled, unit_floats

_S32, _S64, _U32, _U64, _F64 = (
    ElementType.S32,
    ElementType.S64,
    ElementType.U32,
    ElementType.U64,
    ElementType.F64,
)

_RESERVED = 256  # blocks of four words between results
_MAX_STEPS = 1 << 30


@dataclasses.dataclass
class Lanes:
    """The places in the stream of many results: `state` is u64[3], key and counter of the first; `step` u64[n] how many
    blocks each has used."""

    b: ComputationBuilder
    state: Operand
    step: Operand

    def block(self, active: Operand) -> list[Operand]:
        """The next two words of 64 bits; the lanes that are not wanted stay where they are."""
        b, (count,) = self.b, self.b.get_shape(self.step).dims
        key, low, high = (b.reshape(b.slice_in_dim(self.state, k, k + 1, 1, 0), ()) for k in range(3))
        skipped = b.iota(Shape(_U64, (count,)), 0) * b.constant(np.uint64(_RESERVED)) + self.step
        sums = skipped + low
        carry = b.convert_element_type(b.lt(sums, skipped), _U64)
        words = philox_blocks(b, key, sums, carry + high)
        self.step = self.step + b.convert_element_type(active, _U64)
        half = b.constant(np.uint64(32))
        return [b.or_(words[k], b.shift_left(words[k + 1], half)) for k in (0, 2)]

    def draw(self, kind: str, buffered: list[Operand], active: Operand) -> Operand:
        """The next number of a kind, "uniform" or "normal", for the wanted lanes; the second of a pair comes first.

        `kept` are the two numbers of the pair and how many are left; it is changed.
        """
        b = self.b
        first, second, unused = buffered
        empty = b.and_(active, b.eq(unused, b.full_like(unused, 0)))
        words = self.block(empty)
        if kind == "uniform":
            new = [unit_floats(b, w, _F64) for w in words]
        else:
            (count,) = b.get_shape(first).dims
            new = list(box_muller(b, b.concat_in_dim([b.reshape(w, (count, 1)) for w in words], 1)))
        first, second = b.select(empty, new[0], first), b.select(empty, new[1], second)
        unused = b.select(empty, b.full_like(unused, 2), unused) - b.convert_element_type(active, _S32)
        buffered[:] = [first, second, unused]
        return b.select(b.eq(unused, b.full_like(unused, 1)), second, first)


def _pair(b: ComputationBuilder, count: int) -> list[Operand]:
    zeros = b.broadcast(b.constant(0.0, _F64), (count,))
    return [zeros, zeros, b.broadcast(b.constant(0, _S32), (count,))]


def gamma(generator: Generator, alpha: Operand) -> Operand:
    """Gamma numbers of these shapes, f64[n], by Marsaglia's and Tsang's method; exponential ones for shape 1."""
    b, (count,) = generator.b, generator.b.get_shape(alpha).dims

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        alpha, state, used, *pairs, result, unused = values
        normals, uniforms, lanes = pairs[:3], pairs[3:], Lanes(b, state, used)
        one = b.full_like(alpha, 1)
        is_one, small = b.eq(alpha, one), b.lt(alpha, one)
        d = alpha + b.select(small, b.full_like(alpha, 2 / 3), b.full_like(alpha, -1 / 3))
        c = b.full_like(alpha, 1 / 3) / b.sqrt(d)
        x = lanes.draw("normal", normals, b.and_(unused, b.not_(is_one)))
        v = one + c * x
        positive = b.or_(is_one, b.gt(v, b.full_like(v, 0)))
        drawing = b.and_(unused, positive)
        u = lanes.draw("uniform", uniforms, drawing)
        v = v * v * v
        square = x * x
        quick = b.lt(u, one - square * square * b.full_like(x, 0.0331))
        exact = b.lt(b.log(u), square * b.full_like(x, 0.5) + d * (one - v + b.log(v)))
        accepted = b.and_(drawing, b.or_(is_one, b.or_(quick, exact)))
        boost = lanes.draw("uniform", uniforms, b.and_(accepted, small))
        value = d * v
        value = b.select(small, value * b.pow(boost, one / alpha), value)
        value = b.select(is_one, -b.log1p(-u), value)
        return (
            alpha,
            state,
            lanes.step,
            *normals,
            *uniforms,
            b.select(accepted, value, result),
            b.and_(unused, b.not_(accepted)),
        )

    # Of numbers that are no shapes TensorFlow's kernel makes what the arithmetic gives: NaN where d is negative.
    is_zero = b.eq(alpha, b.full_like(alpha, 0))
    drawn = b.and_(b.gt(alpha, b.full_like(alpha, -2 / 3)), b.not_(is_zero))
    of_none = b.select(is_zero, b.exp(b.full_like(alpha, -1) / alpha), b.full_like(alpha, math.nan))
    start = [
        alpha,
        generator.state,
        b.broadcast(b.constant(np.uint64(0)), (count,)),
        *_pair(b, count),
        *_pair(b, count),
        of_none,
        drawn,
    ]
    return until(b, _MAX_STEPS, start, step)[-2]


def poisson(generator: Generator, rate: Operand, highest: float) -> Operand:
    """Poisson numbers of these rates, f64[n]: by products of uniform numbers below 10, else by transformed rejection.

    Source: Hörmann, The transformed rejection method for generating Poisson random variables (1993).
    """
    b, (count,) = generator.b, generator.b.get_shape(rate).dims

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        rate, state, used, *pair, product_, number, result, unused = values
        lanes = Lanes(b, state, used)

        def value(x: float) -> Operand:
            return b.full_like(rate, x)

        small = b.lt(rate, value(10))
        first = lanes.draw("uniform", pair, unused)
        second = lanes.draw("uniform", pair, b.and_(unused, b.not_(small)))
        product_ = product_ * first
        few = b.le(product_, b.exp(-rate))
        width = value(0.931) + value(2.53) * b.sqrt(rate)
        a = value(-0.059) + value(0.02483) * width
        inverse_alpha = value(1.1239) + value(1.1328) / (width - value(3.4))
        u = first - value(0.5)
        shifted = value(0.5) - b.abs(u)
        k = b.floor((value(2) * a / shifted + width) * u + rate + value(0.43))
        quick = b.and_(
            b.ge(shifted, value(0.07)), b.le(second, value(0.9277) - value(3.6224) / (width - value(2)))
        )
        out = b.or_(b.lt(k, value(0)), b.and_(b.lt(shifted, value(0.013)), b.gt(second, shifted)))
        s = b.log(second * inverse_alpha / (a / (shifted * shifted) + width))
        t = k * b.log(rate) - rate - lgamma(b, k + value(1))
        many = b.and_(b.le(k, value(highest)), b.or_(quick, b.and_(b.not_(out), b.le(s, t))))
        accepted = b.and_(unused, b.select(small, few, many))
        result = b.select(accepted, b.select(small, number, k), result)
        return (
            rate,
            state,
            lanes.step,
            *pair,
            product_,
            number + value(1),
            result,
            b.and_(unused, b.not_(accepted)),
        )

    usable = b.and_(b.ge(rate, b.full_like(rate, 0)), b.is_finite(rate))
    nothing = b.select(
        b.eq(rate, b.full_like(rate, math.inf)), b.full_like(rate, highest), b.full_like(rate, math.nan)
    )
    start = [
        rate,
        generator.state,
        b.broadcast(b.constant(np.uint64(0)), (count,)),
        *_pair(b, count),
        b.full_like(rate, 1),
        b.full_like(rate, 0),
        nothing,
        usable,
    ]
    return until(b, _MAX_STEPS, start, step)[-2]


def _stateless(node: Node) -> Generator:
    b = node.b
    if not node.op.endswith("V3"):
        return Generator(b, b.concat_in_dim(scrambled(b, node["seed"]), 0))
    if int(node.constant("alg")) not in (1, 3):
        raise UnsupportedError(f"{node.op}: algorithm {int(node.constant('alg'))}; Philox (1) is compiled")
    return Generator(b, b.concat_in_dim([node["key"], node["counter"]], 0))


def _by_parameter(node: Node, which: str, samples: Sequence[int]) -> tuple[Operand, tuple[int, ...], int]:
    """(parameter of each result: all samples of the first, then of the second, ...; dims of the result; samples)."""
    b, dims = node.b, node.shape(which)
    count, parameters = math.prod(samples), math.prod(dims)
    flat = b.reshape(b.convert_element_type(node[which], _F64), (parameters,))
    rates = b.broadcast_in_dim(flat, (parameters, count), [0])
    return b.reshape(rates, (parameters * count,)), (*samples, *dims), count


def _arranged(node: Node, drawn: Operand, dims: Sequence[int], count: int, type_: ElementType) -> Operand:
    """Results by parameter as results by sample."""
    b = node.b
    parameters = math.prod(dims) // max(count, 1)
    turned = b.transpose(b.reshape(drawn, (parameters, count)), (1, 0))
    return b.convert_element_type(b.reshape(turned, dims), type_)


def _samples_of(node: Node, which: str) -> tuple[int, ...]:
    """The dims of the result of a stateless op without those of the parameter, which end them."""
    dims, own = node.integers("shape"), node.shape(which)
    if len(own) > len(dims) or tuple(dims[len(dims) - len(own) :]) != own:
        raise ShapeError(f"Shape passed in must end with broadcasted shape: {list(dims)} and {list(own)}")
    return tuple(dims[: len(dims) - len(own)])


@translates("StatelessRandomGammaV2", constants=("shape",))
@translates("StatelessRandomGammaV3", constants=("shape", "alg"))
def stateless_gamma(node: Node) -> Operand:
    alpha, dims, count = _by_parameter(node, "alpha", _samples_of(node, "alpha"))
    return _arranged(node, gamma(_stateless(node), alpha), dims, count, node.attr("dtype"))


@translates("StatelessRandomPoisson", constants=("shape",))
def stateless_poisson(node: Node) -> Operand:
    rate, dims, count = _by_parameter(node, "lam", _samples_of(node, "lam"))
    return _poisson(node, _stateless(node), rate, dims, count)


def _poisson(node: Node, generator: Generator, rate: Operand, dims: Sequence[int], count: int) -> Operand:
    type_ = node.attr("dtype")
    highest = math.inf if type_.is_float else float(np.iinfo(type_.dtype).max)
    return _arranged(node, poisson(generator, rate, highest), dims, count, type_)


@translates("RandomGamma", constants=("shape",), stateful=True, unsupported=unsupported_seed)
def unseeded_gamma(node: Node) -> Operand:
    alpha, dims, count = _by_parameter(node, "alpha", node.integers("shape"))
    return _arranged(node, gamma(fresh(node), alpha), dims, count, node.element_type("alpha"))


@translates("RandomPoissonV2", constants=("shape",), stateful=True, unsupported=unsupported_seed)
def unseeded_poisson(node: Node) -> Operand:
    rate, dims, count = _by_parameter(node, "rate", node.integers("shape"))
    return _poisson(node, fresh(node), rate, dims, count)


@translates("StatelessShuffle", constants=("alg",))
def stateless_shuffle(node: Node) -> Operand:
    """Every row in turn is exchanged with one of those from it on."""
    b, dims = node.b, node.shape("value")
    if int(node.constant("alg")) not in (1, 3):
        raise UnsupportedError(f"{node.op}: algorithm {int(node.constant('alg'))}; Philox (1) is compiled")
    if not dims or dims[0] < 2:
        return node["value"]
    size = dims[0]
    words = Generator(b, b.concat_in_dim([node["key"], node["counter"]], 0)).words((size - 1,))
    numbers = b.iota(Shape(_U32, (size - 1,)), 0)
    others = numbers + b.rem(words, b.full_like(numbers, size) - numbers)
    order = b.iota(Shape(_S32, (size,)), 0)

    def step(b: ComputationBuilder, number: Operand, values: list[Operand]) -> Sequence[Operand]:
        order, others = values
        other = b.convert_element_type(b.reshape(b.dynamic_slice(others, [number], [1]), ()), _S32)
        here, there = b.dynamic_slice(order, [number], [1]), b.dynamic_slice(order, [other], [1])
        order = b.dynamic_update_slice(order, there, [number])
        return b.dynamic_update_slice(order, here, [other]), others

    order = repeated(b, size - 1, [order, others], step)[0]
    return gather_axis(node, node["value"], order, 0, 0)
