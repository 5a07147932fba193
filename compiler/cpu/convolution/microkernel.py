"""The convolution kernels: matrix products whose rows of A and C are named by tables of pointers.

Row r of A is `taps` segments of `k` elements each, the t-th at the pointer table[t][r]: output positions see the
input where it lies, shifted, strided or padded (a pointer to zeros), without being copied together. They depend on
the target alone and are compiled once per machine, as the matrix products are (gemm/microkernel.py), those for the
tiles that a shape has.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, Value
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.llvm.vector_value import VectorValue
from ..gemm.compute_types import Compute, line_vectors
from ..gemm.driver import parameter
from ..gemm.microkernel import (
    Microkernels,
    max_rows,
    microkernel_at,
    tiles_of_rows,
    unrolled_steps,
    widths,
)
from ..gemm.panel_prefetch import (
    NEXT_PANEL,
    PREFETCHING_TILES,
    next_panel_after,
    prefetch_rows,
    prefetch_stride,
)
from ..gemm.register_tile import RegisterTile
from ..gemm.tail_copy import write_tail_copy
from ..gemm.uses import ALL, Part, Uses

MAX_ROWS = 8  # every row takes an address register
PANELS_AT_ONCE = 8

BLOCK_PARAMETERS = parameters(
    "ptr A, ptr C, ptr B, ptr packed, ptr tail, ptr P, ptr taps, ptr pack_b, i64 first, i64 rows, i64 cols"
)


class P(enum.IntEnum):
    """Slots of a convolution's parameter array (i64 each; strides in bytes); the table of micro-kernels follows it.

    TAPS taps of K elements make a row of A; TAP_BLOCK of them, K_BLOCK elements of each, are summed at a time.
    A tap covers MERGED elements of the window, whose offsets the tap table gives. TABLE is the length of a line of A's
    table. Packed B is kept for later calls where REUSES_B is 1; else the panels of a group lie where those of the last
    one lay. PANEL is 0, or the bytes of a panel of all of A's columns where B comes in such panels.
    """

    TAPS = 0
    K = 1
    TAP_BLOCK = 2
    K_BLOCK = 3
    MERGED = 4
    B_K = 5
    B_COL = 6
    TABLE = 7
    TAIL_TILE = 8
    REUSES_B = 9
    PANEL = 10


def rows_of(target: Target, compute: str, vectors: int) -> int:
    """Rows of the largest tile."""
    return min(MAX_ROWS, max_rows(target, compute, vectors))


def convolution_name(compute: str, vectors: int) -> str:
    """The function that computes a block of rows and columns."""
    return f"tfb_conv_{compute}_{vectors}"


_SWEEP = parameters(
    "ptr A, i64 table, i64 shift, ptr B, ptr C, i64 column, i64 taps, i64 run, i64 accumulate, i64 tiles"
)


def _sweep_parameters(target: Target) -> tuple[tuple[str, str], ...]:
    return (*_SWEEP, *NEXT_PANEL) if line_vectors(target) else _SWEEP


def convolution_sweep_name(compute: str, panel: int, width: int, mr: int) -> str:
    """The micro-kernel for tiles of `width` vectors and mr rows, where a panel has `panel` vectors."""
    return f"{convolution_name(compute, panel)}_{width}x{mr}"


def write_convolution_sweep(
    module: ModuleText,
    target: Target,
    compute: str,
    width: int,
    vectors: int,
    mr: int,
    linkage: str,
    uses: Uses = ALL,
) -> None:
    """Writes a micro-kernel, or what is used of it: `tiles` tiles of mr rows times `vectors` vectors of one panel of B,
    which has `width`."""
    name = convolution_sweep_name(compute, width, vectors, mr)
    if not module.has(name):
        f = Function(module, name, _sweep_parameters(target), linkage=linkage)
        _Sweep(f, Compute(target, compute), width, vectors, mr, uses).write()
        module.add(name, f.text())


class _Sweep:
    """A micro-kernel under construction: for each tile, loops over the taps and over the elements of a tap."""

    def __init__(self, f: Function, compute: Compute, width: int, vectors: int, mr: int, uses: Uses) -> None:
        self.f, self.compute, self.vectors, self.mr, self.uses = f, compute, vectors, mr, uses
        self.tile = RegisterTile(f, compute, mr, vectors)
        self.panel_bytes = width * compute.vector_bytes
        self.prefetches = line_vectors(compute.target)
        self.run = f.integer("run")
        self.unroll = unrolled_steps(compute.target, mr * vectors)

    def write(self) -> None:
        """For each of `tiles` tiles of C, one below the other: C (+)= A B."""
        f, tile = self.f, self.tile
        adds = Part.DEPTH_BLOCKS in self.uses.parts
        accumulates = f.integer("accumulate").differs(0) if adds else None
        has_rest = Part.LAST_STEPS in self.uses.parts and self.unroll > 1
        self.unrolled_run = self.run.round_down(self.unroll) if has_rest else self.run
        next_row: dict[str, Any] = {"next_row": f.pointer("next_panel")} if self.prefetches else {}
        with f.loop(0, f.integer("tiles"), a=f.pointer("A"), c=f.pointer("C"), **next_row) as tiles:
            stride = prefetch_stride(f, tiles.index) if self.prefetches else None
            addresses = tile.addresses(self._rows(tiles.c, f.integer("column")))
            if stride is None:
                sums, _ = self._taps(tiles.a)
            else:
                sums, tiles.next_row = self._taps(tiles.a, tiles.next_row, stride)
            tile.store(tile.plus_old(accumulates, sums, addresses), addresses)
            tiles.a = tiles.a + 8 * self.mr
            tiles.c = tiles.c + 8 * self.mr
        f.ret()

    def _rows(self, table: Ptr, offset: Int) -> list[Ptr]:
        """Addresses so many bytes after those of a table."""
        return [(table + 8 * r).load_ptr() + offset for r in range(self.mr)]

    def _taps(
        self, table: Ptr, next_row: Ptr | None = None, stride: Int | None = None
    ) -> tuple[list[VectorValue], Ptr | None]:
        """The products of all taps, whose lines of A's table begin at `table`, added up; the next row to prefetch."""
        f = self.f
        carried: dict[str, Any] = {} if next_row is None else {"next_row": next_row}
        with f.loop(
            0, f.integer("taps"), line=table, b=f.pointer("B"), sums=self.tile.zeros(), **carried
        ) as taps:
            rows = self._rows(taps.line, f.integer("shift"))
            carried = {} if stride is None else {"next_row": taps.next_row}
            with f.loop(0, self.unrolled_run, self.unroll, b=taps.b, sums=taps.sums, **carried) as k:
                if stride is not None:
                    k.next_row = prefetch_rows(f, k.next_row, stride, self.vectors)
                for u in range(self.unroll):
                    k.sums = self._step(rows, k.index, u, k.b, k.sums)
                k.b = k.b + self.unroll * self.panel_bytes
            with f.loop(self.unrolled_run, self.run, b=k.b, sums=k.sums) as rest:
                b = rest.b
                rest.b = b + self.panel_bytes
                rest.sums = self._step(rows, rest.index, 0, b, rest.sums)
            taps.line = taps.line + f.integer("table")
            taps.b, taps.sums = rest.b, rest.sums
            if stride is not None:
                taps.next_row = k.next_row
        return taps.sums, None if stride is None else taps.next_row

    def _step(
        self, rows: Sequence[Ptr], k: Int, u: int, b: Ptr, sums: Sequence[VectorValue]
    ) -> list[VectorValue]:
        """sums + A[:, k + u] * B[k + u, :]; `b` is the address of B's row k."""

        def a(row: int) -> Ptr:
            return rows[row].at(k, self.compute.type) + u * self.compute.bytes

        return self.tile.rank_1_update(sums, a, b, u * self.panel_bytes)


