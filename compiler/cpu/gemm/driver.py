"""The blocked driver of GEMM: BLIS' five loops around the microkernel, with run-time sizes and strides.

    for jc in range(0, n, NC):                        columns: a block of C and B
        for pc in range(0, k, KC):                    depth: pack B's panels, if they shall be
            for ic in range(0, m, MC):                rows: pack A's block, if it shall be
                for jr in range(0, nc, NR):           panels of NR = vectors * lanes columns
                    microkernel                       tiles of at most MR rows, one below the other
                epilogue, after the last depth block

It depends on the target alone, so it is compiled once per machine; the kernel of one product calls
`tfb_gemm_<type>_<vectors>` for each task (gemm/emit.py). Every function that computes a block of C has the parameters
BLOCK_PARAMETERS; all strides are bytes. Behind the parameter array stands a table of the microkernels that a product
needs: no others are compiled.

Source: F. Van Zee, R. van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", figure 2.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Sequence

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, Value
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.sizes import Size
from . import tile_end
from .compute_types import Compute, line_vectors
from .microkernel import max_rows, microkernel_at, tiles_of_rows, widths
from .panel_prefetch import PREFETCHING_TILES, next_panel_after
from .tail_copy import write_tail_copy
from .uses import ALL, Part, Uses

BLOCK_PARAMETERS = parameters(
    "ptr A, ptr B, ptr C, ptr scratch, ptr P, ptr pack_a, ptr pack_b, ptr epilogue, ptr ctx, "
    "ptr buffers, i64 batch, i64 row, i64 rows, i64 col, i64 cols"
)


class P(enum.IntEnum):
    """Slots of a problem's parameter array (i64 each; strides and offsets in bytes). ROWS: of the tallest tile."""

    K = 0
    A_ROW = 1
    A_K = 2
    B_K = 3
    B_COL = 4
    C_ROW = 5
    C_COL = 6
    KC = 7
    MC = 8
    NC = 9
    PACK_A = 10
    B_MODE = 11
    LDA = 12
    AT_A = 13
    AT_TAIL = 14
    AT_TILE = 15
    B_PANEL = 16
    FACTORS = 17
    ADDED = 18
    LOW = 19
    HIGH = 20
    ROWS = 21


DIRECT, PACK, PACKED = 0, 1, 2  # P.B_MODE: B as it lies, packed by the driver, packed beforehand

# -- parameters


def constant_table(
    module: ModuleText, prefix: str, values: Iterable[int], microkernels: tuple[str, str] | None = None
) -> str:
    """The name of a constant array of i64 in a module, with a microkernel_table behind it."""
    listed = [f"i64 {value}" for value in values]
    type_, content = f"[{len(listed)} x i64]", f"[{', '.join(listed)}]"
    if microkernels is not None:
        table_type, table = microkernels
        type_, content = f"{{{type_}, {table_type}}}", f"{{{type_} {content}, {table_type} {table}}}"
    text = f"internal constant {type_} {content}"
    return module.add_global(f"{prefix}_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}", text)


def parameter_table(
    f: Function, prefix: str, values: Sequence[Int | int], microkernels: tuple[str, str] | None = None
) -> Ptr:
    """The address of a parameter array, with a microkernel_table behind it: a constant, or, of sizes that are known at
    run time only, on the stack of a function."""
    known = [0 if isinstance(value, Size | Int) else value for value in values]
    constant = f.symbol(constant_table(f.module, prefix, known, microkernels))
    if not any(isinstance(value, Size | Int) for value in values):
        return constant
    table_bytes = 8 * len(values) + (8 * int(microkernels[0][1:].split(" ", 1)[0]) if microkernels else 0)
    table = f.stack_slot(f"[{table_bytes} x i8]", 64)
    f.call("memcpy", "ptr", [table, constant, table_bytes])
    for slot, value in enumerate(values):
        if isinstance(value, Size | Int):
            table.at(slot, "i64").store(Int.of(f, value))
    return table


def parameter(f: Function, slot: int, uses: Uses = ALL) -> Int:
    """A slot of the parameter array; a number of the code where it is the same in all uses."""
    if slot in uses.parameters:
        return f.i64(uses.parameters[slot])
    return f.pointer("P").at(int(slot), "i64").load_int()


def call_epilogue(f: Function, row: Index, rows: Value | int, col: Value | int, cols: Value | int) -> None:
    """Calls the epilogue, if there is one, for a finished block given relative to this call's block."""
    epilogue = f.pointer("epilogue")
    with f.if_(epilogue.is_not_null()):
        low_row, low_col = f.integer("row") + row, f.integer("col") + Int.of(f, col)
        ctx, buffers = f.pointers("ctx", "buffers")
        high_row, high_col = low_row + Int.of(f, rows), low_col + Int.of(f, cols)
        arguments = [ctx, buffers, f.integer("batch"), low_row, high_row, low_col, high_col]
        f.call(epilogue, "void", arguments)


