"""The kernel of rng-bit-generator: the lanes of a vector encipher successive counters.

Philox and ThreeFry have no state but the counter, so any part of the result can be made by itself. Where
words lie in memory in the order of the counters, whole vectors are stored; ThreeFry's two halves along an
inner axis are stored as two rows, or, when rows are short, word by word.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import RngBitGenerator
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type, wrap
from ..codegen.parallel_for import KERNEL_PARAMETERS

_TASK_BYTES = 1 << 15
_GRAIN_TASKS = 2
_CHAINS = 2  # vectors in flight: the rounds of one wait for each other
_PHILOX_FACTORS = 0xD2511F53, 0xCD9E8D57
_PHILOX_WEYL = 0x9E3779B9, 0xBB67AE85
_PHILOX_ROUNDS = 10
_THREE_FRY_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_THREE_FRY_PARITY = 0x1BD11BDA


def emit_rng_bit_generator(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel. A task is a range of counters; each writes the new state, too."""
    op = instruction.op
    assert isinstance(op, RngBitGenerator)
    kernel = (_ThreeFry if op.algorithm == "rng_three_fry" else _Philox)(module, target, op, instruction)
    return kernel.emit()


class _Kernel:
    """The base of both generators. A block is the `words` of 32 bits of one counter; a lane has `lane_bits`."""

    words: int
    lane_bits: int

    def __init__(
        self, module: ModuleText, target: Target, op: RngBitGenerator, instruction: Instruction
    ) -> None:
        self.module, self.shape = module, op.shape
        self.lanes = max(2, _CHAINS * target.lanes(self.lane_bits))
        self.t = op.shape.element_type
        self.state_words = instruction.operands[0].shape.elements
        self.word_elements = 2 if self.t.bits == 64 else 1  # words of an element
        self.blocks = -(-self.shape.elements * self.word_elements // self.words)

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        state, new_state, self.bits = ((f.pointer("buffers") + 8 * k).load_ptr() for k in range(3))
        self.state = [(state + 8 * k).load("i64") for k in range(self.state_words)]
        self.prepare()
        steps = -(-self.blocks // self.lanes)
        per_task = max(1, _TASK_BYTES // (self.lanes * self.words * 4))
        tasks = max(1, -(-steps // per_task))
        for k, value in enumerate(self.state_after()):  # the same in all tasks
            (new_state + 8 * k).store(value)
        with f.loop(f.integer("low"), f.integer("high")) as task:
            first = task.index * (per_task * self.lanes)
            self.counters(first, (first + per_task * self.lanes).minimum(self.blocks))
        f.ret()
        return KernelInfo(
            self.module.define("random_bits", f),
            tasks,
            _GRAIN_TASKS,
            tasks > _GRAIN_TASKS,
            flops=self.shape.elements * 10,
            bytes=self.shape.bytes,
        )

    def prepare(self) -> None:
        """Writes the values that do not depend on the counter."""
        raise NotImplementedError

    def state_after(self) -> list[VectorValue]:
        """The new state."""
        raise NotImplementedError

    def cipher(self, first: Int) -> list[VectorValue]:
        """The words of the blocks with the numbers first, first + 1, ..: one vector per word of a block."""
        raise NotImplementedError

    def counters(self, low: Int, high: Int) -> None:
        """Writes the blocks low .. high - 1."""
        self.linear(low, high)

    # -- stores
    def linear(self, low: Int, high: Int) -> None:
        """Words in the order of the blocks."""
        f, lanes = self.f, self.lanes
        step = lanes * self.words // self.word_elements  # elements
        size = self.t.item_bytes
        whole = self.shape.elements // step * lanes  # blocks
        remaining = self.shape.elements % step
        with f.loop(low, high, lanes) as block:
            vector = self.elements(self.interleaved(self.cipher(block.index)))
            output = self.bits + block.index * (step * size // lanes)
            if not remaining:
                output.store(vector, size)
            else:
                with f.if_(block.index < whole) as is_whole:
                    output.store(vector, size)
                with is_whole.else_():
                    slot = f.stack_slot(vector.type)
                    slot.store(vector, 64)
                    f.call("memcpy", "ptr", [output, slot, remaining * size])

    def interleaved(self, words: Sequence[VectorValue]) -> VectorValue:
        """The words of one block after those of another, as one vector of i32."""
        lanes = self.lanes
        pairs = [
            low.cast("zext", "i64") | (high.cast("zext", "i64") << 32)
            for low, high in zip(words[::2], words[1::2])
        ]
        whole = pairs[0]
        if len(pairs) == 2:
            whole = whole.shuffle([k // 2 + lanes * (k % 2) for k in range(2 * lanes)], pairs[1])
        type_ = f"<{lanes * self.words} x i32>"
        return whole.write(f"bitcast {whole} to {type_}", type_)

    def elements(self, words: VectorValue) -> VectorValue:
        """Words as elements in memory."""
        if self.word_elements == 2:
            type_ = f"<{words.lanes // 2} x i64>"
            return words.write(f"bitcast {words} to {type_}", type_)
        return VectorValue.of(self.f, wrap(self.f, self.t, words.cast("trunc", memory_type(self.t))))

    def counted(self, first: VectorValue) -> VectorValue:
        """first, first + 1, ... as i64 lanes."""
        lanes = self.lanes
        steps = "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">"
        return first.splat(lanes) + VectorValue(f"<{lanes} x i64>", steps, self.f)


class _Philox(_Kernel):
    """Philox 4x32 with ten rounds, in a loop: written out they would take LLVM long.

    Words and keys are kept in i64 lanes, whose upper halves may hold anything: a product of two lower halves
    is then one instruction.
    """

    words, lane_bits = 4, 64

    def prepare(self) -> None:
        key, self.low = self.state[0], self.state[1]
        self.high = self.state[2] if self.state_words == 3 else self.state[0]
        halves = [key & 0xFFFFFFFF, key.shift_right(32)]
        self.keys = [half.splat(self.lanes) for half in halves]

    def state_after(self) -> list[VectorValue]:
        after = self.low + self.blocks
        if self.state_words == 2:
            return [self.state[0], after]
        carry = after.below(self.blocks).cast("zext", "i64")
        return [self.state[0], after, self.high + carry]

    def cipher(self, first: Int) -> list[VectorValue]:
        low = self.counted(self.low + first)
        carry = low.below(self.low.splat(self.lanes)).cast("zext", "i64")
        high = self.high.splat(self.lanes) + carry
        words = [low, low.shift_right(32), high, high.shift_right(32)]
        with self.f.loop(0, _PHILOX_ROUNDS, words=words, keys=self.keys) as turn:
            a, b, c, d = turn.words
            first_key, second_key = turn.keys
            left, right = ((x & 0xFFFFFFFF) * factor for x, factor in zip((a, c), _PHILOX_FACTORS))
            words = [
                right.shift_right(32) ^ b ^ first_key,
                right,
                left.shift_right(32) ^ d ^ second_key,
                left,
            ]
            turn.words, turn.keys = words, [k + w for k, w in zip(turn.keys, _PHILOX_WEYL)]
        return [word.cast("trunc", "i32") for word in turn.words]


class _ThreeFry(_Kernel):
    """ThreeFry 2x32 with twenty rounds."""

    words, lane_bits = 2, 32

    def __init__(
        self, module: ModuleText, target: Target, op: RngBitGenerator, instruction: Instruction
    ) -> None:
        super().__init__(module, target, op, instruction)
        dims = op.shape.dims or (1,)
        axis = next((a for a, d in enumerate(dims) if d % 2 == 0), dims.index(max(dims)))
        self.axis_dim, self.half_dim = dims[axis], -(-dims[axis] // 2)
        self.inner, outer = math.prod(dims[axis + 1 :]), math.prod(dims[:axis])
        self.is_linear = self.t.bits == 64 or (self.inner == 1 and (outer == 1 or self.axis_dim % 2 == 0))
        if self.t.bits != 64:
            self.blocks = outer * self.half_dim * self.inner

    def prepare(self) -> None:
        key = self.state[0]
        first, second = (half.cast("trunc", "i32") for half in (key, key.shift_right(32)))
        third = first ^ second ^ _THREE_FRY_PARITY
        self.keys = [k.splat(self.lanes) for k in (first, second, third)]

    def state_after(self) -> list[VectorValue]:
        return [self.state[0], self.state[1] + self.blocks]

    def cipher(self, first: Int) -> list[VectorValue]:
        counter = self.counted(self.state[1] + first)
        x = counter.cast("trunc", "i32") + self.keys[0]
        y = counter.shift_right(32).cast("trunc", "i32") + self.keys[1]
        for group in range(5):
            for rotation in _THREE_FRY_ROTATIONS[group % 2]:
                x = x + y
                y = ((y << rotation) | y.shift_right(32 - rotation)) ^ x
            x = x + self.keys[(group + 1) % 3]
            y = y + self.keys[(group + 2) % 3] + (group + 1)
        return [x, y]

    def counters(self, low: Int, high: Int) -> None:
        if self.is_linear:
            self.linear(low, high)
        elif self.inner >= self.lanes:
            self.rows(low, high)
        else:
            with self.f.loop(low, high, self.lanes) as block:
                self.word_by_word(block.index)

    def _store_pair(self, block: Int, store: Callable[[int, Ptr], None]) -> None:
        """store(word, address) for a block's first word and, where it has one, its second."""
        row, column = block // self.inner, block % self.inner
        outer, half = row // self.half_dim, row % self.half_dim
        offset = (outer * self.axis_dim + half * 2) * self.inner + column
        memory = memory_type(self.t)
        store(0, self.bits.at(offset, memory))
        is_even = self.axis_dim % 2 == 0
        with contextlib.nullcontext() if is_even else self.f.if_(half < self.half_dim - 1):
            store(1, self.bits.at(offset + self.inner, memory))

    def rows(self, low: Int, high: Int) -> None:
        """Rows of at least one vector; the last vector of a row begins so early that it fits."""
        with self.f.repeat(block=low) as vector:
            vector.while_(vector.block < high)
            remaining = self.inner - vector.block % self.inner
            start = vector.block + (remaining - self.lanes).minimum(0)
            words = [self.elements(word) for word in self.cipher(start)]
            self._store_pair(start, lambda word, address: address.store(words[word], self.t.item_bytes))
            vector.block = vector.block + remaining.minimum(self.lanes)

    def word_by_word(self, block: Int) -> None:
        """The words of a vector of blocks, through memory on the stack."""
        f, size, memory = self.f, self.t.item_bytes, memory_type(self.t)
        slots = []
        for word in self.cipher(block):
            vector = self.elements(word)
            slots.append(f.stack_slot(vector.type))
            slots[-1].store(vector, 64)

        def copy(word: int, address: Ptr) -> None:
            address.store(slots[word].at(lane.index, memory).load(memory, size), size)

        with f.loop(0, f.i64(self.lanes).minimum(self.blocks - block)) as lane:
            self._store_pair(block + lane.index, copy)
