"""OptimizationBarrier: a value that no optimisation sees through."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from ..ir.module import Value
from ..ir.shape import Shape
from .op import Op, require


@dataclasses.dataclass(frozen=True)
class OptimizationBarrier(Op):
    """The operand; what depends on the result is computed after all parts of the operand, and from them alone.

    opt_barrier_c1: one operand.
    Source: operation semantics, OptimizationBarrier.
    """

    opcode: ClassVar[str] = "opt-barrier"
    forwards_operands: ClassVar[bool] = True

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        require(
            len(operands) == 1, f"opt-barrier: {len(operands)} operands given, 1 wanted", "opt_barrier_c1"
        )
        return operands[0]

    def reference(self, operand: Value) -> Value:
        """The operand."""
        return operand
