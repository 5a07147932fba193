"""The kernel of nonzero: every element's coordinates are written where those of the next true one belong, and the
place moves on if it was one.

So no branch depends on single elements; eight false ones together are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS

_WORD_BYTES = 8


def emit_nonzero(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel, which is one task."""
    shape = instruction.operands[0].shape
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    mask, rows, total = (f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(3))
    count = _Walk(f, shape.dims, rows).axis([], mask, i64(0)) if shape.elements else i64(0)
    f.store(f.cast("trunc", count, "i32"), total, 4)
    f.ret()
    return KernelPlan(module.define("nonzero", f), 1, bytes=shape.elements * (1 + 8 * shape.rank))


class _Walk:
    def __init__(self, f: Function, dims: Sequence[int], rows: Value) -> None:
        self.f, self.dims, self.rows = f, dims, rows

    def axis(self, outer: list[Value], mask: Value, count: Value) -> Value:
        """Walks the elements at the coordinates `outer` of the first axes, which begin at `mask`; `count` rows are
        there, the new count is returned."""
        f, dim = self.f, self.dims[len(outer)]
        if len(outer) == len(self.dims) - 1:
            return self._line(outer, dim, mask, count)
        inner = 1
        for size in self.dims[len(outer) + 1 :]:
            inner *= size
        return f.loop(
            0,
            dim,
            1,
            lambda at, carried: [self.axis([*outer, at], f.offset(mask, f.mul(at, inner)), carried[0])],
            [count],
        )[0]

    def _line(self, outer: list[Value], length: int, mask: Value, count: Value) -> Value:
        f = self.f

        def one(at: Value, carried: list[Value]) -> list[Value]:
            row = f.mul(carried[0], len(self.dims))
            for k, coordinate in enumerate((*outer, at)):
                f.store(coordinate, f.offset(self.rows, f.add(row, k), "i64"), 8)
            is_true = f.compare("icmp ne", f.load("i8", f.offset(mask, at), 1), constant("i8", 0))
            return [f.binary("add", carried[0], f.cast("zext", is_true, "i64"))]

        def word(start: Value, carried: list[Value]) -> list[Value]:
            def eight() -> list[Value]:
                at = carried
                for k in range(_WORD_BYTES):
                    at = one(i64(f.add(start, k)), at)
                return at

            bits = f.load("i64", f.offset(mask, start), 1)
            return f.branch(f.compare("icmp ne", bits, i64(0)), eight, lambda: carried)

        whole = length // _WORD_BYTES * _WORD_BYTES
        count = f.loop(0, whole, _WORD_BYTES, word, [count])[0]
        return f.loop(whole, length, 1, one, [count])[0]
