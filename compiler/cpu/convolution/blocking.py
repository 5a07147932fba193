"""How a convolution is computed as a matrix product: what is staged, the size of blocks and tasks, scratch memory.

M counts output positions, N output features, and K the elements that one tap adds: input features, or input features of
several neighbouring window elements where they are contiguous. A row of A is `taps` segments of K elements.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_multiple, is_symbolic, larger, maximum, smaller
from ...analysis.convolution_problem import (
    Axis,
    ConvolutionProblem,
    Phase,
    as_gemm,
    axes_of,
    convolution_problem,
    features_before_positions,
    phases_of,
    positions_of,
    window_of,
)
from ...analysis.gemm_problem import GemmProblem
from ...analysis.quads import QUAD
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ..codegen.kernel_info import NO_SLICES, Slices
from ..gemm.block_counts import Counts, tiles, used_parts
from ..gemm.blocking import PackedLayout
from ..gemm.byte_rows import sums_across
from ..gemm.compute_types import CACHE_LINE, COMPUTE_TYPES, SIZES, STORED, compute_of, lanes_of, sources
from ..gemm.microkernel import vector_counts
from ..gemm.tasks import (
    CLOCK_GHZ,
    PACK_COST,
    PARALLEL_US,
    READ_COST,
    STRAGGLER_COST,
    TASK_US,
    best_grid,
    columns_work,
    packed_vectors,
)
from ..gemm.uses import Part
from .microkernel import PANELS_AT_ONCE, P, rows_of

MIN_FEATURES_IN_PLACE = 32  # with fewer, staged input is better than pointers to each window element
MAX_MERGED_K = 1024
PACKED_BYTES = 8 << 20  # of B at a time
TABLE_BYTES = 64 << 10  # of the pointers to the rows of A of a block


@dataclasses.dataclass(frozen=True)
class Blocking:
    """How a convolution is computed.

    Staged input is a copy of the part that a block of positions sees, converted, with padding and holes as zeros. Then
    a block is a box: some positions along the axis `split_axis`, and all along those after it. The last `merged_axes`
    axes are one tap: their window elements are contiguous with the features, `k` elements together.
    Packed B is kept from one block of positions to the next if `reuses_b`; it is packed beforehand, in panels of
    `panel_bytes`, if that is not 0. A task is `task_rows` positions, a multiple of `row_unit`, by `task_cols` features;
    where it runs as part of a chain it has `rows_in_chain`.
    Units: offsets in bytes, of the parts of a thread's scratch.
    """

    problem: ConvolutionProblem
    phases: tuple[Phase, ...]
    compute: str
    vectors: int
    stages_input: bool
    panel_bytes: int
    reuses_b: bool
    split_axis: int
    merged_axes: int
    k: int
    block_rows: int
    row_unit: int
    task_rows: int
    rows_in_chain: int
    task_cols: int
    scratch_offsets: dict[str, int]
    scratch_bytes: int

    @property
    def transposes_output(self) -> bool:
        """The output has its positions contiguous: tiles of C are transposed when a block is done."""
        return not self.problem.channels_last

    @cached_property
    def row_counts(self) -> Counts:
        """The positions of blocks."""
        is_known = not is_symbolic([self.task_rows, self.problem.batch * self.problem.positions])
        return Counts(frozenset(_block_heights(self)) if is_known else None, True)

    @property
    def column_counts(self) -> Counts:
        """The features of tasks."""
        return Counts.of(self.problem.out_channels, self.task_cols, self.task_cols)

    def tap_axes(self, phase: Phase) -> tuple[Axis, ...]:
        """The axes whose window elements are taps."""
        return phase.axes[: len(phase.axes) - self.merged_axes]

    def split_rows(self, phase: Phase) -> int:
        """Output positions in a box of one position along the split axis."""
        return positions_of(phase.axes[self.split_axis + 1 :])

    def split_height(self, phase: Phase) -> int:
        """Positions along the split axis in a block."""
        return larger(1, self.block_rows // larger(self.split_rows(phase), 1))

    def staged_strides(self, phase: Phase) -> list[int]:
        """Strides of the staged input, in elements; 0 for the axes with one position in it."""
        strides, step = [0] * len(phase.axes), self.problem.in_channels
        for j in range(len(phase.axes) - 1, self.split_axis - 1, -1):
            strides[j] = step
            step *= phase.axes[j].extent(phase.axes[j].output)
        return strides


@dataclasses.dataclass(frozen=True)
class _AxisPlan:
    """How the axes of a convolution are gone through, as in `Blocking`. merged_window: window elements in a tap; taps:
    taps of each phase."""

    axes: tuple[Axis, ...]
    phases: tuple[Phase, ...]
    stages_input: bool
    split_axis: int
    merged_axes: int
    merged_window: int
    k: int
    taps: tuple[int, ...]
    row_unit: int

    @property
    def depth(self) -> int:
        """Elements of a column of B."""
        return max(self.k * max(self.taps), 1)


@dataclasses.dataclass(frozen=True)
class _Tiling:
    """Columns of a panel of B, the most rows of a tile, bytes of an element in the compute type."""

    nr: int
    mr: int
    size: int


def plan_blocking(
    problem: ConvolutionProblem,
    target: Target,
    b_packed: bool = False,
    most_rows: int = 0,
    slices: Slices = NO_SLICES,
) -> Blocking | None:
    """The blocking of a convolution; None for an order of the output's axes or for types that no kernel computes.
    Blocks have at most `most_rows` rows, where it is not 0 and staging does not need more. Tasks are `slices`
    of the positions where there are slices and that can be."""
    compute = compute_of(problem.input_type, problem.result_type, problem.quads)
    if compute is None or not _is_supported(problem, compute):
        return None
    plan = _axis_plan(problem, compute)
    task_rows, task_cols, vectors = _task_grid(
        problem, target, compute, positions_of(plan.axes), plan.row_unit, b_packed
    )
    rows = positions_of(plan.axes)
    in_chain = None
    if is_symbolic([slices.parts]):
        if is_multiple(rows, slices.parts * plan.row_unit):
            in_chain = slices.of_slice(rows)
            task_rows = slices.choose(in_chain, task_rows)
    elif not is_symbolic([rows]) and slices.parts > 1 and rows % (slices.parts * plan.row_unit) == 0:
        task_rows, task_cols = rows // slices.parts, problem.out_channels
    tiling = _Tiling(
        vectors * lanes_of(target, compute),
        rows_of(target, compute, vectors),
        SIZES[COMPUTE_TYPES[compute]],
    )
    block_rows = _block_rows(problem, target, plan, tiling, most_rows, task_rows)
    has_several_blocks = is_symbolic([task_rows]) or block_rows < task_rows
    reuses_b = (plan.stages_input or has_several_blocks) and not b_packed
    if reuses_b:
        columns = PACKED_BYTES // (plan.depth * tiling.size) // tiling.nr * tiling.nr
        task_cols = min(task_cols, max(tiling.nr, columns))
    packed = 0 if b_packed else _packed_elements(plan, target, tiling, task_cols, reuses_b)
    offsets, scratch_bytes = scratch_layout(
        _scratch_parts(problem, plan, tiling, block_rows, task_cols, packed)
    )
    return Blocking(
        problem,
        plan.phases,
        compute,
        vectors,
        plan.stages_input,
        plan.depth * tiling.nr * tiling.size if b_packed else 0,
        reuses_b,
        plan.split_axis,
        plan.merged_axes,
        plan.k,
        block_rows,
        plan.row_unit,
        task_rows,
        task_rows if in_chain is None else in_chain,
        task_cols,
        offsets,
        scratch_bytes,
    )


def _is_supported(problem: ConvolutionProblem, compute: str) -> bool:
    """Whether the kernel takes these types, this order of the output's axes, and these sizes that must be known."""
    return (
        problem.input_type in sources(compute)
        and (problem.kernel_type is problem.input_type or problem.converts_kernel)
        and (problem.channels_last or features_before_positions(problem))
        and not is_symbolic([problem.groups, problem.in_channels, problem.out_channels, problem.window])
    )