def write_convolution(
    module: ModuleText, target: Target, compute: str, vectors: int, linkage: str, uses: Uses = ALL
) -> None:
    """Writes the block function, or what is used of it, into a module.

    It computes rows x cols of C in full. `packed` holds B in the order it is read, filled when `first` is not 0;
    the last, narrow panel goes through a tile behind `tail`, where its table of rows stands.
    """
    name = convolution_name(compute, vectors)
    if not module.has(name):
        copy = write_tail_copy(module, target, compute, "internal") if Part.TAIL in uses.parts else ""
        f = Function(module, name, BLOCK_PARAMETERS, attributes=DRIVER_ATTRIBUTES, linkage=linkage)
        _BlockFunction(f, Compute(target, compute), vectors, uses).write(copy)
        module.add(name, f.text())


@dataclasses.dataclass(frozen=True)
class _DepthBlock:
    """Taps tap, tap + 1, ... and elements k, k + 1, ... of each, that are summed together: `steps` in all, after
    `depth` steps before them. `packed` is the address of their packed B."""

    tap: Int
    k: Int
    depth: Int
    taps: Int
    k_count: Int
    steps: Int
    accumulate: Int
    packed: Ptr


@dataclasses.dataclass(frozen=True)
class _PanelTiles:
    """The operands of one panel's tiles: packed B, tables of the rows of C and A, the column in C in bytes."""

    panel: Ptr
    c: Ptr
    column: Int
    a: Ptr
    prefetch: Sequence[Value]


