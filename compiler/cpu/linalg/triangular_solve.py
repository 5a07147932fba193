"""The kernel of triangular-solve: block after block of unknowns, in the buffer of the right sides.

What the blocks before give is one matrix product for each block; then the block's own small system is solved on
strips. Systems x op(a) = b are transposed strip by strip, so that right sides lie side by side in vectors.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import TriangularSolve
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS, name_buffers, phase, run_phase, run_tasks
from ..gemm.emit import GemmProblem, emit_gemm
from .multi_rhs import Strips, Triangle, conjugate_copy

BLOCK = 64
"""Unknowns that are solved together; systems of up to one and a half of it are not divided."""

_NULL = Value("ptr", "null")
_FLOPS_PER_US = 8000.0


def emit_triangular_solve(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel.

    Raises: UnsupportedError  element types that no product is computed for.
    """
    return _Kernel(module, target, instruction).emit()


def run_product(
    f: Function,
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    a: Value,
    b: Value,
    c: Value,
    scratch: Value,
) -> int:
    """Writes a product between phases; returns the bytes of scratch memory that it needs per thread."""
    plan = emit_gemm(module, target, problem)
    buffers = f.stack_slot("[4 x i64]", 8)
    for k, pointer in enumerate((a, b, c, scratch)):
        f.store(pointer, f.offset(buffers, 8 * k), 8)
    run_tasks(f, plan.symbol, buffers, plan.tasks, plan.grain if plan.parallel else plan.tasks)
    return plan.scratch_bytes


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, TriangularSolve)
        a, b = (o.shape for o in instruction.operands)
        self.module, self.target, self.op, self.type = module, target, op, a.element_type
        self.n, self.batch = a.dims[-1], math.prod(a.dims[:-2])
        self.count = b.dims[-1] if op.left_side else b.dims[-2]
        swaps = (op.transpose_a != "NO_TRANSPOSE") == op.left_side
        self.a_strides = (1, self.n) if swaps else (self.n, 1)
        conjugates = op.transpose_a == "ADJOINT" and self.type.is_complex
        self.triangle = Triangle(op.lower != swaps, conjugates, op.unit_diagonal)
        self.strips = Strips(module, target, self.type)
        self.item = self.type.item_bytes
        self.scratch_bytes = 0
        self.flops = self.batch * self.n * self.n * self.count * (4 if self.type.is_complex else 1)
        self.bytes = a.bytes + 2 * b.bytes

    def emit(self) -> KernelPlan:
        size = BLOCK if 2 * self.n > 3 * BLOCK else max(self.n, 1)
        blocks = [(start, min(size, self.n - start)) for start in range(0, self.n, size)]
        if not self.triangle.is_lower:
            blocks.reverse()
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        has_work = self.batch * self.n * self.count > 0
        body: list[str] = []
        shared = 0
        if has_work:
            with f.redirected(body):
                f.start_block("phases")
                shared = self._blocks(f, blocks, size)
            f.block = "entry"
            name_buffers(f, {"a": True, "x": True, "scratch": self.scratch_bytes > 0, "shared": shared > 0})
            f.do("br label %phases")
            f.lines.extend(body)
        f.ret()
        return KernelPlan(
            self.module.define("triangular_solve", f),
            int(has_work),
            scratch_bytes=self.scratch_bytes,
            shared_bytes=shared,
            flops=self.flops,
            bytes=self.bytes,
            initial=((0, 1),),
        )

    def _blocks(self, f: Function, blocks: list[tuple[int, int]], size: int) -> int:
        """Writes the phases; returns the bytes of shared memory: a block's product, then the conjugate matrix."""
        a, x = Value("ptr", "%at_a"), Value("ptr", "%at_x")
        if len(blocks) == 1:
            self._solve(f, a, x, _NULL, 0, self.n, self.batch)
            return 0
        product = Value("ptr", "%at_shared")
        product_bytes = -(-size * self.count * self.item // 64) * 64
        copies = self.triangle.conjugates
        copy = f.offset(product, product_bytes)

        def system(number: Value, _: list[Value]) -> None:
            matrix = f.offset(a, f.mul(number, self.n * self.n * self.item))
            sides = f.offset(x, f.mul(number, self.n * self.count * self.item))
            if copies:
                f.call(conjugate_copy(self.module, self.strips), "void", [matrix, copy, i64(self.n * self.n)])
                matrix = copy
            for start, size in blocks:
                self._block(f, matrix, sides, product, start, size)

        if copies:
            self.triangle = Triangle(self.triangle.is_lower, False, self.triangle.has_unit_diagonal)
        f.loop(0, self.batch, 1, system)
        return product_bytes + (self.n * self.n * self.item if copies else 0)

    def _block(self, f: Function, matrix: Value, sides: Value, product: Value, start: int, size: int) -> None:
        """The unknowns start .. start + size - 1 of one system, those before (in the order of solution) known."""
        first, known = (0, start) if self.triangle.is_lower else (start + size, self.n - start - size)
        row, column = self.a_strides
        here = f.offset(matrix, start * (row + column) * self.item)
        left = self.op.left_side
        step = self.count if left else 1  # from an unknown to the next
        if known:
            factor = f.offset(matrix, (start * row + first * column) * self.item)
            values = f.offset(sides, first * step * self.item)
            if left:
                problem = GemmProblem(
                    self.type,
                    self.type,
                    (),
                    size,
                    self.count,
                    known,
                    (row, column),
                    (self.count, 1),
                    (self.count, 1),
                )
                operands = factor, values
            else:
                problem = GemmProblem(
                    self.type, self.type, (), self.count, size, known, (self.n, 1), (column, row), (size, 1)
                )
                operands = values, factor
            needed = run_product(
                f, self.module, self.target, problem, *operands, product, Value("ptr", "%at_scratch")
            )
            self.scratch_bytes = max(self.scratch_bytes, needed)
        self._solve(
            f,
            here,
            f.offset(sides, start * step * self.item),
            product if known else _NULL,
            size if known else 0,
            size,
            1,
        )

    def _solve(
        self, f: Function, a: Value, x: Value, update: Value, update_columns: int, size: int, batch: int
    ) -> None:
        """Writes the phase that solves a block's own system. A task is a strip of right sides."""
        symbol = self._strip_kernel(size, batch, update_columns)
        strips = -(-self.count // self.strips.width)
        microseconds = batch * size * size * self.count * (4 if self.type.is_complex else 1) / _FLOPS_PER_US
        scratch = Value("ptr", "null") if self.op.left_side else Value("ptr", "%at_scratch")
        run_phase(f, symbol, (a, x, update, scratch), batch * strips, microseconds)

    def _strip_kernel(self, size: int, batch: int, update_columns: int) -> str:
        f, (a, x, update, scratch) = phase(self.module, 4)
        width, count = self.strips.width, self.count
        strips = -(-count // width)
        strip_bytes = size * width * self.item
        if not self.op.left_side:
            self.scratch_bytes = max(self.scratch_bytes, strip_bytes)
        solve = self.strips.solve(self.triangle)
        row, column = map(i64, self.a_strides)

        def task(t: Value, _: list[Value]) -> None:
            start = f.mul(f.remainder(t, strips), width)
            some = i64(f.minimum(width, f.sub(count, start)))
            number = f.divide(t, strips) if batch > 1 else 0
            matrix = f.offset(a, f.mul(number, self.n * self.n * self.item))
            sides = f.offset(x, f.mul(number, self.n * count * self.item))
            if self.op.left_side:
                at = f.mul(start, self.item)
                given = f.offset(update, at) if update_columns else _NULL
                f.call(
                    solve,
                    "void",
                    [
                        matrix,
                        row,
                        column,
                        f.offset(sides, at),
                        i64(count),
                        given,
                        i64(count),
                        i64(size),
                        some,
                    ],
                )
                return
            strip = f.offset(scratch, f.mul(f["thread"], strip_bytes))
            here = f.offset(sides, f.mul(start, self.n * self.item))
            given = f.offset(update, f.mul(start, update_columns * self.item)) if update_columns else _NULL
            f.call(
                self.strips.gather(),
                "void",
                [here, i64(self.n), given, i64(update_columns), strip, i64(size), some],
            )
            f.call(solve, "void", [matrix, row, column, strip, i64(width), _NULL, i64(0), i64(size), some])
            f.call(self.strips.scatter(), "void", [here, i64(self.n), strip, i64(size), some])

        f.loop(f["low"], f["high"], 1, task)
        f.ret()
        return self.module.define("solve_strips", f)
