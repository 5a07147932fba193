"""Fetching into the caches what a microkernel reads next: where a vector is a whole cache line, memory holds it up.

While a microkernel computes its first tiles of a panel, it fetches rows of the next panel of B into L2. In the last
steps of each tile's sums it fetches the tile's rows of C into L1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import Function, Value
from ....runtime.llvm.types import parameters
from ....runtime.llvm.vector_value import VectorValue
from .compute_types import CACHE_LINE

UNROLLED_STEPS = 4  # of the sums in tiles of whole lines, and of narrow ones
PREFETCHED_ROWS = 2  # of the next panel, in every unrolled step
C_DISTANCE = 4  # unrolled steps between fetching the last row of a tile of C and reading it
# Parameters of a microkernel: the next panel, the bytes between its rows, and how many tiles fetch rows of it.
NEXT_PANEL = parameters("ptr next_panel, i64 next_stride, i64 prefetching_tiles")
PREFETCHING_TILES = UNROLLED_STEPS // PREFETCHED_ROWS  # fetch all rows of a panel as deep as the one computed


def prefetch_rows(f: Function, row: Value, stride: Value, lines: int) -> Ptr:
    """Fetches the next rows of the next panel into L2; returns the row after them."""
    at = Ptr.of(f, row)
    for _ in range(PREFETCHED_ROWS):
        for line in range(lines):
            (at + line * CACHE_LINE).prefetch(locality=2)
        at = at + Int.of(f, stride)
    return at


def prefetch_stride(f: Function, tile: Value) -> Int:
    """Bytes between the rows that a tile fetches; 0: it fetches but one."""
    stride, tiles = f.integers("next_stride", "prefetching_tiles")
    return (Int.of(f, tile) < tiles).choose(stride, 0)


def next_panel_after(f: Function, next_panel: Sequence[Value], steps: Value, tiles: Value) -> list[Value]:
    """The arguments NEXT_PANEL for the tiles after so many of a panel, each of which has `steps`."""
    row, stride, prefetching = next_panel
    count, distance = Int.of(f, tiles), Int.of(f, stride)
    remaining = (Int.of(f, prefetching) - count).maximum(0)
    rows = Int.of(f, steps) // UNROLLED_STEPS * PREFETCHED_ROWS * count
    return [Ptr.of(f, row) + rows * distance, distance, remaining]


class OutputPrefetch:
    """Fetches a tile of C, a row at a time, in the last steps of its sums."""

    def __init__(self, c: Ptr, ldc: Int, rows: int, lines: int, steps: Index) -> None:
        f = c.f
        self.lines, self.ldc = lines, VectorValue.of(f, ldc)
        self.first = c.as_bits()
        self.last = self.first + ldc * (rows - 1)
        before = (Int.of(f, steps) - (rows + C_DISTANCE)).maximum(0)
        self.start = self.first - ldc * before

    def step(self, address: VectorValue) -> VectorValue:
        """Fetches one row, once the address has reached the first one; returns the next step's."""
        row = Int.of(address.f, address.call("smax", self.first)).as_pointer()
        for line in range(self.lines):
            (row + line * CACHE_LINE).prefetch(writes=True)
        return (address + self.ldc).call("smin", self.last)
