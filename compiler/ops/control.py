"""Ops that call computations: call, map, while, conditional, concurrent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Computation, Evaluate, Value, array_of
from ..ir.shape import Shape
from .op import Op, attribute, require, require_signature


@dataclasses.dataclass(frozen=True)
class While(Op):
    """The body applied to the value again and again, as long as the condition holds for it.

    while_c1: one operand, of any shape T.
    while_c2: condition is (T) -> pred[].
    while_c3: body is (T) -> T.
    Source: operation semantics, While.
    """

    opcode: ClassVar[str] = "while"
    is_control_flow: ClassVar[bool] = True
    condition: Computation = attribute("computation", "condition")
    body: Computation = attribute("computation", "body")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        require(len(operands) == 1, f"while: {len(operands)} operands given, 1 wanted", "while_c1")
        value = operands[0]
        require_signature("while", "condition", self.condition, [value], Shape(ElementType.PRED), "while_c2")
        require_signature("while", "body", self.body, [value], value, "while_c3")
        return value

    def reference(self, value: Value, call: Evaluate) -> Value:
        """The loop."""
        while call(self.condition, value):
            value = call(self.body, value)
        return value


@dataclasses.dataclass(frozen=True)
class Conditional(Op):
    """One of the branches applied to its operand.

    The first operand chooses: pred (true: branch 0, false: branch 1), or, by_index, s32 (its number; out of
    range: the last).
    conditional_c1: at least one branch, and after the choosing operand one operand per branch.
    conditional_c2: the choosing operand is s32[], or pred[] with exactly two branches, as by_index says.
    conditional_c3: every branch takes its operand, and all return the same shape.
    Source: operation semantics, Conditional.
    """

    opcode: ClassVar[str] = "conditional"
    is_control_flow: ClassVar[bool] = True
    branches: tuple[Computation, ...] = attribute("computations", "branch_computations")
    by_index: bool = attribute("implied", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The result shape of the branches."""
        require(
            len(self.branches) > 0 and len(operands) == len(self.branches) + 1,
            f"conditional: {len(operands)} operands given for {len(self.branches)} branches",
            "conditional_c1",
        )
        selector = Shape(ElementType.S32 if self.by_index else ElementType.PRED)
        require(
            operands[0] == selector and (self.by_index or len(self.branches) == 2),
            f"conditional: {operands[0]} chooses among {len(self.branches)} branches, {selector} is wanted "
            f"(pred for two)",
            "conditional_c2",
        )
        result = self.branches[0].root.shape
        for number, (branch, operand) in enumerate(zip(self.branches, operands[1:])):
            require_signature("conditional", f"branch {number}", branch, [operand], result, "conditional_c3")
        return result

    def reference(self, chooser: np.ndarray, *operands: Value, call: Evaluate) -> Value:
        """Only the chosen branch runs."""
        last = len(self.branches) - 1
        number = int(chooser) if self.by_index else 1 - int(chooser)
        number = number if 0 <= number <= last else last
        return call(self.branches[number], operands[number])


@dataclasses.dataclass(frozen=True)
class Concurrent(Op):
    """Every branch applied to its operand; several branches may run at the same time.

    concurrent_c1: at least one branch, and one operand per branch.
    concurrent_c2: every branch takes its operand.
    """

    opcode: ClassVar[str] = "concurrent"
    is_control_flow: ClassVar[bool] = True
    branches: tuple[Computation, ...] = attribute("computations", "branch_computations")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The tuple of the branches' result shapes."""
        require(
            0 < len(self.branches) == len(operands),
            f"concurrent: {len(operands)} operands given for {len(self.branches)} branches",
            "concurrent_c1",
        )
        for number, (branch, operand) in enumerate(zip(self.branches, operands)):
            require_signature(
                "concurrent", f"branch {number}", branch, [operand], branch.root.shape, "concurrent_c2"
            )
        return Shape.tuple([branch.root.shape for branch in self.branches])

    def reference(self, *operands: Value, call: Evaluate) -> Value:
        """The branches one after another."""
        return tuple(call(branch, operand) for branch, operand in zip(self.branches, operands))


@dataclasses.dataclass(frozen=True)
class Call(Op):
    """The computation applied to the operands.

    call_c1: the operands have the shapes of to_apply's parameters.
    Source: operation semantics, Call.
    """

    opcode: ClassVar[str] = "call"
    is_control_flow: ClassVar[bool] = True
    to_apply: Computation = attribute("computation", "to_apply")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The result shape of the computation."""
        result = self.to_apply.root.shape
        require_signature("call", "to_apply", self.to_apply, operands, result, "call_c1")
        return result

    def reference(self, *operands: Value, call: Evaluate) -> Value:
        """The computation's value."""
        return call(self.to_apply, *operands)


@dataclasses.dataclass(frozen=True)
class Map(Op):
    """A computation of scalars applied to the elements of arrays.

    map_c1: at least one operand; all are arrays of the same dims.
    map_c2: dimensions are all axes of the operands, in order.
    map_c3: to_apply takes scalars of the operands' types and returns a scalar.
    Source: operation semantics, Map.
    """

    opcode: ClassVar[str] = "map"
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")
    to_apply: Computation = attribute("computation", "to_apply")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operands' dims with the type that the computation returns."""
        require(
            len(operands) > 0 and all(o.is_array and o.dims == operands[0].dims for o in operands),
            f"map: operands are {', '.join(map(str, operands))}, arrays of the same dims are wanted",
            "map_c1",
        )
        rank, result = operands[0].rank, self.to_apply.root.shape
        require(
            self.dimensions == tuple(range(rank)),
            f"map: dimensions is {self.dimensions}, all {rank} axes in order are wanted",
            "map_c2",
        )
        require(result.is_scalar, f"map: to_apply returns {result}, a scalar is wanted", "map_c3")
        require_signature(
            "map", "to_apply", self.to_apply, [Shape(o.element_type) for o in operands], result, "map_c3"
        )
        return Shape(result.element_type, operands[0].dims)

    def reference(self, *operands: np.ndarray, call: Evaluate) -> np.ndarray:
        """The computation over all elements."""
        return array_of(call(self.to_apply, *operands))
