"""Iota: an array that counts along one axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import NUMBERS
from ..ir.shape import Shape
from .numeric import convert
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class Iota(Op):
    """Every element is its index along iota_dimension, converted from s64 to the element type.

    iota_c1: no operands.
    iota_c2: the shape is an array of a numeric type.
    iota_c3: iota_dimension is an axis of the shape.
    Source: operation semantics, Iota.
    """

    opcode: ClassVar[str] = "iota"
    is_index_map: ClassVar[bool] = True
    shape: Shape = attribute("result_shape", "")
    iota_dimension: int = attribute("int", "iota_dimension")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        require_arrays("iota", operands, 0, "iota_c1")
        require(
            self.shape.element_type in NUMBERS,
            f"iota: shape is {self.shape}, an array of numbers is wanted",
            "iota_c2",
        )
        require(
            0 <= self.iota_dimension < self.shape.rank,
            f"iota: iota_dimension is {self.iota_dimension}, {self.shape} has {self.shape.rank} axes",
            "iota_c3",
        )
        return self.shape

    def reference(self) -> np.ndarray:
        """A range, converted and broadcast."""
        axis, dims = self.iota_dimension, self.shape.dims
        counted = convert(np.arange(dims[axis], dtype=np.int64), self.shape.element_type.dtype)
        return np.broadcast_to(counted.reshape([-1 if i == axis else 1 for i in range(len(dims))]), dims)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The index itself."""
        return e.number(index[self.iota_dimension])