def gemm_name(compute: str, vectors: int) -> str:
    """The blocked driver."""
    return f"tfb_gemm_{compute}_{vectors}"


def declare_block(module: ModuleText, name: str) -> None:
    """Declares a library function that computes a block of C."""
    module.declare(name, "void", [t for t, _ in BLOCK_PARAMETERS])


def write_gemm(
    module: ModuleText, target: Target, compute: str, vectors: int, linkage: str, uses: Uses = ALL
) -> None:
    """Writes the blocked driver, or what is used of it, into a module."""
    name = gemm_name(compute, vectors)
    if not module.has(name):
        copy = write_tail_copy(module, target, compute, linkage) if Part.TAIL in uses.parts else ""
        f = Function(module, name, BLOCK_PARAMETERS, attributes=DRIVER_ATTRIBUTES, linkage=linkage)
        _Driver(f, Compute(target, compute), vectors, copy, uses).write()
        module.add(name, f.text())


# -- the loops


class _Driver:
    """The driver under construction. A method writes one loop's body and has the loop's block as attributes:

    * column block jc: b_block, c_block, nc; `panels` full panels and a narrow one of `tail` columns;
    * depth block pc: kc, b; and where panels of B come from;
    * row block ic: mc, a, lda, c; `tiles` tiles, `taller` of them of height low + 1, the others of height low.
    """

    def __init__(self, f: Function, compute: Compute, vectors: int, copy: str, uses: Uses) -> None:
        self.f, self.compute, self.vectors, self.copy, self.uses = f, compute, vectors, copy, uses
        self.target = compute.target
        self.nr = vectors * compute.lanes
        self.nr_bytes = self.nr * compute.bytes
        self.mr = max_rows(self.target, compute.name, vectors)
        self.end_rows: list[tuple[Ptr, Ptr]] = []

    def write(self) -> None:
        """C (+)= A B, a column block after the other."""
        f = self.f
        p = self.p = {slot: parameter(f, slot, self.uses) for slot in P}
        self.packs_a = p[P.PACK_A].differs(0)
        self.is_direct, self.packs_b = (p[P.B_MODE].equals(mode) for mode in (DIRECT, PACK))
        self.scratch = f.pointer("scratch")
        self.packed_tail, self.tile = self.scratch + p[P.AT_TAIL], self.scratch + p[P.AT_TILE]
        self.packed_a = self.scratch + p[P.AT_A]
        self.rows, self.cols = f.integers("rows", "cols")
        depth = p[P.K].maximum(1)  # a product over nothing is one depth block of no steps: zeros
        self.ldb = self.packs_b.choose(self.nr_bytes, p[P.B_K])
        # Where a product is one depth block and B was not packed beforehand, the last panel may overlap the one before.
        self.may_overlap = (self.is_direct | self.packs_b) & (p[P.K] <= p[P.KC])
        self.b_rows_contiguous = p[P.B_COL].equals(self.compute.bytes)
        self._blocks(Part.COLUMN_BLOCKS, self.cols, p[P.NC], lambda jc: self._column_block(jc, depth))
        f.ret()

    def _blocks(self, part: Part, count: Int, size: Int, write: Callable[[Int], None]) -> None:
        """Writes a loop over blocks; its body alone where there is but one."""
        if part not in self.uses.parts:
            write(self.f.i64(0))
            return
        with self.f.loop(0, count, size) as blocks:
            write(blocks.index)

    def _column_block(self, jc: Int, depth: Int) -> None:
        f, p = self.f, self.p
        self.jc, self.nc = jc, self._size_of_block(Part.COLUMN_BLOCKS, p[P.NC], self.cols, jc)
        self.panels = self.nc // self.nr
        self.tail = self.nc % self.nr if Part.TAIL in self.uses.parts else f.i64(0)
        self.has_tail = self.tail.differs(0)
        self.span = self._span_of_tail()
        holds_span = self.nc >= self.span
        self.overlaps = self.may_overlap & (self.has_tail & holds_span)
        self.tail_in_place = self.overlaps | self.tail.equals(self.span)
        self.tail_separate = self.tail_in_place.equals(False)
        self.b_block = f.pointer("B") + jc * p[P.B_COL]
        self.c_block = f.pointer("C") + jc * self.compute.bytes
        self._blocks(Part.DEPTH_BLOCKS, depth, p[P.KC], self._depth_block)

    def _size_of_block(self, part: Part, size: Int, count: Int, start: Int) -> Int:
        return size.minimum(count - start) if part in self.uses.parts else count

    def _span_of_tail(self) -> Int:
        """Columns of the last panel's tiles, which are all of C's where the tiles overlap or fill them."""
        lanes = self.compute.lanes
        if len(widths(self.target, self.vectors)) == 1:
            return self.f.i64(self.nr)
        return (self.tail + (lanes - 1)) // lanes * lanes

    def _depth_block(self, pc: Int) -> None:
        p = self.p
        self.pc, self.kc = pc, self._size_of_block(Part.DEPTH_BLOCKS, p[P.KC], p[P.K], pc)
        self.accumulate = Int.zero_extended(pc.differs(0))
        self.b = self.b_block + pc * p[P.B_K]
        self.last = self.nc - self.span  # the first column of an overlapping tail
        self._pack_b_block()
        self._locate_panels()
        self.is_last_depth = (pc + self.kc) >= p[P.K]
        if tile_end.ends_tiles(self.compute.name):
            self.end_rows = [self._locate_end_row(slot) for slot in (P.FACTORS, P.ADDED)]
        self.next_b = self.is_last_depth.choose(
            self.b_block + self.nc * p[P.B_COL], self.b + self.kc * p[P.B_K]
        )
        self._blocks(Part.ROW_BLOCKS, self.rows, p[P.MC], self._row_block)

    def _pack_b_block(self) -> None:
        """Packs the panels of B that are not read as they lie."""
        f, p = self.f, self.p
        if Part.PACK_B not in self.uses.parts:
            return
        with f.if_(self.packs_b):
            self._pack_b(self.b, self.scratch, self.overlaps.choose(self.nc - self.tail, self.nc))
            to = self.scratch + self.panels * self.kc * self.nr_bytes
            with f.if_(self.overlaps):
                self._pack_b(self.b + self.last * p[P.B_COL], to, self.span)
        with f.if_(self.is_direct & (self.has_tail & self.tail_separate)):
            self._pack_b(self.b + self.panels * self.nr_bytes, self.packed_tail, self.tail)

    def _pack_b(self, source: Ptr, to: Ptr, width: Int) -> None:
        strides = self.p[P.B_K], self.p[P.B_COL]
        self.f.call(self.f.pointer("pack_b"), "void", [source, to, self.kc, width, *strides])

    def _locate_panels(self) -> None:
        """Where the panels of this depth block lie, and the narrow one."""
        p = self.p
        self.b_panels = self.packs_b.choose(self.scratch, self.b)
        self.panel_bytes = self.packs_b.choose(self.kc * self.nr_bytes, p[P.B_PANEL])
        direct_tail = self.tail_in_place.choose(self.b + self.last * self.compute.bytes, self.packed_tail)
        self.b_tail = self.is_direct.choose(direct_tail, self.b_panels + self.panels * self.panel_bytes)
        self.tail_ldb = (self.is_direct & self.tail_in_place).choose(p[P.B_K], self.nr_bytes)

    def _locate_end_row(self, slot: P) -> tuple[Ptr, Ptr]:
        """Where a row lies that belongs to the end of tiles (tile_end.py): its columns here, and those of the narrow
        panel. Null where there is none, or tiles do not end here."""
        f, p, size = self.f, self.p, self.compute.bytes
        exists = self.is_last_depth & p[slot].differs(tile_end.NONE)
        row = f.pointer("buffers").at(p[slot], "ptr").load_ptr() + (f.integer("col") + self.jc) * size
        if Part.TAIL not in self.uses.parts:
            return exists.choose(row, f.null), f.null
        copy = f.stack_slot(f"[{self.nr_bytes} x i8]")
        with f.if_(exists & (self.has_tail & self.tail_separate)):
            narrow = row + self.panels * self.nr_bytes
            f.call(self.copy, "void", [narrow, 0, copy, 0, 1, self.tail])
        tail = self.tail_in_place.choose(row + self.last * size, copy)
        return exists.choose(row, f.null), exists.choose(tail, f.null)

    def _row_block(self, ic: Int) -> None:
        f, p = self.f, self.p
        self.ic, self.mc = ic, self._size_of_block(Part.ROW_BLOCKS, p[P.MC], self.rows, ic)
        self._locate_a()
        self.c = self.c_block + ic * p[P.C_ROW]
        self.tiles, self.low, taller = tiles_of_rows(self.mc, p[P.ROWS])
        self.taller = taller if Part.TWO_HEIGHTS in self.uses.parts else f.i64(0)
        self.microkernels = f.pointer("P") + 8 * len(P)
        self.is_last_row = (ic + self.mc) >= self.rows
        # B packed for one block of rows: while it is computed, the next block of B is read, before it is packed.
        self.reads_next_b = self.packs_b & (self.b_rows_contiguous & (self.rows <= p[P.MC]))
        with f.loop(0, self.panels) as panels:
            self._panel(panels.index)
        if Part.TAIL in self.uses.parts:
            with f.if_(self.has_tail):
                self._tail_panel()
        with f.if_(self.is_last_depth):
            call_epilogue(f, ic, self.mc, self.jc, self.nc)

    def _locate_a(self) -> None:
        """Packs the block of A, or reads it as it lies."""
        f, p = self.f, self.p
        block = f.pointer("A") + self.ic * p[P.A_ROW] + self.pc * p[P.A_K]
        if Part.PACK_A not in self.uses.parts:
            self.a, self.lda = block, p[P.A_ROW]
            return
        with f.if_(self.packs_a):
            sizes = [self.mc, self.kc, p[P.A_ROW], p[P.A_K], p[P.LDA], self.kc]
            f.call(f.pointer("pack_a"), "void", [block, self.packed_a, *sizes])
        self.a = self.packs_a.choose(self.packed_a, block)
        self.lda = self.packs_a.choose(p[P.LDA], p[P.A_ROW])

    def _panel(self, j: Int) -> None:
        b = self.b_panels + j * self.panel_bytes
        c = self.c + j * self.nr_bytes
        rows = [row.is_null().choose(self.f.null, row + j * self.nr_bytes) for row, _ in self.end_rows]
        self._macrokernel(b, self.ldb, c, self.p[P.C_ROW], self.vectors, rows, self._next_panel(j))

    def _tail_panel(self) -> None:
        """The narrow panel: in place, or through a tile in the scratch memory."""
        f, p, nr_bytes = self.f, self.p, self.nr_bytes
        c = self.c + self.panels * nr_bytes
        with f.if_(self.tail_separate & self.accumulate.differs(0)):
            f.call(self.copy, "void", [c, p[P.C_ROW], self.tile, nr_bytes, self.mc, self.tail])
        to = self.tail_in_place.choose(self.c + self.last * self.compute.bytes, self.tile)
        ldc = self.tail_in_place.choose(p[P.C_ROW], nr_bytes)
        for width in widths(self.target, self.vectors):
            is_width = self.span.equals(width * self.compute.lanes)
            next_panel = self._next_panel(self.panels)
            with f.if_(is_width):
                rows = [row for _, row in self.end_rows]
                self._macrokernel(self.b_tail, self.tail_ldb, to, ldc, width, rows, next_panel)
        with f.if_(self.tail_separate):
            f.call(self.copy, "void", [self.tile, nr_bytes, c, p[P.C_ROW], self.mc, self.tail])

    def _next_panel(self, j: Int) -> tuple[Ptr, Int, Int]:
        """What to fetch beside panel j, as NEXT_PANEL: the same panel of the next block of B, or the next panel, after
        the last one the first of the next block."""
        p, beyond = self.p, (j + 1) * self.nr < self.nc
        next_block = self.is_last_row.choose(self.next_b, self.b_panels)
        next_panel = beyond.choose(self.b_panels + (j + 1) * self.panel_bytes, next_block)
        same_panel = self.next_b + j * p[P.B_PANEL]
        row = self.reads_next_b.choose(same_panel, next_panel)
        stride = self.reads_next_b.choose(p[P.B_K], self.ldb)
        return row, stride, self.f.i64(PREFETCHING_TILES)

    def _macrokernel(
        self,
        b: Ptr,
        ldb: Int,
        c: Ptr,
        ldc: Int,
        width: int,
        end_rows: Sequence[Ptr],
        next_panel: tuple[Ptr, Int, Int],
    ) -> None:
        """A block of A times one panel: the taller tiles, then the others below them."""
        f = self.f
        rows = self.taller * (self.low + 1)
        prefetched: list[Value] = []
        remaining: list[Value] = []
        if line_vectors(self.target):
            prefetched, remaining = [*next_panel], next_panel_after(f, next_panel, self.kc, self.taller)
        if end_rows:
            end = [*end_rows, f.pointer("P") + 8 * int(P.LOW)]
            prefetched, remaining = end + prefetched, end + remaining
        with f.if_(self.taller.differs(0)):
            self._call(width, self.low + 1, [self.a, self.lda, b, ldb, c, ldc], self.taller, prefetched)
        a, c = self.a + rows * self.lda, c + rows * ldc
        self._call(width, self.low, [a, self.lda, b, ldb, c, ldc], self.tiles - self.taller, remaining)

    def _call(self, width: int, height: Int, matrices: list[Value], tiles: Int, others: list[Value]) -> None:
        """Calls the microkernel for tiles of some width and height."""
        kernel = microkernel_at(self.f, self.target, self.microkernels, self.vectors, self.mr, width, height)
        self.f.call(kernel, "void", [*matrices, self.kc, self.accumulate, tiles, *others])
