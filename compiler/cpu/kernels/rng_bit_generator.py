"""The kernel of rng-bit-generator: the lanes of a vector encipher successive counters.

Philox and ThreeFry have no state but the counter, so any part of the result can be made by itself. Where
words lie in memory in the order of the counters, whole vectors are stored; ThreeFry's two halves along an
inner axis are stored as two rows, or, when rows are short, word by word.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64, split_vector, vector_type
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import Lanes
from ...ir.module import Instruction
from ...ops import RngBitGenerator
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import memory_type, wrap

_TASK_BYTES = 1 << 15
_GRAIN_TASKS = 2
_CHAINS = 2  # vectors in flight: the rounds of one wait for each other
_PHILOX_FACTORS = 0xD2511F53, 0xCD9E8D57
_PHILOX_WEYL = 0x9E3779B9, 0xBB67AE85
_PHILOX_ROUNDS = 10
_THREE_FRY_TURNS = (13, 15, 26, 6), (17, 29, 16, 24)
_THREE_FRY_PARITY = 0x1BD11BDA


def emit_rng_bit_generator(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel. A task is a stretch of counters; each writes the new state, too."""
    op = instruction.op
    assert isinstance(op, RngBitGenerator)
    kernel = (_ThreeFry if op.algorithm == "rng_three_fry" else _Philox)(module, target, op, instruction)
    return kernel.emit()


