"""RngBitGenerator: random bits from a counter-based generator; Rng: random numbers without one."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of, float_info
from ..ir.shape import Shape, array
from .numeric import bit_pattern, from_bit_pattern, narrow, wide
from .op import Op, attribute, require

_U32 = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclasses.dataclass(frozen=True)
class RngBitGenerator(Op):
    """Random bits as a function of the state, and the state after them.

    rng_philox, also rng_default: Philox 4x32-10. The state is u64[2] (key, c) with the 128-bit counter c +
    key * 2^64, or u64[3] (key, low, high) with the counter low + high * 2^64. Block n of four 32-bit words is
    the cipher of counter + n: words 4n .. 4n + 3 of the row-major result; a 64-bit element is two words, the
    lower first. The counter advances by the number of blocks; of the state u64[2] only c does. With the state
    (key, counter[0], counter[1]) these are the bits of TensorFlow's StatelessRandomUniformFullIntV2 with alg
    1. rng_three_fry: ThreeFry 2x32-20, state u64[2] (key, counter). The result is cut in two halves along its
    first even axis, else along its largest (first of equals; the last element of the second half is dropped):
    element n of a half in row-major order comes from the cipher of counter + n, whose first word goes to the
    first half and whose second to the second; elements of the halves alternate along the cut axis. A 64-bit
    element is a whole cipher block, first word lower, and there are no halves. The counter advances by the
    number of blocks. Elements of less than 32 bits are the low bits of words.

    rng_bit_generator_c1: algorithm is rng_default, rng_philox or rng_three_fry.
    rng_bit_generator_c2: one operand, u64[2], or u64[3] if not for rng_three_fry.
    rng_bit_generator_c3: the shape is an array of integers.
    Source: operation semantics, RngBitGenerator; Salmon et al., Parallel random numbers: as easy as 1, 2, 3
    (SC 2011).
    """

    opcode: ClassVar[str] = "rng-bit-generator"
    algorithm: str = attribute("word", "algorithm")
    shape: Shape = attribute("result_shape", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The state's shape and the bits'."""
        require(
            self.algorithm in ("rng_default", "rng_philox", "rng_three_fry"),
            f"rng-bit-generator: algorithm is {self.algorithm}, rng_default, rng_philox or "
            "rng_three_fry is wanted",
            "rng_bit_generator_c1",
        )
        sizes = (2,) if self.algorithm == "rng_three_fry" else (2, 3)
        require(
            len(operands) == 1 and operands[0] in [array("u64", n) for n in sizes],
            f"rng-bit-generator: operands are {list(operands)}, one state of "
            f"{' or '.join(map(str, sizes))} u64 is wanted",
            "rng_bit_generator_c2",
        )
        require(
            self.shape.element_type.is_integer,
            f"rng-bit-generator: shape is {self.shape}, an array of integers is wanted",
            "rng_bit_generator_c3",
        )
        return Shape.tuple([operands[0], self.shape])

    def reference(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All blocks at once."""
        generate = _three_fry_bits if self.algorithm == "rng_three_fry" else _philox_bits
        with np.errstate(over="ignore"):
            new_state, bits = generate(state, self.shape.dims, self.shape.element_type.bits == 64)
        kind = self.shape.element_type
        if kind.is_small_integer:
            return new_state, narrow(bits & np.uint64((1 << kind.bits) - 1), kind.dtype)
        return new_state, bits.astype(kind.dtype)


def below(number: np.ndarray) -> np.ndarray:
    """The next smaller float; below zero the largest negative normal number. Of types of 8 bits see `below_each`."""
    kind = element_type_of(number.dtype)
    if kind.bits <= 8:
        return np.asarray(below_each(kind)[bit_pattern(number)])
    bits = number.view(f"i{kind.item_bytes}")
    tiny = -np.asarray(float_info(kind.dtype).tiny)
    return np.where(
        number == 0, tiny, np.where(number > 0, bits - 1, bits + 1).astype(bits.dtype).view(kind.dtype)
    )


@functools.cache
def below_each(kind: ElementType) -> np.ndarray:
    """For each encoding of a type of at most 8 bits the largest number below; the lowest number and NaN stay."""
    numbers = from_bit_pattern(np.arange(1 << kind.bits, dtype=np.uint8), kind.dtype)
    values = wide(numbers)
    ordered = np.unique(values[np.isfinite(values)])
    lower = ordered[np.maximum(np.searchsorted(ordered, values) - 1, 0)]
    return np.where(np.isnan(values) | (values <= ordered[0]), numbers, narrow(lower, kind.dtype))


@dataclasses.dataclass(frozen=True)
class Rng(Op):
    """Random numbers that no operand determines: from the run context's state, which every call moves on.

    rng_uniform: in a <= x < b for the operands a and b; of integers all values of the type where b <= a, of floats a.
    rng_normal: with mean and standard deviation the operands. Two equal instructions give different numbers; what
    numbers a seed gives is not defined, and not the same on all platforms.
    rng_c1: two operands, scalars of the element type of the shape.
    rng_c2: distribution is rng_uniform or rng_normal.
    rng_c3: the shape is an array of floats, or for rng_uniform of floats or integers.
    Source: operation semantics, RngUniform, RngNormal.
    """

    opcode: ClassVar[str] = "rng"
    has_side_effect: ClassVar[bool] = True
    distribution: str = attribute("word", "distribution")
    shape: Shape = attribute("result_shape", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        kind = self.shape.element_type
        require(
            self.distribution in ("rng_uniform", "rng_normal"),
            f"rng: distribution is {self.distribution}, rng_uniform or rng_normal is wanted",
            "rng_c2",
        )
        require(
            kind.is_float or (kind.is_integer and self.distribution == "rng_uniform"),
            f"rng: {self.distribution} of {self.shape}, floats are wanted, or integers for rng_uniform",
            "rng_c3",
        )
        require(
            list(operands) == [Shape(kind)] * 2,
            f"rng: operands are {list(operands)}, two {Shape(kind)} are wanted",
            "rng_c1",
        )
        return self.shape.without_layout()

    def reference(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """NumPy's, from a seed of the system."""
        generator, kind, dims = np.random.default_rng(), self.shape.element_type, self.shape.dims
        if self.distribution == "rng_normal":
            return narrow(wide(first) + wide(second) * generator.standard_normal(dims), kind.dtype)
        if kind.is_float:
            a, b = wide(first), wide(second)
            drawn = narrow(a + np.maximum(b - a, 0.0) * generator.random(dims), kind.dtype)
            last = narrow(np.maximum(a, wide(below(second))), kind.dtype)
            return np.where(wide(drawn) < b, drawn, last)
        low, high = int(first), int(second)
        if high <= low:
            bits = kind.bits - kind.is_signed
            low, high = (-(1 << bits) if kind.is_signed else 0), 1 << bits
        holder = np.uint64 if kind.is_unsigned else np.int64
        return generator.integers(low, high - 1, dims, holder, endpoint=True).astype(kind.dtype)


def _philox_bits(state: np.ndarray, dims: tuple[int, ...], long: bool) -> tuple[np.ndarray, np.ndarray]:
    elements = math.prod(dims)
    blocks = -(-elements * (2 if long else 1) // 4)
    key = state[0]
    low, high = (state[1], state[0]) if len(state) == 2 else (state[1], state[2])
    counter = low + np.arange(blocks, dtype=np.uint64)
    carry = (counter < low).astype(np.uint64)
    words = np.stack(philox(key, counter, high + carry), axis=-1).reshape(-1)
    if long:
        words = words[0::2] | words[1::2] << _HALF
    after = low + np.uint64(blocks)
    new = (key, after) if len(state) == 2 else (key, after, high + np.uint64(after < low))
    return np.array(new, np.uint64), words[:elements].reshape(dims)


def philox(key: np.uint64, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """Philox 4x32 with ten rounds: the four 32-bit words, each in a u64, for 128-bit counters."""
    a, b, c, d = low & _U32, low >> _HALF, np.broadcast_to(high & _U32, low.shape), high >> _HALF
    first, second = key & _U32, key >> _HALF
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (right >> _HALF) ^ b ^ first, right & _U32, (left >> _HALF) ^ d ^ second, left & _U32
        first, second = (first + np.uint64(0x9E3779B9)) & _U32, (second + np.uint64(0xBB67AE85)) & _U32
    return a, b, c, d


def _three_fry_bits(state: np.ndarray, dims: tuple[int, ...], long: bool) -> tuple[np.ndarray, np.ndarray]:
    key, counter = state
    if long:
        blocks = math.prod(dims)
        low, high = three_fry(key, counter + np.arange(blocks, dtype=np.uint64))
        bits = (low | high << _HALF).reshape(dims)
    else:
        wide = dims or (1,)
        axis = next((a for a, d in enumerate(wide) if d % 2 == 0), wide.index(max(wide)))
        half = (*wide[:axis], -(-wide[axis] // 2), *wide[axis + 1 :])
        blocks = math.prod(half)
        halves = three_fry(key, counter + np.arange(blocks, dtype=np.uint64))
        stacked = np.stack([h.reshape(half) for h in halves], axis=axis + 1)
        whole = stacked.reshape(*half[:axis], 2 * half[axis], *half[axis + 1 :])
        bits = np.take(whole, np.arange(wide[axis]), axis).reshape(dims)
    return np.array([key, counter + np.uint64(blocks)], np.uint64), bits


def three_fry(key: np.uint64, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ThreeFry 2x32 with twenty rounds: two 32-bit words, each in a u64, for 64-bit counters."""
    first, second = key & _U32, key >> _HALF
    keys = (first, second, first ^ second ^ np.uint64(0x1BD11BDA))
    x, y = ((counter & _U32) + keys[0]) & _U32, ((counter >> _HALF) + keys[1]) & _U32
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & _U32
            y = ((y << np.uint64(turn)) | (y >> np.uint64(32 - turn))) & _U32 ^ x
        x = (x + keys[(group + 1) % 3]) & _U32
        y = (y + keys[(group + 2) % 3] + np.uint64(group + 1)) & _U32
    return x, y
