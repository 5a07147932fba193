"""Stateful random ops: those of a tf.random.Generator, whose state is a variable, and those without a seed.

A generator's ops give TensorFlow's bits: its state is the int64[3] (counter low, counter high, key) of Philox. An op
without a seed starts anew from the process's entropy in every run, as in TensorFlow. One with a seed has a sequence
that TensorFlow's kernel keeps from run to run; it stays there.
Source: tensorflow/core/kernels/stateful_random_ops.cc, random_op.cc, multinomial_op.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.special_functions import ndtri
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import GraphNode
from ..array.gather import gather_axis
from ..array.sorting import sorted_with_places
from ..control.variables import assign, value_of
from ..math.broadcasting import broadcast_dims, broadcast_to
from ..math.incomplete_gamma_beta import igamma
from ..math.reductions import initial, reduce, reducer
from ..node import Node
from ..registry import translates
from .stateless import (
    Generator,
    full_integers,
    integers_between,
    normal,
    scrambled,
    truncated_normal,
    uniform,
)

_S32, _S64, _U32, _U64, _F32, _F64 = (
    ElementType.S32,
    ElementType.S64,
    ElementType.U32,
    ElementType.U64,
    ElementType.F32,
    ElementType.F64,
)
_PHILOX, _AUTO = 1, 3
_RESERVED = 256  # blocks of four words that a generator moves on by, for every result


# -- generators


def _state(node: Node, algorithm: str) -> Operand:
    if int(node.constant(algorithm)) not in (_PHILOX, _AUTO):
        raise UnsupportedError(
            f"{node.op}: algorithm {int(node.constant(algorithm))}; Philox (1) is compiled"
        )
    state = value_of(node, 0)
    shape = node.b.get_shape(state)
    if shape.rank != 1 or shape.dims[0] < 3:
        raise ShapeError(f"the state of a Philox generator has 3 elements or more, got {list(shape.dims)}")
    return node.b.bitcast_convert_type(state, _U64)


def _advanced(node: Node, state: Operand, blocks: Operand) -> None:
    """Moves the counter of the generator's variable on by a u64 number of blocks."""
    b = node.b
    low, high = (b.slice_in_dim(state, k, k + 1, 1, 0) for k in (0, 1))
    moved = low + b.reshape(blocks, (1,))
    carry = b.convert_element_type(b.lt(moved, low), _U64)
    rest = b.slice_in_dim(state, 2, b.get_shape(state).dims[0], 1, 0)
    new = b.concat_in_dim([moved, high + carry, rest], 0)
    assign(node.variable(0), b.bitcast_convert_type(new, _S64))


def _drawn_from(node: Node, count: int) -> Generator:
    """The generator of a node's variable as it is now; the variable moves on behind `count` results."""
    b, state = node.b, _state(node, "algorithm")
    counter, key = b.slice_in_dim(state, 0, 2, 1, 0), b.slice_in_dim(state, 2, 3, 1, 0)
    _advanced(node, state, b.constant(np.uint64(count * _RESERVED)))
    return Generator(b, b.concat_in_dim([key, counter], 0))


@translates("RngSkip", constants=("algorithm",), stateful=True)
def rng_skip(node: Node) -> None:
    state = _state(node, "algorithm")
    _advanced(node, state, _blocks(node, node["delta"]))


@translates("RngReadAndSkip", constants=("alg",), stateful=True)
def rng_read_and_skip(node: Node) -> Operand:
    b, before = node.b, value_of(node, 0)
    state = _state(node, "alg")
    _advanced(node, state, _blocks(node, node["delta"]))
    return b.slice_in_dim(before, 0, 3, 1, 0)


def _blocks(node: Node, delta: Operand) -> Operand:
    return node.b.convert_element_type(delta, _U64) * node.b.constant(np.uint64(_RESERVED))


_GENERATED = {
    "StatefulUniform": uniform,
    "StatefulStandardNormalV2": normal,
    "StatefulTruncatedNormal": truncated_normal,
    "StatefulUniformFullInt": full_integers,
}


@translates(*_GENERATED, constants=("algorithm", "shape"), stateful=True)
def stateful_array(node: Node) -> Operand:
    dims = node.integers("shape")
    return _GENERATED[node.op](_drawn_from(node, math.prod(dims)), dims, node.attr("dtype"))


