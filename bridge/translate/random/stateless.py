"""Stateless random ops, with TensorFlow's bits: Philox 4x32-10, and its ways from words to numbers; or ThreeFry 2x32.

A Philox generator is (key, counter): u64 scalars, the counter as its low and high half. Word 4 n + k is word k of the
cipher of counter + n.
Source: tensorflow/core/lib/random/random_distributions.h, stateless_random_ops.cc.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.special_functions import ndtri
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ..math.reductions import reduce
from ..node import Node
from ..operands.dynamic_dims import Extent, bounds, extents, with_first
from ..operands.value_ranges import check_limits
from ..registry import translates

_U32, _U64, _F32, _F64 = ElementType.U32, ElementType.U64, ElementType.F32, ElementType.F64
_SCRAMBLE_KEY = 0x02461E29_3EC8F720
_PHILOX, _THREE_FRY, _AUTO = 1, 2, 3  # numbers of algorithms
_THREE_FRY_NAME = "rng_three_fry"


@dataclasses.dataclass(frozen=True)
class Generator:
    """A cipher at a place: a u64[3] of key and counter, of ThreeFry a u64[2]."""

    b: ComputationBuilder
    state: Operand
    algorithm: str = "rng_philox"

    def words(self, dims: Sequence[int], type_: ElementType = _U32) -> Operand:
        """The next random words, u32 or u64."""
        if 0 in dims:
            return self.b.broadcast(self.b.constant(0, type_), dims)
        both = self.b.rng_bit_generator(self.algorithm, self.state, Shape(type_, tuple(dims)))
        return self.b.get_tuple_element(both, 1)


def scrambled(b: ComputationBuilder, seed: Operand) -> tuple[Operand, Operand]:
    """(key, counter) as u64[1] and u64[2] from a seed of two integers."""
    words = b.convert_element_type(seed, _U64)
    state = b.concat_in_dim([b.constant(np.array([_SCRAMBLE_KEY], np.uint64)), words], 0)
    mixed = Generator(b, state).words((2,), _U64)
    zero = b.constant(np.zeros(1, np.uint64))
    return b.slice_in_dim(mixed, 0, 1, 1, 0), b.concat_in_dim([zero, b.slice_in_dim(mixed, 1, 2, 1, 0)], 0)


def _generator(node: Node) -> Generator:
    """The generator that a node names: by key, counter and algorithm, or by a seed."""
    if not node.op.endswith("V2"):
        return Generator(node.b, node.b.concat_in_dim(scrambled(node.b, node["seed"]), 0))
    number = int(node.constant("alg"))
    if number == _THREE_FRY:  # which TensorFlow has no kernel of for CPUs
        counter = node.b.slice_in_dim(node["counter"], 0, 1, 1, 0)
        return Generator(node.b, node.b.concat_in_dim([node["key"], counter], 0), _THREE_FRY_NAME)
    if number not in (_PHILOX, _AUTO):
        raise UnsupportedError(f"{node.op}: algorithm {number}; Philox (1) and ThreeFry (2) are compiled")
    return Generator(node.b, node.b.concat_in_dim([node["key"], node["counter"]], 0))


@translates("StatelessRandomGetKeyCounter")
def key_counter(node: Node) -> tuple[Operand, Operand]:
    return scrambled(node.b, node["seed"])


@translates("StatelessRandomGetKeyCounterAlg")
def key_counter_alg(node: Node) -> tuple[Operand, Operand, Operand]:
    return (*scrambled(node.b, node["seed"]), node.b.constant(_PHILOX, ElementType.S32))


@translates("StatelessRandomGetAlg")
def algorithm(node: Node) -> Operand:
    return node.b.constant(_PHILOX, ElementType.S32)


# Bits of the fraction, and of the number 1.0 in the type.
_FRACTIONS = {
    ElementType.F16: (10, 15 << 10),
    ElementType.BF16: (7, 127 << 7),
    _F32: (23, 127 << 23),
    _F64: (52, 1023 << 52),
}
_BITS = {ElementType.F16: ElementType.U16, ElementType.BF16: ElementType.U16, _F32: _U32, _F64: _U64}


def unit_floats(b: ComputationBuilder, words: Operand, type_: ElementType) -> Operand:
    """Uniform in [0, 1): the low bits of words as the fraction of a number in [1, 2), less 1."""
    if type_ is _F64:  # the first of two words is the upper half
        half = b.scalar_like(words, 32)
        words = b.or_(b.shift_left(words, half), b.shift_right_logical(words, half))
    return _with_fraction(b, b.convert_element_type(words, _BITS[type_]), type_)


def _with_fraction(b: ComputationBuilder, bits: Operand, type_: ElementType) -> Operand:
    """The number in [0, 1) whose fraction, as one in [1, 2), is the low bits."""
    fraction, one = _FRACTIONS[type_]
    bits = b.or_(b.and_(bits, b.scalar_like(bits, (1 << fraction) - 1)), b.scalar_like(bits, one))
    number = b.bitcast_convert_type(bits, type_)
    return number - b.scalar_like(number, 1)


def uniform(generator: Generator, dims: Sequence[int], type_: ElementType) -> Operand:
    """Floats in [0, 1). ThreeFry's are as XLA's: the highest bits of a word are the fraction."""
    b, words = generator.b, generator.words(dims, _U64 if type_ is _F64 else _U32)
    if generator.algorithm == _THREE_FRY_NAME and type_ in (_F32, _F64):
        unused = type_.bits - _FRACTIONS[type_][0]
        return _with_fraction(b, b.shift_right_logical(words, b.scalar_like(words, unused)), type_)
    return unit_floats(b, words, type_)


def box_muller(b: ComputationBuilder, words: Operand) -> tuple[Operand, Operand]:
    """Two normal numbers from two words along the last axis: f32 from u32, f64 from u64."""
    *dims, _ = b.get_shape(words).dims
    type_ = _F64 if b.get_shape(words).element_type is _U64 else _F32
    axis = len(dims)
    first, second = (b.reshape(b.slice_in_dim(words, k, k + 1, 1, axis), dims) for k in range(2))
    radius = unit_floats(b, first, type_)
    radius = b.max(radius, b.scalar_like(radius, 1e-7))
    radius = b.sqrt(b.log(radius) * b.scalar_like(radius, -2))
    angle = unit_floats(b, second, type_)
    angle = angle * b.scalar_like(angle, 2 * math.pi)
    return b.sin(angle) * radius, b.cos(angle) * radius


def normal(generator: Generator, dims: Sequence[int], type_: ElementType) -> Operand:
    """Normal numbers; types below f32 are rounded from it."""
    b, count = generator.b, math.prod(dims)
    pairs = -(-count // 2)
    words = generator.words((pairs, 2), _U64 if type_ is _F64 else _U32)
    both = b.concat_in_dim([b.reshape(o, (pairs, 1)) for o in box_muller(b, words)], 1)
    flat = b.slice_in_dim(b.reshape(both, (2 * pairs,)), 0, count, 1, 0)
    return b.convert_element_type(b.reshape(flat, dims), type_)


def full_integers(generator: Generator, dims: Sequence[int], type_: ElementType) -> Operand:
    """Integers of all values of the type."""
    words = generator.words(dims, _U64 if type_.bits == 64 else _U32)
    return generator.b.convert_element_type(words, type_)


def integers_between(node: Node, generator: Generator, type_: ElementType) -> Operand:
    """Integers of the node's shape: minval + word mod (maxval - minval), both of which are data."""
    b, word_type = node.b, _U64 if type_.bits == 64 else _U32
    check_limits(node, node["minval"], node["maxval"])
    words = generator.words(node.integers("shape"), word_type)
    low, high = (b.convert_element_type(node[k], word_type) for k in ("minval", "maxval"))
    return b.convert_element_type(b.rem(words, high - low) + low, type_)


