"""What compiled code does, one thunk after another: run kernels, copy, loop, branch, call the host. Pure data.

A ThunkSequence is that of one computation. Its arguments and results are the buffers of the leaves of the
computation's parameters and root.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from ....runtime.code.artifact import HostCallback, Packed
from ....runtime.run_context import ASSUMPTION_FAILED, CAPACITY_OVERFLOW
from ...ir.module import Instruction
from ...ir.shape import Shape
from ..codegen.kernel_info import KernelInfo
from .buffer import Buffer, Constants


@dataclasses.dataclass(frozen=True)
class LiveRows:
    """Of a kernel's outputs, the rows that are read: as many as the largest of the s32 in `counts` says, of `elements`
    each."""

    counts: tuple[Buffer, ...]
    elements: int


@dataclasses.dataclass(frozen=True)
class KernelThunk:
    """Runs a kernel on buffers; where not all rows of its outputs are read, the first of its tasks. `scratch`: the
    buffer among them that has `KernelInfo.scratch_bytes` for each thread, if there is one. `parts`: of a chain
    (kernel_chains.py), the thunks that it stands for, `instruction` being that of the last; a chain that a recorder may
    be told of has one buffer more than they have, for times."""

    kernel: KernelInfo
    buffers: tuple[Buffer, ...]
    instruction: Instruction
    live: LiveRows | None = None
    scratch: Buffer | None = None
    parts: tuple[KernelThunk, ...] = ()


@dataclasses.dataclass(frozen=True)
class ChainThunk:
    """Runs a chain where the size `are_run` is 1, and where it is 0 the kernels of its parts, one after the other.
    `memory` is for what is inside: the chain's frames, or the parts' buffers at `offsets`.

    Units: offsets are in bytes.
    """

    are_run: int
    chain: KernelThunk
    parts: tuple[KernelThunk, ...]
    memory: Buffer
    offsets: Mapping[Buffer, int]


@dataclasses.dataclass(frozen=True)
class CopyThunk:
    """Copies a whole buffer."""

    source: Buffer
    target: Buffer

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Source and target."""
        return self.source, self.target


@dataclasses.dataclass(frozen=True)
class PrepackThunk:
    """Runs a packing kernel if there is memory for its last buffer, the packed argument."""

    kernel: KernelThunk


@dataclasses.dataclass(frozen=True)
class HostCallbackThunk:
    """Calls the host; a failure there ends the run."""

    callback: HostCallback
    number: int
    buffers: tuple[Buffer, ...]


@dataclasses.dataclass(frozen=True)
class CheckThunk:
    """Ends the run with a status and a message where the pred in `failed` holds."""

    failed: Buffer
    status: int
    message: bytes

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The pred."""
        return (self.failed,)


@dataclasses.dataclass(frozen=True)
class WhileThunk:
    """Runs `preheader` once; then `condition`, and while the pred that it returns holds, `body` and `condition` again.

    The preheader copies the initial state and packs operands that the loop does not change.
    """

    preheader: tuple[Thunk, ...]
    condition: ThunkSequence
    body: ThunkSequence

    @property
    def test(self) -> Buffer:
        """The condition's result."""
        return self.condition.results[0]


@dataclasses.dataclass(frozen=True)
class ConditionalThunk:
    """Runs one of the branches: by pred (true first) or by an s32 (the last one when out of range)."""

    selector: Buffer
    by_index: bool
    branches: tuple[ThunkSequence, ...]


@dataclasses.dataclass(frozen=True)
class ParallelThunk:
    """Runs all branches, several at the same time where there are threads."""

    branches: tuple[ThunkSequence, ...]


Thunk = (
    KernelThunk
    | ChainThunk
    | CopyThunk
    | HostCallbackThunk
    | CheckThunk
    | WhileThunk
    | ConditionalThunk
    | ParallelThunk
    | PrepackThunk
)


@dataclasses.dataclass(frozen=True)
class ThunkSequence:
    """The thunks of one computation, the order of its instructions, and the buffers of its parameters and root.

    Results that no caller reads are not among `results`.
    """

    name: str
    order: tuple[Instruction, ...]
    thunks: tuple[Thunk, ...]
    arguments: tuple[Buffer, ...]
    results: tuple[Buffer, ...]


@dataclasses.dataclass(frozen=True)
class ThunkProgram:
    """A module as thunks: what it takes and returns, its constants, and the host callbacks by number.

    `prepacking` fills the memory of `packed` arguments, one by a thunk, before the entry is called.
    """

    entry: ThunkSequence
    arguments: tuple[Shape, ...]
    results: tuple[Shape, ...]
    constants: Constants
    host_callbacks: tuple[HostCallback, ...]
    prepacking: tuple[PrepackThunk, ...]
    packed: tuple[Packed, ...]

    @property
    def may_bail_out(self) -> bool:
        """Whether a check ends the run where the arguments are not as the compiler assumed."""
        return any(
            isinstance(thunk, CheckThunk) and thunk.status in (ASSUMPTION_FAILED, CAPACITY_OVERFLOW)
            for thunk in all_thunks(self.entry.thunks)
        )


def all_thunks(thunks: Iterable[Thunk]) -> Iterator[Thunk]:
    """The thunks and all inside them, in order; those in loops and branches once. The parts of a chain are in it."""
    for thunk in thunks:
        yield thunk
        match thunk:
            case ChainThunk():
                yield thunk.chain
            case WhileThunk():
                yield from all_thunks((*thunk.preheader, *thunk.condition.thunks, *thunk.body.thunks))
            case ConditionalThunk() | ParallelThunk():
                for branch in thunk.branches:
                    yield from all_thunks(branch.thunks)


def kernel_thunks(thunks: Iterable[Thunk]) -> Iterator[KernelThunk]:
    """The kernels among all thunks, in the order in which entry code has them."""
    return (thunk for thunk in all_thunks(thunks) if isinstance(thunk, KernelThunk))


def launched_kernels(thunks: Iterable[Thunk]) -> Iterator[KernelThunk]:
    """As `kernel_thunks`, with the parts of chains in the place of these."""
    for thunk in kernel_thunks(thunks):
        yield from thunk.parts or (thunk,)


def sequences(sequence: ThunkSequence) -> Iterator[ThunkSequence]:
    """A sequence and those of the computations that it runs."""
    yield sequence
    for thunk in all_thunks(sequence.thunks):
        match thunk:
            case WhileThunk():
                yield from (thunk.condition, thunk.body)
            case ConditionalThunk() | ParallelThunk():
                yield from thunk.branches