@translates("StatefulUniformInt", constants=("algorithm", "shape"), stateful=True)
def stateful_integers(node: Node) -> Operand:
    generator = _drawn_from(node, math.prod(node.integers("shape")))
    return integers_between(node, generator, node.attr("dtype"))


# -- ops without a seed


def unsupported_seed(node: GraphNode) -> str | None:
    if not (node.attrs["seed"].i or node.attrs["seed2"].i):
        return None
    return (
        "it has a seed, whose sequence TensorFlow's kernel keeps; ops of tf.random.Generator and stateless ones "
        "are compiled with a seed, too"
    )


def fresh(node: Node) -> Generator:
    """A generator with a new key and counter."""
    b = node.b
    zero = b.constant(np.uint64(0))
    seed = b.rng_uniform(zero, zero, Shape(_U64, (2,)))
    return Generator(b, b.concat_in_dim([seed, b.constant(np.zeros(1, np.uint64))], 0))


_UNSEEDED = {"RandomUniform": uniform, "RandomStandardNormal": normal, "TruncatedNormal": truncated_normal}


@translates(*_UNSEEDED, constants=("shape",), stateful=True, unsupported=unsupported_seed)
def unseeded_floats(node: Node) -> Operand:
    return _UNSEEDED[node.op](fresh(node), node.integers("shape"), node.attr("dtype"))


@translates("RandomUniformInt", constants=("shape",), stateful=True, unsupported=unsupported_seed)
def unseeded_integers(node: Node) -> Operand:
    return integers_between(node, fresh(node), node.attr("Tout"))


@translates("NonDeterministicInts", constants=("shape",), stateful=True)
def non_deterministic_integers(node: Node) -> Operand:
    """Integers of all values, anew in every run."""
    return full_integers(fresh(node), node.integers("shape"), node.attr("dtype") or _S64)


@translates("RandomShuffle", stateful=True, unsupported=unsupported_seed)
def shuffle(node: Node) -> Operand:
    """Rows in the order of random keys of 64 bits."""
    b, dims = node.b, node.shape(0)
    if not dims or dims[0] < 2:
        return node[0]
    _, order = sorted_with_places(b, fresh(node).words((dims[0],), _U64), 0, False)
    return gather_axis(node, node[0], order, 0, 0)


# -- samples of classes


def multinomial(node: Node, generator: Generator) -> Operand:
    """For every row of logits classes with probability exp(logit): the first whose share of the sum lies beyond a
    uniform number."""
    b, (batch, classes), samples = node.b, node.shape("logits"), node.integers("num_samples")[0]
    type_ = node.attr("output_dtype") or _S64
    if not batch or not samples:
        return b.broadcast(b.constant(0, type_), (batch, samples))
    logits = b.convert_element_type(node["logits"], _F64)
    finite = b.is_finite(logits)
    largest = reduce(b, b.select(finite, logits, b.full_like(logits, -math.inf)), "max", [1], True)
    share = b.exp(logits - b.broadcast_in_dim(b.reshape(largest, (batch,)), (batch, classes), [0]))
    share = b.select(finite, share, b.full_like(share, 0))
    sums = b.reduce_window_with_general_padding(
        share,
        initial(b, "add", _F64),
        reducer(b, "add", _F64),
        [1, classes],
        [1, 1],
        [(0, 0), (classes - 1, 0)],
    )
    total = b.slice_in_dim(sums, classes - 1, classes, 1, 1)
    thresholds = uniform(generator, (batch, samples), _F64)
    thresholds = thresholds * b.broadcast_in_dim(b.reshape(total, (batch,)), (batch, samples), [0])
    dims = (batch, samples, classes)
    passed = b.le(b.broadcast_in_dim(sums, dims, [0, 2]), b.broadcast_in_dim(thresholds, dims, [0, 1]))
    return reduce(b, b.convert_element_type(passed, type_), "add", [2])


@translates("Multinomial", constants=("num_samples",), stateful=True, unsupported=unsupported_seed)
def unseeded_multinomial(node: Node) -> Operand:
    return multinomial(node, fresh(node))


@translates("StatelessMultinomial", constants=("num_samples",))
def stateless_multinomial(node: Node) -> Operand:
    return multinomial(node, Generator(node.b, node.b.concat_in_dim(scrambled(node.b, node["seed"]), 0)))


