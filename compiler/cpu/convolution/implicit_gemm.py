"""Convolution as a matrix product: rows are output positions, columns output features, the sum runs over the window
elements and input features.

The rows of A are never copied together: tables of pointers say where the runs of input features lie that a position
sees (convolution/microkernel.py). The pointers lead into the input itself, or, where its type or order is another,
features are few, or it has holes, into a band: a copy of the part that some output positions see, converted, with
padding and holes as zeros. Input that is dilated for a backward pass is split into phases, convolutions without holes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ..codegen.kernel_info import KernelPlan
from ..gemm.blocking import (
    HELD_UP,
    PACK_COST,
    READ_COST,
    PackedLayout,
    best_grid,
    columns_work,
    packed_vectors,
)
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, compute_of, lanes_of, sources
from ..gemm.microkernel import Sweeps, constant_table, sweep_table, tile_heights, tile_widths, vector_counts
from ..gemm.packing import use_panels, use_rows
from .microkernel import (
    BLOCK_PARAMETERS,
    PANELS_AT_ONCE,
    P,
    convolution_name,
    convolution_sweep_name,
    declare_convolution,
    rows_of,
    write_convolution,
    write_convolution_sweep,
)
from .problem import Axis, ConvolutionProblem

KERNEL_PARAMETERS = (("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid"))
CLOCK_GHZ = 3.0  # assumed for estimates of time
TASK_US, PARALLEL_US = 20.0, 30.0  # the shortest task, and the shortest convolution that is more than one
FEW_INPUTS = 32  # below this many features a band is better than pointers to single runs
LONGEST_MERGED_RUN = 1024
_STORED = {"f32": ElementType.F32, "f64": ElementType.F64, "i32": ElementType.S32, "i64": ElementType.S64}
PACKED_BYTES = 8 << 20  # of B at a time


@dataclasses.dataclass(frozen=True)
class Phase:
    """A convolution without holes that gives a part of the output: positions from `offset`, as its axes say.

    Units: offsets in elements.
    """

    axes: tuple[Axis, ...]
    kernel_offset: int
    offset: int

    @property
    def positions(self) -> int:
        """Output positions."""
        return math.prod(a.output for a in self.axes)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """How a convolution is computed.

    B is packed, and kept from one block of positions to the next if `keep`, but where it comes in panels of
    `panel_bytes`. The last `merged` axes make one run of `run`
    elements with the features. A band is copied from axis `slab` on, for a block of positions that is a box. A task is
    `task_rows` positions, a multiple of `unit`, by `task_cols` features.
    Units: `starts` of the parts of a thread's scratch in bytes.
    """

    problem: ConvolutionProblem
    phases: tuple[Phase, ...]
    compute: str
    vectors: int
    banded: bool
    panel_bytes: int
    keep: bool
    slab: int
    merged: int
    run: int
    block: int
    unit: int
    task_rows: int
    task_cols: int
    starts: dict[str, int]
    scratch_bytes: int


def emit_convolution_gemm(
    module: ModuleText,
    target: Target,
    problem: ConvolutionProblem,
    moved: int,
    epilogue: str | None,
    b_packed: bool = False,
) -> KernelPlan | None:
    """Writes the kernel; None for an order of the output's axes or for types that no kernel computes.

    With `b_packed` the buffer of the kernel has the layout of packed_kernel.
    The view of the epilogue is [1, positions, features], or [batch, features, positions] where the output lies so.
    """
    plan = _plan(problem, target, b_packed)
    if plan is None:
        return None
    compute = plan.compute
    sweeps = {
        (width, mr): convolution_sweep_name(compute, plan.vectors, width, mr)
        for width, mr in _tiles(plan, target)
    }
    if module.embed_libraries:
        write_convolution(module, target, compute, plan.vectors, "internal")
        for width, mr in sweeps:
            write_convolution_sweep(module, target, compute, plan.vectors, width, mr, "internal")
    else:
        declare_convolution(module, target, compute, plan.vectors, sweeps)
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    emitter = _Emitter(module, target, f, plan, epilogue, sweeps)
    f.loop(f["lo"], f["hi"], 1, emitter.task)
    f.ret()
    microseconds = microseconds_of(problem, target)
    tasks = emitter.tasks
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(
        module.define("convolution", f), tasks, grain, parallel, plan.scratch_bytes, problem.flops, moved
    )


# -- planning


def features_before_positions(problem: ConvolutionProblem) -> bool:
    """Whether the output is [batch, features, positions], positions in the order of the axes."""
    step = 1
    for a in reversed(problem.axes):
        if a.output > 1 and a.output_stride != step:
            return False
        step *= a.output
    channels = problem.groups * problem.outputs
    return problem.output_feature == step and (problem.batch == 1 or problem.output_batch == channels * step)


def axes_of(problem: ConvolutionProblem) -> tuple[Axis, ...]:
    """Batch and spatial axes in the output's order, the batch as an axis of window 1."""
    batch = Axis(problem.batch, 1, problem.batch, 1, 0, 1, 1, problem.input_batch, 0, problem.output_batch)
    return tuple(
        sorted(
            (a for a in (batch, *problem.axes) if a.window * a.output * a.input != 1 or a.has_border),
            key=lambda a: -a.output_stride,
        )
    ) or (batch,)


