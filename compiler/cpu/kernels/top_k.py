"""The kernel of topk: a heap of the best k so far with the worst on top, and a scan for elements that are better.

The scan compares whole vectors with the top; among random elements it finds k ln(n / k) of n.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import element_bytes
from ....runtime.sizes import is_symbolic, larger
from ...ir.module import Instruction
from ...ops import TopK
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import load, load_order, memory_type, order_bits, register_type, single
from ..codegen.parallel_for import KERNEL_PARAMETERS

_ALIGN = 64
_VECTORS = 4
_PARALLEL_ELEMENTS = 1 << 14

Entry = tuple[VectorValue, VectorValue]
"""An element's key, greater ones for better elements, and its number."""


def emit_top_k(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelInfo:
    """Writes the kernel. A task is a line."""
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    """The steps are those of `heap_order` beside the op: what equals what in which order decides the result."""

    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op, shape = instruction.op, instruction.operands[0].shape
        assert isinstance(op, TopK)
        self.module, self.k, self.largest, self.type = module, op.k, op.largest, shape.element_type
        self.is_sorted, self.n = op.order != "HEAP", shape.dims[-1]
        self.lines, self.bytes = math.prod(shape.dims[:-1]), shape.bytes
        self.order = op.order if self.type.is_float else ""
        is_number = self.order.startswith("HEAP")
        self.key_type = register_type(self.type, 1) if is_number else f"i{order_bits(self.type)}"
        self.key_bytes = element_bytes(self.key_type)
        self.lanes = target.lanes(8 * self.key_bytes)
        self.numbers_offset = -(-(self.k + 1) * self.key_bytes // _ALIGN) * _ALIGN
        self.scratch_bytes = self.numbers_offset + -(-4 * (self.k + 1) // _ALIGN) * _ALIGN

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        tasks = self.lines if self.k else 0
        if tasks:
            source, values, numbers, scratch = ((f.pointer("buffers") + 8 * b).load_ptr() for b in range(4))
            self.keys = scratch + f.integer("thread") * self.scratch_bytes
            self.numbers = self.keys + self.numbers_offset
            with f.loop(f.integer("low"), f.integer("high")) as line:
                self._line(line.index, source, values, numbers)
        f.ret()
        grain = larger(1, _PARALLEL_ELEMENTS // larger(1, self.n))
        return KernelInfo(
            self.module.define("top_k", f),
            tasks,
            grain,
            is_symbolic([tasks]) or tasks > grain,
            self.scratch_bytes if tasks else 0,
            flops=self.lines * self.n,
            bytes=self.bytes,
        )

    def _line(self, line: Int, source: Ptr, values: Ptr, numbers: Ptr) -> None:
        """Writes the best elements of a line and their numbers."""
        f, n, k = self.f, self.n, self.k
        row = source.at(line * n, memory_type(self.type))
        size = min(k + 1, n)
        with f.loop(0, size) as element:
            self._put(element.index, self._element(row, element.index))
        with f.loop(0, size // 2) as inner:
            top = size // 2 - 1 - inner.index
            self._fill(top, size, self._get(top))
        if n > k:
            self._remove(k + 1)
            start, step = k + 1, _VECTORS * self.lanes
            middle = start + (n - start) // step * step
            worst = self._scan_vectors(row, start, middle, self._get(0)[0])
            self._scan(row, middle, n, worst)
        if self.is_sorted:
            with f.loop(0, k - 1) as removed:
                self._remove(k - removed.index)
        first = line * k
        with f.loop(0, k) as best:
            number = self.numbers.at(best.index, "i32").load("i32")
            address = row.at(Int.zero_extended(number), memory_type(self.type))
            bits = f"i{8 * self.type.item_bytes}"
            value = address.load(bits, self.type.item_bytes)
            values.at(first + best.index, bits).store(value, self.type.item_bytes)
            numbers.at(first + best.index, "i32").store(number)

    def _scan_vectors(self, row: Ptr, start: int, end: int, worst: VectorValue) -> VectorValue:
        """As _scan, for whole vectors: elements are looked at one by one where a vector has a better one."""
        f, lanes = self.f, self.lanes
        step = _VECTORS * lanes
        with f.loop(start, end, step, worst=worst) as block:
            bound = block.worst.splat(lanes)
            better = self._key(row, block.index, lanes) > bound
            for v in range(1, _VECTORS):
                better = better | (self._key(row, block.index + v * lanes, lanes) > bound)
            with f.if_(better.any()) as branch:
                branch.worst = self._scan(row, block.index, block.index + step, block.worst)
            with branch.else_():
                branch.worst = block.worst
            block.worst = branch.worst
        result: VectorValue = block.worst
        return result

    def _scan(self, row: Ptr, start: Index, end: Index, worst: VectorValue) -> VectorValue:
        """Puts elements that are better than the worst of the heap, its top, into it; returns the worst after them."""
        f = self.f
        with f.loop(start, end, worst=worst) as element:
            # The heap's elements have smaller numbers: an equal one is not better.
            with f.if_(self._key(row, element.index, 1) > element.worst) as branch:
                self._remove(self.k)
                self._rise(f.i64(self.k - 1), 0, self._element(row, element.index))
                branch.worst = self._get(0)[0]
            with branch.else_():
                branch.worst = element.worst
            element.worst = branch.worst
        result: VectorValue = element.worst
        return result

    # -- the heap
    def _remove(self, size: Index) -> None:
        """Moves the top of a heap of that size to its end."""
        last = size - 1
        entry = self._get(last)
        self._put(last, self._get(0))
        self._fill(0, last, entry)

    def _fill(self, top: Index, size: Index, entry: Entry) -> None:
        """Puts an element into a heap whose top is free: the free slot sinks to the end first."""
        f = self.f
        with f.repeat(slot=f.i64(top)) as sink:
            sink.while_(sink.slot * 2 + 2 < size)
            left, right = sink.slot * 2 + 1, sink.slot * 2 + 2
            child = self._better(self._get(right), self._get(left)).choose(left, right)
            self._put(sink.slot, self._get(child))
            sink.slot = child
        with f.if_((sink.slot * 2 + 2).equals(size)) as one_child:
            self._put(sink.slot, self._get(size - 1))
            one_child.slot = f.i64(size - 1)
        with one_child.else_():
            one_child.slot = sink.slot
        self._rise(one_child.slot, top, entry)

    def _rise(self, slot: Int, top: Index, entry: Entry) -> None:
        """Puts an element where it belongs between a free slot and the top."""
        with self.f.repeat(slot=slot) as rise:
            below = rise.slot > top
            rise.while_(below & self._better(self._get(_parent(rise.slot)), entry))
            above = _parent(rise.slot)
            self._put(rise.slot, self._get(above))
            rise.slot = above
        self._put(rise.slot, entry)

    def _better(self, x: Entry, y: Entry) -> VectorValue:
        return (x[0] > y[0]) | (~(x[0] < y[0]) & (x[1] < y[1]))

    def _get(self, i: Index) -> Entry:
        return (
            self.keys.at(i, self.key_type).load(self.key_type, self.key_bytes),
            self.numbers.at(i, "i32").load("i32"),
        )

    def _put(self, i: Index, entry: Entry) -> None:
        self.keys.at(i, self.key_type).store(entry[0], self.key_bytes)
        self.numbers.at(i, "i32").store(entry[1])

    def _element(self, row: Ptr, i: Int) -> Entry:
        return self._key(row, i, 1), i.truncate("i32")

    def _key(self, row: Ptr, i: Index, lanes: int) -> VectorValue:
        """Elements as numbers, or as signed integers in the order; larger ones for better elements."""
        f, t = self.f, self.type
        pointer = row.at(i, memory_type(t))
        if not t.is_float or self.order.startswith("HEAP"):
            key = single(load(f, t, pointer, lanes))
            if t.is_unsigned:
                key = key ^ -(1 << 8 * t.item_bytes - 1)
            return key if self.largest else -key if t.is_float else ~key
        width = order_bits(t)
        low = -(1 << (width - 1))
        bits = load_order(f, t, pointer, lanes)
        value = bits.equals(low).choose(bits.number(0), bits) if self.order else bits
        key = value ^ ((value >> (width - 1)) & ~low)
        key = key if self.largest else ~key
        if not self.order:
            return key
        number = single(load(f, t, pointer, lanes))
        return number.is_nan().choose(key.number(low), key)


def _parent(slot: Int) -> Int:
    """The slot above in a heap; that of the top is not used."""
    return (slot - 1).maximum(0) >> 1