class _Kernel:
    """What both generators share. A block is what one counter gives: `words` of 32 bits."""

    words: int
    lanes: int

    def __init__(
        self, module: ModuleText, target: Target, op: RngBitGenerator, instruction: Instruction
    ) -> None:
        self.module, self.target, self.shape = module, target, op.shape
        self.t = op.shape.element_type
        self.state_words = instruction.operands[0].shape.elements
        self.word_elements = 2 if self.t.bits == 64 else 1  # words of an element
        self.blocks = -(-self.shape.elements * self.word_elements // self.words)

    def emit(self) -> KernelPlan:
        f = self.f = Function(
            self.module,
            "SELF",
            (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread")),
        )
        state_at, new_at, self.bits_at = (f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(3))
        self.state = [f.load("i64", f.offset(state_at, 8 * k), 8) for k in range(self.state_words)]
        self.prepare()
        steps = -(-self.blocks // self.lanes)
        per_task = max(1, _TASK_BYTES // (self.lanes * self.words * 4))
        tasks = max(1, -(-steps // per_task))
        for k, value in enumerate(self.state_after()):  # the same in all tasks
            f.store(value, f.offset(new_at, 8 * k), 8)

        def run(task: Value, _: list[Value]) -> None:
            first = f.mul(task, per_task * self.lanes)
            self.stretch(i64(first), i64(f.minimum(f.add(first, per_task * self.lanes), self.blocks)))

        f.loop(f["low"], f["high"], 1, run)
        f.ret()
        return KernelPlan(
            self.module.define("random_bits", f),
            tasks,
            _GRAIN_TASKS,
            tasks > _GRAIN_TASKS,
            flops=self.shape.elements * 10,
            bytes=self.shape.bytes,
        )

    def prepare(self) -> None:
        """Writes what does not depend on the counter."""
        raise NotImplementedError

    def state_after(self) -> list[Value]:
        """The new state."""
        raise NotImplementedError

    def cipher(self, first: Value) -> list[Lanes]:
        """The words of the blocks with the numbers first, first + 1, ..: one vector per word of a block."""
        raise NotImplementedError

    def stretch(self, low: Value, high: Value) -> None:
        """Makes the blocks low .. high - 1."""
        self.linear(low, high)

    # -- stores
    def linear(self, low: Value, high: Value) -> None:
        """Words in the order of the blocks."""
        f, lanes = self.f, self.lanes
        step = lanes * self.words // self.word_elements  # elements
        size = self.t.item_bytes
        whole = self.shape.elements // step * lanes  # blocks

        rest = self.shape.elements % step

        def store(block: Value, _: list[Value]) -> None:
            vector = self.elements(self.interleaved(self.cipher(block)))
            there = f.offset(self.bits_at, f.mul(block, step * size // lanes))

            def tail() -> None:
                slot = f.stack_slot(vector.type)
                f.store(vector, slot, 64)
                f.call("memcpy", "ptr", [there, slot, i64(rest * size)])

            if rest:
                f.branch(f.compare("icmp slt", block, i64(whole)), lambda: f.store(vector, there, size), tail)
            else:
                f.store(vector, there, size)

        f.loop(low, high, lanes, store)

    def interleaved(self, words: Sequence[Lanes]) -> Value:
        """The words of one block after those of another, as one vector of i32."""
        f, lanes = self.f, self.lanes
        pairs = [
            low.cast("zext", "i64") | (high.cast("zext", "i64") << 32)
            for low, high in zip(words[::2], words[1::2])
        ]
        whole = pairs[0].value
        if len(pairs) == 2:
            order = ", ".join(f"i32 {k // 2 + lanes * (k % 2)}" for k in range(2 * lanes))
            whole = f.op(
                f"<{2 * lanes} x i64>",
                f"shufflevector {whole}, {pairs[1].value}, <{2 * lanes} x i32> <{order}>",
            )
        return f.cast("bitcast", whole, f"<{lanes * self.words} x i32>")

    def elements(self, words: Value) -> Value:
        """Words as elements in memory."""
        f, lanes = self.f, split_vector(words.type)[1]
        if self.word_elements == 2:
            return f.cast("bitcast", words, f"<{lanes // 2} x i64>")
        return wrap(f, self.t, f.cast("trunc", words, vector_type(memory_type(self.t), lanes)))

    def counted(self, first: Value) -> Value:
        """first, first + 1, ... as i64 lanes."""
        f, lanes = self.f, self.lanes
        steps = Value(f"<{lanes} x i64>", "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">")
        return f.binary("add", f.splat(first, lanes), steps)


class _Philox(_Kernel):
    """Philox 4x32 with ten rounds, in a loop: written out they would take LLVM long.

    Words and keys are kept in i64 lanes, whose upper halves may hold anything: a product of two lower halves
    is then one instruction.
    """

    words = 4

    def __init__(
        self, module: ModuleText, target: Target, op: RngBitGenerator, instruction: Instruction
    ) -> None:
        self.lanes = max(2, _CHAINS * target.lanes(64))
        super().__init__(module, target, op, instruction)

    def prepare(self) -> None:
        f = self.f
        key, self.low = self.state[0], self.state[1]
        self.high = self.state[2] if self.state_words == 3 else self.state[0]
        halves = [f.binary("and", key, i64(0xFFFFFFFF)), f.binary("lshr", key, i64(32))]
        self.keys = [f.splat(half, self.lanes) for half in halves]

    def state_after(self) -> list[Value]:
        f = self.f
        after = f.binary("add", self.low, i64(self.blocks))
        if self.state_words == 2:
            return [self.state[0], after]
        carry = f.cast("zext", f.compare("icmp ult", after, i64(self.blocks)), "i64")
        return [self.state[0], after, f.binary("add", self.high, carry)]

    def cipher(self, first: Value) -> list[Lanes]:
        f, lanes = self.f, self.lanes
        low = Lanes(f, self.counted(f.binary("add", self.low, first)))
        carry = low.below(Lanes(f, f.splat(self.low, lanes))).cast("zext", "i64")
        high = Lanes(f, f.splat(self.high, lanes)) + carry

        def turn(_: Value, carried: list[Value]) -> list[Value]:
            a, b, c, d, first_key, second_key = (Lanes(f, v) for v in carried)
            left, right = ((x & 0xFFFFFFFF) * factor for x, factor in zip((a, c), _PHILOX_FACTORS))
            first, second = right.shift_right(32) ^ b ^ first_key, left.shift_right(32) ^ d ^ second_key
            keys = (k + w for k, w in zip((first_key, second_key), _PHILOX_WEYL))
            return [x.value for x in (first, right, second, left, *keys)]

        words = f.loop(
            0,
            _PHILOX_ROUNDS,
            1,
            turn,
            [low.value, low.shift_right(32).value, high.value, high.shift_right(32).value, *self.keys],
        )
        return [Lanes(f, w).cast("trunc", "i32") for w in words[:4]]


class _ThreeFry(_Kernel):
    """ThreeFry 2x32 with twenty rounds."""

    words = 2

    def __init__(
        self, module: ModuleText, target: Target, op: RngBitGenerator, instruction: Instruction
    ) -> None:
        self.lanes = max(2, _CHAINS * target.lanes(32))
        super().__init__(module, target, op, instruction)
        dims = op.shape.dims or (1,)
        axis = next((a for a, d in enumerate(dims) if d % 2 == 0), dims.index(max(dims)))
        self.axis_dim, self.half_dim = dims[axis], -(-dims[axis] // 2)
        self.inner, outer = math.prod(dims[axis + 1 :]), math.prod(dims[:axis])
        self.is_linear = self.t.bits == 64 or (self.inner == 1 and (outer == 1 or self.axis_dim % 2 == 0))
        if self.t.bits != 64:
            self.blocks = outer * self.half_dim * self.inner

    def prepare(self) -> None:
        f = self.f
        key = self.state[0]
        first, second = (f.cast("trunc", k, "i32") for k in (key, f.binary("lshr", key, i64(32))))
        third = f.binary("xor", f.binary("xor", first, second), constant("i32", _THREE_FRY_PARITY))
        self.keys = [Lanes(f, f.splat(k, self.lanes)) for k in (first, second, third)]

    def state_after(self) -> list[Value]:
        return [self.state[0], self.f.binary("add", self.state[1], i64(self.blocks))]

    def cipher(self, first: Value) -> list[Lanes]:
        f = self.f
        counter = Lanes(f, self.counted(f.binary("add", self.state[1], first)))
        x = counter.cast("trunc", "i32") + self.keys[0]
        y = counter.shift_right(32).cast("trunc", "i32") + self.keys[1]
        for group in range(5):
            for turn in _THREE_FRY_TURNS[group % 2]:
                x = x + y
                y = ((y << turn) | y.shift_right(32 - turn)) ^ x
            x = x + self.keys[(group + 1) % 3]
            y = y + self.keys[(group + 2) % 3] + (group + 1)
        return [x, y]

    def stretch(self, low: Value, high: Value) -> None:
        if self.is_linear:
            self.linear(low, high)
        elif self.inner >= self.lanes:
            self.rows(low, high)
        else:
            self.f.loop(low, high, self.lanes, lambda block, _: self.word_by_word(block))

    def _store_pair(self, block: Value, store: Callable[[int, Value], None]) -> None:
        """store(word, address) for a block's first word and, where it has one, its second."""
        f = self.f
        row, column = f.divide(block, self.inner), f.remainder(block, self.inner)
        outer, half = f.divide(row, self.half_dim), f.remainder(row, self.half_dim)
        at = f.add(f.mul(f.add(f.mul(outer, self.axis_dim), f.mul(half, 2)), self.inner), column)
        memory = memory_type(self.t)
        store(0, f.offset(self.bits_at, at, memory))

        def second() -> None:
            store(1, f.offset(self.bits_at, f.add(at, self.inner), memory))

        if self.axis_dim % 2 == 0:
            second()
        else:
            f.branch(f.compare("icmp slt", i64(half), i64(self.half_dim - 1)), second)

    def rows(self, low: Value, high: Value) -> None:
        """Rows of at least one vector; the last vector of a row begins so early that it fits."""
        f, size = self.f, self.t.item_bytes

        def step(carried: list[Value]) -> list[Value]:
            block = carried[0]
            left = f.sub(self.inner, f.remainder(block, self.inner))
            start = i64(f.add(block, f.minimum(f.sub(left, self.lanes), 0)))
            words = [self.elements(w.value) for w in self.cipher(start)]
            self._store_pair(start, lambda word, there: f.store(words[word], there, size))
            return [i64(f.add(block, f.minimum(left, self.lanes)))]

        f.while_([low], lambda carried: f.compare("icmp slt", carried[0], high), step)

    def word_by_word(self, block: Value) -> None:
        """The words of a vector of blocks, through memory on the stack."""
        f, size, memory = self.f, self.t.item_bytes, memory_type(self.t)
        slots = []
        for word in self.cipher(block):
            vector = self.elements(word.value)
            slots.append(f.stack_slot(vector.type))
            f.store(vector, slots[-1], 64)

        def one(k: Value, _: list[Value]) -> None:
            self._store_pair(
                i64(f.add(block, k)),
                lambda word, there: f.store(
                    f.load(memory, f.offset(slots[word], k, memory), size), there, size
                ),
            )

        f.loop(0, f.minimum(self.lanes, f.sub(self.blocks, block)), 1, one)
