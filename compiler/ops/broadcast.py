"""Broadcast: new axes, and axes of size 1 stretched."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays, require_axes


@dataclasses.dataclass(frozen=True)
class Broadcast(Op):
    """The operand's axis i becomes the result's axis dimensions[i]; along the other axes, and along axes of
    the operand of size 1, its elements repeat.

    Shapes: operand [..], result [result_dims].
    broadcast_c1: one array operand.
    broadcast_c2: dimensions has one entry per axis of the operand.
    broadcast_c3: the entries are distinct axes of the result.
    broadcast_c4: an axis of the operand has size 1 or the size of the result's axis.
    broadcast_c5: no result dim is negative.
    Source: operation semantics, BroadcastInDim.
    """

    opcode: ClassVar[str] = "broadcast"
    is_index_map: ClassVar[bool] = True
    result_dims: tuple[int, ...] = attribute("result_dims", "")
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's type with result_dims."""
        require_arrays("broadcast", operands, 1, "broadcast_c1")
        operand, result = operands[0], self.result_dims
        if len(self.dimensions) != operand.rank:
            require(
                False,
                f"broadcast: dimensions has {len(self.dimensions)} entries, operand {operand} has "
                f"{operand.rank} axes",
                "broadcast_c2",
            )
        require_axes("broadcast", "dimensions", self.dimensions, len(result), "broadcast_c3")
        for size, axis in zip(operand.dims, self.dimensions):
            if size not in (1, result[axis]):
                require(
                    False,
                    f"broadcast: operand {operand} has an axis of size {size} for axis {axis} of "
                    f"{list(result)}",
                    "broadcast_c4",
                )
        if any(d < 0 for d in result):
            require(False, f"broadcast: result dims {list(result)} are negative", "broadcast_c5")
        return operand.with_dims(result)

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """Axes in the result's order, then NumPy's broadcasting."""
        order = sorted(range(operand.ndim), key=lambda axis: self.dimensions[axis])
        dims = [1] * len(self.result_dims)
        for size, axis in zip(operand.shape, self.dimensions):
            dims[axis] = size
        return np.broadcast_to(operand.transpose(order).reshape(dims), self.result_dims)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element at the mapped axes, at 0 along its axes of size 1."""
        return e.operand(
            0,
            [
                e.index(0) if size == 1 else index[axis]
                for size, axis in zip(operands[0].dims, self.dimensions)
            ],
        )
