"""Elementwise functions of one value: the chains of instructions that depend on it and on constants alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...runtime.code import float_mode
from ..analysis.instruction_cost import cycles
from ..ir.module import Computation, Instruction
from ..ops import Broadcast
from .rules.rule import splat

MAX_LENGTH = 200  # instructions of a chain that is looked at


def arguments_of(
    computation: Computation, is_argument: Callable[[Instruction], bool]
) -> dict[Instruction, Instruction]:
    """The argument of every instruction that is a function of one value: the farthest one for which `is_argument`
    holds."""
    arguments: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        if not i.op.is_elementwise or i.op.calling or not i.shape.is_array:
            continue
        candidates = {arguments.get(o, o) for o in i.operands if splat(o) is None}
        if len(candidates) == 1:
            (argument,) = candidates
            if is_argument(argument) and argument.shape.dims == i.shape.dims:
                arguments[i] = argument
    return arguments


def chain(result: Instruction, argument: Instruction) -> list[Instruction] | None:
    """The instructions of a function that `arguments_of` found, operands first, without argument and constants; None:
    there are more than MAX_LENGTH."""
    members: dict[Instruction, None] = {}
    stack = [result]
    while stack:
        i = stack[-1]
        missing = [o for o in i.operands if o is not argument and o not in members and splat(o) is None]
        if missing:
            stack += missing
        else:
            members[stack.pop()] = None
        if len(stack) + len(members) > 2 * MAX_LENGTH:
            return None
    return list(members) if len(members) <= MAX_LENGTH else None


def cost(members: Sequence[Instruction], users: Mapping[Instruction, Sequence[Instruction]]) -> int:
    """Cycles of the instructions of a chain that are computed for its result, the last one, alone, for each register
    of f32."""
    own = {members[-1]}
    for i in reversed(members[:-1]):
        if all(u in own for u in users[i]):
            own.add(i)
    return sum(map(cycles, own))


def evaluated(members: Sequence[Instruction], argument: Instruction, numbers: np.ndarray) -> np.ndarray:
    """What a chain computes for some values of its argument, a row of them."""
    values = {argument: numbers}

    def value(operand: Instruction) -> np.ndarray:
        number = splat(operand)
        if number is None:
            return values[operand]
        return np.full(numbers.shape if isinstance(operand.op, Broadcast) else (), number, number.dtype)

    with np.errstate(all="ignore"), float_mode.of_runs():
        for i in members:
            values[i] = np.asarray(i.op.reference(*map(value, i.operands)))
    return values[members[-1]]
