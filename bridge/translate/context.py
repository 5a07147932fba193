"""What the translation of a graph knows at a node: the builder, the functions, constant values, checked ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...compiler.builder.computation_builder import ComputationBuilder, Operand
from ...compiler.evaluator.evaluator import evaluate_instruction
from ...compiler.ir import module as ir
from ...compiler.ir.module import Instruction
from ...compiler.ir.shape import Shape
from ...compiler.ops import (
    Broadcast,
    Opcode,
    Parameter,
    Reshape,
    Rng,
    RngBitGenerator,
    SizeConstant,
    While,
    is_op,
)
from ...runtime.code import float_mode
from ...runtime.sizes import is_symbolic
from ..graph.function_library import Functions
from ..graph.graph import Graph, Tensor
from .size_evaluation import evaluate_sizes, holds_sizes
from .values import Value

_MAX_FOLDED_ELEMENTS = 1 << 16  # larger values are no shapes, axes or paddings


@dataclasses.dataclass
class Trial:
    """A translation of a loop's body that shows the element shapes of lists, and is dropped then.

    is_partial: parts that read lists of unknown elements were left out.
    """

    is_partial: bool = False


class TranslationContext:
    """The state of one computation under translation.

    source: file and line of a node, by its name; with `mark_lines` every instruction gets them as metadata, which takes
        as long as the translation itself. Errors have them in any case.
    capacity_factor: how much larger the capacities of lists of unknown length are than at the first compilation; 0:
        such lists have no capacity.
    is_inner: the computation may run several times, or not at all.
    trial: of a translation that only shows the element shapes of lists.
    ranges: smallest and largest value of integers. checked_indices: index vectors, with the dims that they fit.
    graph, values: the graph under translation, and the values of its tensors so far.
    """

    def __init__(
        self,
        builder: ComputationBuilder,
        functions: Functions,
        source: Callable[[str], tuple[str, int]] | None = None,
        mark_lines: bool = False,
        capacity_factor: int = 0,
        is_inner: bool = False,
        trial: Trial | None = None,
    ) -> None:
        self.builder = builder
        self.functions = functions
        self.source = source
        self.mark_lines = mark_lines
        self.capacity_factor = capacity_factor
        self.is_inner = is_inner
        self.trial = trial
        self.ranges: dict[Instruction, tuple[int, int]] = {}
        self.checked_indices: set[tuple[Instruction, tuple[int, ...]]] = set()
        self.graph = Graph({})
        self.values: dict[Tensor, Value] = {}
        self._constants: dict[Instruction, ir.Value | None] = {}

    def child(self, name: str, trial: Trial | None = None) -> TranslationContext:
        """A context for a function that becomes a computation of its own (a loop's body, a branch)."""
        return TranslationContext(
            self.builder.create_sub_builder(name),
            self.functions,
            self.source,
            self.mark_lines,
            self.capacity_factor,
            is_inner=True,
            trial=trial or self.trial,
        )

    def constant_value(self, operand: Operand) -> np.ndarray | None:
        """The value of an operand if it depends on constants alone and is small."""
        value = self.size_value(operand)
        is_float = operand.instruction is not None and operand.instruction.shape.element_type.is_float
        return None if is_float and holds_sizes(value) else value

    def size_value(self, operand: Operand) -> np.ndarray | None:
        """As `constant_value`; of floats that are made of sizes the exact quotients."""
        value = self._value(operand.instruction) if operand.instruction is not None else None
        return None if isinstance(value, tuple) else value

    def _value(self, instruction: Instruction) -> ir.Value | None:
        values = self._constants
        stack = [instruction]
        while stack:
            current = stack[-1]
            if current in values:
                stack.pop()
                continue
            if (
                isinstance(current.op, (Parameter, Rng, RngBitGenerator, While))
                or current.has_side_effect
                or not _small(current.shape)
            ):
                values[current] = None
            elif is_op(current, Opcode.AND) and _is_false(values.get(current.operands[0])):
                values[current] = values[current.operands[0]]  # nothing is asked of the sizes in the other
            elif missing := [o for o in current.operands if o not in values]:
                stack.append(missing[0])
                continue
            else:
                operands = [o for o in map(values.get, current.operands) if o is not None]
                if len(operands) < len(current.operands):
                    values[current] = _clamped(current, values)
                elif _is_cut(current, operands):
                    values[current] = None
                else:
                    with float_mode.of_runs():
                        values[current] = (
                            evaluate_sizes(current, operands)
                            if isinstance(current.op, SizeConstant) or any(holds_sizes(o) for o in operands)
                            else evaluate_instruction(current, operands)
                        )
            stack.pop()
        return values[instruction]


def _is_false(value: ir.Value | None) -> bool:
    """Whether all elements of a value are known and false."""
    return isinstance(value, np.ndarray) and value.dtype == bool and not value.any()


def _is_cut(instruction: Instruction, operands: Sequence[Any]) -> bool:
    """Whether an operand of a size that depends on data is smaller than its bound, which decides the result's dims."""
    return (
        isinstance(instruction.op, (Broadcast, Reshape))
        and np.shape(operands[0]) != instruction.operands[0].shape.dims
    )


def _clamped(instruction: Instruction, values: Mapping[Instruction, ir.Value | None]) -> ir.Value | None:
    """The value of an integer that two limits leave no room: min(limit, max(no less, anything)), or the reverse."""
    if (
        not is_op(instruction, Opcode.MINIMUM, Opcode.MAXIMUM)
        or not instruction.shape.element_type.is_integer
    ):
        return None
    is_minimum = is_op(instruction, Opcode.MINIMUM)
    inside, beyond = (Opcode.MAXIMUM, np.greater_equal) if is_minimum else (Opcode.MINIMUM, np.less_equal)
    for limit, clamped in (instruction.operands, instruction.operands[::-1]):
        value = values[limit]
        if value is not None and is_op(clamped, inside) and limit.shape == instruction.shape:
            others = [values.get(o) for o in clamped.operands]
            if any(o is not None and beyond(o, value).all() for o in others):
                return value
    return None


def _small(shape: Shape) -> bool:
    """Whether an array has few elements, whatever the sizes are that are known at run time only."""
    leaves = list(shape.leaves())
    return (
        not is_symbolic(d for leaf in leaves for d in leaf.dims)
        and sum(leaf.elements for leaf in leaves) <= _MAX_FOLDED_ELEMENTS
    )
