"""Where an index stands in a shuffled range, which nobody has to make: TensorFlow's cipher of blocks of 16 to 64 bits.

Source: tensorflow/core/kernels/random_index_shuffle.cc; Beaulieu et al., The Simon and Speck Families of Lightweight
Block Ciphers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.loops import until
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ..node import Node
from ..operands.value_ranges import any_of
from ..registry import translates

_U64 = ElementType.U64
_FIRST_KEYS, _CONSTANT, _SEQUENCE = 3, 0xFFFFFFFC, 0x7369F885192C0EF5
_SMALLEST_BLOCK = 16  # bits
_MAX_STEPS = 1 << 30
_LARGEST = 1 << 48  # beyond, TensorFlow's own logarithm in doubles tells the size of a block


class _Words:
    """Operations on words of `width` bits, u64[n], the low bits of u64[n]."""

    def __init__(self, b: ComputationBuilder, width: Operand) -> None:
        self.b, self.width = b, width
        one = self.number(1)
        self.mask = b.shift_left(one, width) - one

    def number(self, value: int) -> Operand:
        """The same number everywhere."""
        return self.b.full_like(self.width, value)

    def turned_left(self, x: Operand, by: Operand) -> Operand:
        """The bits turned around to the left."""
        both = self.b.or_(self.b.shift_left(x, by), self.b.shift_right_logical(x, self.width - by))
        return self.b.and_(both, self.mask)

    def mixed(self, x: Operand) -> Operand:
        """The cipher's function of a half of a block."""
        one, two, eight = (self.turned_left(x, self.number(by)) for by in (1, 2, 8))
        return self.b.xor(self.b.and_(one, eight), two)

    def keys(self, seeds: Sequence[Operand], rounds: int) -> list[Operand]:
        """The keys of all rounds."""
        b = self.b
        keys = [b.and_(seed, self.mask) for seed in seeds]
        sequence = b.and_(self.number(_SEQUENCE), self.mask)
        for k in range(_FIRST_KEYS, rounds):
            bit = b.and_(b.shift_right_logical(sequence, self.number(k - _FIRST_KEYS)), self.number(1))
            key = b.xor(b.xor(b.and_(self.number(_CONSTANT), self.mask), bit), keys[k - 3])
            for by in (3, 4):
                key = b.xor(key, self.turned_left(keys[k - 1], self.width - self.number(by)))
            keys.append(key)
        return keys

    def encrypted(self, block: Operand, keys: Sequence[Operand]) -> Operand:
        """A block of two words under the keys."""
        b = self.b
        left = b.and_(b.shift_right_logical(block, self.width), self.mask)
        right = b.and_(block, self.mask)
        for first, second in zip(keys[::2], keys[1::2]):
            left = b.xor(b.xor(left, self.mixed(right)), first)
            right = b.xor(b.xor(right, self.mixed(left)), second)
        return b.or_(b.shift_left(left, self.width), right)


def _broadcast_words(node: Node, which: str, dims: Sequence[int], count: int) -> Operand:
    """An input as u64[count, *dims]: it has these dims, or a row of them for each or for all."""
    b, input_dims = node.b, node.shape(which)
    words = b.convert_element_type(node[which], _U64)
    if input_dims == (count, *dims):
        return words
    if input_dims not in (tuple(dims), (1, *dims)):
        raise ShapeError(f"{which} has shape {list(input_dims)}, there are {count} results")
    return b.broadcast_in_dim(b.reshape(words, dims), (count, *dims), range(1, 1 + len(dims)))


@translates("RandomIndexShuffle")
def random_index_shuffle(node: Node) -> Operand:
    b, rounds = node.b, node.attr("rounds")
    if rounds < 4 or rounds % 2:
        raise UnsupportedError(f"{node.op}: {rounds} rounds; their number is even and at least 4")
    lengths = [
        node.shape(which)[: node.array_shape(which).rank - rank]
        for which, rank in (("index", 0), ("seed", 1), ("max_index", 0))
    ]
    dims = max(lengths, key=lambda own: (len(own), own))
    count = dims[0] if dims else 1
    if any(len(own) > 1 for own in lengths) or 0 in dims:
        raise ShapeError(f"index, seed and max_index have the shapes {lengths} besides the seed's last axis")
    index, max_index = (
        _broadcast_words(node, "index", (), count),
        _broadcast_words(node, "max_index", (), count),
    )
    seeds = _broadcast_words(node, "seed", (_FIRST_KEYS,), count)
    wrong = b.or_(b.gt(index, max_index), b.ge(max_index, b.full_like(max_index, _LARGEST)))
    node.bail_out_if(any_of(b, wrong, [0]), "an index or its greatest value is out of range")
    one = b.full_like(max_index, 1)
    bits = b.full_like(max_index, 64) - b.clz(b.max(max_index, one) - one)
    bits = b.max(bits, b.full_like(bits, _SMALLEST_BLOCK))
    words = _Words(b, b.shift_right_logical(bits + one, one))
    keys = words.keys(
        [b.reshape(b.slice_in_dim(seeds, k, k + 1, 1, 1), (count,)) for k in range(_FIRST_KEYS)], rounds
    )

    def step(b: ComputationBuilder, _: Operand, values: list[Operand]) -> Sequence[Operand]:
        """What came out beyond the greatest value goes in again."""
        width, max_index, *keys, block, left = values
        block = b.select(left, _Words(b, width).encrypted(block, keys), block)
        return width, max_index, *keys, block, b.gt(block, max_index)

    shuffled = until(b, _MAX_STEPS, [words.width, max_index, *keys, index, b.eq(max_index, max_index)], step)[
        -2
    ]
    return b.reshape(b.convert_element_type(shuffled, node.element_type("index")), dims)
