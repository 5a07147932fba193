"""How a matrix product is computed: which block function, with what blocking, and the grid of tasks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_symbolic, larger, smaller
from ...analysis.gemm_problem import GemmProblem
from ...analysis.quads import QUAD
from ...ir.element_types import ElementType
from .compute_types import COMPUTE_TYPES, SIZES, STORED, compute_of, lanes_of, line_vectors
from .driver import DIRECT, PACK, PACKED, P, gemm_name
from .gemv import STRETCH_BYTES, gemv_name
from .microkernel import max_rows, tile_heights, tile_widths, vector_counts, widths

E = ElementType
PARALLEL_US = 30.0  # a product shorter than this is one task
TASK_US = 20.0  # and no task of a longer one is shorter than this
FEW_ROWS = 16  # of A: B is streamed as it lies where its layout asks for it
FEWER_ROWS = 8  # of A: B is streamed even where it may be in the farther caches
FEWEST_ROWS = 3  # of A: as FEW_ROWS where a vector is a cache line
ONE_ROW = 1  # of A: elements of B that are converted are read once
CLOCK_GHZ = 3.0  # assumed for the estimates above
LONG_RUN_BYTES = 4 << 10  # of a row: memory gives shorter ones more slowly
SHORTEST_STREAM_BYTES = 256  # of a row that is read by itself
SHORTEST_DOT = 64  # adding up the lanes of shorter ones costs more than packing B
# Reading an element of A or B in elements of C, times k: copied and rearranged, or where it lies.
PACK_COST, READ_COST = 14.0, 3.0
STRAGGLER_COST = 0.1  # of a task, that threads wait for the last one


@dataclasses.dataclass(frozen=True)
class PackedLayout:
    """B packed beforehand: panels of `columns` columns, each k rows, the last panel padded with zeros.

    Shapes: shape = (batch..., panels, k, columns) of element_type.
    """

    shape: tuple[int, ...]
    columns: int
    element_type: ElementType


@dataclasses.dataclass(frozen=True)
class Blocking:
    """What the planner decided: the block function, its parameters, widths and heights of its tiles, whether it packs A
    and B, and the grid of tasks."""

    function: str
    parameters: dict[P, int]
    compute: str | None
    vectors: int
    task_rows: int
    task_cols: int
    scratch_bytes: int
    task_depth: int = 0  # where tasks divide the sums (gemm/gemv_split_k.py); 0: each has all of them
    tiles: tuple[tuple[int, int], ...] = ()  # (vectors, rows)
    packs_a: bool = False
    packs_b: bool = False


def parts(whole: int, part: int) -> int:
    """How many parts of that size cover the whole."""
    return -(-whole // part)


def symbolic_grain(flops: int, tasks: int, microseconds: float) -> int:
    """Tasks of TASK_US, or all of a kernel of less than PARALLEL_US, where the typical one takes so long."""
    flops_of_task = max(1, int(estimate(flops) * TASK_US / max(microseconds, 1e-3)))
    return larger(1, ceiling(tasks * flops_of_task, larger(flops, 1)))


def packed_b_layout(problem: GemmProblem, target: Target) -> PackedLayout | None:
    """The layout for a constant B, or None where packing it beforehand gains nothing (few rows, say)."""
    compute = compute_of(problem.element_type, problem.result_type, problem.quads)
    if compute is None or problem.c_strides[-1] != 1 or is_symbolic([problem.n, problem.k]):
        return None
    if estimate(problem.m) < 4 or problem.n < 4 or problem.k < 1:
        return None
    columns = packed_vectors(target, compute, problem.n) * lanes_of(target, compute)
    batch = tuple(d if s else 1 for d, s in zip(problem.batch, problem.b_strides[:-2], strict=True))
    return PackedLayout((*batch, parts(problem.n, columns), problem.k, columns), columns, STORED[compute])


def pack_b_reference(b: np.ndarray, layout: PackedLayout) -> np.ndarray:
    """Packs B.

    Shapes: b is (batch..., k, n), a batch dimension that B does not have being 1; the result is layout.shape.
    """
    panels, k, columns = layout.shape[-3:]
    padded = np.zeros((*layout.shape[:-3], k, panels * columns), layout.element_type.dtype)
    padded[..., : b.shape[-1]] = b
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*layout.shape[:-3], k, panels, columns), -2, -3))


def microseconds_of(problem: GemmProblem, target: Target) -> float:
    """Estimate of one thread's time: arithmetic at 70 % of peak, or the operands at 10 bytes a cycle."""
    is_vector = problem.result_type.real.is_float or problem.quads
    lanes = target.lanes(problem.result_type.real.bits) if is_vector else 1
    per_cycle = lanes * (4 if target.has_fma else 2) * 0.7 * (QUAD if problem.quads else 1)
    if problem.element_type.is_complex:
        per_cycle = 2
    return max(estimate(problem.flops) / per_cycle, estimate(problem.bytes) / 10) / (CLOCK_GHZ * 1e3)