@translates("StatelessRandomUniformInt", constants=("shape",))
@translates("StatelessRandomUniformIntV2", constants=("shape", "alg"))
def stateless_integers(node: Node) -> Operand:
    return integers_between(node, _generator(node), node.attr("dtype"))


# -- truncated normal numbers: every group of results takes words of its own until all lie within two deviations

_RESERVED = 256  # words kept for every result: its group starts that many words after the one before
_GROUP = {_F64: 2, _F32: 4}


def _philox_round(b: ComputationBuilder, words: list[Operand], key: list[Operand]) -> list[Operand]:
    mask, half = b.constant(np.uint64(0xFFFFFFFF)), b.constant(np.uint64(32))
    first = words[0] * b.scalar_like(words[0], 0xD2511F53)
    second = words[2] * b.scalar_like(words[2], 0xCD9E8D57)
    return [
        b.xor(b.xor(b.shift_right_logical(second, half), words[1]), key[0]),
        b.and_(second, mask),
        b.xor(b.xor(b.shift_right_logical(first, half), words[3]), key[1]),
        b.and_(first, mask),
    ]


def philox_blocks(b: ComputationBuilder, key: Operand, low: Operand, high: Operand) -> list[Operand]:
    """The four words, in u64, of the cipher of each of these counters. `key` is a scalar."""
    mask, half = b.constant(np.uint64(0xFFFFFFFF)), b.constant(np.uint64(32))
    words = [
        b.and_(low, mask),
        b.shift_right_logical(low, half),
        b.and_(high, mask),
        b.shift_right_logical(high, half),
    ]
    keys = [b.and_(key, mask), b.shift_right_logical(key, half)]
    for _ in range(10):
        words = _philox_round(b, words, keys)
        keys = [
            b.and_(k + b.constant(np.uint64(step)), mask) for k, step in zip(keys, (0x9E3779B9, 0xBB67AE85))
        ]
    return words


