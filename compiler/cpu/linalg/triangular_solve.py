"""The kernel of triangular-solve: block after block of unknowns, in the buffer of the right sides.

A GEMM subtracts the blocks that are solved from each block; then the block's own small system is solved on panels of
right sides. Systems x op(a) = b are transposed panel by panel, so that right sides lie side by side in vectors.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Ptr
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate
from ...analysis.gemm_problem import GemmProblem
from ...ir.module import Instruction
from ...ops import TriangularSolve
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS, buffer_address, phase, phases, run_phase, run_tasks
from ..gemm.emit import emit_gemm
from .multi_rhs import PanelFunctions, Triangle, conjugate_copy

BLOCK = 64
"""Unknowns that are solved together; systems of up to one and a half of it are not divided."""

_FLOPS_PER_US = 8000.0


def emit_triangular_solve(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel.

    Raises: UnsupportedError  element types that no product is computed for.
    """
    return _Kernel(module, target, instruction).emit()


def run_gemm(
    f: Function,
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    a: Ptr,
    b: Ptr,
    c: Ptr,
    scratch: Ptr,
) -> int:
    """Writes a GEMM between phases; returns the bytes of scratch memory that it needs per thread."""
    plan = emit_gemm(module, target, problem)
    buffers = f.stack_slot("[4 x i64]", 8)
    for k, pointer in enumerate((a, b, c, scratch)):
        (buffers + 8 * k).store(pointer)
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
        self.panels = PanelFunctions(module, target, self.type)
        self.item = self.type.item_bytes
        self.scratch_bytes = 0
        self.flops = self.batch * self.n * self.n * self.count * (4 if self.type.is_complex else 1)
        self.bytes = a.bytes + 2 * b.bytes

    def emit(self) -> KernelInfo:
        size = BLOCK if 2 * self.n > 3 * BLOCK else max(self.n, 1)
        blocks = [(start, min(size, self.n - start)) for start in range(0, self.n, size)]
        if not self.triangle.is_lower:
            blocks.reverse()
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        has_work = self.batch * self.n * self.count > 0
        shared = 0
        if has_work:
            with phases(f, lambda: self._buffers(shared)):
                shared = self._blocks(f, blocks, size)
        f.ret()
        return KernelInfo(
            self.module.define("triangular_solve", f),
            int(has_work),
            scratch_bytes=self.scratch_bytes,
            shared_bytes=shared,
            flops=self.flops,
            bytes=self.bytes,
            must_alias=((0, 1),),
        )

    def _buffers(self, shared: int) -> dict[str, bool]:
        return {"a": True, "x": True, "scratch": self.scratch_bytes > 0, "shared": shared > 0}

    def _blocks(self, f: Function, blocks: list[tuple[int, int]], size: int) -> int:
        """Writes the phases; returns the bytes of shared memory: a block's update, then the conjugate matrix."""
        a, x = buffer_address(f, "a"), buffer_address(f, "x")
        if len(blocks) == 1:
            self._solve(f, a, x, f.null, 0, self.n, self.batch)
            return 0
        update = buffer_address(f, "shared")
        update_bytes = -(-size * self.count * self.item // 64) * 64
        copies = self.triangle.conjugates
        copy = update + update_bytes
        if copies:
            self.triangle = Triangle(self.triangle.is_lower, False, self.triangle.has_unit_diagonal)
        with f.loop(0, self.batch) as system:
            matrix = a + system.index * (self.n * self.n * self.item)
            sides = x + system.index * (self.n * self.count * self.item)
            if copies:
                f.call(conjugate_copy(self.module, self.panels), "void", [matrix, copy, self.n * self.n])
                matrix = copy
            for start, size in blocks:
                self._block(f, matrix, sides, update, start, size)
        return update_bytes + (self.n * self.n * self.item if copies else 0)

    def _block(self, f: Function, matrix: Ptr, sides: Ptr, update: Ptr, start: int, size: int) -> None:
        """The unknowns start .. start + size - 1 of one system; those before, in the order of solution, are solved."""
        first, solved = (0, start) if self.triangle.is_lower else (start + size, self.n - start - size)
        row, column = self.a_strides
        diagonal = matrix + start * (row + column) * self.item
        is_left = self.op.left_side
        step = self.count if is_left else 1  # from an unknown to the next
        if solved:
            factor = matrix + (start * row + first * column) * self.item
            values = sides + first * step * self.item
            t, count = self.type, self.count
            if is_left:
                strides = (row, column), (count, 1), (count, 1)
                problem, operands = GemmProblem(t, t, (), size, count, solved, *strides), (factor, values)
            else:
                strides = (self.n, 1), (column, row), (size, 1)
                problem, operands = GemmProblem(t, t, (), count, size, solved, *strides), (values, factor)
            scratch = buffer_address(f, "scratch")
            gemm_bytes = run_gemm(f, self.module, self.target, problem, *operands, update, scratch)
            self.scratch_bytes = max(self.scratch_bytes, gemm_bytes)
        x = sides + start * step * self.item
        if solved:
            self._solve(f, diagonal, x, update, size, size, 1)
        else:
            self._solve(f, diagonal, x, f.null, 0, size, 1)

    def _solve(
        self, f: Function, a: Ptr, x: Ptr, update: Ptr, update_columns: int, size: int, batch: int
    ) -> None:
        """Writes the phase that solves a block's own system. A task is a panel of right sides."""
        symbol = self._panel_kernel(size, batch, update_columns)
        panels = -(-self.count // self.panels.width)
        flops = batch * size * size * self.count * (4 if self.type.is_complex else 1)
        microseconds = estimate(flops) / _FLOPS_PER_US
        scratch = f.null if self.op.left_side else buffer_address(f, "scratch")
        run_phase(f, symbol, (a, x, update, scratch), batch * panels, microseconds)

    def _panel_kernel(self, size: int, batch: int, update_columns: int) -> str:
        f, (a, x, update, scratch) = phase(self.module, 4)
        width, count = self.panels.width, self.count
        panels = -(-count // width)
        panel_bytes = size * width * self.item
        if not self.op.left_side:
            self.scratch_bytes = max(self.scratch_bytes, panel_bytes)
        solve = self.panels.solve(self.triangle)
        row, column = self.a_strides
        with f.loop(f.integer("low"), f.integer("high")) as task:
            t = task.index
            start = t % panels * width
            columns = f.i64(width).minimum(count - start)
            number = t // panels if batch > 1 else f.i64(0)
            matrix = a + number * (self.n * self.n * self.item)
            sides = x + number * (self.n * count * self.item)
            if self.op.left_side:
                offset = start * self.item
                part = update + offset if update_columns else f.null
                right = sides + offset
                f.call(solve, "void", [matrix, row, column, right, count, part, count, size, columns])
            else:
                panel = scratch + f.integer("thread") * panel_bytes
                right = sides + start * (self.n * self.item)
                part = update + start * (update_columns * self.item) if update_columns else f.null
                gather, scatter = self.panels.gather(), self.panels.scatter()
                f.call(gather, "void", [right, self.n, part, update_columns, panel, size, columns])
                f.call(solve, "void", [matrix, row, column, panel, width, f.null, 0, size, columns])
                f.call(scatter, "void", [right, self.n, panel, size, columns])
        f.ret()
        return self.module.define("solve_panels", f)