def columns_work(target: Target, lanes: int, vectors: int, columns: int) -> float:
    """Time of that many columns in panels of `vectors`, in columns of the best ones: padding counts, and what narrow
    panels lose. Where vectors are long, the last panel is as wide as what is left for it."""
    if line_vectors(target):
        panels, tail = divmod(parts(columns, lanes), vectors)
        return lanes * (
            panels * vectors / {1: 0.85, 2: 0.96, 3: 1.0}[vectors] + tail / {0: 1.0, 1: 0.75, 2: 0.93}[tail]
        )
    speed = {1: 0.85, 2: 1.0, 3: 0.98 if target.registers <= 16 else 1.0}
    return parts(columns, vectors * lanes) * vectors * lanes / speed[vectors]


def packed_vectors(target: Target, compute: str, columns: int) -> int:
    """Vectors of a panel of a B that is packed beforehand, whatever the rows of A are, so that all products with it
    share it: the columns divide well among the threads."""
    lanes = lanes_of(target, compute)

    def busiest(vectors: int) -> float:
        share = parts(parts(columns, vectors * lanes), target.threads) * vectors * lanes
        return columns_work(target, lanes, vectors, min(share, columns))

    return min(vector_counts(compute), key=busiest)


def _panels(problem: GemmProblem, compute: str, target: Target, b_packed: bool) -> tuple[int, int, int]:
    """(vectors of a panel, rows and columns of a task) that take the least time."""
    lanes = lanes_of(target, compute)

    def grid(vectors: int) -> tuple[float, int, int]:
        return _task_grid(
            problem,
            target,
            max_rows(target, compute, vectors),
            vectors * lanes,
            partial(columns_work, target, lanes, vectors),
            READ_COST if b_packed else PACK_COST,
        )

    counts = (packed_vectors(target, compute, problem.n),) if b_packed else vector_counts(compute)
    (_, rows, cols), vectors = min((grid(v), v) for v in counts)
    return vectors, rows, cols


def plan_gemm(problem: GemmProblem, target: Target, b_packed: bool, most_rows: int = 0) -> Blocking:
    """How a product is computed, with tasks of at most `most_rows` rows where it is not 0."""
    if problem.is_symbolic:
        return _plan(problem, target, b_packed, most_rows)
    return _known_plan(problem, target, b_packed, most_rows)


@lru_cache(256)  # a product is planned before its operands are packed, when it is written, in every layer
def _known_plan(problem: GemmProblem, target: Target, b_packed: bool, most_rows: int) -> Blocking:
    return _plan(problem, target, b_packed, most_rows)


