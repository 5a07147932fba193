"""The kernel of lu-decomposition: block after block of pivots.

A GEMM computes what the blocks before subtract from a panel, the columns of a block from its diagonal down; the panel
is factored in memory of its own, and its exchanges of rows are made in the other columns. A second GEMM computes what
is subtracted from the block's rows right of the panel, which are then solved for. Matrices of few pivots are one block
each, many at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.sizes import estimate
from ...analysis.gemm_problem import GemmProblem
from ...ir.module import Instruction
from ...ops import LuDecomposition
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS, buffer_address, phase, phases, run_phase
from .multi_rhs import PanelFunctions, Triangle
from .scalar_type import Number, ScalarType, along, exchange, hypot
from .triangular_solve import run_gemm

_BLOCK = 32
_ONE_BLOCK = 64  # matrices of at most so many pivots are not divided
_FLOPS_PER_US = 4000.0
_ALIGN = 64


def emit_lu_decomposition(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel.

    Raises: UnsupportedError  element types that no product is computed for.
    """
    return _Kernel(module, target, instruction).emit()


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op, shape = instruction.op, instruction.operands[0].shape
        assert isinstance(op, LuDecomposition)
        self.module, self.target, self.type, self.one_norm = module, target, shape.element_type, op.one_norm
        self.rows, self.columns = shape.dims[-2:]
        self.batch, self.steps = math.prod(shape.dims[:-2]), min(self.rows, self.columns)
        self.panels = PanelFunctions(module, target, self.type)
        self.item = self.type.item_bytes
        self.is_divided = self.steps > _ONE_BLOCK
        # Rows of a panel are whole vectors from any column on.
        lanes = self.panels.lanes
        self.panel_row = -(-(_BLOCK if self.is_divided else self.steps) // lanes) * lanes + lanes
        self.panel_bytes = self._aligned((self.rows + 1) * self.panel_row)  # and the row of its pivot
        self.scratch_bytes = 0
        self.flops = op.flops(instruction) * (4 if self.type.is_complex else 1)
        self.bytes = 2 * shape.bytes

    def _aligned(self, elements: int) -> int:
        return -(-elements * self.item // _ALIGN) * _ALIGN

    def emit(self) -> KernelInfo:
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        has_work = self.batch * self.rows > 0
        shared = 0
        if has_work:
            with phases(f, lambda: self._buffers(shared)):
                shared = self._matrices(f)
        f.ret()
        return KernelInfo(
            self.module.define("lu_decomposition", f),
            int(has_work),
            scratch_bytes=self.scratch_bytes,
            shared_bytes=shared,
            flops=self.flops,
            bytes=self.bytes,
            must_alias=((0, 0),),
        )

    def _buffers(self, shared: int) -> dict[str, bool]:
        results = {"x": True, "pivots": True, "permutation": True}
        return {**results, "scratch": self.scratch_bytes > 0, "shared": shared > 0}

    def _matrices(self, f: Function) -> int:
        """Writes the phases; returns the bytes of shared memory: the panel, and the update of rows."""
        x, pivots, permutation, scratch = (
            buffer_address(f, name) for name in ("x", "pivots", "permutation", "scratch")
        )
        if not self.is_divided:
            buffers = x, pivots, permutation, scratch
            run_phase(f, self._small_kernel(), buffers, self.batch, estimate(self.flops) / _FLOPS_PER_US)
            return 0
        panel = buffer_address(f, "shared")
        with f.loop(0, self.batch) as matrix:
            own, own_pivots, own_permutation = self._of_matrix(x, pivots, permutation, matrix.index)
            for start in range(0, self.steps, _BLOCK):
                self._block(f, own, own_pivots, panel, start, min(_BLOCK, self.steps - start))
            f.call(self._permutation(), "void", [own_pivots, own_permutation, self.steps, self.rows])
        return self.panel_bytes + self._aligned(_BLOCK * self.columns)

    def _of_matrix(self, x: Ptr, pivots: Ptr, permutation: Ptr, number: Int) -> tuple[Ptr, Ptr, Ptr]:
        """What belongs to a matrix of the batch."""
        matrix = x + number * (self.rows * self.columns * self.item)
        return matrix, pivots + number * (4 * self.steps), permutation + number * (4 * self.rows)

    def _small_kernel(self) -> str:
        """A task is a matrix."""
        f, (x, pivots, permutation, scratch) = phase(self.module, 4)
        self.scratch_bytes = self.panel_bytes if self.steps else 0
        rest = self.columns - self.steps
        with f.loop(f.integer("low"), f.integer("high")) as task:
            own, own_pivots, own_permutation = self._of_matrix(x, pivots, permutation, task.index)
            if self.steps:
                panel = scratch + f.integer("thread") * self.panel_bytes
                self._factor_panel(f, own, own_pivots, panel, 0, self.steps)
            if rest:
                right = own + self.steps * self.item
                n, steps = self.columns, self.steps
                f.call(self._solve(), "void", [own, n, 1, right, n, f.null, 0, steps, rest])
            f.call(self._permutation(), "void", [own_pivots, own_permutation, self.steps, self.rows])
        f.ret()
        return self.module.define("small_lu", f)

    def _solve(self) -> str:
        return self.panels.solve(Triangle(True, False, True))

    def _factor_panel(self, f: Function, x: Ptr, pivots: Ptr, panel: Ptr, start: int, size: int) -> None:
        """Factors `size` columns from the diagonal down, and exchanges the rows of the other columns."""
        n, item = self.columns, self.item
        rows = x + start * n * item
        own = pivots + 4 * start
        if not start:  # no update
            f.call("memset", "ptr", [panel, f.constant("i32", 0), self.panel_bytes])
        f.call(self._panel(), "void", [rows + start * item, n, panel, own, self.rows - start, size])
        for first, count in ((0, start), (start + size, n - start - size)):
            if count:
                f.call(self._exchange(), "void", [rows + first * item, n, own, size, count])
        if start:
            with f.loop(0, size) as pivot:
                at = own.at(pivot.index, "i32")
                at.store(at.load("i32") + start)

    def _block(self, f: Function, x: Ptr, pivots: Ptr, panel: Ptr, start: int, size: int) -> None:
        """The steps start .. start + size - 1 of one matrix, those before it being made."""
        n, item, scratch = self.columns, self.item, buffer_address(f, "scratch")
        row = x + start * n * item
        rest = n - start - size
        update = panel + self.panel_bytes

        def multiply(rows: int, columns: int, first: int, result: Ptr, result_row: int) -> None:
            strides = (n, 1), (n, 1), (result_row, 1)
            problem = GemmProblem(self.type, self.type, (), rows, columns, start, *strides)
            right = x + first * item
            gemm_bytes = run_gemm(f, self.module, self.target, problem, row, right, result, scratch)
            self.scratch_bytes = max(self.scratch_bytes, gemm_bytes)

        if start:
            multiply(self.rows - start, size, start, panel, self.panel_row)
        self._factor_panel(f, x, pivots, panel, start, size)
        if rest:
            if start:
                multiply(size, rest, start + size, update, rest)
            buffers = row + start * item, row + (start + size) * item, update if start else f.null
            flops = size * size * rest * (4 if self.type.is_complex else 1)
            tasks = -(-rest // self.panels.width)
            run_phase(f, self._rows_kernel(size, rest, start > 0), buffers, tasks, flops / _FLOPS_PER_US)

    def _rows_kernel(self, size: int, rest: int, has_update: bool) -> str:
        """The rows of a block right of its panel: l x = x. A task is a panel of columns."""
        f, (factor, x, update) = phase(self.module, 3)
        width, n = self.panels.width, self.columns
        with f.loop(f.integer("low"), f.integer("high")) as task:
            offset = task.index * (width * self.item)
            columns = f.i64(width).minimum(rest - task.index * width)
            part = update + offset if has_update else f.null
            f.call(self._solve(), "void", [factor, n, 1, x + offset, n, part, rest, size, columns])
        f.ret()
        return self.module.define("lu_rows", f)

    # -- functions that are written once in a module

    def _permutation(self) -> str:
        """(pivots, permutation, steps, rows): the row of the matrix that each row of the factors comes from."""
        name = "lu_permutation"
        if self.module.has(name):
            return name
        f = Function(self.module, name, parameters("ptr pivots, ptr permutation, i64 steps, i64 rows"))
        pivots, permutation = f.pointers("pivots", "permutation")
        with f.loop(0, f.integer("rows")) as row:
            permutation.at(row.index, "i32").store(row.index.truncate("i32"))
        with f.loop(0, f.integer("steps")) as step:
            here = permutation.at(step.index, "i32")
            there = permutation.at(_pivot(f, pivots, step.index), "i32")
            one, other = here.load("i32"), there.load("i32")
            here.store(other)
            there.store(one)
        f.ret()
        return self.module.add(name, f.text())

    def _exchange(self) -> str:
        """(x, x row stride, pivots, steps, columns): exchanges each row k < steps with the row pivots[k]."""
        name = f"lu_exchange_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(self.module, name, parameters("ptr x, i64 x_row, ptr pivots, i64 steps, i64 columns"))
        scalar, (x, pivots) = ScalarType(f, self.type), f.pointers("x", "pivots")
        x_row, steps, columns = f.integers("x_row", "steps", "columns")
        with f.loop(0, steps) as step:
            pivot = _pivot(f, pivots, step.index)
            with f.if_(pivot.differs(step.index)):
                here, there = scalar.at(x, step.index * x_row), scalar.at(x, pivot * x_row)
                exchange(scalar, here, there, columns, self.panels.lanes)
        f.ret()
        return self.module.add(name, f.text())

    def _panel(self) -> str:
        """(a, a row stride, panel, pivots, rows, columns): factors a panel of `columns` <= `rows`, less the update
        first, which is in `panel`; there is room for a row more. What rows have beyond `columns` is not used.

        Column by column, each taken from those after it in whole vectors.
        """
        name = f"lu_panel_{self.type.value}_{self.panel_row}" + "_one_norm" * self.one_norm
        if self.module.has(name):
            return name
        listed = "ptr a, i64 a_row, ptr panel, ptr pivots, i64 rows, i64 columns"
        f = Function(self.module, name, parameters(listed))
        scalar, lanes = ScalarType(f, self.type), self.panels.lanes
        (a, panel), (a_row, rows, columns) = f.pointers("a", "panel"), f.integers("a_row", "rows", "columns")

        def at(i: Int, j: Int) -> Ptr:
            return scalar.at(panel, i * self.panel_row + j)

        with f.loop(0, rows) as row:

            def read(j: Int, count: int) -> None:
                value = scalar.load(scalar.at(a, row.index * a_row + j), count)
                value = scalar.subtract(value, scalar.load(at(row.index, j), count))
                scalar.store(value, at(row.index, j), count)

            along(f, columns, lanes, read)
        pivot_row = at(rows, f.i64(0))
        f.call("memset", "ptr", [pivot_row, f.constant("i32", 0), self.panel_row * self.item])
        with f.loop(0, columns) as step:
            self._step(f, scalar, step.index, at, pivot_row)
        with f.loop(0, rows) as row:

            def write(j: Int, count: int) -> None:
                scalar.store(scalar.load(at(row.index, j), count), scalar.at(a, row.index * a_row + j), count)

            along(f, columns, lanes, write)
        f.ret()
        return self.module.add(name, f.text())

    def _step(
        self, f: Function, scalar: ScalarType, j: Int, at: Callable[[Int, Int], Ptr], pivot_row: Ptr
    ) -> None:
        """Finds the pivot of column j, exchanges rows, divides the column, and takes it from the columns after it."""
        rows, columns = f.integers("rows", "columns")
        lanes = self.panels.lanes
        with f.loop(j + 1, rows, size=self._size(scalar.load(at(j, j))), pivot=j) as row:
            size = self._size(scalar.load(at(row.index, j)))
            is_larger = size > row.size
            row.size, row.pivot = is_larger.choose(size, row.size), is_larger.choose(row.index, row.pivot)
        f.pointer("pivots").at(j, "i32").store(row.pivot.truncate("i32"))
        with f.if_(row.pivot.differs(j)):
            here, there = at(j, f.i64(0)), at(row.pivot, f.i64(0))
            exchange(scalar, here, there, f.i64(self.panel_row), lanes)
        value = scalar.load(at(j, j))
        is_zero = value[0].equals(0)
        for part in value[1:]:
            is_zero = is_zero & part.equals(0)
        one = scalar.number(1)
        divisor = tuple(is_zero.choose(o, v) for o, v in zip(one, value))
        with f.loop(j + 1, columns) as column:
            scalar.store(scalar.load(at(j, column.index)), scalar.at(pivot_row, column.index))
        with f.loop(j + 1, rows) as row:
            factor = scalar.divide(scalar.load(at(row.index, j)), divisor)
            scalar.store(factor, at(row.index, j))
            factors = scalar.broadcast(factor, lanes)
            with f.loop(j + 1, columns, lanes) as vector:
                place = at(row.index, vector.index)
                change = scalar.load(scalar.at(pivot_row, vector.index), lanes)
                scalar.store(
                    scalar.multiply_subtract(scalar.load(place, lanes), factors, change), place, lanes
                )

    def _size(self, value: Number) -> VectorValue:
        """What pivots are chosen by."""
        if len(value) == 1:
            return abs(value[0])
        re, im = value
        return abs(re) + abs(im) if self.one_norm else hypot(re, im)


def _pivot(f: Function, pivots: Ptr, step: Int) -> Int:
    return Int.zero_extended(pivots.at(step, "i32").load("i32"))
