"""Chains of kernels that run slice by slice: all kernels on the first rows, then all on the next.

Kernels of which each computes its rows from the same rows of the one before need not wait for each other: what the
first writes for some rows is still in cache when the next reads it. What no other kernel reads then takes memory for
the slices at work alone: each thread has a frame, in which values that are not needed at the same time share memory.
Kernels compute addresses as in the whole value, from a base that moves with the slice.

Where the number of rows is known at run time only there may be too few slices for the threads: code then chooses
between the chain and its kernels one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.run_context import OFFSETS
from ....runtime.sizes import (
    ceiling,
    estimate,
    heuristic,
    is_multiple,
    is_symbolic,
    maximum,
    remainder,
    smaller,
)
from ...analysis.live_rows import LiveSizes
from ...analysis.row_locality import LocalRows, count_axes, local_rows
from ...ir.module import Instruction
from ...ops import Convolution, Dot, Fusion
from ..codegen.kernel_info import KernelInfo, Slices
from ..codegen.parallel_for import KERNEL_PARAMETERS
from .aliasing import Aliasing, LogicalBuffer
from .buffer import ALIGN_BYTES, Buffer
from .buffer_assignment import LiveRange, assign
from .instruction_order import InstructionOrder
from .scope import Context, contraction_in
from .thunks import ChainThunk, KernelThunk, Thunk
from .value_buffers import ValueBuffers

_MEMBERS = (Fusion, Dot, Convolution)
_MAX_BETWEEN = 16.0  # instructions that need a chain and are no members
_INDEPENDENT = 0.125  # of such an instruction, one that does not need it
_SLICES_A_THREAD = 3  # so that threads end at about the same time
_SHARE_OF_L2 = 1.0  # values of fewer bytes are in cache
_FEWEST_ROWS = 48  # of a slice of a product
_FEWEST_UNPACKED = 192  # of one that packs its right operand for each slice
_MINOR = 16  # times the work of a product that may have fewer


@dataclasses.dataclass(frozen=True)
class Chain:
    """Instructions whose kernels may run slice by slice: of `rows` rows in all, `slice_rows` at a time.

    values: those of their values that have these rows, in this order. contractions: the members whose contractions have
        them.
    """

    members: tuple[Instruction, ...]
    rows: int
    slice_rows: int
    values: frozenset[LogicalBuffer]
    contractions: frozenset[Instruction]

    @property
    def slice_bytes(self) -> int:
        """The bytes of the largest value in a slice, typically."""
        rows, of_slice = estimate(self.rows), estimate(self.slice_rows)
        return max(estimate(i.shape.bytes) for i in self.members) * min(of_slice, rows) // rows

    @property
    def carried_bytes(self) -> int:
        """The bytes of the values between members, typically."""
        return sum(estimate(i.shape.bytes) for i in self.members[:-1])

    def slices(self, target: Target) -> Slices:
        """What kernels are asked for. They better run one after the other where slices are few."""
        if is_symbolic([self.rows]):
            are_run = _are_enough(ceiling(self.rows, self.slice_rows), target)
            return Slices(self.rows, self.slice_rows, are_run)
        return Slices(self.rows // self.slice_rows)


@dataclasses.dataclass(frozen=True)
class ChainPlanner:
    """Finds the chains of a computation. `live`: kernels that compute a part of their rows are in none. `is_packed`:
    whether a right operand of contractions is packed before the computation runs."""

    aliasing: Aliasing
    live: LiveSizes
    target: Target
    is_packed: Callable[[LogicalBuffer], bool]

    @heuristic()
    def plan(self, order: InstructionOrder) -> tuple[list[Instruction], list[Chain]]:
        """The order of the instructions, and the chains: what stands between the members of a chain and does not need
        them runs before it."""
        chains: list[Chain] = []
        instructions = list(order.instructions)
        position = 0
        while position < len(instructions):
            head = instructions[position]
            if self._may_belong(head) and _outgrows_cache(head.shape.bytes, self.target):
                chain = self._chain_from(instructions[position:])
                if chain is not None:
                    chains.append(chain)
                    end = instructions.index(chain.members[-1]) + 1
                    instructions[position:end] = self._in_chain_order(instructions[position:end], chain)
                    position = instructions.index(chain.members[-1])
            position += 1
        return instructions, chains

    def _may_belong(self, instruction: Instruction) -> bool:
        op = instruction.op
        return (
            isinstance(op, _MEMBERS)
            and not self.live.of(instruction)
            and not instruction.has_side_effect
            and not op.in_place_operands(instruction)
            and instruction.shape.bytes > 0
        )

    def _chain_from(self, instructions: Sequence[Instruction]) -> Chain | None:
        """The chain that begins with the first instruction: where a slice stays in cache, the one that carries most;
        else the one of the most rows, which also is the better of equal ones."""
        leaves = [leaf.dims for leaf in instructions[0].shape.leaves()]
        chains = []
        for axes in range(min(map(len, leaves)) - 1, 0, -1):
            rows = math.prod(leaves[0][:axes])
            has_rows = None not in [count_axes(dims, rows) for dims in leaves]
            if rows not in (0, 1) and has_rows and _are_enough(rows, self.target) != 0:
                chain = self._grown(instructions, rows)
                if len(chain.members) > 1:
                    chains.append(chain)
        fitting = [chain for chain in chains if chain.slice_bytes <= self.target.l2_bytes]
        return max(fitting, key=lambda c: c.carried_bytes, default=chains[0] if chains else None)

    def _grown(self, instructions: Sequence[Instruction], rows: int) -> Chain:
        """The chain of the first instruction, with those after it that compute its rows further."""
        members: list[Instruction] = []
        contractions: list[Instruction] = []
        produced: dict[LogicalBuffer, bool] = {}  # values that need the chain: whether they have its rows
        others, slice_rows, flops = 0.0, 1, 0
        needed: Mapping[int, int] = {}
        for instruction in instructions:
            if instruction.op.forwards_operands:
                continue
            needs_chain = not members or not produced.keys().isdisjoint(self.aliasing.reads(instruction))
            local = self._local_rows(instruction, produced, rows) if needs_chain else None
            if local is not None and local.contraction:
                is_minor = instruction.op.flops(instruction) * _MINOR < flops
                with_it = self._needed_rows(instruction, rows, needed, is_minor)
                least = None if with_it is None else self._slice_rows([*members, instruction], rows, with_it)
                if with_it is None or least is None:
                    local = None
                else:
                    slice_rows, needed = least, with_it
            if local is not None:
                members.append(instruction)
                flops += instruction.op.flops(instruction)
                if local.contraction:
                    contractions.append(instruction)
            elif not members or others > _MAX_BETWEEN or not isinstance(instruction.op, _MEMBERS):
                break
            else:
                others += 1 if needs_chain else _INDEPENDENT
            if needs_chain:
                for k, value in enumerate(self.aliasing.buffers[instruction]):
                    produced[value] = local is not None and isinstance(local.leaves[k], int)
        values = frozenset(value for value, has_rows in produced.items() if has_rows)
        return Chain(tuple(members), rows, slice_rows, values, frozenset(contractions))

    def _local_rows(
        self, instruction: Instruction, produced: Mapping[LogicalBuffer, bool], rows: int
    ) -> LocalRows | None:
        """The rows of an instruction that reads values of the chain, or begins it; None where it needs others than
        their rows."""
        if not self._may_belong(instruction):
            return None
        if not produced:
            return _head_rows(instruction, rows)
        operands: list[int | None] = []
        for operand in instruction.operands:
            values = self.aliasing.buffers[operand]
            if produced.keys().isdisjoint(values):
                operands.append(None)
                continue
            axes = count_axes(operand.shape.dims, rows) if operand.shape.is_array else None
            if axes is None or not all(produced.get(value) for value in values):
                return None
            operands.append(axes)
        local = local_rows(instruction, rows, operands)
        has_rows = local is not None and (local.contraction or all(isinstance(k, int) for k in local.leaves))
        return local if has_rows else None

    def _needed_rows(
        self, instruction: Instruction, rows: int, before: Mapping[int, int], is_minor: bool
    ) -> Mapping[int, int] | None:
        """The rows of products in which these are worth what they read for each slice, by their rows for each row of
        the chain: of those before, and of a contraction that perhaps `is_minor`, a small part of the chain. None where
        it never is worth that."""
        contraction = contraction_in(instruction)
        assert contraction is not None
        if _batch_axes(contraction):
            return before
        weights = contraction.operands[1].shape
        if is_symbolic(weights.dims) or not count_axes(_row_dims(contraction), rows):
            return None
        if weights.bytes > self.target.l2_bytes:  # they would not stay from one slice to the next
            return None
        needed = (
            1 if is_minor else _FEWEST_ROWS if self._packs(instruction, contraction) else _FEWEST_UNPACKED
        )
        if weights.bytes > self.target.l2_bytes // 4:  # they come from the third cache, the rows from memory
            products = estimate(contraction.op.flops(contraction)) // 2
            needed = max(needed, products // estimate(contraction.operands[0].shape.elements) // 4)
        of_each = _rows_of_each(contraction, rows)
        return {**before, of_each: max(needed, before.get(of_each, 1))}

    def _slice_rows(self, members: Sequence[Instruction], rows: int, needed: Mapping[int, int]) -> int | None:
        """The rows of a slice for so many rows of products, by their rows for each row of the chain; None where there
        are too few slices."""
        if is_symbolic([rows]):
            # From two thirds on: one text of 90 words is enough where 128 are needed.
            near = maximum([1, *(n * 4 // 3 // of_each for of_each, n in needed.items())])
            largest = max(estimate(i.shape.bytes) for i in members) * estimate(near)
            is_in_cache = largest <= self.target.l2_bytes * estimate(rows)
            return near if is_in_cache or near == 1 else None
        least = max((ceiling(n, of_each) for of_each, n in needed.items()), default=1)
        size = next((k for k in range(least, min(rows, 4 * least) + 1) if rows % k == 0), None)
        return size if size is not None and _are_enough(rows // size, self.target) else None

    def _packs(self, instruction: Instruction, contraction: Instruction) -> bool:
        """Whether the right operand of a contraction, perhaps in a fusion, is packed before the computation runs."""
        operand = contraction.operands[1]
        if isinstance(instruction.op, Fusion):
            operand = instruction.operands[instruction.op.computation.parameters.index(operand)]
        return all(map(self.is_packed, self.aliasing.buffers[operand]))

    def _in_chain_order(self, instructions: Sequence[Instruction], chain: Chain) -> list[Instruction]:
        """The instructions: those that do not need the chain, its members, and others that need it."""
        needs, others = {chain.members[0]}, set[Instruction]()
        for instruction in instructions:
            if not needs.isdisjoint((*instruction.operands, *self.live.of(instruction))):
                needs.add(instruction)
                is_between = instruction.op.forwards_operands and others.isdisjoint(instruction.operands)
                if not (instruction in chain.members or is_between):
                    others.add(instruction)
        before = [i for i in instructions if i not in needs]
        inside = [i for i in instructions if i in needs and i not in others]
        return [*before, *inside, *(i for i in instructions if i in others)]


def _outgrows_cache(size: int, target: Target) -> bool:
    """Whether values of so many bytes are not all in cache when they are read. Where the size is known at run time only
    it may be much larger than it typically is."""
    share = _SHARE_OF_L2 / 16 if is_symbolic([size]) else _SHARE_OF_L2
    return estimate(size) >= share * target.l2_bytes


def _are_enough(slices: int, target: Target) -> int:
    """Whether threads that divide so many slices end at about the same time: 1, 0, or a size that is one of them."""
    threads = max(1, target.threads)
    if is_symbolic([slices]):
        return 1 if is_multiple(slices, threads) else smaller(1, slices // (_SLICES_A_THREAD * threads))
    return int(slices >= _SLICES_A_THREAD * threads or slices >= 2 * threads and slices % threads == 0)


def _batch_axes(contraction: Instruction) -> tuple[int, ...]:
    return contraction.op.lhs_batch if isinstance(contraction.op, Dot) else ()


def _row_dims(contraction: Instruction) -> tuple[int, ...]:
    """The dims before those of a contraction's columns."""
    op, dims = contraction.op, contraction.shape.dims
    if isinstance(op, Dot):
        return dims[: len(dims) - len(op.rhs_free(contraction.operands[1].shape.rank))]
    assert isinstance(op, Convolution)
    last = len(dims) - 1
    in_order = (op.dims.output_batch, *op.dims.output_spatial, op.dims.output_feature) == (*range(last), last)
    return dims[:-1] if in_order else ()


