"""TopK: the largest or smallest elements of every line along the last axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..shape import Shape
from ..types import ElementType, element_type_of
from .op import Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class TopK(Op):
    """A tuple of the k largest elements along the last axis in descending order, and their numbers (s32).

    With largest false the k smallest, ascending. Floats are in total order: -NaN, -inf, .., -0, +0, .., inf, NaN. Of
    equal elements the one with the smaller number comes first.
    topk_c1: one operand, an array.
    topk_c2: it has an axis, the last of at least k elements; k is not negative.
    topk_c3: it is of an integer or a float type.
    Source: XLA, "topk".
    """

    opcode: ClassVar[str] = "topk"
    k: int = attribute("int", "k")
    largest: bool = attribute("bool", "largest", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape with k elements in the last axis, twice, the second of s32."""
        require_arrays("topk", operands, 1, "topk_c1")
        operand = operands[0]
        require(operand.rank > 0 and 0 <= self.k <= operand.dims[-1],
                f"topk: k is {self.k}, at most the last dim of {operand} is wanted", "topk_c2")
        require(operand.element_type.is_integer or operand.element_type.is_float,
                f"topk: operand is {operand}, integers or floats are wanted", "topk_c3")
        dims = (*operand.dims[:-1], self.k)
        return Shape.tuple([Shape(operand.element_type, dims), Shape(ElementType.S32, dims)])

    def reference(self, operand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A stable sort of the elements as integers of the same order."""
        kind = element_type_of(operand.dtype)
        if kind.is_float:
            bits = np.ascontiguousarray(operand).view(f"i{kind.item_bytes}")
            key = bits ^ ((bits >> (kind.bits - 1)) & np.iinfo(bits.dtype).max)
        else:
            key = operand.astype(np.uint64 if kind.is_unsigned else np.int64)
        order = np.argsort(~key if self.largest else key, -1, kind="stable")[..., :self.k]
        return np.take_along_axis(operand, order, -1), order.astype(np.int32)
