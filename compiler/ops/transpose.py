"""Transpose: axes in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class Transpose(Op):
    """The result's axis i is the operand's axis dimensions[i].

    transpose_c1: one array operand.
    transpose_c2: dimensions is a permutation of the operand's axes.
    Source: operation semantics, Transpose.
    """

    opcode: ClassVar[str] = "transpose"
    is_index_map: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's dims, permuted."""
        require_arrays("transpose", operands, 1, "transpose_c1")
        operand = operands[0]
        require(
            sorted(self.dimensions) == list(range(operand.rank)),
            f"transpose: dimensions is {self.dimensions}, a permutation of the {operand.rank} axes of "
            f"{operand} is wanted",
            "transpose_c2",
        )
        return operand.with_dims(operand.dims[d] for d in self.dimensions)

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's transpose."""
        return operand.transpose(self.dimensions)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element at the index with its axes in the operand's order."""
        operand_index = list(index)
        for axis, source in enumerate(self.dimensions):
            operand_index[source] = index[axis]
        return e.operand(0, operand_index)