class _BlockFunction:
    """Writes the block function: loops over blocks of taps, blocks of K, and panels of B."""

    def __init__(self, f: Function, compute: Compute, vectors: int, uses: Uses) -> None:
        self.f, self.target, self.vectors, self.parts = f, compute.target, vectors, uses.parts
        self.size, self.lanes = compute.bytes, compute.lanes
        self.nr, self.mr = vectors * self.lanes, rows_of(self.target, compute.name, vectors)
        self.row_bytes = self.nr * self.size  # of a panel
        self.parameters = f.pointer("P")
        self.cols, self.rows = f.integers("cols", "rows")
        self.p = p = {slot: parameter(f, slot, uses) for slot in P}
        self.panels = (self.cols + (self.nr - 1)) // self.nr
        self.panel_cols = self.panels * self.nr
        self.tail_width = self.cols % self.nr if Part.TAIL in self.parts else f.i64(0)
        self.tail_tile = f.pointer("tail") + p[P.TAIL_TILE]
        # The last panel's tiles have `span` columns; where C has not as many, they go through a tile.
        self.span = f.i64(self.nr)
        if len(widths(self.target, vectors)) > 1:
            self.span = (self.tail_width + (self.lanes - 1)) // self.lanes * self.lanes
        self.has_tail = self.tail_width.differs(0) & self.tail_width.differs(self.span)
        self.reuses_b = p[P.REUSES_B].differs(0)
        self.is_first = f.integer("first").differs(0)
        packs = Part.PACK_B in self.parts
        self.is_prepacked = p[P.PANEL].differs(0) if packs else f.constant("i1", 1)
        self.features = p[P.K] // p[P.MERGED]
        # Blocks of one tap are packed some panels at a time: B is read in longer lines.
        self.one_tap = (p[P.TAP_BLOCK] * p[P.MERGED]).equals(1)
        self.many_taps = ~self.one_tap
        self.tiles, self.low, taller = tiles_of_rows(self.rows, self.mr)
        self.taller = taller if Part.TWO_HEIGHTS in self.parts else f.i64(0)
        self.taller_bytes = self.taller * ((self.low + 1) * 8)
        self.table = self.parameters + 8 * len(P)

    def write(self, copy: str) -> None:
        """The whole function; `copy` copies a part of a row."""
        f, p = self.f, self.p
        has_tail = Part.TAIL in self.parts
        if has_tail:
            with f.if_(self.has_tail):
                self._tail_pointers()
        # A sum over nothing is one block of no steps: zeros.
        taps, k = p[P.TAPS].maximum(1), p[P.K].maximum(1)
        if Part.DEPTH_BLOCKS in self.parts:
            with f.loop(0, taps, p[P.TAP_BLOCK], depth=0) as tap_blocks:
                with f.loop(0, k, p[P.K_BLOCK], depth=tap_blocks.depth) as k_blocks:
                    k_blocks.depth = self._depth_block(tap_blocks.index, k_blocks.index, k_blocks.depth)
                tap_blocks.depth = k_blocks.depth
        else:
            self._depth_block(f.i64(0), f.i64(0), f.i64(0))
        if has_tail:
            with f.if_(self.has_tail):
                self._copy_tail(copy)
        f.ret()

    def _tail_pointers(self) -> None:
        """Writes the table of the rows of the tail's tile."""
        with self.f.loop(0, self.rows) as rows:
            row = self.tail_tile + rows.index * self.row_bytes
            self.f.pointer("tail").at(rows.index, "ptr").store(row)

    def _copy_tail(self, copy: str) -> None:
        """Copies the tail's tile to C."""
        f = self.f
        column = (self.panels - 1) * self.row_bytes
        with f.loop(0, self.rows) as rows:
            output = f.pointer("C").at(rows.index, "ptr").load_ptr() + column
            source = self.tail_tile + rows.index * self.row_bytes
            f.call(copy, "void", [source, 0, output, 0, 1, self.tail_width])

    def _depth_block(self, tap: Int, k: Int, depth: Int) -> Int:
        """Adds a block of taps and of their elements to all columns; returns the depth with it."""
        f, p = self.f, self.p
        taps, k_count = p[P.TAPS], p[P.K]
        if Part.DEPTH_BLOCKS in self.parts:
            taps, k_count = p[P.TAP_BLOCK].minimum(taps - tap), p[P.K_BLOCK].minimum(k_count - k)
        steps = taps * k_count
        accumulate = Int.zero_extended(depth.differs(0))
        before = self.reuses_b.choose(depth, 0) * self.panel_cols
        packed = f.pointer("packed") + before * self.size
        block = _DepthBlock(tap, k, depth, taps, k_count, steps, accumulate, packed)
        with f.loop(0, self.cols, self.nr) as columns:
            self._panel(block, columns.index)
        return depth + steps

    def _pack(self, block: _DepthBlock, panel: Ptr, column: Int) -> None:
        """Packs B from a column on: a panel, or several if the block has one tap."""
        f, p, nr = self.f, self.p, self.nr
        width = self.one_tap.choose(f.i64(nr * PANELS_AT_ONCE), nr).minimum(self.cols - column)
        # Merged taps are never cut: the parts of their K are whole elements of the window.
        count = block.k_count.minimum(self.features)
        start = block.tap * p[P.MERGED]
        with f.loop(start, start + block.taps * p[P.MERGED], packed=panel) as taps:
            element = f.pointer("taps").at(taps.index, "i64").load_int()
            source = f.pointer("B") + (element + (block.k * p[P.B_K] + column * p[P.B_COL]))
            arguments = [source, taps.packed, count, width, p[P.B_K], p[P.B_COL]]
            f.call(f.pointer("pack_b"), "void", arguments)
            taps.packed = taps.packed + count * self.row_bytes

    def _panel(self, block: _DepthBlock, column: Int) -> None:
        """Adds a block of taps to the columns of one panel."""
        f, p, nr = self.f, self.p, self.nr
        in_group = column % (nr * PANELS_AT_ONCE)
        packed_here = self.reuses_b.choose(column, in_group) * block.steps * self.size
        prepacked = column // nr * p[P.PANEL] + block.depth * self.row_bytes
        panel = self.is_prepacked.choose(f.pointer("packed") + prepacked, block.packed + packed_here)
        if Part.PACK_B in self.parts:
            with f.if_(self.is_first & (in_group.equals(0) | self.many_taps)):
                self._pack(block, panel, column)
        is_whole = (column + nr) <= self.cols
        fits = is_whole | ~self.has_tail
        span = is_whole.choose(nr, self.span)
        tiles = _PanelTiles(
            panel,
            c=fits.choose(f.pointer("C"), f.pointer("tail")),
            column=fits.choose(column * self.size, 0),
            a=f.pointer("A") + block.tap * p[P.TABLE],
            prefetch=self._next_panel(block, panel, column),
        )
        for width in widths(self.target, self.vectors):
            with f.if_(span.equals(width * self.lanes)):
                self._tiles(block, tiles, width)

    def _next_panel(self, block: _DepthBlock, panel: Ptr, column: Int) -> list[Value]:
        """What to prefetch beside a panel: the next one; after the last one, where B is all there, that of the next
        steps."""
        f, p, row_bytes = self.f, self.p, self.row_bytes
        packed = f.pointer("packed")
        is_followed = (column + self.nr) < self.cols
        following = panel + self.is_prepacked.choose(p[P.PANEL], block.steps * row_bytes)
        next_steps = packed + (block.depth + block.steps) * row_bytes
        after_last = self.is_prepacked.choose(next_steps, packed)
        return [is_followed.choose(following, after_last), f.i64(row_bytes), f.i64(PREFETCHING_TILES)]

    def _tiles(self, block: _DepthBlock, tiles: _PanelTiles, width: int) -> None:
        """All tiles of a panel that are so many vectors wide: first the taller ones."""
        f = self.f
        prefetches = line_vectors(self.target)
        with f.if_(self.taller.differs(0)):
            self._sweep(block, tiles, width, self.low + 1, self.taller, tiles.prefetch if prefetches else [])
        remaining = dataclasses.replace(tiles, a=tiles.a + self.taller_bytes, c=tiles.c + self.taller_bytes)
        count = self.tiles - self.taller
        prefetch: Sequence[Value] = []
        if prefetches:
            prefetch = next_panel_after(f, tiles.prefetch, block.k_count * block.taps, self.taller)
        self._sweep(block, remaining, width, self.low, count, prefetch)

    def _sweep(
        self,
        block: _DepthBlock,
        tiles: _PanelTiles,
        width: int,
        height: Int,
        count: Int,
        prefetch: Sequence[Value],
    ) -> None:
        """Calls the micro-kernel for `count` tiles of one height; `prefetch` are its arguments NEXT_PANEL, if any."""
        f = self.f
        function = microkernel_at(f, self.target, self.table, self.vectors, self.mr, width, height)
        shift = block.k * self.size
        a = [tiles.a, self.p[P.TABLE], shift]
        sizes = [block.taps, block.k_count, block.accumulate, count]
        f.call(function, "void", [*a, tiles.panel, tiles.c, tiles.column, *sizes, *prefetch])


