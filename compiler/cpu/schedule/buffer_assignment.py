"""Buffer assignment: where in the arena of temporary memory every temporary buffer lies.

Buffers that live at the same time never overlap. How long they live is read off the thunks.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping

from ....runtime.code.artifact import Temporary
from ....runtime.sizes import AnySize, ceiling, estimate, is_symbolic, maximum
from .buffer import ALIGN_BYTES, Buffer
from .thunks import (
    ChainThunk,
    ConditionalThunk,
    KernelThunk,
    ParallelThunk,
    PrepackThunk,
    Thunk,
    ThunkSequence,
    WhileThunk,
    all_thunks,
)


@dataclasses.dataclass
class LiveRange:
    """The first and the last position of a buffer's use. `branches` are those of parallel thunks around its first
    use: (position of the thunk, number of the branch)."""

    first: int
    last: int
    branches: tuple[tuple[int, int], ...] = ()

    def interferes(self, other: LiveRange) -> bool:
        """Whether two buffers may hold values at the same time."""
        if self.first <= other.last and other.first <= self.last:
            return True
        if not self.branches or not other.branches:
            return False
        return any(
            position == other_position and number != other_number
            for position, number in self.branches
            for other_position, other_number in other.branches
        )


@dataclasses.dataclass(frozen=True)
class BufferAssignment:
    """The offset of every temporary buffer that thunks use, its live range, and the size of the arena. Buffers that lie
    in another one, of a chain, have no range.

    Units: bytes.
    """

    offsets: Mapping[Buffer, int]
    ranges: Mapping[Buffer, LiveRange]
    temp_bytes: int

    def __str__(self) -> str:
        lines = [f"temporary memory: {self.temp_bytes:,} bytes"]
        for b in sorted(self.ranges, key=lambda b: (estimate(self.offsets[b]), self.ranges[b].first)):
            start, live = self.offsets[b], self.ranges[b]
            lines.append(
                f"  [{start:>10}, {start + b.bytes:>10})  temporary[{b.index}]  {b.bytes:>12,} bytes  "
                f"thunks {live.first} to {live.last}"
            )
        return "\n".join(lines) + "\n"


def assign_buffers(sequence: ThunkSequence) -> BufferAssignment:
    """Gives every temporary buffer that thunks use an offset."""
    assignment = assign(live_ranges(sequence))
    offsets = dict(assignment.offsets)
    for thunk in all_thunks(sequence.thunks):
        if isinstance(thunk, ChainThunk) and thunk.offsets:
            start = offsets[thunk.memory]
            offsets.update({buffer: start + offset for buffer, offset in thunk.offsets.items()})
    return dataclasses.replace(assignment, offsets=offsets)


def assign(ranges: Mapping[Buffer, LiveRange]) -> BufferAssignment:
    """Gives every buffer an offset, from how long it lives."""
    return (assign_slots if is_symbolic(b.bytes for b in ranges) else assign_offsets)(ranges)


def assign_slots(ranges: Mapping[Buffer, LiveRange]) -> BufferAssignment:
    """Gives buffers whose bytes are known at run time only an offset.

    A slot is memory for buffers that never interfere, as large as the largest of them; slots lie one after another. So
    buffers never overlap, whatever their sizes are. Typical sizes decide who shares a slot, the largest first.
    """
    slots: list[list[Buffer]] = []
    for buffer in sorted(ranges, key=lambda b: (-estimate(b.bytes), ranges[b].first, b.index)):
        free = (s for s in slots if not any(ranges[b].interferes(ranges[buffer]) for b in s))
        slot = next(free, None)
        if slot is None:
            slots.append([buffer])
        else:
            slot.append(buffer)
    offsets: dict[Buffer, int] = {}
    at: AnySize = 0
    for slot in slots:
        offsets.update(dict.fromkeys(slot, at))
        at = at + ceiling(maximum(b.bytes for b in slot), ALIGN_BYTES) * ALIGN_BYTES
    return BufferAssignment(offsets, ranges, at)


def assign_offsets(ranges: Mapping[Buffer, LiveRange]) -> BufferAssignment:
    """Gives every buffer an offset: largest first, each at the lowest offset where it fits."""
    offsets: dict[Buffer, int] = {}
    placed: list[tuple[int, int, LiveRange]] = []  # (start, end) in memory, by start
    temp_bytes = 0
    for buffer in sorted(ranges, key=lambda b: (-b.bytes, ranges[b].first, b.index)):
        live, size, offset = ranges[buffer], buffer.bytes, 0
        for start, end, other in placed:
            if offset + size <= start:
                break
            if end > offset and other.interferes(live):
                offset = end
        offsets[buffer] = offset
        if size:
            end = offset + -(-size // ALIGN_BYTES) * ALIGN_BYTES
            bisect.insort(placed, (offset, end, live), key=operator.itemgetter(0))
        temp_bytes = max(temp_bytes, offset + size)
    return BufferAssignment(offsets, ranges, temp_bytes)


def temporaries(sequence: ThunkSequence, assignment: BufferAssignment) -> tuple[Temporary, ...]:
    """Where the arena's buffers lie, by offset, and between which kernels they live; without those of no kernel."""
    walk = _LiveRanges()
    walk.sequence(sequence)
    result = []
    for buffer, live in assignment.ranges.items():
        offset = assignment.offsets[buffer]
        first = bisect.bisect_left(walk.kernels, live.first)
        last = bisect.bisect_right(walk.kernels, live.last) - 1
        if first <= last and (size := estimate(buffer.bytes)):
            result.append(Temporary(estimate(offset), size, first, last))
    return tuple(sorted(result))