def _rows_of_each(contraction: Instruction, rows: int) -> int:
    """The rows of a contraction, those of a batch counted one matrix after the other, for each row of a chain."""
    return math.prod(_row_dims(contraction)) // rows


def _head_rows(instruction: Instruction, rows: int) -> LocalRows | None:
    """The rows of the first instruction of a chain."""
    contraction = contraction_in(instruction)
    if contraction is None:
        return LocalRows(tuple(count_axes(leaf.dims, rows) for leaf in instruction.shape.leaves()))
    axes = count_axes(_row_dims(contraction), rows)
    return local_rows(instruction, rows, [None] * len(instruction.operands), axes) if axes else None


# -- kernels


class ChainJoiner:
    """Joins the kernels of a computation's chains, whose values have their buffers."""

    def __init__(self, context: Context, values: ValueBuffers) -> None:
        self.context, self.values = context, values
        self._lying: dict[Buffer, list[LogicalBuffer]] = {}
        for value, buffer in values.assigned.items():
            self._lying.setdefault(buffer, []).append(value)
        self._readers: dict[LogicalBuffer, list[Instruction]] = {}
        for instruction in values.order.instructions:
            for value in values.aliasing.reads(instruction):
                self._readers.setdefault(value, []).append(instruction)

    def join(self, thunks: list[Thunk], chain: Chain) -> None:
        """Makes one thunk of those of a chain, where its kernels divide their work by rows and gain from it."""
        position = next((k for k, t in enumerate(thunks) if _computes(t, chain.members[0])), None)
        if position is None:
            return
        parts: list[_Part] = []
        for thunk, member in zip(thunks[position:], chain.members):
            part = _part(chain, thunk) if _computes(thunk, member) else None
            if part is None or not self._is_separate([*parts, part]):
                break
            parts.append(part)
        joined = self._joined(chain, parts) if len(parts) > 1 else None
        if joined is not None:
            thunks[position : position + len(parts)] = [joined]

    def _is_separate(self, parts: Sequence[_Part]) -> bool:
        """Whether no part overwrites what another reads, but for rows that it reads itself."""
        produced = {v for p in parts for v in self._produced(p)}
        written = {self.values.assigned[v].allocation for v in produced}
        return all(
            value in produced or self.values.assigned[value].allocation not in written
            for part in parts
            for value in self.values.aliasing.reads(part.thunk.instruction)
            if value in self.values.assigned
        )

    def _produced(self, part: _Part) -> Sequence[LogicalBuffer]:
        return self.values.aliasing.buffers[part.thunk.instruction]

    @heuristic()
    def _joined(self, chain: Chain, parts: Sequence[_Part]) -> KernelThunk | ChainThunk | None:
        target = self.context.target
        rows = maximum(part.rows for part in parts)
        if any(remainder(rows, part.rows) != 0 for part in parts):
            return None
        slices, threads = ceiling(chain.rows, rows), max(1, target.threads)
        asked_for = chain.slices(target)
        may_not_run = is_symbolic([asked_for.are_run])
        if rows != chain.slice_rows if may_not_run else _are_enough(slices, target) != 1:
            return None
        inside = [self.values.assigned[v] for part in parts[:-1] for v in self._produced(part)]
        carried = sum(b.bytes for b in dict.fromkeys(inside))
        if not _outgrows_cache(carried, target):
            return None
        members = {part.thunk.instruction for part in parts}
        of_slices = {
            buffer: buffer.bytes // chain.rows * rows
            for buffer in dict.fromkeys(inside)
            if self._is_inside(buffer, chain, members)
        }
        scratch = {
            p.thunk.scratch: p.thunk.kernel.scratch_bytes for p in parts if p.thunk.scratch is not None
        }
        live = _live_ranges(parts, of_slices | scratch)
        frame = _frame(live, of_slices, scratch)
        size, wholes = threads * frame.bytes, None
        if may_not_run:
            wholes = assign(live)
            size = asked_for.choose(size, wholes.temp_bytes)
        memory, text = self.context.temporary(size), self.context.kernels.text
        times = None if text.embed_libraries else self.context.temporary(8 * len(parts))
        joined = _chain_thunk(text, parts, rows, slices, frame, memory, times)
        if wholes is None:
            return joined
        return ChainThunk(asked_for.are_run, joined, joined.parts, memory, wholes.offsets)

    def _is_inside(self, buffer: Buffer, chain: Chain, members: set[Instruction]) -> bool:
        """Whether members alone use a buffer, for values that have the chain's rows."""
        root = self.values.aliasing.root
        return buffer.space == "temporary" and all(
            value.instruction in members
            and value in chain.values
            and value not in root
            and members.issuperset(self._readers.get(value, ()))
            for value in self._lying[buffer]
        )


