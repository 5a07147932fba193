"""Convolution whose batch is contiguous in memory: the gradient of a kernel, as frameworks write it.

The input's features take the batch's place and the positions of the incoming gradient are the window: large windows,
few positions. For every position it is a GEMM, input features by output features, that sums over images and window
elements. Input elements are read where they lie, features side by side; border elements are left out of the sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import (
    Function,
    Index,
    Int,
    ModuleText,
    Ptr,
    Value,
    VectorValue,
)
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate, is_symbolic, larger, maximum, minimum, smaller, surely_less
from ...analysis.convolution_problem import Axis, ConvolutionProblem, positions_of, spatial_axes, window_of
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..gemm.compute_types import CACHE_LINE, COMPUTE_TYPES, SIZES, compute_of, lanes_of
from ..gemm.driver import constant_table
from ..gemm.microkernel import Microkernels, microkernel_table, tile_heights, vector_counts
from ..gemm.packing import use_panels
from .blocking import scratch_layout, serial_microseconds
from .kernel import (
    both,
    buffer,
    call_epilogue,
    copy_rows,
    delinearize,
    kernel_plan,
    positions_along,
    scratch_of_thread,
)
from .microkernel import (
    declare_gradient,
    gradient_name,
    gradient_sweep_name,
    rows_of,
    write_gradient,
    write_gradient_sweep,
)

MAX_ROWS_TOGETHER = 16  # positions along the last axis are taken together where input features are fewer
MAX_ROWS = 192  # input features of a task
MIN_CONFLICT_BYTES, MIN_COPY_PANELS = 1024, 4
DEPTH = 256  # steps summed at a time: a panel of B that stays in L1
_VECTOR_COST = {1: 0.85, 2: 1.0, 3: 0.95}  # divides the time of panels of so many vectors


def emit_backward_weights(
    module: ModuleText, target: Target, problem: ConvolutionProblem, bytes_: int, epilogue: str | None
) -> KernelInfo | None:
    """Writes the kernel; None where the form is another. The view of the epilogue is [1, positions, features]."""
    blocking = _plan_blocking(problem, target)
    if blocking is None:
        return None
    compute, vectors = blocking.compute, blocking.vectors
    sweeps = {(vectors, mr): gradient_sweep_name(compute, vectors, mr) for mr in blocking.tile_heights}
    kernel = _BackwardWeights(module, target, blocking, sweeps, epilogue)
    if module.embed_libraries:
        write_gradient(module, target, compute, vectors, "internal")
        for mr in blocking.tile_heights:
            write_gradient_sweep(module, target, compute, vectors, mr, "internal")
    else:
        declare_gradient(module, compute, vectors, sweeps)
    f = kernel.f
    with f.loop(f.integer("low"), f.integer("high")) as loop:
        kernel.task(loop.index)
    f.ret()
    microseconds = serial_microseconds(problem, target)
    return kernel_plan(
        f, "convolution", target, problem, blocking.tasks, microseconds, bytes_, kernel.scratch_bytes
    )


# -- planning


@dataclasses.dataclass(frozen=True)
class _Blocking:
    """How a gradient is computed.

    A segment of K is the window elements along the last axis `x`, of one image and one window element of the `outer`
    axes: there are `segments`, and `block` of them are summed at a time. A task is `rows` input features, `cols` output
    features and `inner` positions along the outer axes: all of them, so that B is packed once, or one where there are
    too few tasks otherwise. The window elements `common` are inside for all positions along the last axis; where
    `joins_positions`, they are summed for all these positions by one call. Where `copies_rows`, the segments are copied
    together first: rows that lie a multiple of a page or so apart displace each other in the cache.
    """

    problem: ConvolutionProblem
    compute: str
    vectors: int
    nr: int
    outer: tuple[Axis, ...]
    x: Axis
    segments: int
    block: int
    rows: int
    row_tasks: int
    cols: int
    col_tasks: int
    inner: int
    outer_tasks: int
    common: tuple[int, int]
    joins_positions: bool
    tile_heights: tuple[int, ...]
    copies_rows: bool

    @property
    def tasks(self) -> int:
        """Tasks of the kernel."""
        return self.row_tasks * self.problem.groups * self.outer_tasks * self.col_tasks

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[COMPUTE_TYPES[self.compute]]

    @property
    def step_bytes(self) -> int:
        """Bytes from one window element along the last axis to the next, in the input."""
        return self.x.window_dilation * self.x.input_stride * self.size

    @property
    def copied_step_bytes(self) -> int:
        """Bytes from one window element along the last axis to the next, in a copy."""
        return -(-self.rows * self.size // CACHE_LINE) * CACHE_LINE

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile of one position, for a last panel that is not whole."""
        return self.rows * self.nr * self.size