def live_ranges(sequence: ThunkSequence) -> dict[Buffer, LiveRange]:
    """How long every temporary buffer lives.

    Thunks have positions in their order. The arguments and results of a computation live until its end. What lives
    before a loop and is used in it lives until the loop's end.
    """
    walk = _LiveRanges()
    walk.sequence(sequence)
    return walk.ranges


class _LiveRanges:
    def __init__(self) -> None:
        self.ranges: dict[Buffer, LiveRange] = {}
        self.kernels: list[int] = []  # their positions
        self._position = 0
        self._branches: tuple[tuple[int, int], ...] = ()
        self._loops: list[tuple[int, set[Buffer]]] = []  # first position, buffers from outside that are used

    def sequence(self, sequence: ThunkSequence) -> None:
        self._use(sequence.results)
        for thunk in sequence.thunks:
            self._thunk(thunk)
        self._use((*sequence.arguments, *sequence.results))
        self._position += 1

    def _thunk(self, thunk: Thunk) -> None:
        match thunk:
            case WhileThunk():
                self._while(thunk)
            case ConditionalThunk():
                self._use((thunk.selector, *(b for branch in thunk.branches for b in branch.results)))
                self._position += 1
                for branch in thunk.branches:
                    self.sequence(branch)
            case ParallelThunk():
                self._parallel(thunk)
            case ChainThunk():
                self._thunk(thunk.chain)
            case PrepackThunk():
                self._thunk(thunk.kernel)
            case _:
                if isinstance(thunk, KernelThunk):
                    self.kernels += [self._position] * max(1, len(thunk.parts))
                    self._use(thunk.live.counts if thunk.live else ())
                self._use(thunk.buffers)
        self._position += 1

    def _while(self, thunk: WhileThunk) -> None:
        self._use(thunk.body.arguments)
        for before in thunk.preheader:
            self._thunk(before)
        self._position += 1
        with self._loop():
            self.sequence(thunk.condition)
            self.sequence(thunk.body)
        self._use([thunk.test])

    @contextlib.contextmanager
    def _loop(self) -> Iterator[None]:
        self._loops.append((self._position, set()))
        yield
        _, outside = self._loops.pop()
        self._use(outside)

    def _parallel(self, thunk: ParallelThunk) -> None:
        shared = [b for branch in thunk.branches for b in (*branch.arguments, *branch.results)]
        self._use(shared)
        self._position += 1
        start, around = self._position, self._branches
        for number, branch in enumerate(thunk.branches):
            self._branches = (*around, (start, number))
            self.sequence(branch)
        self._branches = around
        self._use(shared)

    def _use(self, buffers: Iterable[Buffer]) -> None:
        """The buffers are used at the current position."""
        for buffer in buffers:
            if buffer.space != "temporary":
                continue
            live = self.ranges.setdefault(buffer, LiveRange(self._position, self._position, self._branches))
            live.last = self._position
            for start, outside in self._loops:
                if live.first < start:
                    outside.add(buffer)
