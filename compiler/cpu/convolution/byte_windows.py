"""Convolutions of bytes where products are summed over whole vectors (gemm/byte_rows.py).

Features of input and kernel lie side by side, and so do, without dilation, the window elements along the last axis:
each line of the window is one run of bytes in both. A tile is some neighbouring positions by some output features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.sizes import is_symbolic
from ...analysis.convolution_problem import Axis, ConvolutionProblem, axes_of, positions_of
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.result_window import move_window
from ..gemm.byte_rows import COLUMNS, ROWS, add_runs, sums_across
from ..gemm.compute_types import Compute
from .blocking import serial_microseconds
from .kernel import buffer, call_epilogue, kernel_plan, may_have_window, positions_along, scratch_of_thread

_INLINE_BORDER = 4  # positions of a line
_INLINE_LINES = 3  # of the window, where none is outside
_Range = tuple[Axis, Index, Index]  # window elements [low, high) along an axis


def emit_byte_windows(
    module: ModuleText,
    target: Target,
    problem: ConvolutionProblem,
    bytes_: int,
    epilogue: str | None,
    keeps_result: bool = True,
) -> KernelInfo | None:
    """Writes the kernel; None for other targets, types and orders of axes, and for input with holes. A task is a line
    of positions.

    The view of the epilogue is [1, positions, features]. A result that is not kept is in a window of the scratch.
    """
    axes = axes_of(problem)
    if not _is_supported(problem, target, axes):
        return None
    line, features = axes[-1].output, problem.groups * problem.out_channels
    row_bytes = features * problem.result_type.item_bytes
    has_window = not keeps_result and may_have_window(problem)
    window_bytes = line * row_bytes if has_window else 0
    kernel = _ByteWindows(module, target, problem)
    f = kernel.f
    with f.loop(f.integer("low"), f.integer("high")) as task:
        low = task.index * line
        if window_bytes:
            kernel.output = move_window(f, scratch_of_thread(f, window_bytes), low * row_bytes)
        kernel.line(task.index)
        call_epilogue(f, epilogue, 0, (low, low + line), (0, features))
    f.ret()
    microseconds = serial_microseconds(problem, target)
    tasks = positions_of(axes[:-1])
    plan = kernel_plan(f, "convolution", target, problem, tasks, microseconds, bytes_, window_bytes)
    return dataclasses.replace(plan, has_window=has_window)


def _is_supported(problem: ConvolutionProblem, target: Target, axes: Sequence[Axis]) -> bool:
    sizes = [problem.groups, problem.in_channels, problem.out_channels]
    sizes += [size for a in axes for size in (a.input, a.window, a.output, a.pad)]
    return (
        sums_across(target, problem.quads)
        and problem.channels_last
        and not is_symbolic(sizes)
        and all(a.base_dilation == 1 for a in axes)
    )


class _ByteWindows:
    """Writes the code of one line of output positions."""

    def __init__(self, module: ModuleText, target: Target, problem: ConvolutionProblem) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.problem, self.compute = problem, Compute(target, problem.quads)
        self.axes = axes_of(problem)
        self.input, self.weights, self.output = (buffer(f, j) for j in range(3))
        x, features = self.axes[-1], problem.in_channels
        # Window elements along the last axis are one run.
        self.is_merged = x.window == 1 or (
            x.window_dilation == 1 and x.input_stride == x.kernel_stride == features
        )

    def line(self, number: Int) -> None:
        """All positions along the last axis, for one position of the others, and all features."""
        f, problem = self.f, self.problem
        source, output = f.i64(0), f.i64(0)
        ranges: list[_Range] = []
        for _, a, position in positions_along(number, self.axes[:-1]):
            output += position * a.output_stride
            first = position * a.stride - a.pad
            source += first * a.input_stride
            if a.has_border:
                ranges.insert(0, (a, *self._window_inside(a, first)))
            elif a.window != 1:
                ranges.insert(0, (a, 0, a.window))
        with f.loop(0, problem.groups) as group:
            g = group.index
            at_input = self._quads(self.input, source + g * problem.input_group)
            at_kernel = self._quads(self.weights, g * problem.kernel_group + problem.kernel_offset)
            line = _Line(
                ranges, at_input, at_kernel, self._quads(self.output, output + g * problem.output_group)
            )
            wide = problem.out_channels // COLUMNS * COLUMNS
            for low, high, width in ((0, wide, COLUMNS), (wide, problem.out_channels, 1)):
                with f.loop(low, high, width) as feature:
                    self._positions(line.of_feature(feature.index, problem), width)

    def _quads(self, start: Ptr, count: Index) -> Ptr:
        return start.at(count, self.compute.type)

    def _window_inside(self, a: Axis, first: Int) -> tuple[Int, Int]:
        """The window elements [low, high) of a position that are inside; `first` is the input position of element 0."""
        d = a.window_dilation
        low = (0 - first + (d - 1)).maximum(0) // d
        reach = (a.input - first + (d - 1)).maximum(0)
        return low, self.f.i64(a.window).minimum(reach // d)

    def _positions(self, line: _Line, width: int) -> None:
        """All positions for some features: those at borders one by one, the others in tiles."""
        f, x = self.f, self.axes[-1]
        low, high = _without_border(x)
        paired = low + (high - low) // ROWS * ROWS
        borders: tuple[tuple[int, int], ...] = (0, low), (high, x.output)
        if not self.compute.target.is_small and low + x.output - high <= _INLINE_BORDER:
            for p in (p for border in borders for p in range(*border)):
                self._write(line, f.i64(p), _Tile(1, width, x.window_inside(p)))
            borders = ()
        for first, last in borders:
            with f.loop(first, last) as position:
                seen = position.index * x.stride - x.pad
                self._write(line, position.index, _Tile(1, width, self._window_inside(x, seen)))
        for first, last, height in ((low, paired, ROWS), (paired, high, 1)):
            with f.loop(first, last, height) as position:
                self._write(line, position.index, _Tile(height, width, (0, x.window)))

    def _write(self, line: _Line, position: Int, tile: _Tile) -> None:
        """Computes the tile from a position on, and stores it."""
        x, problem = self.axes[-1], self.problem
        source = self._quads(line.input, (position * x.stride - x.pad) * x.input_stride)
        sums = [self.f.zero("i32")] * (tile.height * tile.width)
        sums = self._window(line.ranges, source, line.kernel, tile, sums)
        output = self._quads(line.output, position * x.output_stride)
        for number, value in enumerate(sums):
            row, column = divmod(number, tile.width)
            self._quads(output, row * x.output_stride + column * problem.output_feature).store(value)

    def _window(
        self, ranges: Sequence[_Range], source: Ptr, kernel: Ptr, tile: _Tile, sums: list[VectorValue]
    ) -> list[VectorValue]:
        """Loops over the window elements inside along the outer axes."""
        if not ranges:
            return self._runs(source, kernel, tile, sums)
        a, low, high = ranges[0]
        if isinstance(high, int) and high <= (1 if self.compute.target.is_small else _INLINE_LINES):
            for k in range(high):
                at = self._quads(source, k * a.window_dilation * a.input_stride)
                of_kernel = self._quads(kernel, k * a.kernel_stride)
                sums = self._window(ranges[1:], at, of_kernel, tile, sums)
            return sums
        source = self._quads(source, low * (a.window_dilation * a.input_stride))
        kernel = self._quads(kernel, low * a.kernel_stride)
        with self.f.loop(low, high, source=source, kernel=kernel, sums=sums) as element:
            element.sums = self._window(ranges[1:], element.source, element.kernel, tile, element.sums)
            element.source = self._quads(element.source, a.window_dilation * a.input_stride)
            element.kernel = self._quads(element.kernel, a.kernel_stride)
        result: list[VectorValue] = element.sums
        return result

    def _runs(self, source: Ptr, kernel: Ptr, tile: _Tile, sums: list[VectorValue]) -> list[VectorValue]:
        """Adds the window elements inside along the last axis: one run, or one for each."""
        x, features, (low, high) = self.axes[-1], self.problem.in_channels, tile.inside

        def add(k: Index, quads: Index, sums: list[VectorValue]) -> list[VectorValue]:
            at, of_kernel = k * (x.window_dilation * x.input_stride), k * x.kernel_stride
            rows = [self._quads(source, at + i * x.stride * x.input_stride) for i in range(tile.height)]
            columns = [
                self._quads(kernel, of_kernel + j * self.problem.kernel_output) for j in range(tile.width)
            ]
            return add_runs(self.compute, rows, columns, quads, sums)

        if self.is_merged:
            return add(low, (high - low) * features, sums)
        with self.f.loop(low, high, sums=sums) as element:
            element.sums = add(element.index, features, element.sums)
        result: list[VectorValue] = element.sums
        return result


@dataclasses.dataclass(frozen=True)
class _Tile:
    """So many positions by so many features, with window elements [low, high) along the last axis."""

    height: int
    width: int
    inside: tuple[Index, Index]


def _without_border(x: Axis) -> tuple[int, int]:
    """The positions [low, high) all of whose window elements are inside."""
    low = min(x.output, max(0, -(-x.pad // x.stride)))
    return low, max(low, min(x.output, (x.input + x.pad - x.dilated_window) // x.stride + 1))


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line of positions along the last axis: the window elements inside along the outer axes, and the addresses of
    the input of position 0 (without padding), of the kernel and of the output."""

    ranges: Sequence[_Range]
    input: Ptr
    kernel: Ptr
    output: Ptr

    def of_feature(self, feature: Int, problem: ConvolutionProblem) -> _Line:
        """The line from an output feature on."""
        return dataclasses.replace(
            self,
            kernel=self.kernel.at(feature * problem.kernel_output, "i32"),
            output=self.output.at(feature * problem.output_feature, "i32"),
        )
