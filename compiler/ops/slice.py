"""Slice: a strided box at constant offsets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class Slice(Op):
    """Along each axis the elements start, start + stride, ... below limit.

    Shapes: result dims ceil((limit - start) / stride).
    slice_c1: one array operand.
    slice_c2: start, limit and strides have one entry per axis of the operand.
    slice_c3: 0 <= start <= limit <= size of the axis.
    slice_c4: strides are positive.
    Source: operation semantics, Slice.
    """

    opcode: ClassVar[str] = "slice"
    is_index_map: ClassVar[bool] = True
    reads_part: ClassVar[bool] = True
    start: tuple[int, ...] = attribute("slices", "slice")
    limit: tuple[int, ...] = attribute("slices", "slice")
    strides: tuple[int, ...] = attribute("slices", "slice")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The box's dims."""
        require_arrays("slice", operands, 1, "slice_c1")
        operand = operands[0]
        for what, values in (("start", self.start), ("limit", self.limit), ("strides", self.strides)):
            require(
                len(values) == operand.rank,
                f"slice: {what} has {len(values)} entries, operand {operand} has {operand.rank} axes",
                "slice_c2",
            )
        for axis, (size, start, limit) in enumerate(zip(operand.dims, self.start, self.limit)):
            require(
                0 <= start <= limit <= size,
                f"slice: axis {axis} of operand {operand} is cut from {start} to {limit}",
                "slice_c3",
            )
        require(
            all(s > 0 for s in self.strides),
            f"slice: strides are {self.strides}, positive ones are wanted",
            "slice_c4",
        )
        return operand.with_dims(
            -((start - limit) // stride) for start, limit, stride in zip(self.start, self.limit, self.strides)
        )

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's slices."""
        return operand[tuple(map(slice, self.start, self.limit, self.strides))]

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element at start + index * stride."""
        return e.operand(
            0,
            [
                e.add(e.multiply(i, stride), e.index(start))
                for i, start, stride in zip(index, self.start, self.strides)
            ],
        )
