"""The order in which the instructions of a computation run.

It is the module's own, but that an instruction that overwrites a value runs after the other readers of that value
where it can: the value then needs no copy. What overwrites arguments runs after the checks that may end the run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

from ...analysis.live_rows import NO_SIZES, LiveSizes
from ...ir.module import Computation, Instruction
from ...ops import Constant, Parameter
from ...progress import ordered
from .aliasing import Aliasing, LogicalBuffer


@dataclasses.dataclass(frozen=True)
class InstructionOrder:
    """Instructions in the order in which they run, and the position of the last reader of every logical buffer.

    Those of the root are read at the end, after all instructions.
    """

    instructions: tuple[Instruction, ...]
    last_read: Mapping[LogicalBuffer, int]

    def changed(
        self, instructions: Iterable[Instruction], aliasing: Aliasing, live: LiveSizes
    ) -> InstructionOrder:
        """The order in which the same instructions run as given here."""
        order = tuple(instructions)
        return InstructionOrder(order, _last_reads(order, aliasing, live))

    def __str__(self) -> str:
        return "".join(f"{k}: {instruction}\n" for k, instruction in enumerate(self.instructions))


def order_instructions(
    aliasing: Aliasing,
    replacements: Iterable[tuple[LogicalBuffer, LogicalBuffer]] = (),
    after_checks: Iterable[tuple[Instruction, Instruction]] = (),
    live: LiveSizes = NO_SIZES,
) -> InstructionOrder:
    """The order of a computation's instructions.

    `replacements` pairs a new value with a value of a parameter whose buffer the new one prefers, as in a loop's body.
    `after_checks` pairs an instruction with one to run before it, which matters more. The sizes of `live` are
    read by their instructions, where they can be known before.
    """
    computation = aliasing.computation
    edges = [*_effect_edges(computation), *after_checks]
    edges += [(instruction, size) for instruction in live.instructions() for size in live.of(instruction)]
    edges += _overwrite_edges(aliasing, replacements)
    after = _acyclic_subset(computation, edges)
    instructions = computation.instructions
    if after:
        sequence = ordered(instructions, lambda i: (*i.operands, *after.get(i, ())), "schedule")
        instructions = tuple(sequence)
    return InstructionOrder(instructions, _last_reads(instructions, aliasing, live))


def _effect_edges(computation: Computation) -> Iterable[tuple[Instruction, Instruction]]:
    """(later, earlier) pairs that keep side effects in order."""
    return ((later, earlier) for earlier, later in itertools.pairwise(computation.effects()))


def _overwrite_edges(
    aliasing: Aliasing, replacements: Iterable[tuple[LogicalBuffer, LogicalBuffer]]
) -> list[tuple[Instruction, Instruction]]:
    """(writer, reader) pairs: the writer overwrites what the reader reads."""
    readers: dict[LogicalBuffer, list[Instruction]] = {}
    overwrites: list[tuple[Instruction, LogicalBuffer]] = []
    for instruction in aliasing.computation.instructions:
        for buffer in aliasing.reads(instruction):
            readers.setdefault(buffer, []).append(instruction)
        for _, number in instruction.op.in_place_operands(instruction):
            overwrites.append((instruction, aliasing.buffers[instruction.operands[number]][0]))
    overwrites += [
        (new.instruction, old)
        for new, old in replacements
        if not isinstance(new.instruction.op, Parameter | Constant)
    ]
    return [
        (writer, reader)
        for writer, buffer in overwrites
        for reader in readers.get(buffer, ())
        if reader is not writer
    ]


def _acyclic_subset(
    computation: Computation, edges: Iterable[tuple[Instruction, Instruction]]
) -> dict[Instruction, list[Instruction]]:
    """By writer, its readers in the (writer, reader) edges that, taken in order, close no cycle with the operands."""
    number = {instruction: k for k, instruction in enumerate(computation.instructions)}
    needed: dict[Instruction, int] = {}  # a bit for each instruction that one needs, itself included
    users: dict[Instruction, list[Instruction]] = {i: [] for i in number}
    after: dict[Instruction, list[Instruction]] = {}
    for writer, reader in edges:
        if not needed:
            for instruction, k in number.items():
                needed[instruction] = 1 << k
                for operand in instruction.operands:
                    needed[instruction] |= needed[operand]
                    users[operand].append(instruction)
        if needed[reader] >> number[writer] & 1:
            continue
        after.setdefault(writer, []).append(reader)
        users[reader].append(writer)
        stack = [writer]
        while stack:
            instruction = stack.pop()
            if needed[instruction] | needed[reader] != needed[instruction]:
                needed[instruction] |= needed[reader]
                stack.extend(users[instruction])
    return after


def _last_reads(
    instructions: Iterable[Instruction], aliasing: Aliasing, live: LiveSizes
) -> dict[LogicalBuffer, int]:
    last: dict[LogicalBuffer, int] = {}
    count = 0
    for position, instruction in enumerate(instructions):
        count = position + 1
        for buffer in aliasing.reads(instruction):
            last[buffer] = position
        for size in live.of(instruction):
            last[aliasing.buffers[size][0]] = position
    for buffer in aliasing.root:
        last[buffer] = count
    return last
