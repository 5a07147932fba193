"""Reverse: axes run backwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require_arrays, require_axes


@dataclasses.dataclass(frozen=True)
class Reverse(Op):
    """Index i along each axis in `dimensions`, of size n, becomes n - 1 - i.

    reverse_c1: one array operand.
    reverse_c2: dimensions are distinct axes of the operand.
    Source: operation semantics, Rev.
    """

    opcode: ClassVar[str] = "reverse"
    is_index_map: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        require_arrays("reverse", operands, 1, "reverse_c1")
        require_axes("reverse", "dimensions", self.dimensions, operands[0].rank, "reverse_c2")
        return operands[0].without_layout()

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's flip."""
        return np.flip(operand, self.dimensions)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element counted from the other end."""
        source = list(index)
        for axis in self.dimensions:
            source[axis] = e.add(e.index(shape.dims[axis] - 1), e.multiply(index[axis], -1))
        return e.operand(0, source)
