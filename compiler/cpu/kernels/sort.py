"""The kernel of sort: every line along the axis is sorted by itself, in the results' buffers, and stably.

Any comparator: runs are sorted by insertion, then merged back and forth between the line and scratch memory.
One that orders the elements of one array by their value alone: long lines are sorted digit by digit (radix),
which compares nothing. Lines that do not lie contiguously are copied to scratch memory and back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import Lanes
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...ops.sort import Sort, order_of
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import load, memory_type, single
from ..codegen.scalar_computation import apply_scalars

_RUN = 16  # elements sorted by insertion
_RADIX_ELEMENTS_PER_PASS = 12  # lines of fewer are merged sooner than counted
_LONG = 1 << 14  # lines from this size on are worth longer digits, so fewer passes
_ALIGN = 64
_PARALLEL_ELEMENTS = 1 << 11

Offset = Value | int


def emit_sort(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    """Writes the kernel. A task is a line.

    Raises: UnsupportedError  the comparator has no code for these elements.
    """
    return _Kernel(module, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, Sort)
        self.module, self.op = module, op
        shapes = [o.shape for o in instruction.operands]
        self.types = [s.element_type for s in shapes]
        self.dims = shapes[0].dims
        self.bytes = sum(s.bytes for s in shapes)
        self.size = self.dims[op.dimension]
        self.stride = math.prod(self.dims[op.dimension + 1 :])
        self.order = order_of(op.to_apply)
        key = self.types[self.order.array] if self.order else ElementType.PRED
        self.digit_bits = 11 if self.size >= _LONG else 8
        self.digits = 1 << self.digit_bits
        self.passes = -(-key.bits // self.digit_bits)
        self.is_keyed = self.order is not None and not key.is_complex
        least = max(_RUN + 1, self.passes * _RADIX_ELEMENTS_PER_PASS)
        self.is_radix = self.is_keyed and least <= self.size < 1 << 31
        self.scratch_bytes = 0

    def emit(self) -> KernelPlan:
        f = self.f = Function(
            self.module,
            "SELF",
            (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread")),
        )
        count = len(self.types)
        lines = math.prod(self.dims) // self.size if self.size > 1 else 0
        if lines:
            self.arrays = [f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(count)]
            places = self._scratch()
            scratch = f["buffers"]
            if self.scratch_bytes:
                scratch = f.load("ptr", f.offset(f["buffers"], 8 * count), 8)
                scratch = f.offset(scratch, f.mul(f["thread"], self.scratch_bytes))
            self.other, self.line, self.counts = ([f.offset(scratch, p) for p in group] for group in places)
            self.held = [f.stack_slot(f"i{8 * t.item_bytes}") for t in self.types]
            f.loop(f["low"], f["high"], 1, lambda task, _: self._task(task))
        f.ret()
        work = lines * self.size
        grain = max(1, _PARALLEL_ELEMENTS // max(1, self.size))
        return KernelPlan(
            self.module.define("sort", f),
            lines,
            grain,
            lines > grain,
            self.scratch_bytes,
            work * max(1, self.size.bit_length()),
            2 * self.bytes,
            initial=tuple((k, k) for k in range(count)),
        )

    def _scratch(self) -> list[list[int]]:
        """Offsets of a second line, of the copy of a line with strides, and of the digits' counts."""

        def place(sizes: Sequence[int]) -> list[int]:
            found = []
            for size in sizes:
                found.append(self.scratch_bytes)
                self.scratch_bytes += -(-size // _ALIGN) * _ALIGN
            return found

        line = [self.size * t.item_bytes for t in self.types]
        return [
            place(line if self.size > _RUN else []),
            place(line if self.stride > 1 else []),
            place([4 * self.digits * self.passes] if self.is_radix else []),
        ]

    def _task(self, task: Value) -> None:
        """One line."""
        f = self.f
        block = f.mul(f.divide(task, self.stride), self.size * self.stride)
        first = f.add(block, f.remainder(task, self.stride))
        lines = [self._at(k, base, first) for k, base in enumerate(self.arrays)]
        if self.stride == 1:
            sorted_ = self._sort(lines)
            if self.other:
                moved = f.compare("icmp ne", sorted_[0], lines[0])
                f.branch(moved, lambda: self._copy(sorted_, lines, self.size))
            return
        f.loop(0, self.size, 1, lambda i, _: self._move(lines, f.mul(i, self.stride), self.line, i))
        sorted_ = self._sort(self.line)
        f.loop(0, self.size, 1, lambda i, _: self._move(sorted_, i, lines, f.mul(i, self.stride)))

    def _sort(self, line: list[Value]) -> list[Value]:
        """Sorts a contiguous line; returns where it lies then: there, or in the second line."""
        return self._radix(line) if self.is_radix else self._merge_sort(line)

    # -- merging
    def _merge_sort(self, line: list[Value]) -> list[Value]:
        f = self.f
        f.loop(
            0,
            self.size,
            _RUN,
            lambda start, _: self._insert(line, start, f.minimum(f.add(start, _RUN), self.size)),
        )
        if self.size <= _RUN:
            return line
        count = len(line)

        def level(carried: list[Value]) -> list[Value]:
            width, source, target = carried[0], carried[1 : 1 + count], carried[1 + count :]

            def pair(start: Value, _: list[Value]) -> None:
                middle = f.minimum(f.add(start, width), self.size)
                end = f.minimum(f.add(middle, width), self.size)
                self._merge(source, target, start, i64(middle), i64(end))

            f.loop(0, self.size, f.binary("shl", width, i64(1)), pair)
            return [f.binary("shl", width, i64(1)), *target, *source]

        found = f.while_(
            [i64(_RUN), *line, *self.other],
            lambda carried: f.compare("icmp slt", carried[0], i64(self.size)),
            level,
        )
        return found[1 : 1 + count]

    def _insert(self, line: list[Value], start: Value, end: Offset) -> None:
        """Sorts elements start .. end - 1 by insertion."""
        f = self.f

        def insert(i: Value, _: list[Value]) -> None:
            self._move(line, i, self.held, 0)

            def goes_on(carried: list[Value]) -> Value:
                j = carried[0]
                inside = f.compare("icmp sgt", j, start)
                before = f.intrinsic("smax", "i64", [i64(f.sub(j, 1)), start])
                comes_first = self._comes_first(self.held, 0, line, before)
                return f.binary("and", inside, comes_first)

            def shift(carried: list[Value]) -> list[Value]:
                before = f.sub(carried[0], 1)
                self._move(line, before, line, carried[0])
                return [i64(before)]

            place = f.while_([i], goes_on, shift)[0]
            self._move(self.held, 0, line, place)

        f.loop(f.add(start, 1), end, 1, insert)

    def _merge(
        self, source: list[Value], target: list[Value], start: Value, middle: Value, end: Value
    ) -> None:
        """Merges source[start:middle] and source[middle:end] into the target."""
        f = self.f

        def goes_on(carried: list[Value]) -> Value:
            left, right = (f.compare("icmp slt", at, last) for at, last in zip(carried, (middle, end)))
            return f.binary("and", left, right)

        def step(carried: list[Value]) -> list[Value]:
            i, j, k = carried
            takes_right = self._comes_first(source, j, source, i)
            self._move(source, f.select(takes_right, j, i), target, k)
            right = f.cast("zext", takes_right, "i64")
            following = f.add(k, 1)
            return [f.binary("sub", i64(f.add(i, 1)), right), f.binary("add", j, right), i64(following)]

        i, j, k = f.while_([start, middle, start], goes_on, step)
        left = f.sub(middle, i)
        self._copy(self._shifted(source, i), self._shifted(target, k), left)
        self._copy(self._shifted(source, j), self._shifted(target, f.add(k, left)), f.sub(end, j))

    def _comes_first(self, a: list[Value], i: Offset, b: list[Value], j: Offset) -> Value:
        """Whether element i of `a` comes before element j of `b`."""
        f = self.f
        if self.is_keyed:
            return self._key(a, i).below(self._key(b, j)).value
        arguments = [
            load(f, t, self._at(k, base, at), 1)
            for k, t in enumerate(self.types)
            for base, at in ((a[k], i), (b[k], j))
        ]
        return single(apply_scalars(f, self.op.to_apply, arguments)[0])

    # -- radix
    def _radix(self, line: list[Value]) -> list[Value]:
        f = self.f
        counts, count = self.counts[0], len(line)
        f.call("memset", "ptr", [counts, constant("i32", 0), i64(4 * self.digits * self.passes)])

        def tally(i: Value, _: list[Value]) -> None:
            key = self._key(line, i)
            for n in range(self.passes):
                slot = self._count(n, key)
                f.store(f.binary("add", f.load("i32", slot, 4), constant("i32", 1)), slot, 4)

        f.loop(0, self.size, 1, tally)
        place = [*line, *self.other]
        for n in range(self.passes):
            first = f.load("i32", self._count(n, self._key(place[:count], 0)), 4)
            source, target = place[:count], place[count:]
            differ = f.compare("icmp ne", first, constant("i32", self.size))
            place = f.branch(differ, self._pass_writer(n, source, target), functools.partial(list, place))
        return place[:count]

    def _pass_writer(self, n: int, source: list[Value], target: list[Value]) -> Callable[[], list[Value]]:
        """What writes the code that moves all elements to their places by digit n; it returns where they are
        then, and the other line."""
        f = self.f
        counts = f.offset(self.counts[0], 4 * self.digits * n)

        def add_up(d: Value, carried: list[Value]) -> list[Value]:
            slot = f.offset(counts, d, "i32")
            here = f.load("i32", slot, 4)
            f.store(carried[0], slot, 4)
            return [f.binary("add", carried[0], here)]

        def move(i: Value, _: list[Value]) -> None:
            slot = self._count(n, self._key(source, i))
            place = f.load("i32", slot, 4)
            f.store(f.binary("add", place, constant("i32", 1)), slot, 4)
            self._move(source, i, target, f.cast("zext", place, "i64"))

        def write() -> list[Value]:
            f.loop(0, self.digits, 1, add_up, [constant("i32", 0)])
            f.loop(0, self.size, 1, move)
            return [*target, *source]

        return write

    def _count(self, n: int, key: Lanes) -> Value:
        """Address of the count of a key's digit n."""
        f = self.f
        digit = key.shift_right(n * self.digit_bits) if n else key
        if key.bits > self.digit_bits:
            digit = digit & (self.digits - 1)
        wide = f.cast("zext", digit.value, "i64")
        return f.offset(self.counts[0], f.add(wide, n * self.digits), "i32")

    def _key(self, line: list[Value], i: Offset) -> Lanes:
        """The element's value as an unsigned integer with the same order."""
        assert self.order is not None
        f, t = self.f, self.types[self.order.array]
        pointer = self._at(self.order.array, line[self.order.array], i)
        width = 8 * t.item_bytes
        if not t.is_float:
            value = single(load(f, t, pointer, 1))
            key = Lanes(f, f.cast("zext", value, f"i{width}"))
            if t.is_signed:
                key = key ^ -(1 << (width - 1))
        else:
            bits = Lanes(f, f.load(f"i{width}", pointer, t.item_bytes))
            if not self.order.is_total:
                bits = bits.equals(-(1 << (width - 1))).choose(bits.number(0), bits)
            key = bits ^ ((bits >> (width - 1)) | -(1 << (width - 1)))
        return ~key if self.order.descending else key

    # -- memory
    def _at(self, number: int, line: Value, i: Offset) -> Value:
        """Address of element i."""
        t = self.types[number]
        return self.f.offset(line, self.f.mul(i, 2 if t.is_complex else 1), memory_type(t))

    def _shifted(self, line: list[Value], i: Offset) -> list[Value]:
        return [self._at(k, base, i) for k, base in enumerate(line)]

    def _move(self, source: list[Value], i: Offset, target: list[Value], j: Offset) -> None:
        """target[j] = source[i] for every array."""
        f = self.f
        for k, t in enumerate(self.types):
            value = f.load(f"i{8 * t.item_bytes}", self._at(k, source[k], i), min(t.item_bytes, 8))
            f.store(value, self._at(k, target[k], j), min(t.item_bytes, 8))

    def _copy(self, source: list[Value], target: list[Value], count: Offset) -> None:
        """The first elements of every array."""
        f = self.f
        for k, t in enumerate(self.types):
            f.call("memcpy", "ptr", [target[k], source[k], i64(f.mul(count, t.item_bytes))])