def _plan(problem: GemmProblem, target: Target, b_packed: bool, most_rows: int) -> Blocking:
    compute = compute_of(problem.element_type, problem.result_type, problem.quads)
    if problem.c_strides[-1] != 1 and (problem.m > 1 or problem.n > 1):
        compute = compute if problem.m == 1 and problem.b_strides[-2] == 1 else None
    a_size, b_size = problem.element_type.item_bytes, problem.b_type.item_bytes
    c_size = problem.result_type.item_bytes
    parameters = dict.fromkeys(P, 0)
    parameters.update(
        {
            P.K: problem.k,
            P.A_ROW: problem.a_strides[-2] * a_size,
            P.A_K: problem.a_strides[-1] * a_size,
            P.B_K: problem.b_strides[-2] * b_size,
            P.B_COL: problem.b_strides[-1] * b_size,
            P.C_ROW: problem.c_strides[-2] * c_size,
            P.C_COL: problem.c_strides[-1] * c_size,
        }
    )
    if compute is None:
        name = f"simple_gemm_{problem.element_type.value}_{problem.result_type.value}"
        _, rows, cols = _task_grid(problem.typical, target, 1, 4)
        rows, cols = _task_sizes(problem, target, rows, cols, 1)
        return Blocking(name, parameters, None, 0, rows, cols, 0)
    converts = problem.b_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]
    if not b_packed:
        by_dots = problem.b_strides[-2] == 1 and (problem.b_strides[-1] != 1 or problem.n == 1)
        if _streams(problem, target, by_dots, ONE_ROW if converts else FEW_ROWS):
            depth = problem.k if by_dots or problem.is_symbolic else _task_depth(problem, target)
            name = gemv_name(problem.element_type, problem.b_type, compute, by_dots)
            if depth is not problem.k and depth < problem.k:
                parameters[P.KC] = int(problem.m == 1)
                beyond = (parts(problem.k, depth) - 1) * sums_bytes(problem, compute)
                return Blocking(
                    name, parameters, compute, 0, problem.m, problem.n, parts(beyond, target.threads), depth
                )
            _, _, cols = _task_grid(problem.typical, target, estimate(problem.m), 64)
            _, cols = _task_sizes(problem, target, problem.m, cols, 1)
            if isinstance(cols, int) and not by_dots and cols < problem.n:  # long runs of each row
                cols = min(problem.n, max(cols, parts(parts(problem.n, target.threads), 64) * 64))
            scratch = problem.k * c_size + 64 if by_dots and problem.a_strides[-1] != 1 else 0
            parameters[P.KC] = int(
                not problem.is_symbolic
                and problem.m == 1
                and _is_one_stream(problem, target, by_dots)
                and (by_dots or cols >= problem.n)
            )
            return Blocking(name, parameters, compute, 0, problem.m, cols, scratch)
    return _blocked(problem, target, compute, parameters, converts, b_packed, most_rows)


