"""Depthwise convolution, forward and for the gradient of its filter: vectors of features, sums in registers.

A feature of the output depends on one of the input: this is no GEMM, but every feature is contiguous with its
neighbours in input, kernel and output. A tile is some output positions along the last axis by one vector; input that
two of them see is loaded once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue, vector_type
from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_symbolic, larger, maximum, minimum, smaller
from ...analysis.convolution_problem import (
    Axis,
    ConvolutionProblem,
    Phase,
    axes_of,
    phases_of,
    positions_of,
    window_of,
)
from ...ir.element_types import ElementType
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.result_window import move_window
from ..gemm.compute_types import (
    CACHE_LINE,
    COMPUTE_TYPES,
    SIZES,
    STORED,
    compute_of,
    lanes_of,
    load_as,
    load_masked,
    multiply_add,
    sources,
    store_masked,
)
from ..gemm.register_tile import add
from ..gemm.tasks import TASK_US
from .blocking import serial_microseconds
from .kernel import (
    both,
    buffer,
    call_epilogue,
    delinearize,
    has_dense_rows,
    kernel_plan,
    may_have_window,
    positions_along,
    scratch_of_thread,
)

MAX_UNROLLED_WINDOW = 8  # window elements along the last axis
_SMALL_TILE = 2  # where code is to be small
MAX_TILE = 8  # positions

Range = tuple[Axis, Int, Int]  # of window elements


def emit_depthwise(
    module: ModuleText,
    target: Target,
    problem: ConvolutionProblem,
    bytes_: int,
    epilogue: str | None,
    keeps_result: bool = True,
) -> KernelInfo | None:
    """Writes the kernel; None where the convolution is not depthwise with contiguous features.

    The view of the epilogue is [1, positions, features]. A result that is not kept is in a window of the scratch.
    """
    compute = _compute_type(problem, target)
    if compute is None or not _is_depthwise(problem, compute, target):
        return None
    microseconds = max(3 * serial_microseconds(problem, target), estimate(bytes_) / 1e4)
    tasks = _plan_tasks(problem, target, compute, microseconds)
    if tasks is None:
        return None
    kernel = _Depthwise(module, target, problem, compute)
    f = kernel.f
    has_window = not keeps_result and not tasks.sums_in_memory and may_have_window(problem)
    window_bytes = tasks.positions * kernel.row_bytes if has_window else 0

    with f.loop(f.integer("low"), f.integer("high")) as task:
        t = task.index
        if tasks.sums_in_memory:
            _features_task(kernel, tasks, t, epilogue)
        else:
            if window_bytes:
                window = scratch_of_thread(f, window_bytes)
                kernel.output = move_window(f, window, t * (tasks.positions * kernel.row_bytes))
            _positions_task(kernel, tasks, t, epilogue)
    f.ret()
    plan = kernel_plan(f, "depthwise", target, problem, tasks.count, microseconds, bytes_, window_bytes)
    row_tasks = None if tasks.sums_in_memory or not has_dense_rows(problem) else (tasks.positions, 1)
    return dataclasses.replace(plan, has_window=has_window, row_tasks=row_tasks)


def _compute_type(problem: ConvolutionProblem, target: Target) -> str | None:
    """Sums of bytes that f32 holds exactly are computed so where there are vectors: its multiply-add is the fastest
    there is for them."""
    if problem.is_of_bytes and problem.result_type is ElementType.S32 and not is_symbolic([problem.window]):
        if target.lanes(32) == 1:
            return "i32"
        return "f32" if problem.window * 255 * 128 < 2**24 else None
    return compute_of(problem.input_type, problem.result_type, problem.quads)


@dataclasses.dataclass(frozen=True)
class _Tasks:
    """Tasks of a kernel: `positions` output positions and `features` features each. With few positions and a large
    window a task has all positions, whose sums stay in memory, and a share of the features."""

    phases: tuple[Phase, ...]
    count: int
    positions: int
    features: int
    sums_in_memory: bool


def _axes(problem: ConvolutionProblem) -> tuple[Axis, ...]:
    """All axes; input features that are summed are one more axis of the window."""
    axes = axes_of(problem)
    if problem.in_channels == 1:
        return axes
    size = problem.in_channels
    return (Axis(size, size, 1, 1, 0, 1, 1, problem.input_feature, problem.kernel_input, 0), *axes)


def _is_depthwise(problem: ConvolutionProblem, compute: str, target: Target) -> bool:
    """Whether the features of input, kernel and output are contiguous, one group of `out_channels` after the other."""
    if (
        problem.groups == 1
        or problem.quads
        or not problem.is_of_bytes
        and (
            (problem.kernel_type is not problem.input_type and not problem.converts_kernel)
            or problem.input_type not in sources(compute)
        )
        or problem.input_group != 1
        or (problem.kernel_group, problem.output_group) != (problem.out_channels, problem.out_channels)
        or (problem.out_channels > 1 and problem.kernel_output != 1)
        or any(a.base_dilation > 1 for p in phases_of(_axes(problem), 0) for a in p.axes)
    ):
        return False
    lanes = lanes_of(target, compute)
    if lanes % problem.out_channels and problem.out_channels % lanes:
        return False
    is_masked = problem.groups * problem.out_channels < lanes
    return not is_masked or problem.kernel_type is problem.input_type in (STORED[compute],)


def _plan_tasks(
    problem: ConvolutionProblem, target: Target, compute: str, microseconds: float
) -> _Tasks | None:
    """A task is one line of positions; with phases, which lie between each other, a whole image; where positions are
    few, a share of the features. None without input or output."""
    axes = _axes(problem)
    phases = phases_of(axes, problem.kernel_offset)
    positions, features = positions_of(axes), problem.groups * problem.out_channels
    if problem.in_channels == 0 or not positions:
        return None
    lanes = lanes_of(target, compute)
    if len(phases) == 1 and _is_wide(axes[-1]) and features % lanes == 0 and not problem.is_of_bytes:
        line = max(CACHE_LINE // SIZES[COMPUTE_TYPES[compute]], lanes)
        shares = max(1, min(2 * target.threads, int(microseconds / TASK_US))) if target.threads > 1 else 1
        share = -(-features // (line * shares)) * line
        return _Tasks(phases, -(-features // share), positions, share, True)
    size = axes[-1].output
    if len(phases) > 1:
        size = positions // axes[0].output if axes[0].is_plain and len(axes) > 1 else positions
    return _Tasks(phases, positions // size, size, features, False)


def _is_wide(x: Axis) -> bool:
    """A large window and few positions, as for the gradient of a filter: all positions are one tile."""
    return not _is_unrolled(x) and isinstance(x.output, int) and x.output <= MAX_TILE


def _is_unrolled(x: Axis) -> bool:
    """Whether the window elements along an axis are written one after the other."""
    return isinstance(x.window, int) and x.window <= MAX_UNROLLED_WINDOW


def _features_task(kernel: _Depthwise, tasks: _Tasks, t: Int, epilogue: str | None) -> None:
    """All positions of a share of the features."""
    first = t * tasks.features
    last = (first + tasks.features).minimum(kernel.features)
    kernel.filter_gradient(tasks.phases[0], first, last)
    call_epilogue(kernel.f, epilogue, 0, (0, tasks.positions), (first, last))


def _positions_task(kernel: _Depthwise, tasks: _Tasks, t: Int, epilogue: str | None) -> None:
    """Some positions of all features."""
    f = kernel.f
    if len(tasks.phases) == 1:
        kernel.line(tasks.phases[0], t)
    else:
        for phase in filter(lambda p: p.positions, tasks.phases):
            lines = positions_of(phase.axes[:-1]) // tasks.count
            with f.loop(t * lines, (t + 1) * lines) as line:
                kernel.line(phase, line.index)
    if epilogue:
        low = t * tasks.positions
        call_epilogue(f, epilogue, 0, (low, low + tasks.positions), (0, kernel.features))


class _Depthwise:
    """Writes the code of one line of output positions."""

    def __init__(self, module: ModuleText, target: Target, problem: ConvolutionProblem, compute: str) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.target, self.problem = target, problem
        self.type, self.stored = COMPUTE_TYPES[compute], memory_type(problem.result_type)
        self.lanes = lanes_of(target, compute)
        self.features = problem.groups * problem.out_channels
        self.row_bytes = self.features * problem.result_type.item_bytes
        self.is_masked = self.features < self.lanes
        self.vector = vector_type(self.type, self.lanes)
        # Cache lines of features one after the other, each along the whole line; all at once where the image must be
        # streamed from farther than L2.
        image = math.prod(a.input for a in problem.axes) * problem.groups * problem.input_type.item_bytes
        self.low, self.high = f.i64(0), f.i64(self.features)
        self.block = (
            max(CACHE_LINE // SIZES[self.type], self.lanes)
            if estimate(image) <= target.l2_bytes
            else self.features
        )
        self.input, self.weights, self.output = (buffer(f, j) for j in range(3))

    # -- vectors of features

    def _load(self, element: ElementType, address: Ptr, lanes: int, count: int) -> VectorValue:
        if self.is_masked:
            value = load_masked(self.f, self.type, lanes, address, self.f.i64(count))
        else:
            value = load_as(self.f, element, self.type, address, lanes)
        return VectorValue.of(self.f, value)

    def _weight(self, offset: Int) -> VectorValue:
        element = self.problem.kernel_type
        return self._load(element, self.weights.at(offset, memory_type(element)), self.lanes, self.features)

    def _input(self, offset: Int) -> VectorValue:
        """The input of a vector of output features; `out_channels` neighbours have one input feature."""
        lanes, times = self.lanes, self.problem.out_channels
        element = self.problem.input_type
        address = self.input.at(offset, memory_type(element))
        value = self._load(element, address, max(1, lanes // times), self.problem.groups)
        if times == 1 or lanes <= times:
            return value if times == 1 else value.splat(lanes)
        return value.shuffle([lane // times for lane in range(lanes)])

    def _input_feature(self, c: Int) -> Int:
        """The input feature of an output feature."""
        return c // self.problem.out_channels

    def _multiply_add(self, a: VectorValue, b: VectorValue, c: VectorValue) -> VectorValue:
        return VectorValue.of(self.f, multiply_add(self.f, a, b, c, self.target))

    def _store(self, value: VectorValue, offset: Int) -> None:
        address = self.output.at(offset, self.stored)
        if self.stored != self.type:
            value = value.cast("fptosi", self.stored)
        if self.is_masked:
            store_masked(self.f, value, self.type, self.lanes, address, self.f.i64(self.features))
        else:
            address.store(value, SIZES[self.type])

    @contextlib.contextmanager
    def _each_vector(self) -> Iterator[Int]:
        """A loop over a block's vectors of features; the very last one overlaps the one before it rather than being
        shorter."""
        last = max(0, self.features - self.lanes)
        with self.f.loop(self.low, self.high, self.lanes) as vector:
            yield vector.index.minimum(last) if last % self.lanes else vector.index

    # -- one line of positions

    def line(self, phase: Phase, number: Int) -> None:
        """All positions along the last axis, for one position of the others, and all features."""
        f, x = self.f, phase.axes[-1]
        source, output = f.i64(0), f.i64(phase.output_offset)
        ranges: list[Range] = []
        for _, a, position in positions_along(number, phase.axes[:-1]):
            output += position * a.output_stride
            first = position * a.stride - a.pad
            source += first * a.input_stride
            if a.window != 1 or a.has_border:
                ranges.insert(0, (a, *self._window_inside(a, first)))
        line = _Line(x, ranges, source, f.i64(phase.kernel_offset), output)
        if _is_wide(x):
            self.low, self.high = f.i64(0), f.i64(self.features)
            self._single_tile(line)
            return
        with f.loop(0, self.features, self.block) as block:
            self.low, self.high = block.index, (block.index + self.block).minimum(self.features)
            self._tiles(line)

    def _window_inside(self, a: Axis, first: Int) -> tuple[Int, Int]:
        """The window elements [low, high) of a position that are inside; `first` is the input position of element 0."""
        d = a.window_dilation
        low = (0 - first + (d - 1)).maximum(0) // d
        reach = (a.input - first + (d - 1)).maximum(0)
        return low, self.f.i64(a.window).minimum(reach // d)

    def _window(
        self,
        ranges: Sequence[Range],
        source: Int,
        kernel: Int,
        sums: list[VectorValue],
        body: Callable[[Int, Int, list[VectorValue]], list[VectorValue]],
    ) -> list[VectorValue]:
        """Loops over the window elements inside along the outer axes; `body` takes offsets of input and kernel."""
        if not ranges:
            return body(source, kernel, sums)
        a, low, high = ranges[0]
        with self.f.loop(low, high, sums=sums) as element:
            k = element.index
            seen = source + k * (a.window_dilation * a.input_stride)
            element.sums = self._window(ranges[1:], seen, kernel + k * a.kernel_stride, element.sums, body)
        result: list[VectorValue] = element.sums
        return result

    def _tiles(self, line: _Line) -> None:
        """The tiles of a line: positions without border in whole tiles; those before and after them are few, or taken
        one by one."""
        f, x = self.f, line.x
        if not _is_unrolled(x):
            with f.loop(0, x.output) as position:
                self._position(line, position.index)
            return
        low = smaller(x.output, larger(0, ceiling(x.pad, x.stride)))
        high = larger(low, smaller(x.output, (x.input + x.pad - x.dilated_window) // x.stride + 1))
        most = _SMALL_TILE if self.target.is_small else min(MAX_TILE, self.target.registers - x.window - 1)
        width = max(2, most)
        if is_symbolic([x.output, low, high]):
            self._tiles_of_any_line(line, low, high, width)
            return
        unrolls = low <= width and x.output - high <= width
        if not unrolls:
            with f.loop(0, low) as position:
                self._position(line, position.index)
        begin = low if not unrolls else width if low else 0
        whole = begin + max(0, high - begin) // width * width
        if unrolls and begin:
            self._tile(line, 0, min(width, x.output))
        with f.loop(begin, whole, width) as tile:
            self._tile(line, tile.index, width)
        end = x.output if unrolls else high
        for start in range(max(whole, begin), end, width):
            self._tile(line, start, min(width, end - start))
        with f.loop(end, x.output) as position:
            self._position(line, position.index)

    def _tiles_of_any_line(self, line: _Line, low: int, high: int, width: int) -> None:
        """The tiles of a line whose length is known at run time only; positions [low, high) are without border. The
        last tile overlaps the one before it."""
        f = self.f
        with f.loop(0, low) as position:
            self._position(line, position.index)
        with f.if_((f.i64(high) - low) >= width) as is_wide, f.loop(low, high, width) as tile:
            self._tile(line, tile.index.minimum(f.i64(high) - width), width)
        with is_wide.else_(), f.loop(low, high) as position:
            self._tile(line, position.index, 1)
        with f.loop(high, line.x.output) as position:
            self._position(line, position.index)

    def _position(self, line: _Line, o: Int) -> None:
        """One position along the last axis, at a border."""
        f, x = self.f, line.x
        first = o * x.stride - x.pad
        inside = x, *self._window_inside(x, first)
        source = line.source + first * x.input_stride

        with self._each_vector() as c:
            sums = self._window(
                [*line.ranges, inside],
                source + self._input_feature(c),
                line.kernel + c,
                [f.zero(self.vector)],
                self._add_element,
            )
            self._store(sums[0], line.output + c + o * x.output_stride)

    def _tile(self, line: _Line, start: Index, count: int) -> None:
        """`count` positions along the last axis; where `start` is a number, some may be at a border."""
        f, x = self.f, line.x
        source = line.source + (start * x.stride - x.pad) * x.input_stride
        output = line.output + start * x.output_stride

        def add(s: Int, k: Int, sums: list[VectorValue]) -> list[VectorValue]:
            return self._unrolled(x, start if isinstance(start, int) else None, s, k, sums)

        with self._each_vector() as c:
            sums = self._window(
                line.ranges,
                source + self._input_feature(c),
                line.kernel + c,
                [f.zero(self.vector)] * count,
                add,
            )
            for j, value in enumerate(sums):
                self._store(value, output + c + j * x.output_stride)

    def _add_element(self, source: Int, kernel: Int, sums: list[VectorValue]) -> list[VectorValue]:
        a, b = self._input(source), self._weight(kernel)
        return [self._multiply_add(a, b, sums[0])]

    def _unrolled(
        self, x: Axis, start: int | None, source: Int, kernel: Int, sums: list[VectorValue]
    ) -> list[VectorValue]:
        """All window elements along the last axis for a tile; those inside the input, if `start` is a number."""
        sums = list(sums)
        weights = [self._weight(kernel + k * x.kernel_stride) for k in range(x.window)]
        pairs: dict[int, list[tuple[int, int]]] = {}
        for o in range(len(sums)):
            for k in range(x.window):
                seen = o * x.stride + k * x.window_dilation
                if start is None or 0 <= start * x.stride - x.pad + seen < x.input:
                    pairs.setdefault(seen, []).append((o, k))
        for seen, uses in sorted(pairs.items()):
            value = self._input(source + seen * x.input_stride)
            for o, k in uses:
                sums[o] = self._multiply_add(value, weights[k], sums[o])
        return sums

    # -- large windows, few positions: the gradient of a filter

    def _single_tile(self, line: _Line) -> None:
        """All positions along the last axis in one tile."""
        f, x = self.f, line.x
        source = line.source - x.pad * x.input_stride

        with self._each_vector() as c:
            sums = self._window(
                line.ranges,
                source + self._input_feature(c),
                line.kernel + c,
                [f.zero(self.vector)] * x.output,
                lambda s, k, sums: self._add_line(x, s, k, sums),
            )
            for o, value in enumerate(sums):
                self._store(value, line.output + c + o * x.output_stride)

    def filter_gradient(self, phase: Phase, low: Int, high: Int) -> None:
        """All positions, for a range of features that is a multiple of a vector: sums stay in memory from line to line
        of the window, so that input and kernel are read once, in the order in which they lie."""
        f, outer = self.f, phase.axes[:-1]
        self.low, self.high = low, high
        lines = positions_of(outer)
        with f.loop(0, lines) as line:
            self._clear_line(phase, line.index)

        with f.loop(0, window_of(outer)) as window_line:
            window = delinearize(window_line.index, [a.window for a in outer])[1]
            kernel = f.i64(phase.kernel_offset)
            for a, k in zip(outer, window):
                kernel += k * a.kernel_stride
            with f.loop(0, lines) as line:
                self._add_to_line(phase, line.index, window, kernel)

    def _line_outputs(self, phase: Phase, line: list[Int], c: Int) -> list[Ptr]:
        """The addresses of the output of all positions along the last axis."""
        x = phase.axes[-1]
        offset = phase.output_offset + c
        for a, o in zip(phase.axes, line):
            offset += o * a.output_stride
        return [self.output.at(offset + o * x.output_stride, self.type) for o in range(x.output)]

    def _clear_line(self, phase: Phase, number: Int) -> None:
        """Stores zeros to a line of the output."""
        f = self.f
        _, line = delinearize(number, [a.output for a in phase.axes[:-1]])

        with self._each_vector() as c:
            for address in self._line_outputs(phase, line, c):
                address.store(f.zero(self.vector), SIZES[self.type])

    def _add_to_line(self, phase: Phase, number: Int, window: list[Int], kernel: Int) -> None:
        """Adds a line of the window, at these window elements along the outer axes, to a line of the output."""
        f, outer, x = self.f, phase.axes[:-1], phase.axes[-1]
        _, line = delinearize(number, [a.output for a in outer])
        source, inside = f.i64(-x.pad * x.input_stride), None
        for a, o, k in zip(outer, line, window):
            seen = o * a.stride + k * a.window_dilation - a.pad
            source += seen * a.input_stride
            if a.has_border:
                inside = both(inside, seen.compare("icmp ult", a.input))

        with f.if_(inside) if inside else contextlib.nullcontext(), self._each_vector() as c:
            addresses = self._line_outputs(phase, line, c)
            sums = self._add_line(
                x,
                source + self._input_feature(c),
                kernel + c,
                [address.load(self.vector) for address in addresses],
            )
            for value, address in zip(sums, addresses):
                address.store(value)

    def _add_line(self, x: Axis, source: Int, kernel: Int, sums: list[VectorValue]) -> list[VectorValue]:
        """Adds one line of the window, summed on its own, to the sums of all positions; offsets are those of position
        0, element 0."""
        f, count = self.f, len(sums)
        insides = [x.window_inside(o) for o in range(count)]
        # Elements [low, high) are inside for all positions.
        low = maximum(start for start, _ in insides)
        high = larger(low, minimum(stop for _, stop in insides))
        sets = 1 if count > 4 else 2  # enough chains of additions to hide their latency
        main = low + (high - low) // 4 * 4
        zeros = [f.zero(self.vector)] * (count * sets)
        with f.loop(low, main, 4, sums=zeros) as four:
            four.sums = self._add_elements(x, source, kernel, four.index, 4, count, four.sums)
        with f.loop(main, high, sums=four.sums) as one:
            one.sums = self._add_elements(x, source, kernel, one.index, 1, count, one.sums)
        line: list[VectorValue] = one.sums
        if sets > 1:
            line = [line[o] + line[o + count] for o in range(count)]
        for o, (start, stop) in enumerate(insides):
            for elements in ((start, smaller(low, stop)), (larger(high, start), stop)):
                line[o] = self._add_border(x, source, kernel, o, elements, line[o])
        return add(sums, line)

    def _add_border(
        self, x: Axis, source: Int, kernel: Int, o: int, elements: tuple[int, int], total: VectorValue
    ) -> VectorValue:
        """Adds window elements [low, high) to the sum of position o, one by one."""

        def plus(k: Index, total: VectorValue) -> VectorValue:
            value = self._input(source + (k * x.window_dilation + o * x.stride) * x.input_stride)
            return self._multiply_add(value, self._weight(kernel + k * x.kernel_stride), total)

        if not is_symbolic(elements):
            return functools.reduce(lambda total, k: plus(k, total), range(*elements), total)
        with self.f.loop(*elements, total=total) as element:
            element.total = plus(element.index, element.total)
        result: VectorValue = element.total
        return result

    def _add_elements(
        self, x: Axis, source: Int, kernel: Int, k: Int, steps: int, count: int, sums: list[VectorValue]
    ) -> list[VectorValue]:
        """Adds window elements k, k + 1, ..., which are inside for all positions, to the sets of sums in turn."""
        sums = list(sums)
        values: dict[int, VectorValue] = {}
        first = source + k * (x.window_dilation * x.input_stride)
        for u in range(steps):
            weight = self._weight(kernel + (k + u) * x.kernel_stride)
            for o in range(count):
                seen = o * x.stride + u * x.window_dilation
                if seen not in values:
                    values[seen] = self._input(first + seen * x.input_stride)
                j = (u * count + o) % len(sums)
                sums[j] = self._multiply_add(values[seen], weight, sums[j])
        return sums


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line of positions along axis x: the window elements inside along the outer axes, and the offsets in elements of
    the input of position 0 (without padding), of the kernel and of the output."""

    x: Axis
    ranges: Sequence[Range]
    source: Int
    kernel: Int
    output: Int
