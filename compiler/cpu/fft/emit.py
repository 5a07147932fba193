"""The kernel of fft: axis after axis, each line (or some lines side by side) in scratch memory of its thread.

The kernel has one task, which runs phases on the thread pool. Lines along the last axis are transformed one by one,
those along another axis side by side, as many as lie together. A line that is too long for the cache is a matrix
of a * b elements: its columns are transformed, multiplied by roots of unity and written as rows of another matrix,
whose columns are transformed in turn. A real line of even length is a complex one of half the length, with a pass
over its numbers after or before; one of odd length is a complex line.

The inverse transform is the forward one with real and imaginary parts exchanged on the way in and out.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64
from ....runtime.llvm.target import Target
from ...ir.literal import Literal
from ...ir.module import Instruction
from ...ops import Fft
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import memory_type
from ..codegen.parallel_for import KERNEL_PARAMETERS, name_buffers, phase, run_phase
from .plan import Stage, Tables, chirp, halves, radices_of, roots, smooth_length, stages_of
from .stages import Stages

_ALIGN = 64
_FLOPS_PER_US = 4000.0
_SMALLEST_SIDE = 16  # of a long line's matrix


def emit_fft(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    """Writes the kernel."""
    return _Kernel(module, target, instruction).emit()


@dataclasses.dataclass(frozen=True)
class _Line:
    """How a line of n elements, `lanes` of them side by side, is transformed in planes of `elements` elements.

    The stages are those of n, or with a chirp those of the length of the convolution. chirp and kernel are tables.
    """

    n: int
    lanes: int
    elements: int
    stages: list[Stage]
    chirp: int = -1
    kernel: int = -1


class _Kernel:
    def __init__(self, module: ModuleText, target: Target, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, Fft)
        self.module, self.target, self.kind = module, target, op.fft_type
        self.source, self.result = instruction.operands[0].shape, instruction.shape
        self.complex = (
            self.result.element_type if self.result.element_type.is_complex else self.source.element_type
        )
        self.lengths = op.fft_length
        self.is_inverse = op.fft_type in ("IFFT", "IRFFT")
        self.part, self.item = memory_type(self.complex), self.complex.item_bytes
        self.vector = target.lanes(8 * self.item // 2)
        self.stages = Stages(module, self.complex, self.vector)
        self.tables = Tables(self.complex.real.dtype)
        self.scratch_bytes = self.shared_bytes = 0

    def emit(self) -> KernelPlan:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        if self.result.elements:
            self._phases()
        f.ret()
        elements = max(self.source.elements, self.result.elements)
        flops = int(5 * elements * math.log2(max(2, math.prod(self.lengths))))
        return KernelPlan(
            self.module.define("fft", f),
            1 if self.result.elements else 0,
            flops=flops,
            bytes=self.source.bytes + self.result.bytes,
            scratch_bytes=self.scratch_bytes,
            shared_bytes=self.shared_bytes,
            tables=(Literal(self.tables.array()),) if self.result.elements else (),
        )

    def _phases(self) -> None:
        """The driver: all axes in turn, the last one first except that an IRFFT has it last.

        Shared memory holds what an IRFFT makes of the other axes, then the matrix of a long line, then the packed
        form of a long real line.
        """
        f, rank = self.f, self.source.rank
        others = range(rank - 2, rank - 1 - len(self.lengths), -1)
        n, real = self.lengths[-1], self.kind in ("RFFT", "IRFFT")
        inner = n // 2 if real and n % 2 == 0 else n
        self.long = self._is_long(inner) and not (real and n % 2)
        self.places = [
            self._share(self.source.bytes if self.kind == "IRFFT" and len(others) else 0),
            self._share(inner * self.item if self.long else 0),
            self._share(inner * self.item if self.long and self.kind == "IRFFT" else 0),
        ]
        body: list[str] = []
        with f.redirected(body):
            f.start_block("phases")
            self._axes(others, n)
        f.block = "entry"
        name_buffers(
            f,
            {
                "source": True,
                "result": True,
                "scratch": self.scratch_bytes > 0,
                "shared": self.shared_bytes > 0,
                "tables": True,
            },
        )
        f.do("br label %phases")
        f.lines.extend(body)

    def _axes(self, others: range, n: int) -> None:
        dims = self.source.dims
        given, made = Value("ptr", "%at_source"), Value("ptr", "%at_result")
        if self.kind == "IRFFT":
            between = given
            for axis in others:
                shared = self._shared(0)
                self._columns(between, shared, dims, axis)
                between = shared
            self._rows(between, made, n, math.prod(dims[:-1]))
        else:
            self._rows(given, made, n, math.prod(dims[:-1]))
            for axis in others:
                self._columns(made, made, self.result.dims, axis)

    def _share(self, size: int) -> int:
        place = self.shared_bytes
        self.shared_bytes += -(-size // _ALIGN) * _ALIGN
        return place

    def _shared(self, number: int) -> Value:
        return self.f.offset(Value("ptr", "%at_shared"), self.places[number])

    def _is_long(self, n: int) -> bool:
        """Whether a line is transformed as a matrix: its planes, twice, do not fit in half the second cache."""
        return (
            4 * n * self.item > self.target.l2_bytes
            and radices_of(n) is not None
            and halves(n)[0] >= _SMALLEST_SIDE
        )

    # -- phases
    def _launch(self, kernel: Function, source: Value, target: Value, tasks: int, n: int, lines: int) -> None:
        """Runs a phase on a table of its buffers; n and lines say how much work it is."""
        f = self.f
        symbol = self.module.define("fft_phase", kernel)
        pointers = (source, target, Value("ptr", "%at_scratch"), Value("ptr", "%at_tables"))
        run_phase(f, symbol, pointers, tasks, 5 * n * lines * math.log2(n + 1) / _FLOPS_PER_US)

    def _line(self, n: int, lanes: int) -> _Line:
        radices = radices_of(n)
        if radices is not None:
            return _Line(n, lanes, n * lanes, stages_of(radices, lanes, self.vector, self.tables))
        length = smooth_length(2 * n - 1)
        factors, kernel = chirp(n, length)
        radices = radices_of(length)
        assert radices is not None
        return _Line(
            n,
            lanes,
            length * lanes,
            stages_of(radices, lanes, self.vector, self.tables),
            self.tables.pairs(factors),
            self.tables.pairs(kernel),
        )

    def _planes(self, f: Function, scratch: Value, line: _Line, more: int = 0) -> tuple[list[Value], Value]:
        """Four planes in the thread's scratch memory, and `more` bytes after them."""
        size = -(-line.elements * self.item // 2 // _ALIGN) * _ALIGN + _ALIGN
        used = 4 * size + -(-more // _ALIGN) * _ALIGN
        self.scratch_bytes = max(self.scratch_bytes, used)
        own = f.offset(scratch, f.mul(f["thread"], used))
        return [f.offset(own, k * size) for k in range(4)], f.offset(own, 4 * size)

    def _columns(self, source: Value, target: Value, dims: tuple[int, ...], axis: int) -> None:
        """Transforms the lines along an axis, side by side."""
        outer, n, inner = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
        kernel, tasks = self._column_kernel(
            n, inner, outer, self.is_inverse, self.is_inverse, 1.0 / n if self.is_inverse else 1.0
        )
        self._launch(kernel, source, target, tasks, n, outer * inner)

    def _column_kernel(
        self, n: int, inner: int, outer: int, swaps: bool, swaps_back: bool, scale: float
    ) -> tuple[Function, int]:
        f, (source, target, scratch, tables) = phase(self.module, 4)
        width = min(
            inner,
            2 * self.vector if n * 32 * self.vector * self.item // 4 <= self.target.l2_bytes else self.vector,
        )
        line = self._line(n, width)
        planes, _ = self._planes(f, scratch, line)
        blocks = -(-inner // width)

        def task(t: Value, _: list[Value]) -> None:
            column = f.mul(f.remainder(t, blocks), width)
            count = f.minimum(width, f.sub(inner, column))
            at = f.mul(f.add(f.mul(f.divide(t, blocks), n * inner), column), self.item)
            self._load(f, f.offset(source, at), planes, n, inner, count, width, swaps)
            found = self._transform(f, line, planes, tables)
            self._store(f, found, f.offset(target, at), n, inner, count, width, swaps_back, scale)

        f.loop(f["low"], f["high"], 1, task)
        f.ret()
        return f, outer * blocks

    def _rows(self, source: Value, target: Value, n: int, rows: int) -> None:
        """Transforms the lines along the last axis."""
        given, made = (rows and shape.bytes // rows for shape in (self.source, self.result))
        if not self.long:
            self._launch(self._row_kernel(n, given, made), source, target, rows, n, rows)
            return
        f = self.f

        def row(r: Value, _: list[Value]) -> None:
            self._long_row(f.offset(source, f.mul(r, given)), f.offset(target, f.mul(r, made)), n)

        f.loop(0, rows, 1, row)

    def _row_kernel(self, n: int, given: int, made: int) -> Function:
        """A task is a line; given and made are the bytes of one."""
        f, (source, target, scratch, tables) = phase(self.module, 4)
        real, half = self.kind in ("RFFT", "IRFFT"), n // 2
        is_half = real and n % 2 == 0
        size = half if is_half else n
        line = self._line(size, 1)
        planes, packed = self._planes(f, scratch, line, half * self.item if is_half else 0)
        table = self._half_table(f, tables, n) if is_half else tables
        scale = 1.0 / size if self.is_inverse else 1.0
        number = constant(self.part, scale)

        def task(t: Value, _: list[Value]) -> None:
            x, y = f.offset(source, f.mul(t, given)), f.offset(target, f.mul(t, made))
            if self.kind == "IRFFT" and is_half:
                f.call(self.stages.pack(), "void", [x, packed, table, i64(half)])
                x = packed
            if real and not is_half and self.kind == "RFFT":
                f.call("memcpy", "ptr", [planes[0], x, i64(given)])
                f.call("memset", "ptr", [planes[1], constant("i32", 0), i64(given)])
            elif real and not is_half:
                f.call(self.stages.expand(), "void", [x, planes[1], planes[0], i64(n)])
            else:
                self._load(f, x, planes, 1, 0, size, 0, self.is_inverse)
            found = self._transform(f, line, planes, tables)
            if self.kind == "IRFFT" and not is_half:
                f.call(self.stages.copy_real(), "void", [found[1], y, i64(n), number])
                return
            kept = n // 2 + 1 if real and not is_half else size
            self._store(f, found, y, 1, 0, kept, 0, self.is_inverse, scale)
            if self.kind == "RFFT" and is_half:
                f.call(self.stages.unpack(), "void", [y, table, i64(half)])

        f.loop(f["low"], f["high"], 1, task)
        f.ret()
        return f

    def _half_table(self, f: Function, tables: Value, n: int) -> Value:
        return f.offset(tables, self.tables.pairs(roots(np.arange(n // 4 + 1), n)), self.part)

    def _long_row(self, source: Value, target: Value, n: int) -> None:
        """One line as a matrix, in two phases; real ones of even length as complex ones of half of it."""
        f, tables = self.f, Value("ptr", "%at_tables")
        is_half = self.kind in ("RFFT", "IRFFT") and n % 2 == 0
        size = n // 2 if is_half else n
        if is_half and self.kind == "IRFFT":
            f.call(
                self.stages.pack(),
                "void",
                [source, self._shared(2), self._half_table(f, tables, n), i64(size)],
            )
            source = self._shared(2)
        a, b = halves(size)
        kernel, tasks = self._first_kernel(a, b)
        self._launch(kernel, source, self._shared(1), tasks, a, b)
        scale = 1.0 / size if self.is_inverse else 1.0
        kernel, tasks = self._column_kernel(b, a, 1, False, self.is_inverse, scale)
        self._launch(kernel, self._shared(1), target, tasks, b, a)
        if is_half and self.kind == "RFFT":
            f.call(self.stages.unpack(), "void", [target, self._half_table(f, tables, n), i64(size)])

    def _first_kernel(self, a: int, b: int) -> tuple[Function, int]:
        """The columns of a matrix [a, b], times roots of unity, to the rows of [b, a]. A task is some columns."""
        f, (source, target, scratch, tables) = phase(self.module, 4)
        width = min(b, 2 * self.vector)
        line = self._line(a, width)
        planes, _ = self._planes(f, scratch, line)
        blocks, n = -(-b // width), a * b
        rows = np.arange(a)
        first = self.tables.pairs(roots(np.outer(rows, np.arange(blocks) * width), n))
        second = self.tables.pairs(roots(np.outer(rows, np.arange(width)), n))

        def task(t: Value, _: list[Value]) -> None:
            column = f.mul(t, width)
            count = f.minimum(width, f.sub(b, column))
            self._load(
                f, f.offset(source, f.mul(column, self.item)), planes, a, b, count, width, self.is_inverse
            )
            found = self._transform(f, line, planes, tables)
            row = f.offset(f.offset(tables, first, self.part), f.mul(t, self.item))
            f.call(
                self.stages.twist(),
                "void",
                [*found, row, f.offset(tables, second, self.part), i64(a), i64(width), i64(blocks)],
            )
            f.call(
                self.stages.store_transposed(),
                "void",
                [*found, f.offset(target, f.mul(column, a * self.item)), i64(a), i64(count), i64(width)],
            )

        f.loop(f["low"], f["high"], 1, task)
        f.ret()
        return f, blocks

    # -- one line
    def _load(
        self,
        f: Function,
        source: Value,
        planes: list[Value],
        rows: int,
        stride: int,
        count: Value | int,
        width: int,
        swaps: bool,
    ) -> None:
        into = [planes[1], planes[0]] if swaps else planes[:2]
        f.call(self.stages.load(), "void", [source, *into, i64(rows), i64(stride), i64(count), i64(width)])

    def _store(
        self,
        f: Function,
        found: list[Value],
        target: Value,
        rows: int,
        stride: int,
        count: Value | int,
        width: int,
        swaps: bool,
        scale: float,
    ) -> None:
        f.call(
            self.stages.store(),
            "void",
            [
                *(found[::-1] if swaps else found),
                target,
                i64(rows),
                i64(stride),
                i64(count),
                i64(width),
                constant(self.part, scale),
            ],
        )

    def _transform(self, f: Function, line: _Line, planes: list[Value], tables: Value) -> list[Value]:
        """Transforms what lies in the first two planes; returns those where the result lies."""
        if line.chirp < 0:
            return self._run_stages(f, line, planes, tables)[:2]
        scale = functools.partial(f.call, self.stages.scale_rows(line.lanes == 1), "void")
        first = f.offset(tables, line.chirp, self.part)
        used = line.n * line.lanes * self.item // 2
        scale([*planes[:2], first, i64(line.n), i64(line.lanes)])
        for plane in planes[:2]:
            f.call(
                "memset",
                "ptr",
                [f.offset(plane, used), constant("i32", 0), i64(line.elements * self.item // 2 - used)],
            )
        re, im, *other = self._run_stages(f, line, planes, tables)
        rows = line.elements // line.lanes
        scale([re, im, f.offset(tables, line.kernel, self.part), i64(rows), i64(line.lanes)])
        im, re, *_ = self._run_stages(f, line, [im, re, *other], tables)
        scale([re, im, first, i64(line.n), i64(line.lanes)])
        return [re, im]

    def _run_stages(self, f: Function, line: _Line, planes: list[Value], tables: Value) -> list[Value]:
        """Returns the planes, those with the result first."""
        for stage in line.stages:
            name = self.stages.stage(stage.radix, stage.vector, stage.by_rows, stage.m == 1)
            table = f.offset(tables, stage.table, self.part) if stage.table >= 0 else tables
            f.call(name, "void", [*planes, table, i64(stage.m), i64(stage.stride)])
            planes = [*planes[2:], *planes[:2]]
        return planes