def _streams(problem: GemmProblem, target: Target, by_dots: bool, few: int) -> bool:
    """Whether B is best read once as it lies: one row, or so `few` that packing or panels cost more."""
    if is_symbolic([problem.m]):
        return False
    if by_dots:
        return problem.m == 1 or (
            problem.m <= few
            and estimate(problem.k) >= SHORTEST_DOT
            and problem.a_strides[-1] == 1
            and problem.c_strides[-1] == 1
        )
    if problem.b_strides[-1] != 1 or problem.c_strides[-1] != 1:
        return problem.n == 1 and problem.m == 1
    b_bytes = estimate(problem.n * problem.k) * problem.b_type.item_bytes
    if line_vectors(target):  # else panels, of which the next one is asked for, are faster
        few = min(few, FEWEST_ROWS)
    return (
        problem.m == 1
        or (problem.m <= few and b_bytes > 4 * target.l2_bytes)
        or (problem.m <= min(few, FEWER_ROWS) and b_bytes > target.l2_bytes // 2)
    )


def _is_one_stream(problem: GemmProblem, target: Target, by_dots: bool) -> bool:
    """Whether a matrix is best read from its first byte to its last: it has no gaps, outgrows the nearer caches, and
    its rows (columns for dot products) are neither so short that each costs more than its reading, nor longer than
    the stretch of y that stays in L1."""
    length, step = (problem.k, problem.b_strides[-1]) if by_dots else (problem.n, problem.b_strides[-2])
    row_bytes = length * problem.b_type.item_bytes
    longest = math.inf if by_dots else STRETCH_BYTES // problem.result_type.item_bytes
    return (
        step == length <= longest
        and row_bytes >= SHORTEST_STREAM_BYTES
        and problem.n * problem.k * problem.b_type.item_bytes > target.l2_bytes // 2
    )


def _task_depth(problem: GemmProblem, target: Target) -> int:
    """Rows of B for each task where the rows, one stream, are divided between threads: columns of so short rows would
    not be long runs, and where several streams are read, all of them shall be. Else all."""
    microseconds = microseconds_of(problem, target)
    if (
        target.threads == 1
        or microseconds < PARALLEL_US
        or math.prod(problem.batch) != 1
        or not _is_one_stream(problem, target, False)
        or problem.m > 1
        and problem.c_strides[-2] != problem.n
        or target.streams == 1
        and problem.n * problem.b_type.item_bytes >= LONG_RUN_BYTES * target.threads
    ):
        return problem.k
    # One for each thread at most: the sums of all are added up.
    return parts(problem.k, min(max(2, int(microseconds / TASK_US)), target.threads))


def sums_bytes(problem: GemmProblem, compute: str) -> int:
    """Bytes of the sums of a task that has only some rows of B: whole cache lines."""
    return parts(problem.m * problem.n * SIZES[COMPUTE_TYPES[compute]], 64) * 64


def _blocked(
    problem: GemmProblem,
    target: Target,
    compute: str,
    parameters: dict[P, int],
    converts: bool,
    b_packed: bool,
    most_rows: int,
) -> Blocking:
    size, lanes = SIZES[COMPUTE_TYPES[compute]], lanes_of(target, compute)
    typical = problem.typical
    vectors, rows, cols = _panels(typical, compute, target, b_packed)
    nr, mr = vectors * lanes, max_rows(target, compute, vectors)
    if most_rows:
        rows = min(rows, max(1, most_rows // mr) * mr)
    k = max(typical.k, 1)
    # A panel of B is as large as L1, or twice as large: longer sums gain more than the misses to L2, read ahead, cost.
    panel_bytes = target.l1_bytes * (2 if line_vectors(target) else 1)
    blocks = parts(k * nr * size, max(panel_bytes, nr * size * 32))
    kc = parts(parts(k, blocks), 8) * 8
    if is_symbolic([problem.k]):  # sums of any length: as many steps as fit
        kc = max(panel_bytes // (nr * size * 8), 4) * 8
    else:
        kc = min(k, kc)
    # The block of A stays in L2 while the panels of B pass by; the block of B lies in L3.
    mc = max(1, target.l2_bytes * 2 // 5 // (kc * size) // mr) * mr
    if not is_symbolic([problem.m]):
        mc = min(parts(rows, mr) * mr, mc)
    pack_a = problem.element_type.item_bytes != size or problem.a_strides[-1] != 1
    b_bytes = max(target.l2_bytes // 2, min(8 * target.l2_bytes, target.l3_bytes // (2 * target.threads)))
    if rows <= mc and not pack_a:  # B is read once, so it need not stay
        b_bytes = target.l2_bytes // 2
    nc = max(1, b_bytes // (kc * size) // nr) * nr
    if not is_symbolic([problem.n]):
        nc = min(parts(cols, nr) * nr, nc)
    if b_packed:
        mode = PACKED
        parameters.update({P.B_K: nr * size, P.B_COL: problem.k * size, P.B_PANEL: problem.k * nr * size})
    else:
        row_bytes = typical.b_strides[-2] * size
        is_required = converts or problem.b_strides[-1] != 1
        strides_far = row_bytes % 2048 == 0 or typical.n * typical.k * size > target.l2_bytes
        pays = rows > 2 * mr and strides_far or rows > 32 * mr and row_bytes % 256 == 0
        mode = PACK if is_required or pays else DIRECT
        parameters[P.B_PANEL] = nr * size
    if problem.a_strides[-1] == 1 and not pack_a:
        pack_a = estimate(parameters[P.A_ROW]) % 2048 == 0 and rows > mr and cols >= 384
    lda = parts(kc * size, 64) * 64 + 64 if pack_a else 0
    # Of a product smaller than a block, which one of sizes known at run time only may be, as much as it needs.
    depth = smaller(kc, larger(problem.k, 1))
    block_rows, block_cols = smaller(mc, parts(problem.m, mr) * mr), smaller(nc, parts(problem.n, nr) * nr)
    sizes = [
        block_cols * depth * size if mode == PACK else 0,
        block_rows * lda,
        depth * nr * size if mode == DIRECT else 0,
        block_rows * nr * size,
    ]
    starts = [0]
    for part in sizes:
        starts.append(starts[-1] + parts(part, 64) * 64)
    parameters.update(
        {
            P.KC: kc,
            P.MC: mc,
            P.NC: nc,
            P.PACK_A: int(pack_a),
            P.B_MODE: mode,
            P.LDA: lda,
            P.AT_A: starts[1],
            P.AT_TAIL: starts[2],
            P.AT_TILE: starts[3],
        }
    )
    tiles = _tiles(problem, target, (rows, cols, mc), (vectors, lanes), mr)
    rows, cols = _task_sizes(problem, target, rows, cols, mr)
    return Blocking(
        gemm_name(compute, vectors),
        parameters,
        compute,
        vectors,
        rows,
        cols,
        starts[4],
        tiles=tiles,
        packs_a=bool(pack_a),
        packs_b=mode == PACK or mode == DIRECT and (is_symbolic([problem.n]) or problem.n % nr != 0),
    )


def _tiles(
    problem: GemmProblem, target: Target, task: tuple[int, int, int], panel: tuple[int, int], mr: int
) -> tuple[tuple[int, int], ...]:
    """(vectors, rows) of the tiles that tasks of so many rows and columns, in blocks of `mc` rows, are cut into. Of
    sizes known at run time only, all that there are."""
    (rows, cols, mc), (vectors, lanes) = task, panel
    if is_symbolic([problem.m]):
        heights = set(range(1, mr + 1))
    else:  # rows and columns of tasks, rows of their blocks
        some_rows = min(rows, problem.m), problem.m % rows
        heights = tile_heights({count for some in some_rows for count in (min(some, mc), some % mc)}, mr)
    if is_symbolic([problem.n]):
        all_widths = set(widths(target, vectors))
    else:
        some_columns = min(cols, problem.n), problem.n % cols
        all_widths = set().union(*(tile_widths(target, c, vectors, lanes) for c in some_columns))
    return tuple(itertools.product(sorted(all_widths), sorted(heights)))


def _task_sizes(problem: GemmProblem, target: Target, rows: int, cols: int, row_unit: int) -> tuple[int, int]:
    """Rows and columns of a task, where it would have so many of a typical product.

    A number of rows known at run time only is divided among the threads, unless matrices of a batch are; such columns
    are not divided.
    """
    task_rows, task_cols = rows, cols
    if is_symbolic([problem.m]):
        has_batch = is_symbolic(problem.batch) or math.prod(problem.batch) >= 2 * target.threads
        share = problem.m if has_batch else ceiling(problem.m, target.threads)
        task_rows = ceiling(share, row_unit) * row_unit
    if (
        is_symbolic([problem.n])
        or is_symbolic([problem.m])
        and task_cols < problem.n
        and problem.typical.m > row_unit * target.threads
    ):
        task_cols = problem.n
    return task_rows, task_cols


def _task_grid(
    problem: GemmProblem,
    target: Target,
    row_unit: int,
    col_unit: int,
    work: Callable[[int], float] = float,
    read_b: float = PACK_COST,
) -> tuple[float, int, int]:
    """(cost, rows, columns) of one task: multiples of the units, or all. `work`: what so many columns cost."""
    m, n = max(problem.m, 1), max(problem.n, 1)
    batch = max(math.prod(problem.batch), 1)
    read_a = PACK_COST if problem.a_strides[-1] != 1 else READ_COST

    def cost(rows: int, cols: int) -> float:
        """Time of the busiest thread, in elements of C, with what each task reads again; a thread that is held up
        makes the others wait for its last task."""
        tasks = parts(m, rows) * parts(n, cols) * batch
        return (parts(tasks, target.threads) + STRAGGLER_COST) * (
            rows * work(cols) + read_b * cols + read_a * rows
        )

    microseconds = microseconds_of(problem, target)
    best = (cost(m, n), m, n)
    wanted = min(int(microseconds / TASK_US), 4 * target.threads) // batch
    if target.threads == 1 or microseconds < PARALLEL_US or batch >= 2 * target.threads or wanted < 2:
        return best
    return min(best, best_grid((m, row_unit), (n, col_unit), wanted, cost))


def best_grid(
    rows: tuple[int, int], columns: tuple[int, int], wanted: int, cost: Callable[[int, int], float]
) -> tuple[float, int, int]:
    """(cost, rows, columns) of the cheapest task where there are at most `wanted`; (count, unit) of rows and columns:
    a task has a multiple of the unit, or all."""
    best = (math.inf, rows[0], columns[0])
    for row_parts in range(1, wanted + 1):
        for col_parts in range(1, wanted // row_parts + 1):
            m, n = (
                min(count, parts(parts(count, cut), unit) * unit)
                for (count, unit), cut in ((rows, row_parts), (columns, col_parts))
            )
            best = min(best, (cost(m, n), m, n))
    return best