def declare_convolution(
    module: ModuleText, target: Target, compute: str, vectors: int, sweeps: Microkernels
) -> None:
    """Declares the block function and its micro-kernels."""
    module.declare(convolution_name(compute, vectors), "void", [t for t, _ in BLOCK_PARAMETERS])
    for sweep in sweeps.values():
        module.declare(sweep, "void", [t for t, _ in _sweep_parameters(target)])


# -- gradients of kernels: A transposed

GRADIENT_PARAMETERS = parameters(
    "ptr A, i64 shift, ptr B, i64 skip, ptr C, i64 ldc, i64 runs, i64 run, "
    "i64 step, i64 accumulate, i64 rows, ptr sweeps"
)
_GRADIENT_SWEEP = (*GRADIENT_PARAMETERS[:-2], ("i64", "tiles"))


def gradient_name(compute: str, vectors: int) -> str:
    """The function that computes a block of rows by one panel of columns, with A's rows contiguous in memory."""
    return f"tfb_convt_{compute}_{vectors}"


def gradient_sweep_name(compute: str, vectors: int, mr: int) -> str:
    """The micro-kernel for tiles of a panel's width and mr rows."""
    return f"tfb_convt_{compute}_{vectors}x{mr}"


def write_gradient_sweep(
    module: ModuleText, target: Target, compute: str, vectors: int, mr: int, linkage: str
) -> None:
    """As write_convolution_sweep, where step k of a run finds its mr elements of A side by side, `step` bytes after
    those of k - 1."""
    name = gradient_sweep_name(compute, vectors, mr)
    if not module.has(name):
        f = Function(module, name, _GRADIENT_SWEEP, linkage=linkage)
        _GradientSweep(f, Compute(target, compute), vectors, mr).write()
        module.add(name, f.text())