def _plan_blocking(problem: ConvolutionProblem, target: Target) -> _Blocking | None:
    compute = compute_of(problem.input_type, problem.result_type, problem.quads)
    axes = spatial_axes(problem)
    if compute is None or not _is_supported(problem, compute, axes):
        return None
    outer, x = axes[:-1], axes[-1]
    lanes = lanes_of(target, compute)
    vectors = min(
        vector_counts(compute),
        key=lambda v: -(-problem.out_channels // (v * lanes)) * v * lanes / _VECTOR_COST[v],
    )
    nr, mr = vectors * lanes, rows_of(target, compute, vectors)
    segments = problem.in_channels * window_of(outer)
    row_parts = -(-problem.batch // MAX_ROWS)
    rows = -(-problem.batch // (row_parts * mr)) * mr if row_parts > 1 else problem.batch
    row_tasks = -(-problem.batch // rows)
    positions = positions_of(outer)
    other_tasks = row_tasks * problem.groups
    inner = positions if other_tasks * -(-problem.out_channels // nr) >= target.threads else 1
    outer_tasks = positions // inner
    cols = _task_columns(problem, nr, other_tasks * outer_tasks, target.threads)
    common = _common_elements(x)
    joins_positions = _joins_positions(problem, x, common)
    row_counts = [min(rows, problem.batch), problem.batch % rows]
    if joins_positions:
        row_counts.append(x.output * problem.batch)
    return _Blocking(
        problem,
        compute,
        vectors,
        nr,
        outer,
        x,
        segments,
        larger(1, smaller(segments, DEPTH // larger(x.window, 1))),
        rows,
        row_tasks,
        cols,
        -(-problem.out_channels // cols),
        inner,
        outer_tasks,
        common,
        joins_positions,
        tuple(sorted(tile_heights(row_counts, mr))),
        positions == x.output == 1
        and estimate(x.window_dilation * x.input_stride) * problem.input_type.item_bytes >= MIN_CONFLICT_BYTES
        and cols >= MIN_COPY_PANELS * nr,
    )


def _is_supported(problem: ConvolutionProblem, compute: str, axes: Sequence[Axis]) -> bool:
    """Whether the convolution has the types, the order of axes and the known sizes of this form."""
    return not (
        problem.quads
        or problem.input_type is not problem.kernel_type
        or problem.input_batch != 1
        or problem.input_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]
        or problem.input_feature == 1
        or problem.output_feature != 1
        or not axes
        or any(a.base_dilation > 1 for a in axes)
        or is_symbolic([problem.groups, problem.batch, problem.out_channels, problem.positions])
        or axes[-1].output_stride < problem.output_batch
    )


def _common_elements(x: Axis) -> tuple[int, int]:
    """The window elements that are inside for all positions along the axis."""
    insides = [x.window_inside(o) for o in range(x.output)]
    return _elements(maximum(low for low, _ in insides), minimum(high for _, high in insides))


def _joins_positions(problem: ConvolutionProblem, x: Axis, common: tuple[int, int]) -> bool:
    """Whether the common window elements of all positions along the axis are summed by one call: there are few rows,
    and those of the positions follow each other."""
    return (
        problem.batch < MAX_ROWS_TOGETHER
        and x.output > 1
        and not surely_less(common[1], common[0] + 1)
        and x.stride * x.input_stride == problem.batch
        and x.output_stride == problem.batch * problem.output_batch
    )


def _elements(low: int, high: int) -> tuple[int, int]:
    """The window elements [low, high), none where `low` is the larger one."""
    return low, larger(low, high)


def _task_columns(problem: ConvolutionProblem, nr: int, other_tasks: int, threads: int) -> int:
    """Columns of a task: whole panels, that keep the busiest thread busy least."""
    panels = -(-problem.out_channels // nr)
    splits = range(1, min(panels, 4 * threads) + 1) if threads > 1 else (1,)
    widths = {-(-panels // split) for split in splits}
    return nr * min(widths, key=lambda w: (-(-other_tasks * -(-panels // w) // threads) * (w + 0.3), -w))


# -- writing


class _BackwardWeights:
    """Writes the body of one task."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        blocking: _Blocking,
        sweeps: Microkernels,
        epilogue: str | None,
    ) -> None:
        self.f = f = Function(module, "SELF", KERNEL_PARAMETERS)
        self.module, self.target, self.epilogue = module, target, epilogue
        self.blocking, self.problem = blocking, blocking.problem
        b, size = blocking, blocking.size
        self.type, self.size, self.outer, self.x = COMPUTE_TYPES[b.compute], size, b.outer, b.x
        mr = rows_of(target, b.compute, b.vectors)
        self.sweeps = constant_table(
            module, "gradient_sweeps", (), microkernel_table(target, b.vectors, mr, sweeps)
        )
        offsets, self.scratch_bytes = scratch_layout(
            {
                "packed B": b.block * b.x.window * b.nr * size,
                "segments of A": b.inner * b.block * 8,
                "segments of B": b.inner * b.block * 8,
                "counts": b.inner * 8,
                "tiles": b.inner * b.x.output * b.tile_bytes,
                "copies": b.block * b.x.window * b.copied_step_bytes if b.copies_rows else 0,
            }
        )
        self.input, self.weights, self.output = (buffer(f, j) for j in range(3))
        scratch = scratch_of_thread(f, self.scratch_bytes)
        self.packed, self.a_table, self.b_table, self.counts, self.tiles, self.copies = (
            scratch + start for start in offsets.values()
        )

    def task(self, t: Int) -> None:
        """Sums all segments, block by block, into the columns, panel by panel."""
        f, b, problem = self.f, self.blocking, self.problem
        col = t % b.col_tasks * b.cols
        rest = t // b.col_tasks
        self.row = rest % b.row_tasks * b.rows
        rest = rest // b.row_tasks
        self.outer_task, group = rest % b.outer_tasks, rest // b.outer_tasks
        self.cols = f.i64(b.cols).minimum(problem.out_channels - col)
        self.rows = f.i64(b.rows).minimum(problem.batch - self.row)
        source = group * problem.input_group + self.row
        self.column = group * problem.output_group + col
        kernel = problem.kernel_offset + (group * problem.kernel_group + col * problem.kernel_output)
        first = self.column + self.row * problem.output_batch
        self.c = self.output.at(first, self.type)
        # A sum over nothing is one block of no segments: zeros.
        with f.loop(0, larger(b.segments, 1), b.block) as block:
            self._block(block.index, source, kernel)
        tail = self.cols % b.nr
        if problem.out_channels % b.nr:
            with f.if_(tail.differs(0)):
                self._for_positions(lambda p: self._copy_tail(p, tail))
        if self.epilogue:
            self._for_positions(self._finish)

    def _for_positions(self, body: Callable[[Int], None]) -> None:
        """A loop over a task's positions along the outer axes."""
        with self.f.loop(0, self.blocking.inner) as position:
            body(position.index)

    def _block(self, start: Int, source: Int, kernel: Int) -> None:
        """Adds a block of segments to all panels of columns."""
        f, b = self.f, self.blocking
        count = f.i64(b.block).minimum(b.segments - start)
        is_first = start.equals(0)
        self._for_positions(lambda p: self._pointer_tables(start, count, p, source))
        with f.loop(0, self.cols, b.nr) as panel:
            column = panel.index
            width = f.i64(b.nr).minimum(self.cols - column)
            self._pack(start, count, kernel + column * self.problem.kernel_output, width)
            is_whole = width.equals(b.nr)
            self._for_positions(lambda p: self._panel(p, column, is_whole, is_first))

    def _copy_tail(self, p: Int, tail: Int) -> None:
        """Copies the tiles of the last panel to the output, `tail` columns of them."""
        f, b, problem = self.f, self.blocking, self.problem
        output, tile = self._outputs(p)
        with f.loop(0, self.x.output) as position:
            o = position.index
            row = output.at(o * self.x.output_stride + (self.cols - tail), self.type)
            copy_rows(
                f,
                self.target,
                (problem.input_type, b.compute),
                tile + o * b.tile_bytes,
                row,
                (self.rows, tail),
                (b.nr * self.size, self.size),
                problem.output_batch * self.size,
            )

    def _finish(self, p: Int) -> None:
        """Calls the epilogue for all positions along the last axis."""
        f = self.f
        with f.loop(0, self.x.output) as position:
            number = (self.outer_task + p) * self.x.output + position.index
            low = number * self.problem.batch + self.row
            rows = low, low + self.rows
            call_epilogue(f, self.epilogue, 0, rows, (self.column, self.column + self.cols))

    # -- addresses

    def _along(self, p: Int) -> tuple[list[Int], Int]:
        """(first input position along the outer axes, offset in the output in elements) of a position of the task."""
        firsts: list[Int] = []
        output = self.f.i64(0)
        for _, a, o in positions_along(self.outer_task + p, self.outer):
            firsts.insert(0, o * a.stride - a.pad)
            output += o * a.output_stride
        return firsts, output

    def _outputs(self, p: Int) -> tuple[Ptr, Ptr]:
        """The addresses of the results of a position of the task: in the output, and of its tiles."""
        tile = p * (self.x.output * self.blocking.tile_bytes)
        return self.c.at(self._along(p)[1], self.type), self.tiles + tile

    def _pointer_tables(self, start: Int, count: Int, p: Int, source: Int) -> None:
        """Writes the addresses, in A and in the packed B, of the segments inside the input, and their number."""
        f, b, problem = self.f, self.blocking, self.problem
        firsts, _ = self._along(p)
        a_table, b_table = (t.at(p * b.block, "ptr") for t in (self.a_table, self.b_table))

        with f.loop(0, count, inside=f.constant("i64", 0)) as segment:
            number = Int.of(f, segment.inside)
            image, window = delinearize(start + segment.index, [a.window for a in self.outer])
            offset, is_inside = source + image * problem.input_feature, None
            for a, first, k in zip(self.outer, firsts, window):
                seen = first + k * a.window_dilation
                offset += seen * a.input_stride
                if a.has_border:
                    is_inside = both(is_inside, seen.compare("icmp ult", a.input))
            address = self.input.at(offset, self.type)
            if b.copies_rows:
                address = self._copy_segment(address, number, is_inside)
            a_table.at(number, "ptr").store(address)
            packed = self.packed.at(segment.index * (self.x.window * b.nr), self.type)
            b_table.at(number, "ptr").store(packed)
            segment.inside = segment.inside + (is_inside.cast("zext", "i64") if is_inside else 1)
        self.counts.at(p, "i64").store(segment.inside)

    def _copy_segment(self, source: Ptr, number: Int, is_inside: VectorValue | None) -> Ptr:
        """Copies the window elements of a segment that are inside; returns the address of window element 0."""
        f, b, x = self.f, self.blocking, self.x
        (low, high), step = x.window_inside(0), b.copied_step_bytes
        copy = self.copies + number * (x.window * step)
        with f.if_(is_inside or f.constant("i1", True)):
            first = (low * x.window_dilation - x.pad) * x.input_stride
            copy_rows(
                f,
                self.target,
                (self.problem.input_type, b.compute),
                source.at(first, self.type),
                copy + low * step,
                (high - low, self.rows),
                (b.step_bytes, self.size),
                step,
            )
        return copy

    def _pack(self, start: Int, count: Int, kernel: Int, width: Int) -> None:
        """Packs a panel of B: all segments of the block, those outside the input too."""
        f, b, problem, x = self.f, self.blocking, self.problem, self.x
        name = use_panels(
            self.module, self.target, problem.input_type, b.compute, b.vectors, problem.kernel_output
        )
        with f.loop(0, count) as segment:
            image, window = delinearize(start + segment.index, [a.window for a in self.outer])
            offset = kernel + image * problem.kernel_input
            for a, k in zip(self.outer, window):
                offset += k * a.kernel_stride
            source = self.weights.at(offset, self.type)
            packed = self.packed.at(segment.index * (x.window * b.nr), self.type)
            strides = x.kernel_stride * self.size, problem.kernel_output * self.size
            f.call(name, "void", [source, packed, x.window, width, *strides])

    # -- sums

    def _panel(self, p: Int, column: Int, is_whole: VectorValue, is_first: VectorValue) -> None:
        """One panel of columns of all positions along the last axis."""
        f, b, problem, x = self.f, self.blocking, self.problem, self.x
        output, tiles = self._outputs(p)
        count = self.counts.at(p, "i64").load_int()
        a_table, b_table = (t.at(p * b.block, "ptr") for t in (self.a_table, self.b_table))
        ldc = is_whole.choose(f.i64(problem.output_batch * self.size), b.nr * self.size)
        step = b.copied_step_bytes if b.copies_rows else b.step_bytes
        adds = Int.zero_extended(~is_first)

        def sweep(o: int, window: tuple[int, int], rows: Index, accumulate: Index) -> None:
            """Adds window elements [low, high) to `rows` rows from position o on."""
            low, high = window
            first = (o * x.stride - x.pad) + low * x.window_dilation
            shift = low * step if b.copies_rows else first * x.input_stride * self.size
            direct = output.at(column + o * x.output_stride, self.type)
            tile = tiles + o * b.tile_bytes
            arguments: list[Value | int] = [
                a_table,
                f.i64(shift),
                b_table,
                f.i64(low * b.nr * self.size),
                is_whole.choose(direct, tile),
                ldc,
                count,
                f.i64(high - low),
                f.i64(step),
                accumulate,
                rows,
                f.symbol(self.sweeps),
            ]
            f.call(gradient_name(b.compute, b.vectors), "void", arguments)

        if b.joins_positions:
            sweep(0, b.common, x.output * problem.batch, adds)
        for o in range(x.output):
            inside = x.window_inside(o)
            if not b.joins_positions:
                sweep(o, inside, self.rows, adds)
                continue
            borders = (
                _elements(inside[0], smaller(b.common[0], inside[1])),
                _elements(larger(b.common[1], inside[0]), inside[1]),
            )
            for low, high in borders:
                if low != high:
                    sweep(o, (low, high), self.rows, 1)