def truncated_normal(generator: Generator, dims: Sequence[int], type_: ElementType) -> Operand:
    """Normal numbers of absolute value below 2; a loop draws blocks until every group is full."""
    b, compute_type = generator.b, _F64 if type_ is _F64 else _F32
    size = _GROUP[compute_type]
    count = math.prod(dims)
    groups = -(-count // size)
    if not groups:
        return b.broadcast(b.constant(0, type_), dims)
    if generator.algorithm == _THREE_FRY_NAME:
        return b.convert_element_type(_inverted_normal(generator, dims, compute_type), type_)
    state = Shape.tuple(
        [
            Shape(_U64),
            Shape(ElementType.S32, (groups,)),
            Shape(compute_type, (groups, size)),
            Shape(_U64, (3,)),
        ]
    )
    test = b.create_sub_builder("not_all_full")
    filled = test.get_tuple_element(test.parameter(0, state, "state"), 1)
    filled_count = reduce(test, filled, "min", [0])
    condition = test.build(test.lt(filled_count, test.constant(size, ElementType.S32)))
    body = b.create_sub_builder("draw_a_block")
    packed = body.parameter(0, state, "state")
    step, filled, results, start = (body.get_tuple_element(packed, k) for k in range(4))
    for value in _candidates(body, start, step, groups, compute_type, size):
        fits = body.lt(body.abs(value), body.scalar_like(value, 2))
        place = body.broadcast_in_dim(filled, (groups, size), [0])
        here = body.eq(body.iota(Shape(ElementType.S32, (groups, size)), 1), place)
        here = body.and_(here, body.broadcast_in_dim(fits, (groups, size), [0]))
        results = body.select(here, body.broadcast_in_dim(value, (groups, size), [0]), results)
        filled = filled + body.convert_element_type(fits, ElementType.S32)
    new_state = body.build(body.tuple([step + body.constant(np.uint64(1)), filled, results, start]))
    init = b.tuple(
        [
            b.constant(np.uint64(0)),
            b.broadcast(b.constant(0, ElementType.S32), (groups,)),
            b.broadcast(b.constant(0, compute_type), (groups, size)),
            generator.state,
        ]
    )
    results = b.get_tuple_element(b.while_(condition, new_state, init), 2)
    flat = b.slice_in_dim(b.reshape(results, (groups * size,)), 0, count, 1, 0)
    return b.convert_element_type(b.reshape(flat, dims), type_)


def _inverted_normal(generator: Generator, dims: Sequence[int], compute_type: ElementType) -> Operand:
    """Normal numbers of absolute value up to 2 by the inverse of their distribution."""
    b, smallest = generator.b, 0.5 * math.erfc(math.sqrt(2))
    share = uniform(generator, dims, compute_type)
    normals = ndtri(b, share * b.scalar_like(share, 1 - 2 * smallest) + b.scalar_like(share, smallest))
    return b.clamp(b.full_like(normals, -2), normals, b.full_like(normals, 2))


def _candidates(
    b: ComputationBuilder, start: Operand, step: Operand, groups: int, compute_type: ElementType, size: int
) -> list[Operand]:
    """The normal numbers of block `step` of every group."""
    key, low, high = (b.reshape(b.slice_in_dim(start, k, k + 1, 1, 0), ()) for k in range(3))
    skipped = b.iota(Shape(_U64, (groups,)), 0) * b.constant(np.uint64(size * _RESERVED // 4)) + step
    sums = skipped + low
    carry = b.convert_element_type(b.lt(sums, skipped), _U64)
    words = philox_blocks(b, key, sums, carry + high)
    if compute_type is _F64:
        half = b.constant(np.uint64(32))
        pairs = [[b.or_(words[k], b.shift_left(words[k + 1], half)) for k in (0, 2)]]
    else:
        words32 = [b.convert_element_type(w, _U32) for w in words]
        pairs = [words32[:2], words32[2:]]
    return [
        number
        for pair in pairs
        for number in box_muller(b, b.concat_in_dim([b.reshape(w, (groups, 1)) for w in pair], 1))
    ]


_GENERATED = {
    "StatelessRandomNormal": normal,
    "StatelessRandomUniform": uniform,
    "StatelessRandomUniformFullInt": full_integers,
    "StatelessTruncatedNormal": truncated_normal,
}


@translates(*_GENERATED, constants=("shape",), sized_by=("shape",))
@translates(*(f"{op}V2" for op in _GENERATED), constants=("shape", "alg"), sized_by=("shape",))
def stateless_array(node: Node) -> Operand:
    """Numbers of the first rows are the same, however many rows there are."""
    generator, sizes = _generator(node), extents(node, "shape")
    if isinstance((sizes or [0])[0], Extent) and generator.algorithm == _THREE_FRY_NAME:
        raise UnsupportedError(f"{node.op}: ThreeFry's numbers follow from how many there are, which is data")
    generate = _GENERATED[node.op.removesuffix("V2")]
    return with_first(node.b, generate(generator, bounds(sizes), node.attr("dtype")), sizes)


@translates("StochasticCastToInt", constants=("alg",))
def stochastic_cast(node: Node) -> Operand:
    """The integer below or the one above, this with the probability of the fraction; saturated, 0 for NaN."""
    if int(node.constant("alg")) not in (_PHILOX, _AUTO):
        raise UnsupportedError(f"{node.op}: algorithm {int(node.constant('alg'))}; Philox (1) is compiled")
    b, target = node.b, node.attr("Tout")
    x = b.convert_element_type(node[0], _F64)
    generator = Generator(b, b.concat_in_dim([node["key"], node["counter"]], 0))
    below = b.floor(x)
    goes_up = b.lt(uniform(generator, node.shape(0), _F64), x - below)
    rounded = below + b.convert_element_type(goes_up, _F64)
    return b.convert_element_type(rounded, target)