def _axis_plan(problem: ConvolutionProblem, compute: str) -> _AxisPlan:
    axes = axes_of(problem)
    phases = _phases(problem, axes)
    stages = _stages_input(problem, axes, phases, compute)
    split_axis = next((j for j, a in enumerate(axes) if not a.is_plain), len(axes) - 1)
    merged_axes = 0 if len(phases) > 1 else _merged_axes(problem, axes, stages)
    merged_window = window_of(axes[len(axes) - merged_axes :])
    row_unit = positions_of(axes[split_axis + 1 :]) if stages else 1
    if len(phases) > 1:
        row_unit = positions_of(axes[1:]) if axes[0].is_plain else positions_of(axes)
    return _AxisPlan(
        axes,
        phases,
        stages,
        split_axis,
        merged_axes,
        merged_window,
        problem.in_channels * merged_window,
        tuple(window_of(phase.axes[: len(axes) - merged_axes]) for phase in phases),
        row_unit,
    )


def _block_rows(
    problem: ConvolutionProblem,
    target: Target,
    plan: _AxisPlan,
    tiling: _Tiling,
    most_rows: int,
    task_rows: int,
) -> int:
    """Positions of a block: the input that they see stays in L2 while the panels of B pass by. Blocks are whole tiles,
    or boxes of staged input, and no longer than a task."""
    strides = 1 if plan.stages_input else math.prod(a.stride for a in plan.axes)
    row_bytes = max(1, problem.in_channels * tiling.size * strides)
    table_rows = TABLE_BYTES // (8 * max(max(plan.taps), 1))
    rows = max(tiling.mr, min(target.l2_bytes * 2 // 5 // row_bytes, table_rows))
    if most_rows:
        rows = max(tiling.mr, min(rows, most_rows))
    if not plan.stages_input:
        rows = rows // tiling.mr * tiling.mr
    elif len(plan.phases) == 1:
        rows = larger(plan.row_unit, rows // plan.row_unit * plan.row_unit)
    else:
        rows = maximum(positions_of(p.axes[plan.split_axis + 1 :]) for p in plan.phases)
    if not is_symbolic([task_rows]):
        return max(1, min(rows, max(task_rows, 1)))
    return smaller(rows, positions_of(plan.axes)) if len(plan.phases) == 1 else rows


def _packed_elements(plan: _AxisPlan, target: Target, tiling: _Tiling, task_cols: int, reuses_b: bool) -> int:
    """Elements of B that are packed at a time: all that a task reads, where blocks share it, or some panels."""
    if reuses_b:
        return plan.depth * -(-task_cols // tiling.nr) * tiling.nr
    panel_row_bytes = tiling.nr * tiling.size
    depths = (
        math.prod(depth_block(taps, plan.k, plan.merged_window, panel_row_bytes, target))
        for taps in plan.taps
    )
    return max(depths) * PANELS_AT_ONCE * tiling.nr


def _scratch_parts(
    problem: ConvolutionProblem,
    plan: _AxisPlan,
    tiling: _Tiling,
    block_rows: int,
    task_cols: int,
    packed: int,
) -> dict[str, int]:
    """Bytes of the parts of a thread's scratch; `packed`: elements of packed B."""
    has_tail = task_cols % tiling.nr or problem.out_channels % tiling.nr
    staged = (
        [_staged_elements(problem, p.axes, plan.split_axis, block_rows) for p in plan.phases]
        if plan.stages_input
        else [0]
    )
    return {
        "packed B": packed * tiling.size,
        "rows of A": max(plan.taps) * block_rows * 8,
        "rows of C": block_rows * 8,
        "tail": block_rows * (8 + tiling.nr * tiling.size) + 64 if has_tail else 0,
        "zeros": 0 if plan.stages_input else plan.k * tiling.size,
        "staged input": maximum(staged) * tiling.size,
        "tile of C": 0 if problem.channels_last else block_rows * task_cols * tiling.size,
    }


def packable(
    convolution: Instruction, result_type: ElementType, target: Target
) -> GemmProblem | ConvolutionProblem | None:
    """The problem whose B is the convolution's kernel, packed beforehand: a GEMM (packed_b_layout), or a convolution
    (packed_kernel); None where the kernel of the convolution takes no packed weights."""
    if not convolution.shape.elements:
        return None
    problem = convolution_problem(convolution, result_type)
    gemm = as_gemm(problem)
    if gemm is not None:
        return gemm
    if (
        problem.groups > 1
        or sums_across(target, problem.quads)
        or problem.out_channels <= target.lanes(result_type.bits)
        or (problem.input_batch == 1 and problem.input_feature != 1)
    ):
        return None
    return problem


def packed_kernel(problem: ConvolutionProblem, target: Target) -> tuple[PackedLayout, Blocking] | None:
    """The layout in which the kernel takes weights that are packed beforehand; None where it takes none.

    Rows of the matrix are window elements in the order of axes_of, then input features; groups are a batch axis.
    """
    blocking = plan_blocking(problem, target, True)
    if blocking is None or len(blocking.phases) != 1:
        return None
    depth = blocking.k * window_of(blocking.tap_axes(blocking.phases[0]))
    columns = blocking.vectors * lanes_of(target, blocking.compute)
    shape = (problem.groups, -(-problem.out_channels // columns), depth, columns)
    return (PackedLayout(shape, columns, STORED[blocking.compute]), blocking) if min(shape) > 0 else None


def serial_microseconds(problem: ConvolutionProblem, target: Target) -> float:
    """Estimate of one thread's time at 70 % of peak, without the multiplications with holes."""
    lanes = target.lanes(problem.result_type.bits) if problem.result_type.is_float or problem.quads else 1
    lanes *= QUAD if problem.quads else 1
    holes = math.prod(a.base_dilation for a in problem.axes)
    return estimate(problem.flops) / holes / (lanes * (4 if target.has_fma else 2) * 0.7) / (CLOCK_GHZ * 1e3)


def depth_block(taps: int, k: int, merged: int, panel_row_bytes: int, target: Target) -> tuple[int, int]:
    """(taps, elements of K of each) that are summed at a time; a panel of B of that depth is about as large as L1.

    `merged`: window elements in one tap. A long K is taken tap by tap, so that B is packed some panels at a time, in
    longer lines.
    """
    depth = max(64, target.l1_bytes // panel_row_bytes * 5 // 4)
    if merged == 1 and 2 * k >= depth:
        return 1, -(-k // -(-k // depth))
    return max(1, -(-taps // max(-(-taps * k // depth), 1))), max(1, k)


def tile_sizes(blocking: Blocking, target: Target) -> tuple[tuple[int, int], ...]:
    """(width in vectors, height) of the tiles that all blocks of positions and of features are cut into."""
    lanes, most = _lanes_and_rows(blocking, target)
    return tiles(target, blocking.vectors, lanes, most, blocking.row_counts, blocking.column_counts)


def parts_of_phase(blocking: Blocking, target: Target, parameters: Mapping[P, int]) -> frozenset[Part]:
    """The parts of the library's functions that a phase with these parameters runs."""
    lanes, most = _lanes_and_rows(blocking, target)
    k = parameters[P.K]
    depths = Counts.of(k, larger(k, 1), parameters[P.K_BLOCK])
    if parameters[P.TAPS] > parameters[P.TAP_BLOCK]:
        depths = dataclasses.replace(depths, are_several=True)
    nr = blocking.vectors * lanes
    used = used_parts(most, nr, blocking.row_counts, blocking.column_counts, depths)
    return used if blocking.panel_bytes else used | {Part.PACK_B}


def _lanes_and_rows(blocking: Blocking, target: Target) -> tuple[int, int]:
    """(lanes of a vector, rows of the tallest tile)."""
    return lanes_of(target, blocking.compute), rows_of(target, blocking.compute, blocking.vectors)


def _block_heights(blocking: Blocking) -> set[int]:
    """The counts of positions in the blocks of all tasks."""
    positions = blocking.problem.batch * blocking.problem.positions
    heights: set[int] = set()
    for phase in filter(lambda p: p.positions, blocking.phases):
        for low in range(0, positions, blocking.task_rows):
            high = min(low + blocking.task_rows, positions)
            if len(blocking.phases) > 1:
                share = phase.positions // (positions // blocking.row_unit)
                low, high = low // blocking.row_unit * share, high // blocking.row_unit * share
            if blocking.stages_input:
                heights |= _staged_block_heights(blocking, phase, low, high)
            else:
                heights |= {min(blocking.block_rows, high - low), (high - low) % blocking.block_rows}
    return heights


def _staged_block_heights(blocking: Blocking, phase: Phase, low: int, high: int) -> set[int]:
    """The counts of positions in the blocks of staged positions low to high."""
    inner, height = blocking.split_rows(phase), blocking.split_height(phase)
    per_image = phase.axes[blocking.split_axis].output
    first, end = low // inner, high // inner
    images = range(first // per_image * per_image, end, per_image)
    heights: set[int] = set()
    for start in (*images[:2], *images[-1:]):  # those between are whole, as the second is
        count = min(per_image, end - start) - max(first - start, 0)
        heights |= {min(height, count) * inner, count % height * inner}
    return heights


def _phases(problem: ConvolutionProblem, axes: tuple[Axis, ...]) -> tuple[Phase, ...]:
    if problem.channels_last:
        return phases_of(axes, problem.kernel_offset)
    return (Phase(axes, problem.kernel_offset, 0),)


def _stages_input(
    problem: ConvolutionProblem, axes: Sequence[Axis], phases: Sequence[Phase], compute: str
) -> bool:
    """Whether input is copied: it has another type or order of axes, holes, or few features in a window."""
    element = problem.input_type
    return (
        not problem.channels_last
        or problem.input_feature != 1
        or element.item_bytes != SIZES[COMPUTE_TYPES[compute]]
        or any(a.base_dilation > 1 for p in phases for a in p.axes)
        or (problem.in_channels < MIN_FEATURES_IN_PLACE and any(a.window > 1 for a in axes))
    )


def _merged_axes(problem: ConvolutionProblem, axes: Sequence[Axis], stages: bool) -> int:
    """How many of the last axes have window elements contiguous with the input features."""
    k = step = problem.in_channels
    for count, a in enumerate(reversed(axes)):
        if not stages and (a.has_border or a.window < 1):
            return count
        if a.window != 1:
            stride = step if stages else a.input_stride
            if a.window_dilation != 1 or stride != k or k * a.window > MAX_MERGED_K:
                return count
            k *= a.window
        step *= a.extent(a.output)
    return len(axes)


def _staged_elements(problem: ConvolutionProblem, axes: Sequence[Axis], split_axis: int, rows: int) -> int:
    """Elements of staged input of a block of so many positions."""
    inner = positions_of(axes[split_axis + 1 :])
    height = smaller(axes[split_axis].output, larger(1, rows // larger(inner, 1)))
    lines = axes[split_axis].extent(height)
    return lines * math.prod(a.extent(a.output) for a in axes[split_axis + 1 :]) * problem.in_channels


def scratch_layout(part_bytes: dict[str, int]) -> tuple[dict[str, int], int]:
    """(offset of each part, bytes of all) of a thread's scratch, with a cache line between parts."""
    offsets, end = {}, 0
    for name, bytes_ in part_bytes.items():
        offsets[name] = end
        end += (-(-bytes_ // CACHE_LINE) + 1) * CACHE_LINE if bytes_ else 0
    return offsets, end


def _task_grid(
    problem: ConvolutionProblem, target: Target, compute: str, positions: int, row_unit: int, b_packed: bool
) -> tuple[int, int, int]:
    """(rows, columns, vectors of a panel) of a task."""
    counts = (packed_vectors(target, compute, problem.out_channels),) if b_packed else vector_counts(compute)
    lanes = lanes_of(target, compute)
    typical = estimate(positions), estimate(row_unit)
    grids = ((_grid(problem, target, *typical, v, lanes, b_packed), v) for v in counts)
    (_, rows, columns), vectors = min(grids)
    if not is_symbolic([positions]):
        return rows, columns, vectors
    # A share of each thread, if it is worth a task.
    rows_of_task = math.ceil(TASK_US * typical[0] / max(serial_microseconds(problem, target), 1e-3))
    rows = larger(ceiling(positions, target.threads), rows_of_task)
    return ceiling(rows, row_unit) * row_unit, problem.out_channels, vectors


def _grid(
    problem: ConvolutionProblem,
    target: Target,
    positions: int,
    row_unit: int,
    vectors: int,
    lanes: int,
    b_packed: bool,
) -> tuple[float, int, int]:
    """(cost, rows, columns) of a task with panels of so many vectors: rows a multiple of the unit."""
    m, n = max(positions, 1), max(problem.out_channels, 1)
    read_b = READ_COST if b_packed else PACK_COST
    work = partial(columns_work, target, lanes, vectors)

    def cost(rows: int, cols: int) -> float:
        """Time of the busiest thread, in elements of C, with the cost of packing and of the tables."""
        tasks = -(-m // rows) * -(-n // cols) * problem.groups
        return (-(-tasks // target.threads) + STRAGGLER_COST) * (
            rows * work(cols) + read_b * cols + 8.0 * rows + 200.0
        )

    microseconds = serial_microseconds(problem, target)
    whole = (cost(m, n), m, n)
    if target.threads == 1 or microseconds < PARALLEL_US:
        return whole
    max_tasks = min(int(microseconds / TASK_US), 4 * target.threads)
    return min(whole, best_grid((m, row_unit), (n, vectors * lanes), max_tasks, cost))
