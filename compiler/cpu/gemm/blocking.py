"""How a matrix product is computed: which block function, with what blocking, and the grid of tasks."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache, partial

import numpy as np

from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate, is_symbolic, larger, smaller
from ...analysis.gemm_problem import GemmProblem
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from .block_counts import Counts, tiles, used_parts
from .byte_rows import ROWS, sums_across
from .compute_types import COMPUTE_TYPES, SIZES, STORED, compute_of, lanes_of, line_vectors
from .driver import DIRECT, PACK, PACKED, P, gemm_name
from .gemv import STRETCH_BYTES, gemv_name
from .microkernel import max_rows, vector_counts
from .tasks import (
    PACK_COST,
    PARALLEL_US,
    READ_COST,
    TASK_US,
    columns_work,
    microseconds_of,
    packed_vectors,
    parts,
    task_grid,
    task_sizes,
)
from .uses import Part

E = ElementType
FEW_ROWS = 16  # of A: B is streamed as it lies where its layout asks for it
FEWER_ROWS = 8  # of A: B is streamed even where it may be in the farther caches
FEWEST_ROWS = 3  # of A: as FEW_ROWS where a vector is a cache line
ONE_ROW = 1  # of A: elements of B that are converted are read once
LONG_RUN_BYTES = 4 << 10  # of a row: memory gives shorter ones more slowly
SHORTEST_STREAM_BYTES = 256  # of a row that is read by itself
ENOUGH_SUMS = 16  # vectors of them in a tile: their latency is hidden, and B is read seldom enough
SHORTEST_DOT = 64  # adding up the lanes of shorter ones costs more than packing B


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
    """What the planner decided: the block function, its parameters, widths and heights of its tiles, the parts of it
    that are run, and the grid of tasks."""

    function: str
    parameters: dict[P, int]
    compute: str | None
    vectors: int
    task_rows: int
    task_cols: int
    scratch_bytes: int
    task_depth: int = 0  # where tasks divide the sums (gemm/gemv_split_k.py); 0: each has all of them
    tiles: tuple[tuple[int, int], ...] = ()  # (vectors, rows)
    parts: frozenset[Part] = frozenset()


def packed_b_layout(problem: GemmProblem, target: Target) -> PackedLayout | None:
    """The layout for a constant B, or None where packing it beforehand gains nothing (few rows, say)."""
    compute = compute_of(problem.element_type, problem.result_type, problem.quads)
    if compute is None or problem.c_strides[-1] != 1 or is_symbolic([problem.n, problem.k]):
        return None
    if sums_across(target, compute):  # reads columns
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


def _panels(problem: GemmProblem, compute: str, target: Target, b_packed: bool) -> tuple[int, int, int]:
    """(vectors of a panel, rows and columns of a task) that take the least time."""
    lanes = lanes_of(target, compute)

    def grid(vectors: int) -> tuple[float, int, int]:
        return task_grid(
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


def plan_gemm(
    problem: GemmProblem, target: Target, b_packed: bool, most_rows: int = 0, has_depth: bool = False
) -> Blocking:
    """How a product is computed, with tasks of at most `most_rows` rows where it is not 0. With `has_depth` the sums
    are over some of the products alone, the number being known at run time only.

    Raises: UnsupportedError  products of bytes in a row, which have no such kernel.
    """
    plan = _plan if problem.is_symbolic else _known_plan
    return plan(problem, target, b_packed, most_rows, has_depth)


def _plan(problem: GemmProblem, target: Target, b_packed: bool, most_rows: int, has_depth: bool) -> Blocking:
    compute = compute_of(problem.element_type, problem.result_type, problem.quads)
    if problem.c_strides[-1] != 1 and (problem.m > 1 or problem.n > 1):
        compute = compute if problem.m == 1 and problem.b_strides[-2] == 1 else None
    parameters = _strides(problem)
    if compute is None:
        name = f"simple_gemm_{problem.element_type.value}_{problem.result_type.value}"
        _, rows, cols = task_grid(problem.typical, target, 1, 4)
        rows, cols = task_sizes(problem, target, rows, cols, 1)
        return Blocking(name, parameters, None, 0, rows, cols, 0)
    if sums_across(target, compute):
        if has_depth:
            raise UnsupportedError("dot: bytes are summed up to the size of their array")
        rows = min(problem.m, max(ROWS, most_rows // ROWS * ROWS)) if most_rows else problem.m
        return Blocking("", parameters, compute, 0, rows, problem.n, 0)
    converts = problem.b_type.item_bytes != SIZES[COMPUTE_TYPES[compute]]
    if not b_packed:
        by_dots = problem.b_strides[-2] == 1 and (problem.b_strides[-1] != 1 or problem.n == 1)
        if _streams(problem, target, by_dots, ONE_ROW if converts else FEW_ROWS):
            return _streamed(problem, target, compute, parameters, by_dots, has_depth)
    return _blocked(problem, target, compute, parameters, converts, b_packed, most_rows, has_depth)


# A product is planned before its operands are packed, when it is written, in every layer.
_known_plan = lru_cache(256)(_plan)


def _strides(problem: GemmProblem) -> dict[P, int]:
    """The parameters of a product that do not depend on its plan; the others are 0."""
    a_size, b_size = problem.element_type.item_bytes, problem.b_type.item_bytes
    c_size = problem.result_type.item_bytes
    return dict.fromkeys(P, 0) | {
        P.K: problem.k,
        P.A_ROW: problem.a_strides[-2] * a_size,
        P.A_K: problem.a_strides[-1] * a_size,
        P.B_K: problem.b_strides[-2] * b_size,
        P.B_COL: problem.b_strides[-1] * b_size,
        P.C_ROW: problem.c_strides[-2] * c_size,
        P.C_COL: problem.c_strides[-1] * c_size,
    }


def _streamed(
    problem: GemmProblem,
    target: Target,
    compute: str,
    parameters: dict[P, int],
    by_dots: bool,
    has_depth: bool,
) -> Blocking:
    """The plan of a product that reads B once, as it lies: by dot products of its columns, or row by row."""
    depth = problem.k if by_dots or problem.is_symbolic or has_depth else _task_depth(problem, target)
    name = gemv_name(problem.element_type, problem.b_type, compute, by_dots)
    if depth is not problem.k and depth < problem.k:
        parameters[P.KC] = int(problem.m == 1)
        other_sums = (parts(problem.k, depth) - 1) * sums_bytes(problem, compute)
        scratch_bytes = parts(other_sums, target.threads)
        return Blocking(name, parameters, compute, 0, problem.m, problem.n, scratch_bytes, depth)
    _, _, cols = task_grid(problem.typical, target, estimate(problem.m), 64)
    _, cols = task_sizes(problem, target, problem.m, cols, 1)
    if isinstance(cols, int) and not by_dots and cols < problem.n:  # long runs of each row
        cols = min(problem.n, max(cols, parts(parts(problem.n, target.threads), 64) * 64))
    copies_row = by_dots and problem.a_strides[-1] != 1
    parameters[P.KC] = int(
        not (problem.is_symbolic or has_depth)
        and problem.m == 1
        and _is_one_stream(problem, target, by_dots)
        and (by_dots or cols >= problem.n)
    )
    scratch_bytes = problem.k * problem.result_type.item_bytes + 64 if copies_row else 0
    return Blocking(name, parameters, compute, 0, problem.m, cols, scratch_bytes)


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
    if line_vectors(target):  # else panels are faster: the next one is prefetched
        few = min(few, FEWEST_ROWS)
    return (
        problem.m == 1
        or (problem.m <= few and b_bytes > 4 * target.l2_bytes)
        or (problem.m <= min(few, FEWER_ROWS) and b_bytes > target.l2_bytes // 2)
    )


def _is_one_stream(problem: GemmProblem, target: Target, by_dots: bool) -> bool:
    """Whether a matrix is best read from its first byte to its last: it has no gaps, outgrows the nearer caches, and
    its rows (columns for dot products) are neither so short that each costs more than its reading, nor longer than
    the stretch of y that stays in L1. Processors without vectors read ahead of no stream."""
    length, step = (problem.k, problem.b_strides[-1]) if by_dots else (problem.n, problem.b_strides[-2])
    row_bytes = length * problem.b_type.item_bytes
    longest = math.inf if by_dots else STRETCH_BYTES // problem.result_type.item_bytes
    return (
        target.lanes(32) > 1
        and step == length <= longest
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


@dataclasses.dataclass(frozen=True)
class _Tiling:
    """What the microkernel works on, and the task of a typical product: panels of `vectors` vectors, tiles of at most
    `mr` rows.

    Units: size in bytes, of an element of the compute type; rows and columns in elements.
    """

    size: int
    lanes: int
    vectors: int
    mr: int
    rows: int
    cols: int

    @property
    def nr(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes


@dataclasses.dataclass(frozen=True)
class _Block:
    """The blocks that the loops around the microkernel go through: A is mc by kc, B is kc by nc."""

    mc: int
    nc: int
    kc: int


def _blocked(
    problem: GemmProblem,
    target: Target,
    compute: str,
    parameters: dict[P, int],
    converts: bool,
    b_packed: bool,
    most_rows: int,
    has_depth: bool,
) -> Blocking:
    """The plan of a product that goes through panels of B, packed or not, with blocks of A and B in the caches."""
    tiling = _tiling(problem, target, compute, b_packed, most_rows)
    pack_a = problem.element_type.item_bytes != tiling.size or problem.a_strides[-1] != 1
    block = _block(problem, target, tiling, pack_a)
    mode = PACKED if b_packed else _b_mode(problem, target, tiling, converts)
    if problem.a_strides[-1] == 1 and not pack_a:
        pack_a = estimate(parameters[P.A_ROW]) % 2048 == 0 and tiling.rows > tiling.mr and tiling.cols >= 384
    lda = parts(block.kc * tiling.size, 64) * 64 + 64 if pack_a else 0
    at_a, at_tail, at_tile, scratch_bytes = _scratch_ends(problem, tiling, block, mode, lda)
    parameters.update(
        {
            P.KC: block.kc,
            P.MC: block.mc,
            P.NC: block.nc,
            P.PACK_A: int(pack_a),
            P.B_MODE: mode,
            P.LDA: lda,
            P.AT_A: at_a,
            P.AT_TAIL: at_tail,
            P.AT_TILE: at_tile,
            P.B_PANEL: (problem.k if b_packed else 1) * tiling.nr * tiling.size,
            P.ROWS: tiling.mr,
        }
    )
    if b_packed:
        parameters.update({P.B_K: tiling.nr * tiling.size, P.B_COL: problem.k * tiling.size})
    rows, cols = task_sizes(problem, target, tiling.rows, tiling.cols, tiling.mr)
    row_counts = Counts.of(problem.m, rows, block.mc)
    column_counts = Counts.of(problem.n, cols, block.nc)
    depths = Counts.of(problem.k, larger(problem.k, 1), block.kc)
    if has_depth:
        depths = dataclasses.replace(depths, sizes=None)
    used = used_parts(tiling.mr, tiling.nr, row_counts, column_counts, depths)
    if pack_a:
        used |= {Part.PACK_A}
    if mode == PACK or mode == DIRECT and Part.TAIL in used:
        used |= {Part.PACK_B}
    return Blocking(
        gemm_name(compute, tiling.vectors),
        parameters,
        compute,
        tiling.vectors,
        rows,
        cols,
        scratch_bytes,
        tiles=tiles(target, tiling.vectors, tiling.lanes, tiling.mr, row_counts, column_counts),
        parts=used,
    )


def _tiling(problem: GemmProblem, target: Target, compute: str, b_packed: bool, most_rows: int) -> _Tiling:
    """The tiling, and the task of the typical product, which has at most `most_rows` rows where that is not 0."""
    vectors, rows, cols = _panels(problem.typical, compute, target, b_packed)
    size, lanes = SIZES[COMPUTE_TYPES[compute]], lanes_of(target, compute)
    mr = _tile_rows(problem, target, compute, vectors, vectors * lanes * size)
    if most_rows:
        rows = min(rows, max(1, most_rows // mr) * mr)
    return _Tiling(size, lanes, vectors, mr, rows, cols)


def _tile_rows(problem: GemmProblem, target: Target, compute: str, vectors: int, row_bytes: int) -> int:
    """Rows of the tallest tile. Where vectors are long, and so is the code of a tile, and panels, whose rows have so
    many bytes, stay in L1, that is a height which divides the rows: no tile has another."""
    most, m, k = max_rows(target, compute, vectors), problem.m, problem.k
    if not line_vectors(target) or is_symbolic([m, k]) or k * row_bytes > target.l1_bytes // 2:
        return most
    least = ENOUGH_SUMS // vectors
    return next((height for height in range(most, least - 1, -1) if m % height == 0), most)


def _block(problem: GemmProblem, target: Target, tiling: _Tiling, pack_a: bool) -> _Block:
    """The blocks: as large as the caches allow, and no larger than the product where its sizes are known."""
    size, nr, mr = tiling.size, tiling.nr, tiling.mr
    # A panel of B is as large as L1, or twice as large: longer sums gain more than the misses to L2, read ahead, cost.
    panel_bytes = target.l1_bytes * (2 if line_vectors(target) else 1)
    if is_symbolic([problem.k]):  # sums of any length: as many steps as fit
        kc = max(panel_bytes // (nr * size * 8), 4) * 8
    else:
        k = max(problem.k, 1)
        blocks = parts(k * nr * size, max(panel_bytes, nr * size * 32))
        kc = min(k, parts(parts(k, blocks), 8) * 8)
    # The block of A stays in L2 while the panels of B pass by; the block of B lies in L3.
    mc = max(1, target.l2_bytes * 2 // 5 // (kc * size) // mr) * mr
    if not is_symbolic([problem.m]):
        mc = min(parts(tiling.rows, mr) * mr, mc)
    b_bytes = max(target.l2_bytes // 2, min(8 * target.l2_bytes, target.l3_bytes // (2 * target.threads)))
    if tiling.rows <= mc and not pack_a:  # B is read once, so it need not stay
        b_bytes = target.l2_bytes // 2
    nc = max(1, b_bytes // (kc * size) // nr) * nr
    if not is_symbolic([problem.n]):
        nc = min(parts(tiling.cols, nr) * nr, nc)
    return _Block(mc, nc, kc)


def _b_mode(problem: GemmProblem, target: Target, tiling: _Tiling, converts: bool) -> int:
    """PACK where B needs another type or order, or where reading it as it lies would cost more; else DIRECT."""
    typical, rows = problem.typical, tiling.rows
    if converts or problem.b_strides[-1] != 1:
        return PACK
    row_bytes = typical.b_strides[-2] * tiling.size
    strides_far = row_bytes % 2048 == 0 or typical.n * typical.k * tiling.size > target.l2_bytes
    pays = rows > 2 * tiling.mr and strides_far or rows > 32 * tiling.mr and row_bytes % 256 == 0
    return PACK if pays else DIRECT


def _scratch_ends(
    problem: GemmProblem, tiling: _Tiling, block: _Block, mode: int, lda: int
) -> tuple[int, int, int, int]:
    """Where the parts of a thread's scratch end: packed B, packed A, the last panel of B, a tile of C. Of a product
    smaller than a block, which one of sizes known at run time only may be, they are as large as it needs."""
    size, nr, mr = tiling.size, tiling.nr, tiling.mr
    depth = smaller(block.kc, larger(problem.k, 1))
    rows = smaller(block.mc, parts(problem.m, mr) * mr)
    columns = smaller(block.nc, parts(problem.n, nr) * nr)
    end_b = parts(columns * depth * size if mode == PACK else 0, 64) * 64
    end_a = end_b + parts(rows * lda, 64) * 64
    end_tail = end_a + parts(depth * nr * size if mode == DIRECT else 0, 64) * 64
    return end_b, end_a, end_tail, end_tail + parts(rows * nr * size, 64) * 64
