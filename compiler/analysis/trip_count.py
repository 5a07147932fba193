"""Loops that count: which parts of a loop's state are counters, and how often its body runs."""

from __future__ import annotations

from ..ir.module import Instruction
from ..ops import Compare, Constant, GetTupleElement, Tuple, While


def counters(loop: Instruction) -> dict[int, tuple[int, int]]:
    """(first value, step) of the integers in a loop's state to which every run of the body adds the same."""
    op, init = loop.op, loop.operands[0]
    assert isinstance(op, While)
    found: dict[int, tuple[int, int]] = {}
    if not isinstance(op.body.root.op, Tuple) or not isinstance(init.op, Tuple):
        return found
    for number, (first, value) in enumerate(zip(init.operands, op.body.root.operands)):
        start = _integer(first)
        if start is None or value.opcode not in ("add", "subtract"):
            continue
        a, b = value.operands
        if value.opcode == "add" and part_of_state(b, op.body.parameters[0]) == number:
            a, b = b, a
        step = _integer(b)
        if step is not None and part_of_state(a, op.body.parameters[0]) == number:
            found[number] = start, step if value.opcode == "add" else -step
    return found


def runs(loop: Instruction) -> int | None:
    """How often the body runs; None where that is not known when compiling."""
    op = loop.op
    assert isinstance(op, While)
    known = counters(loop)
    found: list[int] = []
    stack, seen = [op.condition.root], set[Instruction]()
    while stack:
        test = stack.pop()
        if test in seen:
            continue
        seen.add(test)
        if test.opcode == "and":
            stack += test.operands
            continue
        if not isinstance(test.op, Compare) or test.op.direction != "LT":
            return None
        number, limit = (
            part_of_state(test.operands[0], op.condition.parameters[0]),
            _limit(test.operands[1], loop),
        )
        if number not in known or limit is None or known[number][1] < 1:
            return None
        start, step = known[number]
        if limit + step > 1 << 31:
            return None
        found.append(max(0, -(-(limit - start) // step)))
    return min(found)


def part_of_state(value: Instruction, state: Instruction) -> int | None:
    """The number of the part of a loop's state that a value is."""
    return value.op.index if isinstance(value.op, GetTupleElement) and value.operands[0] is state else None


def is_unchanged(loop: Instruction, number: int) -> bool:
    """Whether the body hands a part of the state on as it is."""
    op = loop.op
    assert isinstance(op, While)
    return part_of_state(op.body.root.operands[number], op.body.parameters[0]) == number


def _limit(value: Instruction, loop: Instruction) -> int | None:
    """A constant, or a part of the state that is one and stays so."""
    op, init = loop.op, loop.operands[0]
    assert isinstance(op, While)
    number = part_of_state(value, op.condition.parameters[0])
    if number is not None and is_unchanged(loop, number) and isinstance(init.op, Tuple):
        value = init.operands[number]
    return _integer(value)


def _integer(value: Instruction) -> int | None:
    t = value.shape.element_type
    if (
        isinstance(value.op, Constant)
        and value.shape.is_scalar
        and t.is_integer
        and t.is_signed
        and t.bits >= 32
    ):
        return int(value.op.literal.array)
    return None
