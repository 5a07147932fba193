"""GetDimensionSize: a dim as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..shape import Shape
from ..types import ElementType
from .op import Indexer, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class GetDimensionSize(Op):
    """The size of an axis, as s32. All sizes are known when compiling.

    get_dimension_size_c1: one operand, an array.
    get_dimension_size_c2: dimension is an axis of it.
    Source: operation semantics, GetDimensionSize.
    """

    opcode: ClassVar[str] = "get-dimension-size"
    dimension: int = attribute("dim", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A scalar."""
        require_arrays("get-dimension-size", operands, 1, "get_dimension_size_c1")
        require(0 <= self.dimension < operands[0].rank,
                f"get-dimension-size: dimension is {self.dimension}, {operands[0]} has {operands[0].rank} axes",
                "get_dimension_size_c2")
        return Shape(ElementType.S32)

    def reference(self, operand: np.ndarray) -> Any:
        """The size."""
        return np.int32(operand.shape[self.dimension])

    def element(self, e: Indexer, index: Sequence[Any], operands: Sequence[Shape], shape: Shape) -> Any:
        """A constant."""
        return e.constant(np.asarray(operands[0].dims[self.dimension], np.int32))
