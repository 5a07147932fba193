"""How a convolution is computed as a matrix product: what is staged, the size of blocks and tasks, scratch memory.

M counts output positions, N output features, and K the elements that one tap adds: input features, or input features of
several neighbouring window elements where they are contiguous. A row of A is `taps` segments of K elements.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial

from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_symbolic, larger, maximum, smaller
from ...analysis.convolution_problem import (
    Axis,
    ConvolutionProblem,
    Phase,
    axes_of,
    features_before_positions,
    phases_of,
    positions_of,
    window_of,
)
from ...analysis.quads import QUAD
from ..gemm.blocking import (
    PACK_COST,
    READ_COST,
    STRAGGLER_COST,
    PackedLayout,
    best_grid,
    columns_work,
    packed_vectors,
)
from ..gemm.compute_types import CACHE_LINE, COMPUTE_TYPES, SIZES, STORED, compute_of, lanes_of, sources
from ..gemm.microkernel import tile_heights, tile_widths, vector_counts
from .microkernel import PANELS_AT_ONCE, rows_of

CLOCK_GHZ = 3.0  # assumed for estimates of time
TASK_US, PARALLEL_US = 20.0, 30.0  # the shortest task, and the shortest convolution that is more than one
MIN_FEATURES_IN_PLACE = (
    32  # with fewer input features, staged input is better than pointers to each window element
)
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
    `panel_bytes`, if that is not 0. A task is `task_rows` positions, a multiple of `row_unit`, by `task_cols` features.
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
    task_cols: int
    scratch_offsets: dict[str, int]
    scratch_bytes: int

    @property
    def transposes_output(self) -> bool:
        """The output has its positions contiguous: tiles of C are transposed when a block is done."""
        return not self.problem.channels_last

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


def plan_blocking(
    problem: ConvolutionProblem, target: Target, b_packed: bool = False, most_rows: int = 0
) -> Blocking | None:
    """The blocking of a convolution; None for an order of the output's axes or for types that no kernel computes.
    Blocks have at most `most_rows` rows, where it is not 0 and staging does not need more."""
    compute = compute_of(problem.input_type, problem.result_type, problem.quads)
    if (
        compute is None
        or problem.input_type not in sources(compute)
        or (problem.kernel_type is not problem.input_type and not problem.converts_kernel)
        or not (problem.channels_last or features_before_positions(problem))
        or is_symbolic([problem.groups, problem.in_channels, problem.out_channels, problem.window])
    ):
        return None
    axes = axes_of(problem)
    phases = _phases(problem, axes)
    stages = _stages_input(problem, axes, phases, compute)
    split_axis = next((j for j, a in enumerate(axes) if not a.is_plain), len(axes) - 1)
    merged_axes = 0 if len(phases) > 1 else _merged_axes(problem, axes, stages)
    split = len(axes) - merged_axes
    k = problem.in_channels * window_of(axes[split:])
    taps = [window_of(p.axes[:split]) for p in phases]
    row_unit = positions_of(axes[split_axis + 1 :]) if stages else 1
    if len(phases) > 1:
        row_unit = positions_of(axes[1:]) if axes[0].is_plain else positions_of(axes)
    task_rows, task_cols, vectors = _task_grid(
        problem, target, compute, positions_of(axes), row_unit, b_packed
    )
    nr = vectors * lanes_of(target, compute)
    size = SIZES[COMPUTE_TYPES[compute]]
    mr = rows_of(target, compute, vectors)
    block_rows = _block_rows(problem, target, size, stages, max(taps), mr)
    if most_rows:
        block_rows = max(mr, min(block_rows, most_rows))
    if not stages:
        block_rows = block_rows // mr * mr
    elif len(phases) == 1:
        block_rows = larger(row_unit, block_rows // row_unit * row_unit)
    else:
        block_rows = maximum(positions_of(p.axes[split_axis + 1 :]) for p in phases)
    is_known = not is_symbolic([task_rows])
    if is_known:
        block_rows = max(1, min(block_rows, max(task_rows, 1)))
    elif len(phases) == 1:
        block_rows = smaller(block_rows, positions_of(axes))
    depth = max(k * max(taps), 1)
    reuses_b = (stages or not is_known or block_rows < task_rows) and not b_packed
    packed = 0
    if reuses_b:
        task_cols = min(task_cols, max(nr, PACKED_BYTES // (depth * size) // nr * nr))
        packed = depth * -(-task_cols // nr) * nr
    elif not b_packed:
        depths = [math.prod(depth_block(t, k, window_of(axes[split:]), nr * size, target)) for t in taps]
        packed = max(depths) * PANELS_AT_ONCE * nr
    has_tail = task_cols % nr or problem.out_channels % nr
    staged = [_staged_elements(problem, p.axes, split_axis, block_rows) for p in phases] if stages else [0]
    offsets, scratch_bytes = scratch_layout(
        {
            "packed B": packed * size,
            "rows of A": max(taps) * block_rows * 8,
            "rows of C": block_rows * 8,
            "tail": block_rows * (8 + nr * size) + 64 if has_tail else 0,
            "zeros": 0 if stages else k * size,
            "staged input": maximum(staged) * size,
            "tile of C": 0 if problem.channels_last else block_rows * task_cols * size,
        }
    )
    return Blocking(
        problem,
        phases,
        compute,
        vectors,
        stages,
        depth * nr * size if b_packed else 0,
        reuses_b,
        split_axis,
        merged_axes,
        k,
        block_rows,
        row_unit,
        task_rows,
        task_cols,
        offsets,
        scratch_bytes,
    )


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


def tile_sizes(blocking: Blocking, target: Target) -> list[tuple[int, int]]:
    """(width in vectors, height) of the tiles that all blocks of positions and of features are cut into."""
    problem = blocking.problem
    columns = min(blocking.task_cols, problem.out_channels), problem.out_channels % blocking.task_cols
    lanes = lanes_of(target, blocking.compute)
    widths = set().union(*(tile_widths(target, count, blocking.vectors, lanes) for count in columns))
    most = rows_of(target, blocking.compute, blocking.vectors)
    is_known = not is_symbolic([blocking.task_rows])
    heights = tile_heights(_block_heights(blocking), most) if is_known else range(1, most + 1)
    return list(itertools.product(sorted(widths), sorted(heights)))


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


def _block_rows(
    problem: ConvolutionProblem, target: Target, size: int, stages: bool, taps: int, mr: int
) -> int:
    """Positions of a block: the input that they see stays in L2 while the panels of B pass by."""
    strides = 1 if stages else math.prod(a.stride for a in axes_of(problem))
    row_bytes = max(1, problem.in_channels * size * strides)
    return max(mr, min(target.l2_bytes * 2 // 5 // row_bytes, TABLE_BYTES // (8 * max(taps, 1))))


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
