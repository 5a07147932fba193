"""Convolution with fewer output features than a vector has lanes: images of one or three colours, masks, heat maps.

With output features as the columns of a GEMM, most lanes would be idle. Here the columns are window elements and output
features together: one GEMM computes the contribution of every input position to every output position that sees it.
An output position then sums its contributions. Holes (input that is dilated for a backward pass or an upsampling
convolution) cost nothing, and nothing is multiplied twice.
"""

from __future__ import annotations

import dataclasses

from ....runtime.llvm.ir_builder import (
    Function,
    Int,
    ModuleText,
    Ptr,
    VectorValue,
    vector_type,
)
from ....runtime.llvm.target import Target
from ....runtime.sizes import Size, ceiling, is_symbolic, larger, maximum, minimum, smaller, surely_less
from ...analysis.convolution_problem import Axis, ConvolutionProblem, axes_of, positions_of
from ...analysis.gemm_problem import GemmProblem
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, compute_of, lanes_of
from ..gemm.emit import emit_gemm
from ..gemm.tasks import TASK_US
from .blocking import scratch_layout, serial_microseconds
from .kernel import (
    buffer,
    call_epilogue,
    kernel_plan,
    positions_along,
    scratch_of_thread,
)

MIN_INPUT_FEATURES = 8  # with fewer, the sums cost as much as the GEMM
MAX_PHASES, MAX_WINDOW = 4, 16  # along the last axis, whose window elements are unrolled
MIN_SPEEDUP = 1.3  # of the GEMM over the other form, that pays for the sums
_TRIVIAL = Axis(1, 1, 1, 1, 0, 1, 1, 0, 0, 0)


def emit_small_output_channels(
    module: ModuleText, target: Target, problem: ConvolutionProblem, bytes_: int, epilogue: str | None
) -> KernelInfo | None:
    """Writes the kernel; None where another form is better. The view of the epilogue is [1, positions, features]."""
    axes = _axes(problem, target)
    if axes is None:
        return None
    kernel = _SmallOutputChannels(module, target, problem, *axes, epilogue)
    kernel.write()
    microseconds = serial_microseconds(problem, target)
    return kernel_plan(
        kernel.f, "convolution", target, problem, kernel.tasks, microseconds, bytes_, kernel.scratch_bytes
    )


