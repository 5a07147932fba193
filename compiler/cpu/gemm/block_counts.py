"""The sizes of the blocks that tasks are cut into, and what of the library's functions they need."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from ....runtime.llvm.target import Target
from ....runtime.sizes import is_symbolic
from .microkernel import tile_heights, tile_widths, widths
from .panel_prefetch import UNROLLED_STEPS
from .uses import Part


@dataclasses.dataclass(frozen=True)
class Counts:
    """The sizes of the blocks that tasks are cut into along an axis, None where they are known at run time only; and
    whether a task may have several."""

    sizes: frozenset[int] | None
    are_several: bool

    @classmethod
    def of(cls, whole: int, task: int, block: int) -> Counts:
        """Those of a whole that is divided into tasks, and these into blocks."""
        if is_symbolic([whole, task]):
            return cls(None, True)
        tasks = min(whole, task), whole % task
        sizes = frozenset(size for count in tasks for size in (min(count, block), count % block))
        return cls(sizes, max(tasks) > block)

    def some(self, holds: Callable[[int], object]) -> bool:
        """Whether something may hold for the size of a block."""
        return self.sizes is None or any(map(holds, self.sizes))


def tiles(
    target: Target, vectors: int, lanes: int, mr: int, rows: Counts, columns: Counts
) -> tuple[tuple[int, int], ...]:
    """(width in vectors, height) of the tiles, at most `mr` high, that blocks are cut into; of sizes known at run time
    only, all that there are. A panel has `vectors` of so many lanes."""
    heights = range(1, mr + 1) if rows.sizes is None else tile_heights(rows.sizes, mr)
    all_widths = set(widths(target, vectors))
    if columns.sizes is not None:
        all_widths = set().union(*(tile_widths(target, count, vectors, lanes) for count in columns.sizes))
    return tuple(itertools.product(sorted(all_widths), sorted(heights)))


def used_parts(mr: int, nr: int, rows: Counts, columns: Counts, depths: Counts) -> frozenset[Part]:
    """The parts of the functions that are run, without those that pack. depths: of sums; a panel has `nr` columns."""
    is_run = {
        Part.ROW_BLOCKS: rows.are_several,
        Part.TWO_HEIGHTS: rows.some(lambda count: len(tile_heights([count], mr)) > 1),
        Part.COLUMN_BLOCKS: columns.are_several,
        Part.TAIL: columns.some(lambda count: count % nr),
        Part.DEPTH_BLOCKS: depths.are_several,
        Part.LAST_STEPS: depths.some(lambda count: count % UNROLLED_STEPS),
    }
    return frozenset(part for part, runs in is_run.items() if runs)