@dataclasses.dataclass(frozen=True)
class _Part:
    """A kernel of a chain: `tasks` tasks after the other compute `rows` rows."""

    thunk: KernelThunk
    rows: int
    tasks: int


@dataclasses.dataclass(frozen=True)
class _Window:
    """Where in a frame the slice of a value, of so many bytes, or a kernel's scratch lies."""

    offset: int
    bytes: int
    is_scratch: bool


@dataclasses.dataclass(frozen=True)
class _Frame:
    """The memory of a thread for the slice that it works on: its bytes, and the windows of buffers."""

    bytes: int
    windows: Mapping[Buffer, _Window]


def _live_ranges(parts: Sequence[_Part], buffers: Collection[Buffer]) -> dict[Buffer, LiveRange]:
    """From which part to which the buffers are needed."""
    ranges: dict[Buffer, LiveRange] = {}
    for position, part in enumerate(parts):
        for buffer in part.thunk.buffers:
            if buffer in buffers:
                ranges.setdefault(buffer, LiveRange(position, position)).last = position
    return ranges


def _frame(
    live: Mapping[Buffer, LiveRange], slices: Mapping[Buffer, int], scratch: Mapping[Buffer, int]
) -> _Frame:
    """The frame for slices, and scratch, of so many bytes of buffers. What is not needed at the same time may share
    memory."""
    sizes = {**slices, **scratch}
    inside = {buffer: Buffer("temporary", sizes[buffer], k) for k, buffer in enumerate(live)}
    assignment = assign({inside[buffer]: live[buffer] for buffer in live})
    windows = {b: _Window(assignment.offsets[w], w.bytes, b in scratch) for b, w in inside.items()}
    return _Frame(ceiling(assignment.temp_bytes, ALIGN_BYTES) * ALIGN_BYTES, windows)


