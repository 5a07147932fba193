"""The GEMM microkernel: tiles of C in registers, a rank-1 update for every step of k.

    for each of `tiles` tiles of C, one below the other:
        tile = zeros
        for k in range(kc):
            tile += A[:, k] * B[k, :]            mr x 1 times 1 x nr
        C = tile, or C + tile; of floats perhaps after its end (tile_end.py)

A is read as it lies, an element of each row at a time; B from a packed panel, or as it lies. Sizes are known at run
time, strides are bytes. There is a microkernel for every height and width of a tile, compiled once per machine when
code first calls it; the driver takes them from a table.

Source: F. Van Zee, R. van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.control_flow import Loop
from ....runtime.llvm.ir_builder import Function, ModuleText, Value
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.llvm.vector_value import VectorValue
from . import tile_end
from .byte_products import extra_registers
from .compute_types import COMPUTE_TYPES, QUADS, SIZES, Compute, line_vectors
from .panel_prefetch import NEXT_PANEL, UNROLLED_STEPS, OutputPrefetch, prefetch_rows, prefetch_stride
from .register_tile import RegisterTile, add
from .uses import ALL, Part, Uses

VECTORS = (1, 2, 3)
_SCALAR_SUMS = 4  # beside the halves of quads, addresses and counts, in general-purpose registers
_CHAINS = 8  # of additions in a tile that hide their latency
_SHARED_ROWS = 3  # of A to a base register: base, base + lda, base + 2 lda


def vector_counts(compute: str) -> tuple[int, ...]:
    """Panel widths, in vectors, that the library has for a compute type."""
    return VECTORS if compute.startswith("f") or compute in QUADS else (2,)


def max_rows(target: Target, compute: str, vectors: int) -> int:
    """Rows of the largest tile whose accumulators, B vectors and temporaries stay in registers."""
    if is_scalar(target, compute):
        return max(1, _SCALAR_SUMS // vectors)
    if compute in QUADS:
        temporaries = 1 + extra_registers(target, compute)
    else:
        temporaries = 1 if compute.startswith("f") and target.fuses(8 * SIZES[COMPUTE_TYPES[compute]]) else 2
    rows = (target.registers - vectors - temporaries) // vectors
    return max(1, min(rows, {1: 12, 2: 12 if line_vectors(target) else 14, 3: 8}[vectors]))


def is_scalar(target: Target, compute: str) -> bool:
    """Whether quads are multiplied one by one, in general-purpose registers."""
    return compute in QUADS and target.lanes(32) == 1


def unrolled_steps(target: Target, accumulators: int) -> int:
    """Steps of a sum written one after the other: large tiles hide the loop's own instructions without that. One where
    code is to be small."""
    if target.is_small:
        return 1
    return UNROLLED_STEPS if accumulators < 8 or line_vectors(target) else 2


def widths(target: Target, vectors: int) -> range:
    """Vectors of the tiles that a panel is computed in: where vectors are long, the last panel's are no wider than
    its remaining columns."""
    return range(1 if line_vectors(target) else vectors, vectors + 1)


def tile_heights(counts: Iterable[int], mr: int) -> set[int]:
    """Heights of the tiles, at most mr and nearly equal, that blocks of so many rows are cut into."""
    heights = set()
    for count in filter(None, counts):
        low, taller = divmod(count, -(-count // mr))
        heights |= {low, low + 1} if taller else {low}
    return heights


def tile_widths(target: Target, columns: int, vectors: int, lanes: int) -> set[int]:
    """Widths, in vectors, of the tiles that so many columns are cut into; a panel has `vectors`."""
    panels, tail = divmod(columns, vectors * lanes)
    tail_width = -(-tail // lanes) if len(widths(target, vectors)) > 1 else vectors
    return ({vectors} if panels else set()) | ({tail_width} if tail else set())


# -- the microkernel

_PARAMETERS = parameters("ptr A, i64 lda, ptr B, i64 ldb, ptr C, i64 ldc, i64 kc, i64 accumulate, i64 tiles")


def _parameters(target: Target, compute: str) -> list[tuple[str, str]]:
    ends = tile_end.PARAMETERS if tile_end.ends_tiles(compute) else ()
    return [*_PARAMETERS, *ends, *(NEXT_PANEL if line_vectors(target) else ())]


def microkernel_name(compute: str, width: int, mr: int) -> str:
    """The microkernel for tiles of `width` vectors and mr rows."""
    return f"tfb_gemm_{compute}_{width}x{mr}"


def write_microkernel(
    module: ModuleText, target: Target, compute: str, width: int, mr: int, linkage: str, uses: Uses = ALL
) -> None:
    """Writes the microkernel for tiles of `width` vectors and mr rows, or what is used of it, into a module."""
    name = microkernel_name(compute, width, mr)
    if not module.has(name):
        f = Function(module, name, _parameters(target, compute), linkage=linkage)
        _Microkernel(f, Compute(target, compute), width, mr, uses).write()
        module.add(name, f.text())


class _Microkernel:
    """A microkernel under construction. `sets` tiles of sums, each over every so manyth step, are added up at the end:
    a small tile alone is too few chains of additions."""

    def __init__(self, f: Function, compute: Compute, width: int, mr: int, uses: Uses) -> None:
        self.f, self.compute, self.width, self.mr, self.uses = f, compute, width, mr, uses
        self.tile = RegisterTile(f, compute, mr, width)
        self.prefetches = line_vectors(compute.target)
        self.lda, self.ldb, self.ldc, self.kc = f.integers("lda", "ldb", "ldc", "kc")
        self.unroll = unrolled_steps(compute.target, mr * width)
        chains = 1 if is_scalar(compute.target, compute.name) else _CHAINS
        self.sets = max(1, min(self.unroll, chains // (mr * width)))

    def write(self) -> None:
        """For each of `tiles` tiles of C, one below the other: C (+)= A B."""
        f = self.f
        adds = Part.DEPTH_BLOCKS in self.uses.parts
        accumulates = f.integer("accumulate").differs(0) if adds else None
        self.row_offsets: list[Index] = [0, self.lda, self.lda * 2]
        has_rest = Part.LAST_STEPS in self.uses.parts and self.unroll > 1
        self.unrolled_kc = self.kc.round_down(self.unroll) if has_rest else self.kc
        next_row: dict[str, Any] = {"next_row": f.pointer("next_panel")} if self.prefetches else {}
        with f.loop(0, f.integer("tiles"), a=f.pointer("A"), c=f.pointer("C"), **next_row) as tiles:
            stride = prefetch_stride(f, tiles.index) if self.prefetches else None
            addresses = self.tile.addresses(self._rows_of_c(tiles.c))
            if stride is None:
                sums = self._multiply(tiles.a)
            else:
                sums, tiles.next_row = self._multiply_prefetching(tiles.a, tiles.c, tiles.next_row, stride)
            sums = self.tile.plus_old(accumulates, sums, addresses)
            if tile_end.ends_tiles(self.compute.name):
                sums = tile_end.end(self.tile, sums, *f.pointers("factors", "added", "limits"))
            self.tile.store(sums, addresses)
            tiles.a = tiles.a + self.lda * self.mr
            tiles.c = tiles.c + self.ldc * self.mr
        f.ret()

    def _rows_of_c(self, c: Ptr) -> list[Ptr]:
        rows = [c]
        for _ in range(1, self.mr):
            rows.append(rows[-1] + self.ldc)
        return rows

    # -- the sums over k
    def _multiply(self, a: Ptr) -> list[VectorValue]:
        """A B, A's rows beginning at `a`."""
        with self.f.loop(0, self.unrolled_kc, self.unroll, **self._first_state(a)) as k:
            self._unrolled_steps(k)
        return self._remaining_steps(k)

    def _multiply_prefetching(
        self, a: Ptr, c: Ptr, next_row: Ptr, stride: Int
    ) -> tuple[list[VectorValue], Ptr]:
        """As _multiply; fetches C's tile and rows of the next panel of B besides. Returns the row after those, too."""
        f, steps = self.f, self.unrolled_kc // self.unroll
        output = OutputPrefetch(c, self.ldc, self.mr, self.width, steps)
        state = self._first_state(a)
        with f.loop(0, self.unrolled_kc, self.unroll, **state, c=output.start, next_row=next_row) as k:
            k.c = output.step(k.c)
            k.next_row = prefetch_rows(f, k.next_row, stride, self.width)
            self._unrolled_steps(k)
        return self._remaining_steps(k), k.next_row

    def _first_state(self, a: Ptr) -> dict[str, Any]:
        """What the loop over k carries: addresses in A, of every third row; B's row; and the sums."""
        bases = [a]
        for _ in range(_SHARED_ROWS, self.mr, _SHARED_ROWS):
            bases.append(bases[-1] + self.lda * _SHARED_ROWS)
        return {"a": bases, "b": self.f.pointer("B"), "sums": self.tile.zeros() * self.sets}

    def _unrolled_steps(self, k: Loop) -> None:
        size, b = len(self.tile.zeros()), k.b
        sums = list(k.sums)
        for u in range(self.unroll):
            part = slice(u % self.sets * size, (u % self.sets + 1) * size)
            sums[part] = self._step(k.a, b, u, sums[part])
            b = b + self.ldb
        k.a = [p + self.unroll * self.compute.bytes for p in k.a]
        k.b, k.sums = b, sums

    def _remaining_steps(self, unrolled: Loop) -> list[VectorValue]:
        """The last steps, one by one, after the sets of sums are added up."""
        size = len(self.tile.zeros())
        sets = [unrolled.sums[s * size : (s + 1) * size] for s in range(self.sets)]
        sums: list[VectorValue] = sets[0]
        for one in sets[1:]:
            sums = add(sums, one)
        if self.unrolled_kc is self.kc:
            return sums
        with self.f.loop(self.unrolled_kc, self.kc, a=unrolled.a, b=unrolled.b, sums=sums) as k:
            k.sums = self._step(k.a, k.b, 0, k.sums)
            k.a = [p + self.compute.bytes for p in k.a]
            k.b = k.b + self.ldb
        result: list[VectorValue] = k.sums
        return result

    def _step(self, bases: Sequence[Ptr], b: Ptr, u: int, sums: Sequence[VectorValue]) -> list[VectorValue]:
        """sums + A[:, k + u] * B[k + u, :]."""

        def a(row: int) -> Ptr:
            base = bases[row // _SHARED_ROWS] + self.row_offsets[row % _SHARED_ROWS]
            return base + u * self.compute.bytes

        return self.tile.rank_1_update(sums, a, b)


def tiles_of_rows(rows: Int, mr: Index) -> tuple[Int, Int, Int]:
    """Cuts rows into tiles of nearly equal height, at most mr: no thin one at the end. Returns how many there are, the
    lower height, and how many tiles have one row more."""
    tiles = (rows + (mr - 1)) // mr
    low = rows // tiles
    return tiles, low, rows - low * tiles


# -- tables of microkernels

Microkernels = Mapping[tuple[int, int], str]  # names by width, in vectors, and height of their tiles


def microkernel_table(target: Target, vectors: int, mr: int, names: Microkernels) -> tuple[str, str]:
    """(type, value) of a constant table, from which `microkernel_at` takes one; those without a name are null."""
    pad = "" if target.pointer_bytes == 8 else f", [{8 - target.pointer_bytes} x i8]"
    zeros = f"{pad} zeroinitializer" if pad else ""
    listed = [
        f"@{names[key]}" if (key := (width, height)) in names else "null"
        for width in widths(target, vectors)
        for height in range(1, mr + 1)
    ]
    entries = ", ".join(f"<{{ptr{pad}}}> <{{ptr {name}{zeros}}}>" for name in listed)
    return f"[{len(listed)} x <{{ptr{pad}}}>]", f"[{entries}]"


def microkernel_at(
    f: Function, target: Target, table: Value, vectors: int, mr: int, width: int, height: Value | int
) -> Ptr:
    """The microkernel for tiles of some width and height, of panels of `vectors` and at most mr rows."""
    first = widths(target, vectors).index(width) * mr - 1
    return Ptr.of(f, table).at(Int.of(f, height) + first, "ptr").load_ptr()


def declare_microkernels(module: ModuleText, target: Target, compute: str, names: Microkernels) -> None:
    """Declares the microkernels of a table."""
    for name in names.values():
        module.declare(name, "void", [t for t, _ in _parameters(target, compute)])
