"""The kernel of cholesky: block column after block column of a lower triangle.

A GEMM computes what the columns before subtract from a block column; then the block on the diagonal is factored and
the blocks below it are solved for. The upper factor is the adjoint of the lower one of the adjoint, which has memory of
its own. Small matrices are one block each, many at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.sizes import estimate
from ...analysis.gemm_problem import GemmProblem
from ...ir.module import Instruction
from ...ops import Cholesky
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS, buffer_address, phase, phases, run_phase
from .multi_rhs import PanelFunctions, Triangle, conjugate_copy
from .scalar_type import ScalarType
from .triangular_solve import BLOCK, run_gemm

_FLOPS_PER_US = 4000.0
_ALIGN = 64


def emit_cholesky(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel.

    Raises: UnsupportedError  element types that no product is computed for.
    """
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, Cholesky)
        shape = instruction.shape
        self.module, self.target, self.lower, self.type = module, target, op.lower, shape.element_type
        self.n, self.batch, self.bytes = shape.dims[-1], math.prod(shape.dims[:-2]), 2 * shape.bytes
        self.panels = PanelFunctions(module, target, self.type)
        self.item = self.type.item_bytes
        self.matrix_bytes = -(-self.n * self.n * self.item // _ALIGN) * _ALIGN
        self.local_bytes = BLOCK * (BLOCK + 1) * self.item + _ALIGN
        self.scratch_bytes = 0
        self.flops = self.batch * self.n**3 // 3 * (4 if self.type.is_complex else 1)

    def emit(self) -> KernelInfo:
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        has_work = self.batch * self.n > 0
        shared = 0
        if has_work:
            with phases(f, lambda: self._buffers(shared)):
                shared = self._matrices(f)
        f.ret()
        return KernelInfo(
            self.module.define("cholesky", f),
            int(has_work),
            scratch_bytes=self.scratch_bytes,
            shared_bytes=shared,
            flops=self.flops,
            bytes=self.bytes,
            must_alias=((0, 0),),
        )

    def _buffers(self, shared: int) -> dict[str, bool]:
        return {"x": True, "scratch": self.scratch_bytes > 0, "shared": shared > 0}

    def _matrices(self, f: Function) -> int:
        """Writes the phases; returns the bytes of shared memory: the update of a block column, its conjugates, and the
        adjoint."""
        x, scratch = buffer_address(f, "x"), buffer_address(f, "scratch")
        if self.n <= BLOCK:
            run_phase(f, self._small_kernel(), (x, scratch), self.batch, estimate(self.flops) / _FLOPS_PER_US)
            return 0
        panel_bytes = -(-BLOCK * self.n * self.item // _ALIGN) * _ALIGN
        update, conjugates, adjoint = (buffer_address(f, "shared") + k * panel_bytes for k in range(3))
        with f.loop(0, self.batch) as matrix:
            result = x + matrix.index * (self.n * self.n * self.item)
            work = result
            if not self.lower:
                work = adjoint
                f.call(self.panels.adjoint(), "void", [result, work, self.n])
            for start in range(0, self.n, BLOCK):
                self._block(f, work, update, conjugates, start, min(BLOCK, self.n - start))
            if not self.lower:
                f.call(self.panels.adjoint(), "void", [work, result, self.n])
            self._clear(f, result)
        return 2 * panel_bytes + (0 if self.lower else self.matrix_bytes)

    def _small_kernel(self) -> str:
        """A task is a matrix."""
        f, (x, scratch) = phase(self.module, 2)
        own_bytes = self.local_bytes + (0 if self.lower else self.matrix_bytes)
        self.scratch_bytes = max(self.scratch_bytes, own_bytes)
        with f.loop(f.integer("low"), f.integer("high")) as task:
            local = scratch + f.integer("thread") * own_bytes
            result = work = x + task.index * (self.n * self.n * self.item)
            if not self.lower:
                work = local + self.local_bytes
                f.call(self.panels.adjoint(), "void", [result, work, self.n])
            f.call(self._factor(), "void", [work, self.n, f.null, 0, local, self.n])
            if not self.lower:
                f.call(self.panels.adjoint(), "void", [work, result, self.n])
            self._clear(f, result)
        f.ret()
        return self.module.define("small_cholesky", f)

    def _clear(self, f: Function, matrix: Ptr) -> None:
        """Zeros in the other triangle."""
        with f.loop(0, self.n) as row:
            i = row.index
            offset = i * (self.n * self.item)
            if self.lower:
                offset += (i + 1) * self.item
            count = self.n - 1 - i if self.lower else i
            f.call("memset", "ptr", [matrix + offset, f.constant("i32", 0), count * self.item])

    def _block(self, f: Function, work: Ptr, update: Ptr, conjugates: Ptr, start: int, size: int) -> None:
        """Factors block column start .. start + size - 1, those before it being factored."""
        n, item, scratch = self.n, self.item, buffer_address(f, "scratch")
        rows = n - start
        row = work + start * n * item
        diagonal = row + start * item
        if start:
            problem = GemmProblem(self.type, self.type, (), rows, size, start, (n, 1), (1, n), (size, 1))
            other = row
            if self.type.is_complex:
                f.call(conjugate_copy(self.module, self.panels), "void", [row, conjugates, size * n])
                other = conjugates
            gemm_bytes = run_gemm(f, self.module, self.target, problem, row, other, update, scratch)
            self.scratch_bytes = max(self.scratch_bytes, gemm_bytes)
        self.scratch_bytes = max(self.scratch_bytes, self.local_bytes)
        f.call(self._factor(), "void", [diagonal, n, update if start else f.null, size, scratch, size])
        below = rows - size
        if below:
            below_update = update + size * size * item if start else f.null
            tasks = -(-below // self.panels.width)
            microseconds = below * size * size * (4 if self.type.is_complex else 1) / _FLOPS_PER_US
            buffers = diagonal, diagonal + size * n * item, below_update, scratch
            run_phase(f, self._panel_kernel(below, size, start > 0), buffers, tasks, microseconds)

    def _panel_kernel(self, below: int, size: int, has_update: bool) -> str:
        """Rows below the diagonal: x L^H = x. A task is a panel of them."""
        f, (factor, x, update, scratch) = phase(self.module, 4)
        width = self.panels.width
        panel_bytes = size * width * self.item
        self.scratch_bytes = max(self.scratch_bytes, panel_bytes)
        solve = self.panels.solve(Triangle(True, self.type.is_complex, False))

        with f.loop(f.integer("low"), f.integer("high")) as task:
            start = task.index * width
            columns = f.i64(width).minimum(below - start)
            panel = scratch + f.integer("thread") * panel_bytes
            right = x + start * (self.n * self.item)
            part = update + start * (size * self.item) if has_update else f.null
            f.call(self.panels.gather(), "void", [right, self.n, part, size, panel, size, columns])
            f.call(solve, "void", [factor, self.n, 1, panel, width, f.null, 0, size, columns])
            f.call(self.panels.scatter(), "void", [right, self.n, panel, size, columns])
        f.ret()
        return self.module.define("cholesky_panel", f)

    def _factor(self) -> str:
        """(a, a row stride, update, update row stride, local, n): the factor of a block of n <= BLOCK, less the
        update first, which may be null; `local` has room for BLOCK + 1 rows of BLOCK elements.

        Column by column, each taken from the rest in whole vectors: what they change above the diagonal is not read.
        """
        name = f"cholesky_block_{self.type.value}"
        if self.module.has(name):
            return name
        listed = "ptr a, i64 a_row, ptr update, i64 update_row, ptr local, i64 n"
        f = Function(self.module, name, parameters(listed))
        self._write_factor(f)
        f.ret()
        return self.module.add(name, f.text())

    def _write_factor(self, f: Function) -> None:
        scalar, lanes = ScalarType(f, self.type), self.panels.lanes
        (a, update, local), (a_row, update_row, n) = (
            f.pointers("a", "update", "local"),
            f.integers("a_row", "update_row", "n"),
        )
        column = local + BLOCK * BLOCK * self.item

        def at(i: Int, j: Int) -> Ptr:
            return scalar.at(local, i * BLOCK + j)

        with f.loop(0, n) as row, f.loop(0, row.index + 1) as element:
            i, j = row.index, element.index
            scalar.store(scalar.load(scalar.at(a, i * a_row + j)), at(i, j))
        with f.if_(update.is_not_null()), f.loop(0, n) as row, f.loop(0, row.index + 1) as element:
            i, j = row.index, element.index
            value = scalar.load(scalar.at(update, i * update_row + j))
            scalar.store(scalar.subtract(scalar.load(at(i, j)), value), at(i, j))
        f.call("memset", "ptr", [column, f.constant("i32", 0), BLOCK * self.item])
        with f.loop(0, n) as step:
            self._factor_column(f, scalar, step.index, at, column, lanes)
        with f.loop(0, n) as row, f.loop(0, row.index + 1) as element:
            i, j = row.index, element.index
            scalar.store(scalar.load(at(i, j)), scalar.at(a, i * a_row + j))

    def _factor_column(
        self, f: Function, scalar: ScalarType, j: Int, at: Callable[[Int, Int], Ptr], column: Ptr, lanes: int
    ) -> None:
        """Divides column j by the root of its diagonal and takes it from the columns after it."""
        n = f.integer("n")
        root = scalar.load(at(j, j))[0].sqrt()
        zero = scalar.number(0)
        scalar.store((root, *zero[1:]), at(j, j))
        scalar.store(zero, scalar.at(column, j))
        inverse = root.number(1) / root
        with f.loop(j + 1, n) as row:
            value = tuple(part * inverse for part in scalar.load(at(row.index, j)))
            scalar.store(value, at(row.index, j))
            scalar.store(scalar.conjugate(value), scalar.at(column, row.index))
        first = (j + 1) // lanes * lanes
        with f.loop(j + 1, n) as row:
            i = row.index
            factor = scalar.broadcast(scalar.load(at(i, j)), lanes)
            with f.loop(first, i + 1, lanes) as vector:
                c = vector.index
                value = scalar.load(at(i, c), lanes)
                value = scalar.multiply_subtract(value, factor, scalar.load(scalar.at(column, c), lanes))
                scalar.store(value, at(i, c), lanes)
