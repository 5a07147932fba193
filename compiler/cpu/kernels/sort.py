"""The kernel of sort: every line along the axis is sorted by itself, in the results' buffers, and stably.

Any comparator: short stretches are sorted by insertion, then merged back and forth between the line and scratch memory.
One that orders the elements of one array by their value alone: long lines are sorted digit by digit (radix),
which compares nothing. Lines that do not lie contiguously are copied to scratch memory and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate, is_symbolic
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...ops.sort import Sort, order_of
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import load, load_order, memory_type, order_bits, single
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.scalar_computation import apply_scalars

_INSERTION = 16  # elements sorted by insertion
_MIN_RADIX_ELEMENTS_PER_PASS = 12  # lines of fewer are merged sooner than counted
_LONG = 1 << 14  # lines from this size on are worth longer digits, so fewer passes
_ALIGN = 64
_PARALLEL_ELEMENTS = 1 << 11


def emit_sort(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelInfo:
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
        self.digit_bits = 11 if estimate(self.size) >= _LONG else 8
        self.digits = 1 << self.digit_bits
        self.passes = -(-(order_bits(key) if key.lacks_signs else key.bits) // self.digit_bits)
        self.is_keyed = self.order is not None and not key.is_complex
        self.min_radix = max(_INSERTION + 1, self.passes * _MIN_RADIX_ELEMENTS_PER_PASS)
        is_long = is_symbolic([self.size]) or self.min_radix <= self.size
        self.is_radix = self.is_keyed and is_long and self.size < 1 << 31
        self.scratch_bytes = 0

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        count = len(self.types)
        lines = math.prod(self.dims) // self.size if self.size > 1 else 0
        if lines:
            self.arrays = [(f.pointer("buffers") + 8 * k).load_ptr() for k in range(count)]
            offsets = self._scratch_offsets()
            scratch = f.pointer("buffers")
            if self.scratch_bytes:
                scratch = (f.pointer("buffers") + 8 * count).load_ptr()
                scratch = scratch + f.integer("thread") * self.scratch_bytes
            self.other, self.line, self.counts = ([scratch + p for p in group] for group in offsets)
            self.element = [f.stack_slot(f"i{8 * t.item_bytes}") for t in self.types]
            with f.loop(f.integer("low"), f.integer("high")) as task:
                self._task(task.index)
        f.ret()
        work = lines * self.size
        grain = max(1, _PARALLEL_ELEMENTS // max(1, estimate(self.size)))
        return KernelInfo(
            self.module.define("sort", f),
            lines,
            grain,
            is_symbolic([lines]) or lines > grain,
            self.scratch_bytes,
            work * max(1, estimate(self.size).bit_length()),
            2 * self.bytes,
            must_alias=tuple((k, k) for k in range(count)),
        )

    def _scratch_offsets(self) -> list[list[int]]:
        """Offsets of a second line, of the copy of a line with strides, and of the digits' counts."""

        def allocate(sizes: Sequence[int]) -> list[int]:
            offsets = []
            for size in sizes:
                offsets.append(self.scratch_bytes)
                self.scratch_bytes += -(-size // _ALIGN) * _ALIGN
            return offsets

        line = [self.size * t.item_bytes for t in self.types]
        return [
            allocate(line if is_symbolic([self.size]) or self.size > _INSERTION else []),
            allocate([] if self.stride == 1 else line),
            allocate([4 * self.digits * self.passes] if self.is_radix else []),
        ]

    def _task(self, task: Int) -> None:
        """One line."""
        f = self.f
        block = task // self.stride * (self.size * self.stride)
        first = block + task % self.stride
        lines = [self._at(k, base, first) for k, base in enumerate(self.arrays)]
        if self.stride == 1:
            sorted_ = self._sort(lines)
            if self.other:
                with f.if_(sorted_[0].differs(lines[0])):
                    self._copy(sorted_, lines, self.size)
            return
        with f.loop(0, self.size) as element:
            self._move(lines, element.index * self.stride, self.line, element.index)
        sorted_ = self._sort(self.line)
        with f.loop(0, self.size) as element:
            self._move(sorted_, element.index, lines, element.index * self.stride)

    def _sort(self, line: list[Ptr]) -> list[Ptr]:
        """Sorts a contiguous line; returns the sorted line: it, or the second line."""
        if not self.is_radix:
            return self._merge_sort(line)
        if not is_symbolic([self.size]):
            return self._radix(line)
        with self.f.if_(self.f.i64(self.size) >= self.min_radix) as branch:
            branch.lines = self._radix(line)
        with branch.else_():
            branch.lines = self._merge_sort(line)
        lines: list[Ptr] = branch.lines
        return lines

    # -- merging
    def _merge_sort(self, line: list[Ptr]) -> list[Ptr]:
        f = self.f
        with f.loop(0, self.size, _INSERTION) as stretch:
            self._insert(line, stretch.index, (stretch.index + _INSERTION).minimum(self.size))
        if not is_symbolic([self.size]) and self.size <= _INSERTION:
            return line
        with f.repeat(width=f.i64(_INSERTION), source=line, target=self.other) as level:
            level.while_(level.width < self.size)
            with f.loop(0, self.size, level.width << 1) as pair:
                middle = (pair.index + level.width).minimum(self.size)
                end = (middle + level.width).minimum(self.size)
                self._merge(level.source, level.target, pair.index, middle, end)
            level.width = level.width << 1
            level.source, level.target = level.target, level.source
        result: list[Ptr] = level.source
        return result

    def _insert(self, line: list[Ptr], start: Int, end: Int) -> None:
        """Sorts elements start .. end - 1 by insertion."""
        f = self.f
        with f.loop(start + 1, end) as element:
            self._move(line, element.index, self.element, f.i64(0))
            with f.repeat(j=element.index) as hole:
                inside = hole.j > start
                before = (hole.j - 1).maximum(start)
                hole.while_(inside & self._comes_first(self.element, f.i64(0), line, before))
                before = hole.j - 1
                self._move(line, before, line, hole.j)
                hole.j = before
            self._move(self.element, f.i64(0), line, hole.j)

    def _merge(self, source: list[Ptr], target: list[Ptr], start: Int, middle: Int, end: Int) -> None:
        """Merges source[start:middle] and source[middle:end] into the target."""
        f = self.f
        with f.repeat(i=start, j=middle, k=start) as merge:
            has_left, has_right = merge.i < middle, merge.j < end
            merge.while_(has_left & has_right)
            i, j, k = merge.i, merge.j, merge.k
            takes_right = self._comes_first(source, j, source, i)
            self._move(source, takes_right.choose(j, i), target, k)
            right = takes_right.cast("zext", "i64")
            merge.k = k + 1
            merge.i = Int.of(f, VectorValue.of(f, i + 1) - right)
            merge.j = Int.of(f, VectorValue.of(f, j) + right)
        remaining = middle - merge.i
        self._copy(self._shifted(source, merge.i), self._shifted(target, merge.k), remaining)
        self._copy(self._shifted(source, merge.j), self._shifted(target, merge.k + remaining), end - merge.j)

    def _comes_first(self, a: list[Ptr], i: Int, b: list[Ptr], j: Int) -> VectorValue:
        """Whether element i of `a` comes before element j of `b`."""
        f = self.f
        if self.is_keyed:
            return self._key(a, i).below(self._key(b, j))
        arguments = [
            load(f, t, self._at(k, base, at), 1)
            for k, t in enumerate(self.types)
            for base, at in ((a[k], i), (b[k], j))
        ]
        return VectorValue.of(f, single(apply_scalars(f, self.op.to_apply, arguments)[0]))

    # -- radix
    def _radix(self, line: list[Ptr]) -> list[Ptr]:
        """Sorts digit by digit; where all elements have one digit alike, its pass is left out at run time."""
        f = self.f
        counts = self.counts[0]
        f.call("memset", "ptr", [counts, f.constant("i32", 0), 4 * self.digits * self.passes])
        with f.loop(0, self.size) as element:
            key = self._key(line, element.index)
            for n in range(self.passes):
                slot = self._count(n, key)
                slot.store(slot.load("i32") + 1)
        lines = [*line, *self.other]
        for n in range(self.passes):
            source, target = lines[: len(line)], lines[len(line) :]
            first = self._count(n, self._key(source, f.i64(0))).load("i32")
            is_mixed = first.differs(f.i64(self.size).truncate("i32"))
            counts = self.counts[0] + 4 * self.digits * n
            with f.if_(is_mixed) as branch:
                self._radix_pass(n, counts, source, target)
                branch.lines = [*target, *source]
            with branch.else_():
                branch.lines = lines
            lines = branch.lines
        return lines[: len(line)]

    def _radix_pass(self, n: int, counts: Ptr, source: list[Ptr], target: list[Ptr]) -> None:
        """Moves all elements to the target in the order of their digits n."""
        f = self.f
        with f.loop(0, self.digits, total=f.constant("i32", 0)) as digit:
            slot = counts.at(digit.index, "i32")
            count = slot.load("i32")
            slot.store(digit.total)
            digit.total = digit.total + count
        with f.loop(0, self.size) as element:
            slot = self._count(n, self._key(source, element.index))
            position = slot.load("i32")
            slot.store(position + 1)
            self._move(source, element.index, target, Int.zero_extended(position))

    def _count(self, n: int, key: VectorValue) -> Ptr:
        """Address of the count of a key's digit n."""
        digit = key.shift_right(n * self.digit_bits) if n else key
        if key.bits > self.digit_bits:
            digit = digit & (self.digits - 1)
        return self.counts[0].at(Int.zero_extended(digit) + n * self.digits, "i32")

    def _key(self, line: list[Ptr], i: Int) -> VectorValue:
        """The element's value as an unsigned integer with the same order."""
        assert self.order is not None
        f, t = self.f, self.types[self.order.array]
        pointer = self._at(self.order.array, line[self.order.array], i)
        width = order_bits(t)
        if not t.is_float:
            key = single(load(f, t, pointer, 1)).cast("zext", f"i{width}")
            if t.is_signed:
                key = key ^ -(1 << (width - 1))
        else:
            bits = load_order(f, t, pointer, 1)
            if not self.order.is_total:
                bits = bits.equals(-(1 << (width - 1))).choose(bits.number(0), bits)
            key = bits ^ ((bits >> (width - 1)) | -(1 << (width - 1)))
        return ~key if self.order.descending else key

    # -- memory
    def _at(self, number: int, line: Ptr, i: Int) -> Ptr:
        """Address of element i."""
        t = self.types[number]
        return line.at(i * (2 if t.is_complex else 1), memory_type(t))

    def _shifted(self, line: list[Ptr], i: Int) -> list[Ptr]:
        return [self._at(k, base, i) for k, base in enumerate(line)]

    def _move(self, source: list[Ptr], i: Int, target: list[Ptr], j: Int) -> None:
        """target[j] = source[i] for every array."""
        for k, t in enumerate(self.types):
            value = self._at(k, source[k], i).load(f"i{8 * t.item_bytes}", min(t.item_bytes, 8))
            self._at(k, target[k], j).store(value, min(t.item_bytes, 8))

    def _copy(self, source: list[Ptr], target: list[Ptr], count: Index) -> None:
        """Copies the first elements of every array."""
        for k, t in enumerate(self.types):
            self.f.call("memcpy", "ptr", [target[k], source[k], count * t.item_bytes])
