"""Which buffer each value of a computation is written to.

A value is written straight to the buffer where it ends up (a result, the state of a loop) when nothing that is still
read lies there; else it may overwrite an operand that its kernel reads for the last time; else it gets temporary
memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...ir.module import Computation, Instruction
from ...ops import Constant, CustomCall, Parameter, While
from .aliasing import Aliasing, LogicalBuffer
from .buffer import Buffer
from .instruction_order import InstructionOrder

Results = Sequence[Buffer | None]  # of a computation's root, by leaf; None where no caller reads it


def preferred_buffers(
    aliasing: Aliasing, order: InstructionOrder, results: Results
) -> Mapping[LogicalBuffer, Buffer]:
    """The buffer that a value should be written to: from the root backwards through loops and in-place updates.

    No value is written over an argument before the last check: a run that a check ends leaves arguments as they were.
    """
    checks = _checks(aliasing.computation)
    before_check = set(order.instructions[: 1 + order.instructions.index(checks[-1])] if checks else ())
    preferred: dict[LogicalBuffer, Buffer] = {}

    def prefer(value: LogicalBuffer, buffer: Buffer) -> None:
        if not isinstance(value.instruction.op, Parameter | Constant) and not (
            buffer.may_alias and value.instruction in before_check
        ):
            preferred.setdefault(value, buffer)

    for value, result in zip(aliasing.root, results, strict=True):
        if result is not None:
            prefer(value, result)
    for position in reversed(range(len(order.instructions))):
        instruction = order.instructions[position]
        for leaf, source in _updated_values(aliasing, instruction):
            buffer = preferred.get(LogicalBuffer(instruction, leaf))
            if buffer is not None and order.last_read.get(source) == position and buffer.space == "result":
                prefer(source, buffer)
    return preferred


def _updated_values(aliasing: Aliasing, instruction: Instruction) -> Iterable[tuple[int, LogicalBuffer]]:
    """(leaf of the instruction's value, the value that it replaces in place)."""
    if isinstance(instruction.op, While):
        return enumerate(aliasing.buffers[instruction.operands[0]])
    return (
        (leaf, aliasing.buffers[instruction.operands[number]][0])
        for leaf, number in instruction.op.in_place_operands(instruction)
    )


def _checks(computation: Computation) -> list[Instruction]:
    """The checks, and what runs checks inside, in order."""
    return [i for i in computation.effects() if _has_checks(i)]


def _has_checks(instruction: Instruction) -> bool:
    return (
        isinstance(instruction.op, CustomCall)
        and instruction.op.is_check
        or any(i.has_side_effect and _has_checks(i) for c in instruction.op.called() for i in c.instructions)
    )


@dataclasses.dataclass
class ValueBuffers:
    """The buffers of a computation's values, chosen one after another in instruction order."""

    aliasing: Aliasing
    order: InstructionOrder
    preferred: Mapping[LogicalBuffer, Buffer]
    temporary: Callable[[int], Buffer]
    assigned: dict[LogicalBuffer, Buffer]
    live_values: dict[Buffer, list[LogicalBuffer]]
    """By allocation, the values that lie there, where it is not the temporary memory of one value."""

    def leaves(self, instruction: Instruction) -> list[Buffer]:
        """The buffers of the leaves of an instruction's value."""
        return [self.assigned[value] for value in self.aliasing.buffers[instruction]]

    def assign(
        self, value: LogicalBuffer, size: int, position: int, reusable: Sequence[LogicalBuffer] = ()
    ) -> Buffer:
        """Chooses the buffer of a value of that many bytes, which the instruction at `position` writes.

        `reusable` values may be overwritten by it as they are read.
        """
        buffer = self._buffer(value, size, position, reusable)
        self.assigned[value] = buffer
        return buffer

    def _buffer(
        self, value: LogicalBuffer, size: int, position: int, reusable: Sequence[LogicalBuffer]
    ) -> Buffer:
        preferred = self.preferred.get(value)
        if preferred is not None and self._is_free(preferred, position, reusable):
            self.live_values[preferred.allocation] = [value]
            return preferred
        for other in reusable:
            buffer = self.assigned[other]
            if (
                buffer.space == "temporary"
                and buffer.bytes == size
                and not isinstance(other.instruction.op, Parameter)
                and self.order.last_read.get(other) == position
                and self.live_values.get(buffer, [other]) == [other]
            ):
                self.live_values[buffer] = [value]
                return buffer
        return self.temporary(size)

    def _is_free(self, buffer: Buffer, position: int, reusable: Sequence[LogicalBuffer]) -> bool:
        """Whether the instruction at `position` may overwrite a buffer: the values there are not read later, nor by
        the instruction itself unless they are reusable."""
        reads = (
            (value, self.order.last_read.get(value, -1))
            for value in self.live_values.get(buffer.allocation, ())
        )
        return all(last < position or (last == position and value in reusable) for value, last in reads)


def live_at_entry(aliasing: Aliasing, arguments: Sequence[Buffer]) -> dict[LogicalBuffer, Buffer]:
    """The buffers of the leaves of a computation's parameters."""
    values = (value for p in aliasing.computation.parameters for value in aliasing.buffers[p])
    return dict(zip(values, arguments, strict=True))


def by_allocation(assigned: Mapping[LogicalBuffer, Buffer]) -> dict[Buffer, list[LogicalBuffer]]:
    """The values that lie in each allocation."""
    values: dict[Buffer, list[LogicalBuffer]] = {}
    for value, buffer in assigned.items():
        values.setdefault(buffer.allocation, []).append(value)
    return values


def replacements(
    aliasing: Aliasing, results: Results, live_values: Mapping[Buffer, Iterable[LogicalBuffer]]
) -> list[tuple[LogicalBuffer, LogicalBuffer]]:
    """(value of the root, value of a parameter) pairs: the first ends up where the second lies."""
    return [
        (new, old)
        for new, result in zip(aliasing.root, results, strict=True)
        if result is not None
        for old in live_values.get(result.allocation, ())
        if old != new
    ]


def after_checks(aliasing: Aliasing, results: Results) -> list[tuple[Instruction, Instruction]]:
    """(instruction, check) pairs: the first writes what ends up where an argument lies, or what it is made from in
    place."""
    checks = _checks(aliasing.computation)
    stack = [v for v, result in zip(aliasing.root, results, strict=True) if result and result.may_alias]
    writers: dict[Instruction, None] = {}
    while checks and stack:
        value = stack.pop()
        if value.instruction in writers or isinstance(value.instruction.op, Parameter | Constant):
            continue
        writers[value.instruction] = None
        stack += [old for leaf, old in _updated_values(aliasing, value.instruction) if leaf == value.leaf]
    return [(writer, checks[-1]) for writer in writers]