def _computes(thunk: Thunk, instruction: Instruction) -> bool:
    return isinstance(thunk, KernelThunk) and thunk.instruction is instruction


@heuristic()
def _part(chain: Chain, thunk: Thunk) -> _Part | None:
    """A thunk as part of a chain; None where its kernel does not divide its work by rows."""
    assert isinstance(thunk, KernelThunk)
    kernel, instruction = thunk.kernel, thunk.instruction
    if kernel.shared_bytes or kernel.must_alias or thunk.live:
        return None
    contraction = contraction_in(instruction) if instruction in chain.contractions else None
    if contraction is not None and kernel.row_tasks is not None:
        rows, tasks = kernel.row_tasks
        of_each = _rows_of_each(contraction, chain.rows)
    elif kernel.in_order is not None:
        rows, tasks = kernel.in_order
        of_each = next(iter(instruction.shape.leaves())).elements // chain.rows
    else:
        return None
    if remainder(rows, of_each) == 0:
        return _Part(thunk, rows // of_each, tasks)
    return _Part(thunk, 1, of_each // rows * tasks) if remainder(of_each, rows) == 0 else None


def _chain_thunk(
    text: ModuleText,
    parts: Sequence[_Part],
    rows: int,
    slices: int,
    frame: _Frame,
    frames: Buffer,
    times: Buffer | None,
) -> KernelThunk:
    """The thunk that runs the parts on one slice of so many rows after the other. `frames`: the memory for a frame of
    each thread. `times`: its last buffer, where it adds up the ticks that each part took, if the run has a recorder."""
    f = Function(text, "SELF", KERNEL_PARAMETERS, attributes=DRIVER_ATTRIBUTES)
    context, buffers, thread = f["context"], f.pointer("buffers"), f.integer("thread")
    listed = [buffer for part in parts for buffer in part.thunk.buffers]
    table = f.stack_slot(f"[{len(listed)} x i64]")
    for k in range(len(listed)):
        (table + 8 * k).store((buffers + 8 * k).load_ptr())
    clock = None if times is None else _Clock(f, buffers.at(len(listed), "ptr").load_ptr())
    with f.loop(f.integer("low"), f.integer("high")) as loop:
        number = loop.index
        for k, buffer in enumerate(listed):
            if (window := frame.windows.get(buffer)) is not None:
                base = (buffers + 8 * k).load_ptr()
                moved = (thread if window.is_scratch else number) * window.bytes
                (table + 8 * k).store(base + (thread * frame.bytes + window.offset - moved))
        first = 0
        for k, part in enumerate(parts):
            kernel, tasks = part.thunk.kernel, rows // part.rows * part.tasks
            low = number * tasks
            high = (low + tasks).minimum(kernel.tasks)
            with contextlib.nullcontext() if clock is None else clock.measured(k):
                f.call(f.symbol(kernel.symbol), "void", [context, table + 8 * first, low, high, thread])
            first += len(part.thunk.buffers)
    f.ret()
    kernels = [part.thunk.kernel for part in parts]
    info = KernelInfo(
        text.define("chain", f),
        slices,
        parallel=any(kernel.parallel for kernel in kernels),
        flops=sum(kernel.flops for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
    )
    in_frames = [frames if b in frame.windows else b for b in listed]
    thunks = tuple(part.thunk for part in parts)
    buffers_of_chain = (*in_frames, *([] if times is None else [times]))
    return KernelThunk(info, buffers_of_chain, thunks[-1].instruction, parts=thunks)


class _Clock:
    """Adds the ticks of the cycle counter that calls take to one u64 for each, if the run has a recorder."""

    def __init__(self, f: Function, times: Ptr) -> None:
        self.f, self.times = f, times
        self.runs = (f.pointer("context") + OFFSETS["recorder"]).load_ptr().is_not_null()
        self.start = f.stack_slot("i64", 8)

    @contextlib.contextmanager
    def measured(self, number: int) -> Iterator[None]:
        """Within, the call of that number is written."""
        f = self.f
        with f.if_(self.runs, rare=True):
            self.start.store(f.call("llvm.readcyclecounter", "i64", []))
        yield
        with f.if_(self.runs, rare=True):
            ticks = VectorValue.of(f, f.call("llvm.readcyclecounter", "i64", [])) - self.start.load("i64")
            (self.times + 8 * number).atomic_rmw("add", ticks, "monotonic")
