"""The kernel of cholesky: block column after block column of a lower triangle.

What the columns before contribute to a block column is one matrix product; then the block on the diagonal is factored
and the blocks below it solved for. The upper factor is the adjoint of the lower one of the adjoint, which is made and
undone in memory of its own. Small matrices are one block each, many at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...ops import Cholesky
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS, name_buffers, phase, run_phase
from ..gemm.emit import GemmProblem
from .multi_rhs import Strips, Triangle, conjugate_copy
from .real_or_complex import Field
from .triangular_solve import BLOCK, run_product

_NULL = Value("ptr", "null")
_FLOPS_PER_US = 4000.0
_ALIGN = 64


def emit_cholesky(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
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
        self.strips = Strips(module, target, self.type)
        self.item = self.type.item_bytes
        self.matrix_bytes = -(-self.n * self.n * self.item // _ALIGN) * _ALIGN
        self.local_bytes = BLOCK * (BLOCK + 1) * self.item + _ALIGN
        self.scratch_bytes = 0
        self.flops = self.batch * self.n**3 // 3 * (4 if self.type.is_complex else 1)

    def emit(self) -> KernelPlan:
        f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        has_work = self.batch * self.n > 0
        shared = 0
        if has_work:
            body: list[str] = []
            with f.redirected(body):
                f.start_block("phases")
                shared = self._matrices(f)
            f.block = "entry"
            name_buffers(f, {"x": True, "scratch": self.scratch_bytes > 0, "shared": shared > 0})
            f.do("br label %phases")
            f.lines.extend(body)
        f.ret()
        return KernelPlan(
            self.module.define("cholesky", f),
            int(has_work),
            scratch_bytes=self.scratch_bytes,
            shared_bytes=shared,
            flops=self.flops,
            bytes=self.bytes,
            initial=((0, 0),),
        )

    def _matrices(self, f: Function) -> int:
        """Writes the phases; returns the bytes of shared memory: a block column's product, conjugates, the adjoint."""
        x, scratch = Value("ptr", "%at_x"), Value("ptr", "%at_scratch")
        if self.n <= BLOCK:
            run_phase(f, self._small_kernel(), (x, scratch), self.batch, self.flops / _FLOPS_PER_US)
            return 0
        panel_bytes = -(-BLOCK * self.n * self.item // _ALIGN) * _ALIGN
        product, panel, adjoint = (f.offset(Value("ptr", "%at_shared"), k * panel_bytes) for k in range(3))

        def matrix(number: Value, _: list[Value]) -> None:
            result = f.offset(x, f.mul(number, self.n * self.n * self.item))
            work = result
            if not self.lower:
                work = adjoint
                f.call(self.strips.adjoint(), "void", [result, work, i64(self.n)])
            for start in range(0, self.n, BLOCK):
                self._block(f, work, product, panel, start, min(BLOCK, self.n - start))
            if not self.lower:
                f.call(self.strips.adjoint(), "void", [work, result, i64(self.n)])
            self._clear(f, result)

        f.loop(0, self.batch, 1, matrix)
        return 2 * panel_bytes + (0 if self.lower else self.matrix_bytes)

    def _small_kernel(self) -> str:
        """A task is a matrix."""
        f, (x, scratch) = phase(self.module, 2)
        own_bytes = self.local_bytes + (0 if self.lower else self.matrix_bytes)
        self.scratch_bytes = max(self.scratch_bytes, own_bytes)

        def task(t: Value, _: list[Value]) -> None:
            local = f.offset(scratch, f.mul(f["thread"], own_bytes))
            result = work = f.offset(x, f.mul(t, self.n * self.n * self.item))
            if not self.lower:
                work = f.offset(local, self.local_bytes)
                f.call(self.strips.adjoint(), "void", [result, work, i64(self.n)])
            f.call(self._factor(), "void", [work, i64(self.n), _NULL, i64(0), local, i64(self.n)])
            if not self.lower:
                f.call(self.strips.adjoint(), "void", [work, result, i64(self.n)])
            self._clear(f, result)

        f.loop(f["low"], f["high"], 1, task)
        f.ret()
        return self.module.define("small_cholesky", f)

    def _clear(self, f: Function, matrix: Value) -> None:
        """Zeros in the other triangle."""

        def row(i: Value, _: list[Value]) -> None:
            at = f.mul(i, self.n * self.item)
            if self.lower:
                at = f.add(at, f.mul(f.add(i, 1), self.item))
            count = f.sub(self.n - 1, i) if self.lower else i
            f.call("memset", "ptr", [f.offset(matrix, at), constant("i32", 0), i64(f.mul(count, self.item))])

        f.loop(0, self.n, 1, row)

    def _block(self, f: Function, work: Value, product: Value, panel: Value, start: int, size: int) -> None:
        """Factors block column start .. start + size - 1, those before it being factored."""
        n, item, scratch = self.n, self.item, Value("ptr", "%at_scratch")
        rows = n - start
        row = f.offset(work, start * n * item)
        here = f.offset(row, start * item)
        if start:
            problem = GemmProblem(self.type, self.type, (), rows, size, start, (n, 1), (1, n), (size, 1))
            other = row
            if self.type.is_complex:
                f.call(conjugate_copy(self.module, self.strips), "void", [row, panel, i64(size * n)])
                other = panel
            needed = run_product(f, self.module, self.target, problem, row, other, product, scratch)
            self.scratch_bytes = max(self.scratch_bytes, needed)
        self.scratch_bytes = max(self.scratch_bytes, self.local_bytes)
        f.call(
            self._factor(), "void", [here, i64(n), product if start else _NULL, i64(size), scratch, i64(size)]
        )
        below = rows - size
        if below:
            update = f.offset(product, size * size * item) if start else _NULL
            tasks = -(-below // self.strips.width)
            microseconds = below * size * size * (4 if self.type.is_complex else 1) / _FLOPS_PER_US
            buffers = here, f.offset(here, size * n * item), update, scratch
            run_phase(f, self._panel_kernel(below, size, start > 0), buffers, tasks, microseconds)

    def _panel_kernel(self, below: int, size: int, has_update: bool) -> str:
        """Rows below the diagonal: x L^H = x. A task is a strip of them."""
        f, (factor, x, update, scratch) = phase(self.module, 4)
        width = self.strips.width
        strip_bytes = size * width * self.item
        self.scratch_bytes = max(self.scratch_bytes, strip_bytes)
        solve = self.strips.solve(Triangle(True, self.type.is_complex, False))

        def task(t: Value, _: list[Value]) -> None:
            start = f.mul(t, width)
            some = i64(f.minimum(width, f.sub(below, start)))
            strip = f.offset(scratch, f.mul(f["thread"], strip_bytes))
            here = f.offset(x, f.mul(start, self.n * self.item))
            given = f.offset(update, f.mul(start, size * self.item)) if has_update else _NULL
            f.call(
                self.strips.gather(), "void", [here, i64(self.n), given, i64(size), strip, i64(size), some]
            )
            f.call(
                solve,
                "void",
                [factor, i64(self.n), i64(1), strip, i64(width), _NULL, i64(0), i64(size), some],
            )
            f.call(self.strips.scatter(), "void", [here, i64(self.n), strip, i64(size), some])

        f.loop(f["low"], f["high"], 1, task)
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
        f = Function(
            self.module,
            name,
            [
                ("ptr", "a"),
                ("i64", "a_row"),
                ("ptr", "update"),
                ("i64", "update_row"),
                ("ptr", "local"),
                ("i64", "n"),
            ],
        )
        field, n, lanes = Field(f, self.type), f["n"], self.strips.lanes
        column = f.offset(f["local"], BLOCK * BLOCK * self.item)

        def own(i: Value | int, j: Value | int) -> Value:
            return field.at(f["local"], f.add(f.mul(i, BLOCK), j))

        def lower(body: Callable[[Value, Value], None]) -> None:
            f.loop(0, n, 1, lambda i, _: f.loop(0, f.add(i, 1), 1, lambda j, _: body(i, j)) and None)

        def copy(i: Value, j: Value) -> None:
            field.store(field.load(field.at(f["a"], f.add(f.mul(i, f["a_row"]), j))), own(i, j))

        def less(i: Value, j: Value) -> None:
            given = field.load(field.at(f["update"], f.add(f.mul(i, f["update_row"]), j)))
            field.store(field.subtract(field.load(own(i, j)), given), own(i, j))

        def back(i: Value, j: Value) -> None:
            field.store(field.load(own(i, j)), field.at(f["a"], f.add(f.mul(i, f["a_row"]), j)))

        def step(j: Value, _: list[Value]) -> None:
            root = field.load(own(j, j))[0].sqrt()
            zero = field.number(0)
            field.store((root, *zero[1:]), own(j, j))
            field.store(zero, field.at(column, j))
            inverse = root.number(1) / root

            def scale(i: Value, _: list[Value]) -> None:
                value = tuple(part * inverse for part in field.load(own(i, j)))
                field.store(value, own(i, j))
                field.store(field.conjugate(value), field.at(column, i))

            f.loop(f.add(j, 1), n, 1, scale)
            first = f.mul(f.divide(f.add(j, 1), lanes), lanes)

            def row(i: Value, _: list[Value]) -> None:
                factor = field.spread(field.load(own(i, j)), lanes)

                def run(c: Value, _: list[Value]) -> None:
                    value = field.minus_product(
                        field.load(own(i, c), lanes), factor, field.load(field.at(column, c), lanes)
                    )
                    field.store(value, own(i, c), lanes)

                f.loop(first, f.add(i, 1), lanes, run)

            f.loop(f.add(j, 1), n, 1, row)

        lower(copy)
        f.branch(f.compare("icmp ne", f["update"], _NULL), lambda: lower(less))
        f.call("memset", "ptr", [column, constant("i32", 0), i64(BLOCK * self.item)])
        f.loop(0, n, 1, step)
        lower(back)
        f.ret()
        return self.module.add(name, f.text())