def _axes(problem: ConvolutionProblem, target: Target) -> tuple[tuple[Axis, ...], Axis, Axis] | None:
    """(plain axes, line axis, axis along a line), where this form computes the convolution and is the better one."""
    compute = compute_of(problem.input_type, problem.result_type, problem.quads)
    if (
        compute not in ("f32", "f64")
        or problem.input_type is not problem.result_type
        or problem.kernel_type is not problem.input_type
        or problem.groups > 1
        or (problem.input_feature, problem.output_feature) != (1, 1)
        or problem.in_channels < MIN_INPUT_FEATURES
        or problem.batch * problem.positions == 0
        or is_symbolic(
            [problem.out_channels, problem.window, *(a.pad for a in problem.axes if a.base_dilation > 1)]
        )
    ):
        return None
    lanes = lanes_of(target, compute)
    axes = axes_of(problem)
    x, outer = axes[-1], axes[:-1]
    y = outer[-1] if outer and not outer[-1].is_plain else _TRIVIAL
    planes = outer if y is _TRIVIAL else outer[:-1]
    if (
        problem.out_channels > max(1, lanes // 2)
        or any(a.stride != 1 for a in axes)
        or not all(a.is_plain for a in planes)
        or not 1 <= x.window <= MAX_WINDOW
        or y.window < 1
        or x.base_dilation > MAX_PHASES
        or any(surely_less(a.input, 1) for a in (x, y))
    ):
        return None
    taps = x.window * y.window
    columns = -(-taps * problem.out_channels // lanes) * lanes
    other_work = x.output * y.output * (taps / (x.base_dilation * y.base_dilation)) * lanes
    return (planes, y, x) if other_work > MIN_SPEEDUP * x.input * y.input * columns else None


class _SmallOutputChannels:
    """Writes the kernel. A task is some lines of one plane. The contributions of input lines are kept in a ring of
    `ring` lines, as positions of `row` elements: window elements, slowest first, then features."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        problem: ConvolutionProblem,
        planes: tuple[Axis, ...],
        y: Axis,
        x: Axis,
        epilogue: str | None,
    ) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.problem, self.planes, self.y, self.x, self.epilogue = problem, planes, y, x, epilogue
        compute = compute_of(problem.input_type, problem.result_type, problem.quads) or ""
        self.type = COMPUTE_TYPES[compute]
        self.size = SIZES[self.type]
        self.lanes = 1 << (problem.out_channels - 1).bit_length()
        self.columns = y.window * x.window * problem.out_channels
        self.row = -(-(self.columns + self.lanes) // 16) * 16
        self.ring = (y.window - 1) * y.window_dilation // y.base_dilation + 1
        self.gemm = self._emit_gemm(module, target)
        images, self.shares, self.lines = self._plan_tasks(target)
        self.tasks = images * self.shares
        offsets, self.scratch_bytes = scratch_layout(
            {
                "weights": problem.in_channels * self.columns * self.size,
                "contributions": self.ring * x.input * self.row * self.size,
                "lines": 8 * y.window,
                "GEMM": self.gemm.scratch_bytes,
            }
        )
        self.input, self.weights, self.output = (buffer(f, j) for j in range(3))
        scratch = scratch_of_thread(f, self.scratch_bytes)
        self.packed, self.contributions, self.line_table, gemm_scratch = (
            (scratch + start) for start in offsets.values()
        )
        self.operands = f.stack_slot("[4 x i64]", 8)
        self.operands.at(1, "ptr").store(self.packed, 8)
        self.operands.at(3, "ptr").store(gemm_scratch, 8)

    def _emit_gemm(self, module: ModuleText, target: Target) -> KernelInfo:
        """The GEMM of an input line: its contributions to the output."""
        problem, x = self.problem, self.x
        gemm = GemmProblem(
            problem.input_type,
            problem.result_type,
            (),
            x.input,
            self.columns,
            problem.in_channels,
            (x.input_stride, 1),
            (self.columns, 1),
            (self.row, 1),
        )
        return emit_gemm(module, dataclasses.replace(target, threads=1), gemm)

    def _plan_tasks(self, target: Target) -> tuple[int, int, int]:
        """(planes, tasks of a plane, output lines of a task). Every task computes again the contributions to its first
        line of the input lines above."""
        images = positions_of(self.planes)
        microseconds = serial_microseconds(self.problem, target)
        tasks = max(1, min(4 * target.threads, int(microseconds / TASK_US))) if target.threads > 1 else 1
        if is_symbolic([self.problem.flops]):
            tasks = 4 * target.threads
        shares = larger(1, smaller(ceiling(tasks, images), self.y.output // max(1, 4 * self.ring)))
        lines = ceiling(self.y.output, shares)
        return images, ceiling(self.y.output, lines), lines

    def write(self) -> None:
        """The whole kernel: the weights as a matrix, then the tasks."""
        f, problem = self.f, self.problem
        with (
            f.loop(0, self.y.window) as ky,
            f.loop(0, self.x.window) as kx,
            f.loop(0, problem.in_channels) as c,
            f.loop(0, problem.out_channels) as o,
        ):
            self._pack(ky.index, kx.index, c.index, o.index)
        with f.loop(f.integer("low"), f.integer("high")) as task:
            self._task(task.index)
        f.ret()

    def _pack(self, ky: Int, kx: Int, c: Int, o: Int) -> None:
        """Copies a weight to the matrix: rows of input features, columns of window elements and output features."""
        problem = self.problem
        offset = (
            c * problem.kernel_input
            + o * problem.kernel_output
            + (ky * self.y.kernel_stride + kx * self.x.kernel_stride)
        )
        address = self.weights.at(offset + problem.kernel_offset, self.type)
        value = address.load(self.type, self.size)
        tap = ky * self.x.window + kx
        packed = c * self.columns + (tap * problem.out_channels + o)
        self.packed.at(packed, self.type).store(value, self.size)

    def _task(self, t: Int) -> None:
        """Some lines of a plane; an input line is multiplied when the first of them sees it."""
        f, x, y = self.f, self.x, self.y
        first = t % self.shares * self.lines
        last = (first + self.lines).minimum(y.output)
        plane = t // self.shares
        source = output = f.i64(0)
        for _, a, position in positions_along(plane, self.planes):
            source += position * a.input_stride
            output += position * a.output_stride
        with f.loop(first, last, multiplied=f.i64(0)) as line:
            p = line.index
            low, high = self._seen_lines(p)
            with f.loop(low.maximum(line.multiplied), high) as input_line:
                self._multiply(input_line.index, source)
            count = self._line_pointers(p)
            self._sum_line(count, output + p * y.output_stride)
            if self.epilogue:
                row = (plane * y.output + p) * x.output
                call_epilogue(f, self.epilogue, 0, (row, row + x.output), (0, self.problem.out_channels))
            line.multiplied = line.multiplied.maximum(high)

    def _seen_lines(self, p: Int) -> tuple[Int, Int]:
        """The input lines [low, high) that output line p may see."""
        y, first = self.y, p - self.y.pad
        d = y.base_dilation
        low = (first + (d - 1)).maximum(0) // d
        end = first + ((y.window - 1) * y.window_dilation + d)
        return low, (end.maximum(0) // d).minimum(y.input)

    def _multiply(self, i: Int, source: Int) -> None:
        """Computes the contributions of input line i."""
        self.operands.store(self.input.at(source + i * self.y.input_stride, self.type))
        contributions = self._contributions_of(i)
        self.operands.at(2, "ptr").store(contributions)
        f, gemm = self.f, self.gemm
        f.call(f.symbol(gemm.symbol), "void", [f["context"], self.operands, 0, f.i64(gemm.tasks), 0])

    def _contributions_of(self, i: Int) -> Ptr:
        """The address of the contributions of input line i."""
        return self.contributions.at(i % self.ring * (self.x.input * self.row), self.type)

    def _line_pointers(self, p: Int) -> Int:
        """Writes the addresses of the contributions to output line p of the window elements along the line axis that
        are inside; returns their number."""
        f, y = self.f, self.y
        with f.loop(0, y.window, count=f.constant("i64", 0)) as element:
            k = element.index
            seen = p + k * y.window_dilation - y.pad
            # A negative position stays negative, and is outside, as an unsigned number of lines.
            line = seen if y.base_dilation == 1 else seen.signed_quotient(y.base_dilation)
            inside = seen.compare("icmp ult", (y.input - 1) * y.base_dilation + 1)
            if y.base_dilation > 1:
                inside = inside & (line * y.base_dilation).equals(seen)
            contributions = self._contributions_of(inside.choose(line, 0))
            column = k * (self.x.window * self.problem.out_channels)
            address = contributions.at(column, self.type)
            self.line_table.at(Int.of(f, element.count), "ptr").store(address)
            element.count = element.count + inside.cast("zext", "i64")
        return Int.of(f, element.count)

    def _sum_line(self, count: Int, output: Int) -> None:
        """One line of output: every position sums its contributions, from the addresses in the line table."""
        phases = self.x.base_dilation
        for phase in range(phases if isinstance(self.x.output, Size) else min(phases, self.x.output)):
            self._sum_phase(phase, count, output)

    def _sum_phase(self, phase: int, count: Int, output: Int) -> None:
        """The positions of a line that are `phase` modulo the base dilation."""
        f, x = self.f, self.x
        d = x.base_dilation
        # Position q * d + phase sees input q + shift through window element k, for these (k, shift).
        seen = [
            (k, (phase + k * x.window_dilation - x.pad) // d)
            for k in range(x.window)
            if (phase + k * x.window_dilation - x.pad) % d == 0
        ]
        positions = -(-(x.output - phase) // d)
        low = smaller(positions, maximum([0, *(-shift for _, shift in seen)]))
        high = larger(low, minimum([positions, *(x.input - shift for _, shift in seen)]))

        for begin, end, checks in ((0, low, True), (low, high, False), (high, positions, True)):
            with f.loop(begin, end) as position:
                q = position.index
                total = self._sum(q, count, seen, checks)
                offset = output + (q * d + phase) * x.output_stride
                self._store(total, self.output.at(offset, self.type))

    def _sum(self, q: Int, count: Int, seen: list[tuple[int, int]], checks: bool) -> VectorValue:
        """The sum of the contributions to position q of a phase; some may be outside the input if it `checks`."""
        f, x = self.f, self.x
        vector = vector_type(self.type, self.lanes)
        columns: list[tuple[Int, VectorValue | None]] = []
        for k, shift in seen:
            position = q + shift
            inside = position.compare("icmp ult", x.input) if checks else None
            position = inside.choose(position, 0) if inside else position
            columns.append((position * self.row + k * self.problem.out_channels, inside))
        with f.loop(0, count, total=f.zero(vector)) as line:
            address = self.line_table.at(line.index, "ptr").load_ptr()
            for column, inside in columns:
                value = address.at(column, self.type).load(vector, self.size)
                if inside:
                    value = inside.choose(value, f.zero(vector))
                line.total = line.total + value
        total: VectorValue = line.total
        return total

    def _store(self, value: VectorValue, output: Ptr) -> None:
        """Stores the features of one position: parts of the vector that are powers of two."""
        first, count = 0, self.problem.out_channels
        while count:
            lanes = 1 << (count.bit_length() - 1)
            part = value
            if lanes < self.lanes:
                part = value.extract(first) if lanes == 1 else value.shuffle(range(first, first + lanes))
            output.at(first, self.type).store(part, self.size)
            first, count = first + lanes, count - lanes
