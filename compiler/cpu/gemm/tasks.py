"""How a matrix product is divided into tasks for threads, by estimates of time."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, estimate, is_symbolic, larger
from ...analysis.gemm_problem import GemmProblem
from ...analysis.quads import QUAD
from .compute_types import QUADS, lanes_of, line_vectors
from .microkernel import vector_counts

PARALLEL_US = 30.0  # a kernel shorter than this is one task
TASK_US = 20.0  # and no task of a longer one is shorter than this
CLOCK_GHZ = 3.0  # assumed for estimates of time
# Reading an element of A or B in elements of C, times k: copied and rearranged, or where it lies.
PACK_COST, READ_COST = 14.0, 3.0
STRAGGLER_COST = 0.1  # of a task, that threads wait for the last one
PADDING_COST = 0.5  # of bytes that fill a panel, beside those that are multiplied
NEARLY = 1.025  # times the least cost


def parts(whole: int, part: int) -> int:
    """How many parts of that size cover the whole."""
    return -(-whole // part)


def symbolic_grain(flops: int, tasks: int, microseconds: float) -> int:
    """Tasks of TASK_US, or all of a kernel of less than PARALLEL_US, where the typical one takes so long."""
    flops_of_task = max(1, int(estimate(flops) * TASK_US / max(microseconds, 1e-3)))
    return larger(1, ceiling(tasks * flops_of_task, larger(flops, 1)))


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
    share it: the columns divide well among the threads. Of bytes, which are multiplied faster than they are read, the
    columns that fill the last panel count too, and decide where costs are nearly the same."""
    lanes, counts = lanes_of(target, compute), vector_counts(compute)

    def all_columns(vectors: int) -> int:
        return parts(columns, vectors * lanes) * vectors * lanes

    def cost(vectors: int) -> float:
        share = parts(parts(columns, vectors * lanes), target.threads) * vectors * lanes
        busiest = columns_work(target, lanes, vectors, min(share, columns))
        padded = all_columns(vectors) / max(columns, 1)
        return busiest * (1 + PADDING_COST * (padded - 1)) if compute in QUADS else busiest

    if compute not in QUADS:
        return min(counts, key=cost)
    near = NEARLY * min(map(cost, counts))
    return min((v for v in counts if cost(v) <= near), key=lambda v: (all_columns(v), cost(v)))


def task_sizes(problem: GemmProblem, target: Target, rows: int, cols: int, row_unit: int) -> tuple[int, int]:
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


def task_grid(
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
    max_tasks = min(int(microseconds / TASK_US), 4 * target.threads) // batch
    if target.threads == 1 or microseconds < PARALLEL_US or batch >= 2 * target.threads or max_tasks < 2:
        return best
    return min(best, best_grid((m, row_unit), (n, col_unit), max_tasks, cost))


def best_grid(
    rows: tuple[int, int], columns: tuple[int, int], max_tasks: int, cost: Callable[[int, int], float]
) -> tuple[float, int, int]:
    """(cost, rows, columns) of the cheapest task where there are at most `max_tasks`. rows, columns: (count, unit); a
    task has a multiple of the unit, or all."""
    best = (math.inf, rows[0], columns[0])
    for row_parts in range(1, max_tasks + 1):
        for col_parts in range(1, max_tasks // row_parts + 1):
            m, n = (
                min(count, parts(parts(count, cut), unit) * unit)
                for (count, unit), cut in ((rows, row_parts), (columns, col_parts))
            )
            best = min(best, (cost(m, n), m, n))
    return best