class _GradientSweep:
    """A micro-kernel of gradients under construction: for each tile, loops over the runs and over their steps."""

    def __init__(self, f: Function, compute: Compute, vectors: int, mr: int) -> None:
        self.f, self.compute, self.mr = f, compute, mr
        self.tile = RegisterTile(f, compute, mr, vectors)
        self.panel_bytes = vectors * compute.vector_bytes
        self.run, self.ldc = f.integers("run", "ldc")
        self.unroll = unrolled_steps(compute.target, mr * vectors)

    def write(self) -> None:
        """For each of `tiles` tiles of C, one below the other: C (+)= A B."""
        f, tile = self.f, self.tile
        accumulates = f.integer("accumulate").differs(0)
        self.unrolled_run = self.run.round_down(self.unroll)
        # Where a tile begins in A's columns, as data: additions to it are written without `nsw`.
        shift = VectorValue.of(f, f["shift"])
        with f.loop(0, f.integer("tiles"), shift=shift, c=f.pointer("C")) as tiles:
            rows = [tiles.c]
            for _ in range(1, self.mr):
                rows.append(rows[-1] + self.ldc)
            addresses = tile.addresses(rows)
            sums = self._runs(Int.of(f, tiles.shift))
            tile.store(tile.plus_old(accumulates, sums, addresses), addresses)
            tiles.shift = tiles.shift + self.mr * self.compute.bytes
            tiles.c = tiles.c + self.ldc * self.mr
        f.ret()

    def _runs(self, shift: Int) -> list[VectorValue]:
        """The sum of the products of all runs, A's elements `shift` bytes after those of the table."""
        f = self.f
        with f.loop(0, f.integer("runs"), sums=self.tile.zeros()) as runs:
            a = f.pointer("A").at(runs.index, "ptr").load_ptr() + shift
            b = f.pointer("B").at(runs.index, "ptr").load_ptr() + f.integer("skip")
            a, b, unrolled = self._steps(0, self.unrolled_run, self.unroll, a, b, runs.sums)
            _, _, runs.sums = self._steps(self.unrolled_run, self.run, 1, a, b, unrolled)
        sums: list[VectorValue] = runs.sums
        return sums

    def _steps(
        self, low: Index, high: Index, unroll: int, a: Ptr, b: Ptr, sums: list[VectorValue]
    ) -> tuple[Ptr, Ptr, list[VectorValue]]:
        """Steps low, low + 1, ... of a run, `unroll` of them written one after the other; returns a, b and sums after
        them."""
        with self.f.loop(low, high, unroll, a=a, b=b, sums=sums) as k:
            for u in range(unroll):
                k.sums = self._step(k.a, k.b, u, k.sums)
                k.a = k.a + self.f.integer("step")
            k.b = k.b + unroll * self.panel_bytes
        return k.a, k.b, k.sums

    def _step(self, column: Ptr, b: Ptr, u: int, sums: Sequence[VectorValue]) -> list[VectorValue]:
        """sums + a column of A times row u of B, counted from `b`."""
        size = self.compute.bytes
        return self.tile.rank_1_update(sums, lambda row: column + row * size, b, u * self.panel_bytes)


