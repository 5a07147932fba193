"""The kernel of isotonic-regression: a stack of pools; the last two are joined while their means increase.

The stack lies in the results, its means where the line will be and its first elements where the segments will be, for
there are never more pools than elements seen. From the last pool to the first they are then spread over their elements.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import convert, load, memory_type, round_to, single, store
from ..codegen.parallel_for import KERNEL_PARAMETERS

_ALIGN = 64
_PARALLEL_ELEMENTS = 1 << 12


def emit_isotonic_regression(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel. A task is a line."""
    return _Kernel(module, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, instruction: Instruction) -> None:
        shape = instruction.operands[0].shape
        self.module, self.type, self.n = module, shape.element_type, shape.dims[-1]
        self.lines = math.prod(shape.dims[:-1]) if self.n else 0
        self.flops = instruction.op.flops(instruction)
        self.bytes = shape.elements * (2 * self.type.item_bytes + ElementType.S32.item_bytes)
        self.scratch_bytes = -(-self.n * self.type.item_bytes // _ALIGN) * _ALIGN if self.lines else 0

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        if self.lines:
            source, fitted, segments, scratch = ((f.pointer("buffers") + 8 * k).load_ptr() for k in range(4))
            self.sums = scratch + f.integer("thread") * self.scratch_bytes
            with f.loop(f.integer("low"), f.integer("high")) as line:
                first = line.index * self.n
                self.means = fitted.at(first, memory_type(self.type))
                self.starts = segments.at(first, "i32")
                self._spread(self._pools(source.at(first, memory_type(self.type))))
        f.ret()
        grain = max(1, _PARALLEL_ELEMENTS // max(1, self.n))
        return KernelInfo(
            self.module.define("isotonic_regression", f),
            self.lines,
            grain,
            self.lines > grain,
            self.scratch_bytes,
            self.flops,
            self.bytes,
            may_alias=frozenset({(0, 0)}),  # an element is read before its place in the result is written
        )

    def _pools(self, row: Ptr) -> Int:
        """Writes the stack of a line's pools; returns how many there are."""
        f = self.f
        with f.loop(0, self.n, pools=f.i64(0)) as element:
            value = self._get(row, element.index)
            with f.repeat(pool=element.pools, start=element.index, sum=value, mean=value) as last:
                before = (last.pool - 1).maximum(0)
                last.while_((last.pool > 0) & (last.mean > self._get(self.means, before)))
                last.pool, last.start = before, self._start(before)
                last.sum = self._rounded(self._get(self.sums, before) + last.sum)
                count = single(convert(f, element.index + 1 - last.start, ElementType.S64, self.type))
                last.mean = self._rounded(last.sum / count)
            self._put(self.means, last.pool, last.mean)
            self._put(self.sums, last.pool, last.sum)
            self.starts.at(last.pool, "i32").store(last.start.truncate("i32"))
            element.pools = last.pool + 1
        result: Int = element.pools
        return result

    def _spread(self, pools: Int) -> None:
        """Writes every pool's mean and number to its elements, which lie behind the entries of the pools before it."""
        f = self.f
        with f.loop(0, pools, end=f.i64(self.n)) as turn:
            pool = pools - 1 - turn.index
            mean, start, number = self._get(self.means, pool), self._start(pool), pool.truncate("i32")
            with f.loop(start, turn.end) as element:
                self._put(self.means, element.index, mean)
                self.starts.at(element.index, "i32").store(number)
            turn.end = start

    def _start(self, pool: Int) -> Int:
        """The number of a pool's first element."""
        return Int.zero_extended(self.starts.at(pool, "i32").load("i32"))

    def _get(self, array: Ptr, i: Index) -> VectorValue:
        pointer = array.at(i, memory_type(self.type))
        return VectorValue.of(self.f, single(load(self.f, self.type, pointer, 1)))

    def _put(self, array: Ptr, i: Index, value: VectorValue) -> None:
        store(self.f, self.type, value, array.at(i, memory_type(self.type)), 1)

    def _rounded(self, value: VectorValue) -> VectorValue:
        return VectorValue.of(self.f, round_to(self.f, self.type, value))
