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
import math

import numpy as np

from ....runtime.llvm.ir_builder import Function, Index, ModuleText, Ptr
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate
from ...ir.literal import Literal
from ...ir.module import Instruction
from ...ops import Fft
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type
from ..codegen.parallel_for import KERNEL_PARAMETERS, buffer_address, phase, phases, run_phase
from .plan import Stage, Tables, chirp, halves, radices_of, roots, smooth_length, stages_of
from .stages import Stages

_ALIGN = 64
_FLOPS_PER_US = 4000.0
_SMALLEST_SIDE = 16  # of a long line's matrix


def emit_fft(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelInfo:
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

    def emit(self) -> KernelInfo:
        f = self.f = Function(self.module, "SELF", KERNEL_PARAMETERS)
        if self.result.elements:
            self._phases()
        f.ret()
        elements = max(self.source.elements, self.result.elements)
        flops = int(5 * elements * math.log2(max(2, math.prod(self.lengths))))
        return KernelInfo(
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
        self.shared_offsets = [
            self._share(self.source.bytes if self.kind == "IRFFT" and len(others) else 0),
            self._share(inner * self.item if self.long else 0),
            self._share(inner * self.item if self.long and self.kind == "IRFFT" else 0),
        ]
        with phases(f, self._buffers):
            self._axes(others, n)

    def _buffers(self) -> dict[str, bool]:
        return {
            "source": True,
            "result": True,
            "scratch": self.scratch_bytes > 0,
            "shared": self.shared_bytes > 0,
            "tables": True,
        }

    def _axes(self, others: range, n: int) -> None:
        dims = self.source.dims
        source, result = buffer_address(self.f, "source"), buffer_address(self.f, "result")
        if self.kind == "IRFFT":
            between = source
            for axis in others:
                shared = self._shared(0)
                self._columns(between, shared, dims, axis)
                between = shared
            self._rows(between, result, n, math.prod(dims[:-1]))
        else:
            self._rows(source, result, n, math.prod(dims[:-1]))
            for axis in others:
                self._columns(result, result, self.result.dims, axis)

    def _share(self, size: int) -> int:
        offset = self.shared_bytes
        self.shared_bytes += -(-size // _ALIGN) * _ALIGN
        return offset

    def _shared(self, number: int) -> Ptr:
        return buffer_address(self.f, "shared") + self.shared_offsets[number]

    def _is_long(self, n: int) -> bool:
        """Whether a line is transformed as a matrix: its planes, twice, do not fit in half the second cache."""
        return (
            4 * n * self.item > self.target.l2_bytes
            and radices_of(n) is not None
            and halves(n)[0] >= _SMALLEST_SIDE
        )

    # -- phases
    def _launch(self, kernel: Function, source: Ptr, target: Ptr, tasks: int, n: int, lines: int) -> None:
        """Runs a phase on a table of its buffers; n and lines say how much work it is."""
        f = self.f
        symbol = self.module.define("fft_phase", kernel)
        pointers = (source, target, buffer_address(self.f, "scratch"), buffer_address(self.f, "tables"))
        run_phase(f, symbol, pointers, tasks, 5 * n * estimate(lines) * math.log2(n + 1) / _FLOPS_PER_US)

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

    def _planes(self, f: Function, scratch: Ptr, line: _Line, more: int = 0) -> tuple[list[Ptr], Ptr]:
        """Four planes in the thread's scratch memory, and `more` bytes after them."""
        size = -(-line.elements * self.item // 2 // _ALIGN) * _ALIGN + _ALIGN
        used = 4 * size + -(-more // _ALIGN) * _ALIGN
        self.scratch_bytes = max(self.scratch_bytes, used)
        own = scratch + f.integer("thread") * used
        return [own + k * size for k in range(4)], own + 4 * size

    def _columns(self, source: Ptr, target: Ptr, dims: tuple[int, ...], axis: int) -> None:
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

        with f.loop(f.integer("low"), f.integer("high")) as task:
            column = task.index % blocks * width
            count = f.i64(width).minimum(inner - column)
            at = (task.index // blocks * (n * inner) + column) * self.item
            self._load(f, source + at, planes, n, inner, count, width, swaps)
            outputs = self._transform(f, line, planes, tables)
            self._store(f, outputs, target + at, n, inner, count, width, swaps_back, scale)
        f.ret()
        return f, outer * blocks

    def _rows(self, source: Ptr, target: Ptr, n: int, rows: int) -> None:
        """Transforms the lines along the last axis."""
        source_bytes, result_bytes = (rows and shape.bytes // rows for shape in (self.source, self.result))
        if not self.long:
            self._launch(self._row_kernel(n, source_bytes, result_bytes), source, target, rows, n, rows)
            return
        with self.f.loop(0, rows) as row:
            self._long_row(source + row.index * source_bytes, target + row.index * result_bytes, n)

    def _row_kernel(self, n: int, source_bytes: int, result_bytes: int) -> Function:
        """A task is a line; source_bytes and result_bytes are the bytes of one."""
        f, (source, target, scratch, tables) = phase(self.module, 4)
        real, half = self.kind in ("RFFT", "IRFFT"), n // 2
        is_half = real and n % 2 == 0
        size = half if is_half else n
        line = self._line(size, 1)
        planes, packed = self._planes(f, scratch, line, half * self.item if is_half else 0)
        table = self._half_table(tables, n) if is_half else tables
        scale = 1.0 / size if self.is_inverse else 1.0
        with f.loop(f.integer("low"), f.integer("high")) as task:
            x, y = source + task.index * source_bytes, target + task.index * result_bytes
            if self.kind == "IRFFT" and is_half:
                f.call(self.stages.pack(), "void", [x, packed, table, half])
                x = packed
            if real and not is_half and self.kind == "RFFT":
                f.call("memcpy", "ptr", [planes[0], x, source_bytes])
                f.call("memset", "ptr", [planes[1], f.constant("i32", 0), source_bytes])
            elif real and not is_half:
                f.call(self.stages.expand(), "void", [x, planes[1], planes[0], n])
            else:
                self._load(f, x, planes, 1, 0, size, 0, self.is_inverse)
            outputs = self._transform(f, line, planes, tables)
            if self.kind == "IRFFT" and not is_half:
                f.call(self.stages.copy_real(), "void", [outputs[1], y, n, f.constant(self.part, scale)])
            else:
                count = n // 2 + 1 if real and not is_half else size
                self._store(f, outputs, y, 1, 0, count, 0, self.is_inverse, scale)
            if self.kind == "RFFT" and is_half:
                f.call(self.stages.unpack(), "void", [y, table, half])
        f.ret()
        return f

    def _half_table(self, tables: Ptr, n: int) -> Ptr:
        return tables.at(self.tables.pairs(roots(np.arange(n // 4 + 1), n)), self.part)

    def _long_row(self, source: Ptr, target: Ptr, n: int) -> None:
        """One line as a matrix, in two phases; real ones of even length as complex ones of half of it."""
        f, tables = self.f, buffer_address(self.f, "tables")
        is_half = self.kind in ("RFFT", "IRFFT") and n % 2 == 0
        size = n // 2 if is_half else n
        if is_half and self.kind == "IRFFT":
            f.call(self.stages.pack(), "void", [source, self._shared(2), self._half_table(tables, n), size])
            source = self._shared(2)
        a, b = halves(size)
        kernel, tasks = self._first_kernel(a, b)
        self._launch(kernel, source, self._shared(1), tasks, a, b)
        scale = 1.0 / size if self.is_inverse else 1.0
        kernel, tasks = self._column_kernel(b, a, 1, False, self.is_inverse, scale)
        self._launch(kernel, self._shared(1), target, tasks, b, a)
        if is_half and self.kind == "RFFT":
            f.call(self.stages.unpack(), "void", [target, self._half_table(tables, n), size])

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

        with f.loop(f.integer("low"), f.integer("high")) as task:
            column = task.index * width
            count = f.i64(width).minimum(b - column)
            self._load(f, source + column * self.item, planes, a, b, count, width, self.is_inverse)
            outputs = self._transform(f, line, planes, tables)
            row = tables.at(first, self.part) + task.index * self.item
            f.call(
                self.stages.twiddle(),
                "void",
                [*outputs, row, tables.at(second, self.part), a, width, blocks],
            )
            result = target + column * (a * self.item)
            f.call(self.stages.store_transposed(), "void", [*outputs, result, a, count, width])
        f.ret()
        return f, blocks

    # -- one line
    def _load(
        self,
        f: Function,
        source: Ptr,
        planes: list[Ptr],
        rows: int,
        stride: int,
        count: Index,
        width: int,
        swaps: bool,
    ) -> None:
        into = [planes[1], planes[0]] if swaps else planes[:2]
        f.call(self.stages.load(), "void", [source, *into, rows, stride, count, width])

    def _store(
        self,
        f: Function,
        outputs: list[Ptr],
        target: Ptr,
        rows: int,
        stride: int,
        count: Index,
        width: int,
        swaps: bool,
        scale: float,
    ) -> None:
        planes, factor = outputs[::-1] if swaps else outputs, f.constant(self.part, scale)
        f.call(self.stages.store(), "void", [*planes, target, rows, stride, count, width, factor])

    def _transform(self, f: Function, line: _Line, planes: list[Ptr], tables: Ptr) -> list[Ptr]:
        """Transforms what lies in the first two planes; returns those where the result lies."""
        if line.chirp < 0:
            return self._run_stages(f, line, planes, tables)[:2]
        scale = self.stages.scale_rows(line.lanes == 1)
        first = tables.at(line.chirp, self.part)
        used = line.n * line.lanes * self.item // 2
        f.call(scale, "void", [*planes[:2], first, line.n, line.lanes])
        for plane in planes[:2]:
            rest = line.elements * self.item // 2 - used
            f.call("memset", "ptr", [plane + used, f.constant("i32", 0), rest])
        re, im, *other = self._run_stages(f, line, planes, tables)
        rows = line.elements // line.lanes
        f.call(scale, "void", [re, im, tables.at(line.kernel, self.part), rows, line.lanes])
        im, re, *_ = self._run_stages(f, line, [im, re, *other], tables)
        f.call(scale, "void", [re, im, first, line.n, line.lanes])
        return [re, im]

    def _run_stages(self, f: Function, line: _Line, planes: list[Ptr], tables: Ptr) -> list[Ptr]:
        """Returns the planes, those with the result first."""
        for stage in line.stages:
            name = self.stages.stage(stage.radix, stage.vector, stage.by_rows, stage.m == 1)
            table = tables.at(stage.table, self.part) if stage.table >= 0 else tables
            f.call(name, "void", [*planes, table, stage.m, stage.stride])
            planes = [*planes[2:], *planes[:2]]
        return planes