# -- truncated normal numbers with parameters


def _between(
    b: ComputationBuilder, generator: Generator, dims: Sequence[int], parameters: Sequence[Operand]
) -> Operand:
    """Normal numbers of a mean and deviation between two bounds, by the quantile of a uniform number.

    Where both bounds lie on the right of the mean the mirrored ones are taken: there the quantile is exact."""
    mean, deviation, low, high = parameters
    low, high = (low - mean) / deviation, (high - mean) / deviation
    mirrored = b.gt(low, b.full_like(low, 0))
    low, high = b.select(mirrored, -high, low), b.select(mirrored, -low, high)
    first, last = _normal_share(b, low), _normal_share(b, high)
    drawn = first + (last - first) * uniform(generator, dims, _F64)
    tiny = b.full_like(drawn, 1e-300)
    value = b.clamp(low, ndtri(b, b.max(drawn, tiny)), high)
    return b.select(mirrored, -value, value) * deviation + mean


def _normal_share(b: ComputationBuilder, x: Operand) -> Operand:
    """P(normal <= x), by the incomplete gamma function in the left tail."""
    half = b.full_like(x, 0.5)
    square = x * x * half
    tail = igamma(b, half, square, 2.0**-50, True) * half
    return b.select(b.lt(x, b.full_like(x, 0)), tail, b.full_like(x, 1) - tail)


def _checked(b: ComputationBuilder, parameters: Sequence[Operand]) -> None:
    """Ends the run where parameters are none: TensorFlow's error."""
    _, deviation, low, high = parameters
    bounded = b.or_(b.is_finite(low), b.is_finite(high))
    usable = b.and_(b.and_(b.gt(deviation, b.full_like(deviation, 0)), b.lt(low, high)), bounded)
    b.fail_if(b.not_(reduce(b, usable, "and_", range(b.get_shape(usable).rank))), "Invalid parameters")


@translates("ParameterizedTruncatedNormal", constants=("shape",), stateful=True, unsupported=unsupported_seed)
def parameterized_truncated_normal(node: Node) -> Operand:
    """The first axis of the shape is the batch, for which the parameters are scalars or vectors."""
    b, dims, type_ = node.b, node.integers("shape"), node.attr("dtype")
    parameters = []
    for name in ("means", "stdevs", "minvals", "maxvals"):
        value, parameter_dims = b.convert_element_type(node[name], _F64), node.shape(name)
        if parameter_dims not in ((), (1,), (dims[0],)):
            raise ShapeError(
                f"Input {name} should have length 1 or shape[0] = {dims[0]}, got shape {list(parameter_dims)}"
            )
        if parameter_dims in ((), (1,)):
            parameters.append(b.broadcast(b.reshape(value, ()), dims))
        else:
            parameters.append(b.broadcast_in_dim(value, dims, [0]))
    return _drawn_between(node, fresh(node), dims, parameters, type_)


@translates("StatelessParameterizedTruncatedNormal", constants=("shape",))
def stateless_parameterized_truncated_normal(node: Node) -> Operand:
    """The shape ends with the one that the parameters' shapes are broadcast to. Where TensorFlow's kernel draws from
    depends on how it divides the work among threads; here every result has a word of its own."""
    b, dims = node.b, node.integers("shape")
    names = ("means", "stddevs", "minvals", "maxvals")
    common = functools.reduce(broadcast_dims, (node.shape(name) for name in names))
    if len(common) > len(dims) or tuple(dims[len(dims) - len(common) :]) != tuple(common):
        raise ShapeError(f"Shape passed in must end with broadcasted shape: {list(dims)} and {list(common)}")
    parameters = [broadcast_to(b, b.convert_element_type(node[name], _F64), dims) for name in names]
    generator = Generator(b, b.concat_in_dim(scrambled(b, node["seed"]), 0))
    return _drawn_between(node, generator, dims, parameters, node.attr("dtype"))


def _drawn_between(
    node: Node, generator: Generator, dims: Sequence[int], parameters: Sequence[Operand], type_: ElementType
) -> Operand:
    if 0 in dims:
        return node.b.broadcast(node.b.constant(0, type_), dims)
    _checked(node.b, parameters)
    return node.b.convert_element_type(_between(node.b, generator, dims, parameters), type_)
