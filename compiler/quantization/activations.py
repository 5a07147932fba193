"""Finds activations that are worth a table: expensive functions of the result of one layer.

    y = f32[...] convolution(x, w)               q = u8[...] convert(y / s + z)
    r = f32[...] y * logistic(y)           =>    t = u8[...] table-lookup(q)

Their arguments and results are stored in 8 bits; the pass `tabulate` makes the table.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from ..analysis.instruction_cost import cycles
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction
from ..ops import Tuple
from ..passes.unary_functions import arguments_of, chain, evaluated
from .calibration import Function
from .layers import Layer

_LEAST_CYCLES = 10  # of a function that takes longer than rounding its argument


@dataclasses.dataclass(frozen=True)
class Activation:
    """Functions of the result of one layer. argument: that result; results: what others read of the functions;
    is_alone: whether nothing else reads the argument."""

    argument: Instruction
    results: tuple[Instruction, ...]
    functions: tuple[Function, ...]
    is_alone: bool


def find_activations(
    computation: Computation, layers: Sequence[Layer], least_elements: int
) -> list[Activation]:
    """The expensive activations of at least so many elements, in order. What is a result of the computation, or is
    moved to one, is not rounded."""
    arguments = arguments_of(computation, {layer.result for layer in layers}.__contains__)
    users = computation.users
    results: dict[Instruction, list[Instruction]] = {}
    for i, argument in arguments.items():
        if i is computation.root or any(arguments.get(u) is not argument for u in users[i]):
            results.setdefault(argument, []).append(i)
    activations = []
    for argument, ends in results.items():
        if argument.shape.elements < least_elements or not all(map(_is_rounded, ends)):
            continue
        known = [members for end in ends if (members := chain(end, argument)) is not None]
        if len(known) < len(ends) or max(sum(map(cycles, c)) for c in known) < _LEAST_CYCLES:
            continue
        if any(_is_result(end, computation, users) for end in ends):
            continue
        parts = [functools.partial(evaluated, members, argument) for members in known]
        is_alone = all(arguments.get(u) is argument for u in users[argument])
        activations.append(Activation(argument, tuple(ends), tuple(parts), is_alone))
    return activations


def _is_result(
    value: Instruction, computation: Computation, users: Mapping[Instruction, list[Instruction]]
) -> bool:
    """Whether a value's elements are among the results, as they are or moved."""
    seen, stack = {value}, [value]
    while stack:
        value = stack.pop()
        if value is computation.root:
            return True
        moved = {u for u in users[value] if isinstance(u.op, Tuple) or u.op.is_index_map} - seen
        seen |= moved
        stack += moved
    return False


def _is_rounded(end: Instruction) -> bool:
    return end.shape.element_type is ElementType.F32
