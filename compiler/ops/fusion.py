"""Fusion: instructions that are computed together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..ir.module import Computation
from ..ir.shape import Shape
from .op import Op, attribute, require_signature


@dataclasses.dataclass(frozen=True)
class Fusion(Op):
    """The computation applied to the operands, as one kernel of the given kind. Means the same as a call.

    fusion_c1: the operands have the shapes of the computation's parameters.
    """

    opcode: ClassVar[str] = "fusion"
    kind: str = attribute("word", "kind")
    computation: Computation = attribute("computation", "calls")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """What the computation returns."""
        result = self.computation.root.shape
        require_signature("fusion", "computation", self.computation, operands, result, "fusion_c1")
        return result

    def reference(self, *operands: Any, call: Callable[..., Any]) -> Any:
        """The computation's value."""
        return call(self.computation, *operands)
