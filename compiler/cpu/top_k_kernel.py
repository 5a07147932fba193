"""The kernel of topk for small k: the best k so far in order, and a scan for elements that are better than the last.

The scan compares whole vectors; among random elements it finds k ln(n / k) of n.
"""

from __future__ import annotations

import math

from ..ir import Instruction
from ..ops import TopK
from ..options import Options
from .element_types import load, memory_type, single
from .kernel_plan import KernelPlan
from .lanes import Lanes
from .llvm_text import Function, ModuleText, Value, i64, vector_type
from .parallel import KERNEL_PARAMETERS
from .target import Target

_ALIGN = 64
_VECTORS = 4
_PARALLEL_ELEMENTS = 1 << 14


def emit_top_k(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    """Writes the kernel. A task is a line."""
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op, shape = instruction.op, instruction.operands[0].shape
        assert isinstance(op, TopK)
        self.module, self.k, self.largest, self.type = module, op.k, op.largest, shape.element_type
        self.n, self.lines, self.bytes = shape.dims[-1], math.prod(shape.dims[:-1]), shape.bytes
        self.width = 8 * self.type.item_bytes
        self.lanes = target.lanes(self.width)
        self.key_bytes = self.type.item_bytes
        self.places_at = -(-self.k * self.key_bytes // _ALIGN) * _ALIGN
        self.scratch_bytes = self.places_at + -(-4 * self.k // _ALIGN) * _ALIGN

    def emit(self) -> KernelPlan:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        tasks = self.lines if self.k else 0
        if tasks:
            source, values, places, scratch = (f.load("ptr", f.offset(f["buffers"], 8 * b), 8) for b in range(4))
            own = f.offset(scratch, f.mul(f["thread"], self.scratch_bytes))
            self.keys, self.places = own, f.offset(own, self.places_at)
            f.loop(f["low"], f["high"], 1, lambda t, _: self._line(t, source, values, places))
        f.ret()
        grain = max(1, _PARALLEL_ELEMENTS // max(1, self.n))
        return KernelPlan(self.module.define("top_k", f), tasks, grain, tasks > grain,
                          self.scratch_bytes if tasks else 0, flops=self.lines * self.n, bytes=self.bytes)

    def _line(self, line: Value, source: Value, values: Value, places: Value) -> None:
        f, n, k = self.f, self.n, self.k
        row = f.offset(source, f.mul(line, n), memory_type(self.type))
        f.loop(0, k, 1, lambda i, _: self._insert(row, i, i))

        def scan(step: int, vectors: int, lanes: int, start: int, last: Value) -> Value:
            """Elements from start on in steps of that size, as far as they go; the last of the best after that."""
            def some(i: Value, carried: list[Value]) -> list[Value]:
                bound = Lanes(f, f.splat(carried[0], lanes))
                found = None
                for v in range(vectors):
                    better = self._key(row, f.add(i, v * lanes), lanes) > bound
                    found = better if found is None else Lanes(f, f.binary("or", found.value, better.value))
                assert found is not None

                def one(j: Value, inner: list[Value]) -> list[Value]:
                    better = self._key(row, j, 1) > Lanes(f, inner[0])

                    def replace() -> list[Value]:
                        self._insert(row, j, k - 1)
                        return [f.load(f"i{self.width}", self._slot(k - 1), self.key_bytes)]

                    return f.branch(better.value, replace, lambda: [inner[0]])

                return f.branch(found.any(), lambda: f.loop(i, f.add(i, step), 1, one, [carried[0]]),
                                lambda: [carried[0]])

            return f.loop(start, start + (n - start) // step * step, step, some, [last])[0]

        last = f.load(f"i{self.width}", self._slot(k - 1), self.key_bytes)
        step = _VECTORS * self.lanes
        last = scan(step, _VECTORS, self.lanes, k, last)
        scan(1, 1, 1, k + (n - k) // step * step, last)
        first = f.mul(line, k)

        def put(i: Value, _: list[Value]) -> None:
            place = f.load("i32", f.offset(self.places, i, "i32"), 4)
            at = f.offset(row, f.cast("zext", place, "i64"), memory_type(self.type))
            value = f.load(f"i{self.width}", at, self.key_bytes)
            f.store(value, f.offset(values, f.add(first, i), memory_type(self.type)), self.key_bytes)
            f.store(place, f.offset(places, f.add(first, i), "i32"), 4)

        f.loop(0, k, 1, put)

    def _insert(self, row: Value, i: Value, last: Value | int) -> None:
        """Puts element i in its place among the best; number `last` of them is free, or falls out."""
        f = self.f
        key = self._key(row, i, 1)

        def goes_on(carried: list[Value]) -> Value:
            before = f.intrinsic("smax", "i64", [i64(f.sub(carried[0], 1)), i64(0)])
            worse = Lanes(f, f.load(f"i{self.width}", self._slot(before), self.key_bytes)) < key
            return f.binary("and", f.compare("icmp sgt", carried[0], i64(0)), worse.value)

        def shift(carried: list[Value]) -> list[Value]:
            before = f.sub(carried[0], 1)
            moved = f.load(f"i{self.width}", self._slot(before), self.key_bytes)
            f.store(moved, self._slot(carried[0]), self.key_bytes)
            place = f.load("i32", f.offset(self.places, before, "i32"), 4)
            f.store(place, f.offset(self.places, carried[0], "i32"), 4)
            return [i64(before)]

        at = f.while_([i64(last)], goes_on, shift)[0]
        f.store(key.value, self._slot(at), self.key_bytes)
        f.store(f.cast("trunc", i, "i32"), f.offset(self.places, at, "i32"), 4)

    def _slot(self, i: Value | int) -> Value:
        return self.f.offset(self.keys, i, f"i{self.width}")

    def _key(self, row: Value, i: Value | int, lanes: int) -> Lanes:
        """Elements as signed integers, larger ones for better elements."""
        f, t = self.f, self.type
        pointer = f.offset(row, i, memory_type(t))
        low = -(1 << (self.width - 1))
        if t.is_float:
            bits = Lanes(f, f.load(vector_type(f"i{self.width}", lanes), pointer, self.key_bytes))
            key = bits ^ ((bits >> (self.width - 1)) & ~low)
        else:
            key = Lanes(f, single(load(f, t, pointer, lanes)))
            if t.is_unsigned:
                key = key ^ low
        return key if self.largest else ~key
