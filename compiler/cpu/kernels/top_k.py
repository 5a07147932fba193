"""The kernel of topk: a heap of the best k so far with the worst on top, and a scan for elements that are better.

The scan compares whole vectors with the top; among random elements it finds k ln(n / k) of n.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import Lanes
from ...ir.module import Instruction
from ...ops import TopK
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import load, memory_type, register_type, single
from ..codegen.parallel_for import KERNEL_PARAMETERS

_ALIGN = 64
_VECTORS = 4
_PARALLEL_ELEMENTS = 1 << 14

Entry = tuple[Lanes, Lanes]
"""An element's key, greater ones for better elements, and its number."""


def emit_top_k(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
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
        self.key_type = register_type(self.type, 1) if is_number else f"i{8 * self.type.item_bytes}"
        self.key_bytes = max(4, self.type.item_bytes) if is_number else self.type.item_bytes
        self.lanes = target.lanes(8 * self.key_bytes)
        self.places_at = -(-(self.k + 1) * self.key_bytes // _ALIGN) * _ALIGN
        self.scratch_bytes = self.places_at + -(-4 * (self.k + 1) // _ALIGN) * _ALIGN

    def emit(self) -> KernelPlan:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        tasks = self.lines if self.k else 0
        if tasks:
            source, values, places, scratch = (
                f.load("ptr", f.offset(f["buffers"], 8 * b), 8) for b in range(4)
            )
            own = f.offset(scratch, f.mul(f["thread"], self.scratch_bytes))
            self.keys, self.places = own, f.offset(own, self.places_at)
            f.loop(f["low"], f["high"], 1, lambda t, _: self._line(t, source, values, places))
        f.ret()
        grain = max(1, _PARALLEL_ELEMENTS // max(1, self.n))
        return KernelPlan(
            self.module.define("top_k", f),
            tasks,
            grain,
            tasks > grain,
            self.scratch_bytes if tasks else 0,
            flops=self.lines * self.n,
            bytes=self.bytes,
        )

    def _line(self, line: Value, source: Value, values: Value, places: Value) -> None:
        f, n, k = self.f, self.n, self.k
        row = f.offset(source, f.mul(line, n), memory_type(self.type))
        size = min(k + 1, n)
        f.loop(0, size, 1, lambda i, _: self._put(i, self._element(row, i)))
        f.loop(0, size // 2, 1, lambda i, _: self._fill(top := f.sub(size // 2 - 1, i), size, self._get(top)))
        if n > k:
            self._remove(k + 1)
            start, step = k + 1, _VECTORS * self.lanes
            middle = start + (n - start) // step * step
            top = self._scan(row, start, middle, _VECTORS, self.lanes, self._get(0)[0].value)
            self._scan(row, middle, n, 1, 1, top)
        if self.is_sorted:
            f.loop(0, k - 1, 1, lambda i, _: self._remove(f.sub(k, i)))
        first = f.mul(line, k)

        def copy(i: Value, _: list[Value]) -> None:
            place = f.load("i32", f.offset(self.places, i, "i32"), 4)
            at = f.offset(row, f.cast("zext", place, "i64"), memory_type(self.type))
            value = f.load(memory := f"i{8 * self.type.item_bytes}", at, self.type.item_bytes)
            f.store(value, f.offset(values, f.add(first, i), memory), self.type.item_bytes)
            f.store(place, f.offset(places, f.add(first, i), "i32"), 4)

        f.loop(0, k, 1, copy)

    def _scan(self, row: Value, start: int, end: int, vectors: int, lanes: int, top: Value) -> Value:
        """Puts the better ones of these elements into the heap; its top, given before, after them."""
        f, step = self.f, vectors * lanes

        def one(i: Value, carried: list[Value]) -> list[Value]:
            def push() -> list[Value]:
                self._remove(self.k)
                self._rise(i64(self.k - 1), 0, self._element(row, i))
                return [self._get(0)[0].value]

            # The heap's elements have smaller numbers: an equal one is not better.
            better = self._key(row, i, 1) > Lanes(f, carried[0])
            return f.branch(better.value, push, lambda: [carried[0]])

        def some(i: Value, carried: list[Value]) -> list[Value]:
            bound = Lanes(f, f.splat(carried[0], lanes))
            better = self._key(row, i, lanes) > bound
            for v in range(1, vectors):
                better = better | (self._key(row, f.add(i, v * lanes), lanes) > bound)
            return f.branch(better.any(), lambda: f.loop(i, f.add(i, step), 1, one, carried), lambda: carried)

        return f.loop(start, end, step, one if step == 1 else some, [top])[0]

    # -- the heap
    def _remove(self, size: Value | int) -> None:
        """Moves the top of a heap of that size behind the others."""
        last = self.f.sub(size, 1)
        entry = self._get(last)
        self._put(last, self._get(0))
        self._fill(0, last, entry)

    def _fill(self, top: Value | int, size: Value | int, entry: Entry) -> None:
        """Puts an element into a heap whose top is free: the free place sinks to the end first."""
        f = self.f

        def has_two(at: list[Value]) -> Value:
            return f.compare("icmp slt", i64(f.add(f.mul(at[0], 2), 2)), i64(size))

        def sink(at: list[Value]) -> list[Value]:
            left, right = f.add(f.mul(at[0], 2), 1), f.add(f.mul(at[0], 2), 2)
            child = f.select(self._better(self._get(right), self._get(left)).value, i64(left), i64(right))
            self._put(at[0], self._get(child))
            return [child]

        def sink_last() -> list[Value]:
            self._put(at, self._get(f.sub(size, 1)))
            return [i64(f.sub(size, 1))]

        at = f.while_([i64(top)], has_two, sink)[0]
        has_one = f.compare("icmp eq", i64(f.add(f.mul(at, 2), 2)), i64(size))
        self._rise(f.branch(has_one, sink_last, lambda: [at])[0], top, entry)

    def _rise(self, at: Value, top: Value | int, entry: Entry) -> None:
        """Puts an element where it belongs between place `at`, which is free, and the top."""
        f = self.f

        def parent(at: Value) -> Value:
            # That of the top is not used.
            return f.binary("lshr", i64(f.maximum(f.sub(at, 1), 0)), i64(1))

        def is_worse(at: list[Value]) -> Value:
            below = f.compare("icmp sgt", at[0], i64(top))
            return f.binary("and", below, self._better(self._get(parent(at[0])), entry).value)

        def shift(at: list[Value]) -> list[Value]:
            above = parent(at[0])
            self._put(at[0], self._get(above))
            return [above]

        self._put(f.while_([at], is_worse, shift)[0], entry)

    def _better(self, x: Entry, y: Entry) -> Lanes:
        return (x[0] > y[0]) | (~(x[0] < y[0]) & (x[1] < y[1]))

    def _get(self, i: Value | int) -> Entry:
        f = self.f
        return (
            Lanes(f, f.load(self.key_type, f.offset(self.keys, i, self.key_type), self.key_bytes)),
            Lanes(f, f.load("i32", f.offset(self.places, i, "i32"), 4)),
        )

    def _put(self, i: Value | int, entry: Entry) -> None:
        f = self.f
        f.store(entry[0].value, f.offset(self.keys, i, self.key_type), self.key_bytes)
        f.store(entry[1].value, f.offset(self.places, i, "i32"), 4)

    def _element(self, row: Value, i: Value) -> Entry:
        return self._key(row, i, 1), Lanes(self.f, self.f.cast("trunc", i, "i32"))

    def _key(self, row: Value, i: Value | int, lanes: int) -> Lanes:
        """Elements as numbers, or as signed integers in the order; larger ones for better elements."""
        f, t = self.f, self.type
        pointer = f.offset(row, i, memory_type(t))
        if not t.is_float or self.order.startswith("HEAP"):
            key = Lanes(f, single(load(f, t, pointer, lanes)))
            if t.is_unsigned:
                key = key ^ -(1 << 8 * t.item_bytes - 1)
            return key if self.largest else -key if t.is_float else ~key
        width = 8 * t.item_bytes
        low = -(1 << (width - 1))
        bits = Lanes(f, f.load(vector_type(f"i{width}", lanes), pointer, t.item_bytes))
        value = bits.equals(low).choose(bits.number(0), bits) if self.order else bits
        key = value ^ ((value >> (width - 1)) & ~low)
        key = key if self.largest else ~key
        if not self.order:
            return key
        number = Lanes(f, single(load(f, t, pointer, lanes)))
        return number.is_nan().choose(key.number(low), key)
