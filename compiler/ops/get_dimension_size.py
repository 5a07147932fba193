"""GetDimensionSize and SetDimensionSize: the size of an axis as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Instruction, Value
from ..ir.shape import Shape
from .constant import Constant
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class GetDimensionSize(Op):
    """The size of an axis, as s32: what set-dimension-size made it, else the dim.

    get_dimension_size_c1: one operand, an array.
    get_dimension_size_c2: dimension is an axis of it.
    Source: operation semantics, GetDimensionSize.
    """

    opcode: ClassVar[str] = "get-dimension-size"
    dimension: int = attribute("dim", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A scalar."""
        require_arrays("get-dimension-size", operands, 1, "get_dimension_size_c1")
        _require_axis(self.opcode, self.dimension, operands[0], "get_dimension_size_c2")
        return Shape(ElementType.S32)

    def reference(self, operand: np.ndarray) -> Value:
        """The size."""
        return np.asarray(operand.shape[self.dimension], np.int32)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The size."""
        return e.number(e.index(operands[0].dims[self.dimension]))


@dataclasses.dataclass(frozen=True)
class SetDimensionSize(Op):
    """The operand with the size of an axis set: only its first `size` elements are part of the value. The dim is the
    bound.

    Users ignore the other elements: a pass turns sizes into masks before the program is run or
    compiled. A size below 0 or above the bound is clamped.
    Operands: the array, the size.
    set_dimension_size_c1: two operands, an array and an s32 scalar.
    set_dimension_size_c2: dimension is an axis of the array.
    Source: operation semantics, SetDimensionSize.
    """

    opcode: ClassVar[str] = "set-dimension-size"
    dimension: int = attribute("dim", "dimensions")

    def changes(self, operand: Instruction, size: Instruction) -> bool:
        """Whether the axis has, or may get, another size than its dim."""
        dims, axis = operand.shape.dims, self.dimension
        is_known = isinstance(size.op, Constant) and size.shape.is_scalar
        if not is_known or not 0 <= axis < len(dims) or axis in operand.shape.dynamic:
            return True
        assert isinstance(size.op, Constant)
        return bool(np.any(size.op.literal.array != dims[axis]))

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The array's shape, the axis marked as of a size known at run time."""
        require_arrays("set-dimension-size", operands, 2, "set_dimension_size_c1")
        require(
            operands[1] == Shape(ElementType.S32),
            f"set-dimension-size: size is {operands[1]}, s32[] is wanted",
            "set_dimension_size_c1",
        )
        _require_axis(self.opcode, self.dimension, operands[0], "set_dimension_size_c2")
        return operands[0].without_layout().with_dynamic((*operands[0].dynamic, self.dimension))

    def reference(self, operand: np.ndarray, size: np.ndarray) -> np.ndarray:
        """The elements that count."""
        length = max(0, min(int(size), operand.shape[self.dimension]))
        return operand[(slice(None),) * self.dimension + (slice(length),)]


def _require_axis(opcode: str, dimension: int, operand: Shape, label: str) -> None:
    require(
        0 <= dimension < operand.rank,
        f"{opcode}: dimension is {dimension}, {operand} has {operand.rank} axes",
        label,
    )