def write_gradient(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the function for gradients into a module; returns its name. `sweeps` is a table of its micro-kernels, the
    lowest first.

    C[m, n] (+)= the sum over runs and their steps of A[run][step][m] * B[run][step][n]; B is packed, `skip` bytes of
    every run of it left out.
    """
    name = gradient_name(compute, vectors)
    if module.has(name):
        return name
    mr = rows_of(target, compute, vectors)
    f = Function(module, name, GRADIENT_PARAMETERS, attributes=DRIVER_ATTRIBUTES, linkage=linkage)
    tiles, low, taller = tiles_of_rows(f.integer("rows"), mr)
    a, b, c, table = f.pointers("A", "B", "C", "sweeps")
    shift, skip, ldc, *sizes = f.integers("shift", "skip", "ldc", "runs", "run", "step", "accumulate")

    def sweep(row: Index, count: Int, height: Int) -> None:
        """Calls the micro-kernel for `count` tiles of one height, from a row on."""
        first = Int.of(f, row)
        shifted, block = shift + first * Compute(target, compute).bytes, c + first * ldc
        function = microkernel_at(f, target, table, vectors, mr, vectors, height)
        f.call(function, "void", [a, shifted, b, skip, block, ldc, *sizes, count])

    with f.if_(taller.differs(0)):
        sweep(0, taller, low + 1)
    sweep(taller * (low + 1), tiles - taller, low)
    f.ret()
    module.add(name, f.text())
    return name


def declare_gradient(module: ModuleText, compute: str, vectors: int, sweeps: Microkernels) -> None:
    """Declares the function for gradients and its micro-kernels."""
    module.declare(gradient_name(compute, vectors), "void", [t for t, _ in GRADIENT_PARAMETERS])
    for sweep in sweeps.values():
        module.declare(sweep, "void", [t for t, _ in _GRADIENT_SWEEP])