def microseconds_of(problem: ConvolutionProblem, target: Target) -> float:
    """Estimate of one thread's time at 70 % of peak, without the products with holes."""
    lanes = target.lanes(problem.result_type.bits) if problem.result_type.is_float else 1
    holes = math.prod(a.base_dilation for a in problem.axes)
    return problem.flops / holes / (lanes * (4 if target.has_fma else 2) * 0.7) / (CLOCK_GHZ * 1e3)


def packed_kernel(problem: ConvolutionProblem, target: Target) -> tuple[PackedLayout, _Plan] | None:
    """The layout in which `emit_convolution_gemm` takes a kernel that is packed beforehand; None where it takes none.

    Rows of the matrix are window elements in the order of axes_of, then input features; groups are a batch axis.
    """
    plan = _plan(problem, target, True)
    if plan is None or len(plan.phases) != 1:
        return None
    depth = plan.run * math.prod(
        a.window for a in plan.phases[0].axes[: len(plan.phases[0].axes) - plan.merged]
    )
    columns = plan.vectors * lanes_of(target, plan.compute)
    shape = (problem.groups, -(-problem.outputs // columns), depth, columns)
    return (PackedLayout(shape, columns, _STORED[plan.compute]), plan) if min(shape) > 0 else None


def _plan(problem: ConvolutionProblem, target: Target, b_packed: bool = False) -> _Plan | None:
    element = problem.input_type
    compute = compute_of(element, problem.result_type)
    if (
        compute is None
        or element not in sources(compute)
        or problem.kernel_type is not element
        or (problem.output_feature != 1 and not features_before_positions(problem))
    ):
        return None
    transposed = problem.output_feature != 1
    size = SIZES[COMPUTE_TYPES[compute]]
    axes = axes_of(problem)
    phases = (
        (Phase(axes, problem.kernel_offset, 0),) if transposed else phases_of(axes, problem.kernel_offset)
    )
    copied = transposed or problem.input_feature != 1 or element.item_bytes != size
    banded = (
        copied
        or any(a.base_dilation > 1 for p in phases for a in p.axes)
        or (problem.inputs < FEW_INPUTS and any(a.window > 1 for a in axes))
    )
    slab = next((j for j, a in enumerate(axes) if not a.is_plain), len(axes) - 1)
    merged = 0 if len(phases) > 1 else _merged(problem, axes, banded)
    split = len(axes) - merged
    elements = math.prod(a.window for a in axes[split:])
    run = problem.inputs * elements
    taps_of_phases = [math.prod(a.window for a in p.axes[:split]) for p in phases]
    taps = max(taps_of_phases)
    lanes = lanes_of(target, compute)
    positions = math.prod(a.output for a in axes)
    unit = math.prod(a.output for a in axes[slab + 1 :]) if banded else 1
    if len(phases) > 1:
        unit = math.prod(a.output for a in axes[1:]) if axes[0].is_plain else positions
    (_, rows, cols), vectors = min(
        (
            _grid(
                problem, target, positions, unit, partial(columns_work, target, lanes, v), v * lanes, b_packed
            ),
            v,
        )
        for v in ((packed_vectors(target, compute, problem.outputs),) if b_packed else vector_counts(compute))
    )
    nr, mr = vectors * lanes, rows_of(target, compute, vectors)
    # The input that a block of rows sees stays in L2 while the panels of B pass by.
    row_bytes = max(1, problem.inputs * size * (1 if banded else math.prod(a.stride for a in axes)))
    block = max(mr, min(target.l2_bytes * 2 // 5 // row_bytes, (64 << 10) // (8 * max(taps, 1))))
    block = max(unit, block // unit * unit) if banded and len(phases) == 1 else block // mr * mr
    if banded and len(phases) > 1:
        block = max(math.prod(a.output for a in p.axes[slab + 1 :]) for p in phases)
    block = max(1, min(block, max(rows, 1)))
    depth = max(run * taps, 1)
    keep = (banded or block < rows) and not b_packed
    if b_packed:
        packed = 0
    elif keep:
        cols = min(cols, max(nr, PACKED_BYTES // (depth * size) // nr * nr))
        packed = depth * -(-cols // nr) * nr
    else:
        depths = [math.prod(_depths(t, run, elements, nr * size, target)) for t in taps_of_phases]
        packed = max(depths) * PANELS_AT_ONCE * nr
    parts = {
        "packed": packed * size,
        "A": taps * block * 8,
        "C": block * 8,
        "tail": block * (8 + nr * size) + 64 if cols % nr or problem.outputs % nr else 0,
        "zeros": 0 if banded else run * size,
        "band": max(_band_bytes(problem, p.axes, slab, block, size) for p in phases) if banded else 0,
    }
    parts["made"] = block * cols * size if transposed else 0
    starts, at = {}, 0
    for name, bytes_ in parts.items():
        starts[name] = at
        at += -(-bytes_ // 64) * 64 + (64 if bytes_ else 0)
    panel_bytes = depth * nr * size if b_packed else 0
    return _Plan(
        problem,
        phases,
        compute,
        vectors,
        banded,
        panel_bytes,
        keep,
        slab,
        merged,
        run,
        block,
        unit,
        rows,
        cols,
        starts,
        at,
    )


def _depths(taps: int, run: int, merged: int, panel_row_bytes: int, target: Target) -> tuple[int, int]:
    """(taps, elements of each run) that are summed at a time; a panel of B of that depth is about as large as L1.

    `merged`: window elements in one run.

    Long runs go one by one, so that B is packed some panels at a time, in longer lines.
    """
    deep = max(64, target.l1_bytes // panel_row_bytes * 5 // 4)
    if merged == 1 and 2 * run >= deep:
        return 1, -(-run // -(-run // deep))
    return max(1, -(-taps // max(-(-taps * run // deep), 1))), max(1, run)


def phases_of(axes: tuple[Axis, ...], kernel_offset: int) -> tuple[Phase, ...]:
    """The convolution as convolutions without holes, one for each remainder of the output position."""
    choices = []
    for a in axes:
        step = a.base_dilation
        if step == 1 or a.stride != 1 or a.window_dilation != 1:
            choices.append([(a, 0, 0)])
            continue
        parts = []
        for phase in range(min(step, a.output)):
            first = (a.pad - phase) % step
            part = Axis(
                a.input,
                max(0, -(-(a.window - first) // step)),
                -(-(a.output - phase) // step),
                1,
                (a.pad - phase - first) // step,
                1,
                1,
                a.input_stride,
                a.kernel_stride * step,
                a.output_stride * step,
            )
            parts.append((part, first * a.kernel_stride, phase * a.output_stride))
        choices.append(parts)
    return tuple(
        Phase(
            tuple(c[0] for c in chosen), kernel_offset + sum(c[1] for c in chosen), sum(c[2] for c in chosen)
        )
        for chosen in itertools.product(*choices)
    )


def _merged(problem: ConvolutionProblem, axes: tuple[Axis, ...], banded: bool) -> int:
    """How many of the last axes make one run of memory with the input features."""
    run = step = problem.inputs
    for count, a in enumerate(reversed(axes)):
        if not banded and (a.has_border or a.window < 1):
            return count
        if a.window != 1:
            if (
                a.window_dilation != 1
                or (step if banded else a.input_stride) != run
                or run * a.window > LONGEST_MERGED_RUN
            ):
                return count
            run *= a.window
        step *= _extent(a, a.output)
    return len(axes)


def _extent(a: Axis, positions: int) -> int:
    """Dilated input positions that this many output positions see."""
    return max(0, (positions - 1) * a.stride + (a.window - 1) * a.window_dilation + 1) if positions else 0


def _band_bytes(problem: ConvolutionProblem, axes: tuple[Axis, ...], slab: int, block: int, size: int) -> int:
    inner = math.prod(a.output for a in axes[slab + 1 :])
    height = min(axes[slab].output, max(1, block // max(inner, 1)))
    return (
        _extent(axes[slab], height)
        * math.prod(_extent(a, a.output) for a in axes[slab + 1 :])
        * problem.inputs
        * size
    )


def _tiles(plan: _Plan, target: Target) -> list[tuple[int, int]]:
    """(width in vectors, height) of the tiles that all blocks of positions and of features are cut into."""
    positions = plan.problem.batch * plan.problem.positions
    counts: set[int] = set()
    for phase in filter(lambda p: p.positions, plan.phases):
        for low in range(0, positions, plan.task_rows):
            high = min(low + plan.task_rows, positions)
            if len(plan.phases) > 1:
                share = phase.positions // (positions // plan.unit)
                low, high = low // plan.unit * share, high // plan.unit * share
            if not plan.banded:
                counts |= {min(plan.block, high - low), (high - low) % plan.block}
                continue
            inner = math.prod(a.output for a in phase.axes[plan.slab + 1 :])
            slabs, height = phase.axes[plan.slab].output, max(1, plan.block // inner)
            first, end = low // inner, high // inner
            images = range(first // slabs * slabs, end, slabs)
            for before in (*images[:2], *images[-1:]):  # those between are whole, as the second is
                count = min(slabs, end - before) - max(first - before, 0)
                counts |= {min(height, count) * inner, count % height * inner}
    columns = min(plan.task_cols, plan.problem.outputs), plan.problem.outputs % plan.task_cols
    lanes = lanes_of(target, plan.compute)
    widths = set().union(*(tile_widths(target, count, plan.vectors, lanes) for count in columns))
    return list(
        itertools.product(
            sorted(widths), sorted(tile_heights(counts, rows_of(target, plan.compute, plan.vectors)))
        )
    )


def _grid(
    problem: ConvolutionProblem,
    target: Target,
    positions: int,
    unit: int,
    work: Callable[[int], float],
    nr: int,
    b_packed: bool,
) -> tuple[float, int, int]:
    """(cost, rows, columns) of a task: rows a multiple of the unit. `work`: what so many columns cost."""
    m, n = max(positions, 1), max(problem.outputs, 1)
    read_b = READ_COST if b_packed else PACK_COST

    def cost(rows: int, cols: int) -> float:
        """Time of the busiest thread, in elements of C, with what packing and the tables cost."""
        tasks = -(-m // rows) * -(-n // cols) * problem.groups
        return (-(-tasks // target.threads) + HELD_UP) * (
            rows * work(cols) + read_b * cols + 8.0 * rows + 200.0
        )

    microseconds = microseconds_of(problem, target)
    best = (cost(m, n), m, n)
    if target.threads == 1 or microseconds < PARALLEL_US:
        return best
    wanted = min(int(microseconds / TASK_US), 4 * target.threads)
    return min(best, best_grid((m, unit), (n, nr), wanted, cost))


# -- writing


class _Emitter:
    """Writes the body of one task."""

    def __init__(
        self,
        module: ModuleText,
        target: Target,
        f: Function,
        plan: _Plan,
        epilogue: str | None,
        sweeps: Sweeps,
    ) -> None:
        self.module, self.target, self.f, self.plan, self.epilogue = module, target, f, plan, epilogue
        problem = plan.problem
        self.sweeps = sweep_table(target, plan.vectors, rows_of(target, plan.compute, plan.vectors), sweeps)
        self.type = COMPUTE_TYPES[plan.compute]
        self.size, self.item = SIZES[self.type], problem.input_type.item_bytes
        self.transposed = problem.output_feature != 1
        self.positions = problem.batch * problem.positions
        self.row_tasks = -(-self.positions // plan.task_rows)
        self.col_tasks = -(-problem.outputs // plan.task_cols)
        self.tasks = self.row_tasks * self.col_tasks * problem.groups
        self.source, self.kernel, self.made = (
            f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3)
        )
        own = f.load("ptr", f.offset(f["buffers"], 3, "ptr"), 8)
        own = f.offset(own, f.mul(f["tid"], plan.scratch_bytes))
        self.parts = {name: f.offset(own, start) for name, start in plan.starts.items()}
        if not plan.banded:
            self._clear(self.parts["zeros"], plan.run * self.size)

    def _clear(self, place: Value, count: Value | int) -> None:
        self.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        self.f.do(f"call void @llvm.memset.p0.i64({place}, i8 0, {i64(count)}, i1 false)")

    def task(self, t: Value, _: list[Value]) -> None:
        """One range of positions and of a group's output features, for every phase."""
        f, plan, problem = self.f, self.plan, self.plan.problem
        col = f.mul(f.remainder(t, self.col_tasks), plan.task_cols)
        low = f.mul(f.remainder(f.divide(t, self.col_tasks), self.row_tasks), plan.task_rows)
        group = f.divide(t, self.col_tasks * self.row_tasks)
        cols = f.minimum(plan.task_cols, f.sub(problem.outputs, col))
        high = f.minimum(f.add(low, plan.task_rows), self.positions)
        self.group_source = f.offset(self.source, f.mul(group, problem.input_group * self.item))
        if plan.panel_bytes:
            columns = plan.vectors * lanes_of(self.target, plan.compute)
            panel = f.add(f.mul(group, -(-problem.outputs // columns)), f.divide(col, columns))
            self.task_kernel = self.parts["packed"] = f.offset(self.kernel, f.mul(panel, plan.panel_bytes))
        else:
            self.task_kernel = f.offset(
                self.kernel,
                f.mul(
                    f.add(f.mul(group, problem.kernel_group), f.mul(col, problem.kernel_output)), self.item
                ),
            )
        column = f.add(f.mul(group, problem.outputs), col)
        self.task_made, self.cols = (
            f.offset(self.made, f.mul(column, problem.output_feature), self.type),
            cols,
        )

        def finish(low: Value | int, high: Value | int) -> None:
            if self.epilogue and self.transposed:
                first = f.remainder(low, problem.positions)
                f.call(
                    self.epilogue,
                    "void",
                    [
                        f["ctx"],
                        f["buffers"],
                        *map(
                            i64,
                            (
                                f.divide(low, problem.positions),
                                column,
                                f.add(column, cols),
                                first,
                                f.add(first, f.sub(high, low)),
                            ),
                        ),
                    ],
                )
            elif self.epilogue:
                f.call(
                    self.epilogue,
                    "void",
                    [
                        f["ctx"],
                        f["buffers"],
                        i64(0),
                        i64(low),
                        i64(high),
                        i64(column),
                        i64(f.add(column, cols)),
                    ],
                )

        if len(plan.phases) == 1:
            return self.phase(plan.phases[0], low, high, finish)
        # A range of whole images: every phase has its own count of positions in it.
        images = self.positions // plan.unit
        for phase in plan.phases:
            share = phase.positions // images
            self.phase(
                phase,
                f.mul(f.divide(low, plan.unit), share),
                f.mul(f.divide(high, plan.unit), share),
                lambda *_: None,
            )
        return finish(low, high)

    def phase(self, phase: Phase, low: Value | int, high: Value | int, finish: Callable[..., None]) -> None:
        """Computes positions low to high of a phase, block by block."""
        f, plan = self.f, self.plan
        if not phase.positions:
            return
        names = self._constants(phase)

        def block(row: Value | int, rows: Value | int, base: Value, start: Value | int) -> None:
            self._tables(phase, row, rows, base, start)
            first = (
                i64(0)
                if plan.panel_bytes
                else f.cast("zext", f.compare("icmp eq", i64(row), i64(low)), "i64")
            )
            pack = "null"
            if not plan.panel_bytes:
                pack = "@" + use_panels(
                    self.module,
                    self.target,
                    plan.problem.input_type,
                    plan.compute,
                    plan.vectors,
                    plan.problem.kernel_output,
                )
            arguments = [
                self.parts["A"],
                self.parts["C"],
                self.task_kernel,
                self.parts["packed"],
                self.parts["tail"],
                *(Value("ptr", n) for n in names),
                Value("ptr", pack),
                first,
                i64(rows),
                i64(self.cols),
            ]
            assert len(arguments) == len(BLOCK_PARAMETERS)
            f.do(
                f"call void @{convolution_name(plan.compute, plan.vectors)}({', '.join(map(str, arguments))})"
            )
            if self.transposed:
                f.call(
                    use_rows(self.module, self.target, _STORED[plan.compute], plan.compute),
                    "void",
                    [
                        self.parts["made"],
                        f.offset(self.task_made, self._place(phase, row)[1], self.type),
                        i64(self.cols),
                        i64(rows),
                        i64(self.size),
                        i64(plan.task_cols * self.size),
                        i64(plan.problem.output_feature * self.size),
                        i64(rows),
                    ],
                )
            finish(row, f.add(row, rows))

        if not plan.banded:
            f.loop(
                low,
                high,
                plan.block,
                lambda row, _: block(row, f.minimum(plan.block, f.sub(high, row)), self.group_source, 0),
            )
            return
        inner = math.prod(a.output for a in phase.axes[plan.slab + 1 :])
        slabs, height = phase.axes[plan.slab].output, max(1, plan.block // inner)
        first_slab, end = f.divide(low, inner), f.divide(high, inner)

        def outer(o: Value, _: list[Value]) -> None:
            before = f.mul(o, slabs)
            start = f.intrinsic("smax", "i64", [i64(f.sub(first_slab, before)), i64(0)])

            def slab(s: Value, _: list[Value]) -> None:
                count = f.minimum(height, f.sub(stop, s))
                self._fill(phase, o, s, count)
                block(f.mul(f.add(before, s), inner), f.mul(count, inner), self.parts["band"], s)

            stop = f.minimum(slabs, f.sub(end, before))
            f.loop(start, stop, height, slab)

        f.loop(f.divide(first_slab, slabs), f.divide(f.add(end, slabs - 1), slabs), 1, outer)

    def _constants(self, phase: Phase) -> tuple[str, str]:
        """Names of the parameter array and of the table of places of the kernel's taps."""
        plan, problem = self.plan, self.plan.problem
        split = len(phase.axes) - plan.merged
        taps = math.prod(a.window for a in phase.axes[:split])
        merged = math.prod(a.window for a in phase.axes[split:])
        run = problem.inputs * merged
        nr = plan.vectors * lanes_of(self.target, plan.compute)
        tap_block, run_part = _depths(taps, run, merged, nr * self.size, self.target)
        values = {
            P.TAPS: taps,
            P.RUN: run,
            P.TAP_BLOCK: tap_block,
            P.RUN_PART: run_part,
            P.MERGED: max(merged, 1),
            P.B_K: problem.kernel_input * self.item,
            P.B_COL: problem.kernel_output * self.item,
            P.TABLE: plan.block * 8,
            P.TAIL_TILE: -(-plan.block * 8 // 64) * 64,
            P.KEEP: int(plan.keep),
            P.PANEL: plan.panel_bytes,
        }
        places = [
            phase.kernel_offset + sum(k * a.kernel_stride for k, a in zip(element, phase.axes))
            for element in itertools.product(*(range(a.window) for a in phase.axes))
        ]
        parameters = constant_table(self.module, "conv_parameters", [values[slot] for slot in P], self.sweeps)
        taps_table = constant_table(self.module, "conv_taps", [place * self.item for place in places] or [0])
        return f"@{parameters}", f"@{taps_table}"

    def _band_strides(self, phase: Phase) -> list[int]:
        """Strides of a band in elements; 0 for the axes that it has one position of."""
        strides, step = [0] * len(phase.axes), self.plan.problem.inputs
        for j in range(len(phase.axes) - 1, self.plan.slab - 1, -1):
            strides[j] = step
            step *= _extent(phase.axes[j], phase.axes[j].output)
        return strides

    def _place(self, phase: Phase, row: Value | int) -> tuple[list[Value | int], Value | int]:
        """(position along every axis, offset in the output in elements) of a position's number."""
        f, axes = self.f, phase.axes
        to: Value | int = phase.offset
        place: list[Value | int] = [0] * len(axes)
        for j in range(len(axes) - 1, -1, -1):
            place[j] = f.remainder(row, axes[j].output) if j else row
            row = f.divide(row, axes[j].output)
            to = f.add(to, f.mul(place[j], axes[j].output_stride))
        return place, to

    def _tables(
        self, phase: Phase, row: Value | int, rows: Value | int, base: Value, start: Value | int
    ) -> None:
        """Writes where every tap of positions row, row + 1, ... lies, and where their result goes."""
        f, plan, axes = self.f, self.plan, phase.axes
        split = len(axes) - plan.merged
        taps = math.prod(a.window for a in axes[:split]) if plan.problem.inputs else 0
        strides = self._band_strides(phase) if plan.banded else [a.input_stride for a in axes]

        def position(r: Value, _: list[Value]) -> None:
            place, to = self._place(phase, f.add(row, r))
            if self.transposed:
                made = f.offset(self.parts["made"], f.mul(r, plan.task_cols), self.type)
            else:
                made = f.offset(self.task_made, to, self.type)
            f.store(made, f.offset(self.parts["C"], r, "ptr"), 8)
            if not taps:
                return
            at: Value | int = 0
            for j, a in enumerate(axes):
                o = f.sub(place[j], start) if plan.banded and j == plan.slab else place[j]
                place[j] = f.sub(f.mul(o, a.stride), 0 if plan.banded else a.pad)
                at = f.add(at, f.mul(place[j], strides[j]))
            tap_axis(0, place, at, None, f.offset(self.parts["A"], r, "ptr"))

        def tap_axis(
            j: int, place: list[Value | int], at: Value | int, valid: Value | None, entry: Value
        ) -> None:
            if j == split:
                pointer = f.offset(base, at, self.type)
                f.store(f.select(valid, pointer, self.parts["zeros"]) if valid else pointer, entry, 8)
                return
            a = axes[j]
            checked = a.has_border and not plan.banded
            step = math.prod(b.window for b in axes[j + 1 : split]) * plan.block

            def element(k: Value | int, _: list[Value]) -> None:
                inside = valid
                if checked:
                    seen = f.add(place[j], f.mul(k, a.window_dilation))
                    inside = f.compare("icmp ult", i64(seen), i64(a.input))
                    inside = f.binary("and", valid, inside) if valid else inside
                tap_axis(
                    j + 1,
                    place,
                    f.add(at, f.mul(k, a.window_dilation * strides[j])),
                    inside,
                    f.offset(entry, f.mul(k, step), "ptr"),
                )

            if a.window == 1:
                element(0, [])
            else:
                f.loop(0, a.window, 1, element)

        f.loop(0, rows, 1, position)

    def _fill(self, phase: Phase, outer: Value, start: Value, count: Value | int) -> None:
        """Copies the input that `count` slabs of positions from `start` see to the band, with zeros between."""
        f, plan, problem, axes = self.f, self.plan, self.plan.problem, phase.axes
        if not problem.inputs or not math.prod(a.window for a in axes):
            return
        strides, slab, last = self._band_strides(phase), plan.slab, len(axes) - 1
        a = axes[slab]
        height = f.add(f.mul(f.sub(count, 1), a.stride), (a.window - 1) * a.window_dilation + 1)
        if any(b.has_border for b in axes[slab:]):
            self._clear(self.parts["band"], f.mul(height, strides[slab] * self.size))
        source: Value | int = 0
        left: Value | int = outer
        for j in range(slab - 1, -1, -1):
            source = f.add(
                source, f.mul(f.remainder(left, axes[j].output) if j else left, axes[j].input_stride)
            )
            left = f.divide(left, axes[j].output)

        def copy(j: int, source: Value | int, to: Value | int) -> None:
            """Copies what lies along axes j, j + 1, ..., at these offsets in elements."""
            b = axes[j] if j <= last else None
            low = max(0, -(b.pad // b.base_dilation)) if b else 0
            high = min(b.input, -(-(_extent(b, b.output) - b.pad) // b.base_dilation)) if b else 1
            if b and j < last:
                f.loop(
                    low,
                    high,
                    1,
                    lambda i, _: copy(
                        j + 1,
                        f.add(source, f.mul(i, b.input_stride)),
                        f.add(to, f.mul(f.add(f.mul(i, b.base_dilation), b.pad), strides[j])),
                    ),
                )
                return
            rows, width, steps = (
                max(0, high - low),
                problem.inputs,
                (b.input_stride if b else 0, problem.input_feature),
            )
            place = f.offset(
                self.parts["band"],
                f.mul(f.add(to, (low * b.base_dilation + b.pad) * strides[j] if b else 0), self.size),
            )
            origin = f.offset(self.group_source, f.mul(f.add(source, low * steps[0]), self.item))
            if b and steps == (width, 1) and b.base_dilation == 1:
                rows, width = 1, rows * width
            ld = (b.base_dilation * strides[j] if b else width) * self.size
            f.call(
                use_rows(self.module, self.target, problem.input_type, plan.compute),
                "void",
                [
                    origin,
                    place,
                    i64(rows),
                    i64(width),
                    i64(steps[0] * self.item),
                    i64(steps[1] * self.item),
                    i64(ld),
                    i64(width),
                ],
            )

        def line(y: Value, _: list[Value]) -> None:
            seen = f.add(f.sub(y, a.pad), f.mul(start, a.stride))
            from_ = i64(seen)
            inside = None
            if a.base_dilation > 1:
                from_ = f.binary("sdiv", i64(seen), i64(a.base_dilation))
                inside = f.compare("icmp eq", i64(f.mul(from_, a.base_dilation)), i64(seen))
            if a.has_border:
                valid = f.compare("icmp ult", from_, i64(a.input))
                inside = f.binary("and", inside, valid) if inside else valid

            def run() -> None:
                copy(slab + 1, f.add(source, f.mul(from_, a.input_stride)), f.mul(y, strides[slab]))

            if inside:
                f.branch(inside, run)
            else:
                run()

        f.loop(0, height, 1, line)
