"""Fusion: instructions that are computed together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from ..ir.module import Computation, Evaluate, Instruction, Value
from ..ir.shape import Shape
from .constant import Parameter
from .op import Op, attribute, require_signature


@dataclasses.dataclass(frozen=True)
class Fusion(Op):
    """The computation applied to the operands, as one kernel of the given kind. Means the same as a call.

    fusion_c1: the operands have the shapes of the computation's parameters.
    """

    opcode: ClassVar[str] = "fusion"
    kind: str = attribute("word", "kind")
    computation: Computation = attribute("computation", "calls")

    def flops(self, instruction: Instruction) -> int:
        """Those of the fused instructions."""
        return sum(i.op.flops(i) for i in self.computation.instructions)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The result shape of the computation."""
        result = self.computation.root.shape
        require_signature("fusion", "computation", self.computation, operands, result, "fusion_c1")
        return result

    def reference(self, *operands: Value, call: Evaluate) -> Value:
        """The computation's value."""
        return call(self.computation, *operands)


def as_computation(instruction: Instruction) -> Computation:
    """The computation that applies just this instruction to parameters."""
    parameters = tuple(
        Instruction(Parameter(k, o.shape), (), o.shape, f"p{k}") for k, o in enumerate(instruction.operands)
    )
    return Computation(
        instruction.name or instruction.opcode,
        dataclasses.replace(instruction, operands=parameters),
        parameters,
    )
