"""What buffer assignment and the thunks need to know about a kernel. Pure data."""

from __future__ import annotations

import dataclasses

from ...ir.literal import Literal


@dataclasses.dataclass(frozen=True)
class Slices:
    """How the kernels of a chain (schedule/kernel_chains.py) divide their work.

    parts: the equal parts of each value, in the order of memory, that are read from cache by the next kernel; none of a
        kernel's tasks is in two of them where that can be. 0: the kernel is in no chain.
    at_a_time: of parts whose number is known at run time only, how many make a slice; the last slice may have fewer.
    are_run: 1, or a size that is 0 where a kernel runs as if it were in no chain.
    """

    parts: int = 0
    at_a_time: int = 1
    are_run: int = 1

    def of_slice(self, rows: int) -> int:
        """Of so many rows, a multiple of the parts, those of a slice."""
        return rows // self.parts * self.at_a_time

    def choose(self, where_run: int, otherwise: int) -> int:
        """One of two sizes: by whether slices are run."""
        return otherwise + self.are_run * (where_run - otherwise)


NO_SLICES = Slices()


@dataclasses.dataclass(frozen=True)
class KernelVariant:
    """Which kernel of an instruction, where its operands or readers ask for another one.

    `b_packed`: the right operand of its contraction is packed (schedule/prepacking.py).
    `is_partial`: perhaps not all tasks will run; those of a dot have few rows.
    `depth_sizes`: of a dot that sums up to a size known at run time only, the number of s32 scalars, the largest of
    which is the size: buffers behind those of the operands.
    """

    b_packed: bool = False
    is_partial: bool = False
    depth_sizes: int = 0
    slices: Slices = NO_SLICES


PLAIN = KernelVariant()


@dataclasses.dataclass(frozen=True)
class KernelInfo:
    """A kernel's symbol and how to launch it.

    Its buffers, in order: one per operand leaf, those of `KernelVariant.depth_sizes`, one per output leaf, then scratch
    (absent when scratch_bytes is 0), then memory that all threads share (absent when shared_bytes is 0), then the
    constant tables.
    `must_alias` pairs (output, operand): the output's buffer must hold the operand's value before the launch, because
    the kernel updates it in place; that operand has no buffer of its own in the list.
    `may_alias` pairs (output, operand): the two may share one buffer, because no task reads element i of the operand
    after element i of the output is written.
    `in_order`: (elements, tasks) where that many tasks after the other compute as many elements of each output, in the
    order of memory; None where the order is another.
    `row_tasks`: (rows, tasks) where that many tasks of a matrix product after the other compute as many rows, those of
    a batch counted one matrix after the other; None where the order is another.
    `has_window`: a contraction keeps its result in its scratch, a block at a time, for its epilogue alone.
    Units: tasks is the extent of the parallel dimension, grain the smallest range of tasks worth a thread;
    scratch_bytes is per thread, shared_bytes is not; flops and bytes describe one launch, for reports.
    """

    symbol: str
    tasks: int
    grain: int = 1
    parallel: bool = False
    scratch_bytes: int = 0
    flops: int = 0
    bytes: int = 0
    shared_bytes: int = 0
    tables: tuple[Literal, ...] = ()
    must_alias: tuple[tuple[int, int], ...] = ()
    may_alias: frozenset[tuple[int, int]] = frozenset()
    has_window: bool = False
    in_order: tuple[int, int] | None = None
    row_tasks: tuple[int, int] | None = None
