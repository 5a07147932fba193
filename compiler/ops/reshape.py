"""Reshape: the same elements in row-major order with other dims."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class Reshape(Op):
    """The operand's elements in row-major order, as an array with result_dims.

    reshape_c1: one array operand.
    reshape_c2: operand and result have the same number of elements, and no result dim is negative.
    Source: operation semantics, Reshape.
    """

    opcode: ClassVar[str] = "reshape"
    is_index_map: ClassVar[bool] = True
    forwards_operands: ClassVar[bool] = True
    result_dims: tuple[int, ...] = attribute("result_dims", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's type with result_dims."""
        require_arrays("reshape", operands, 1, "reshape_c1")
        result = operands[0].with_dims(self.result_dims)
        if result.elements != operands[0].elements or any(d < 0 for d in self.result_dims):
            require(
                False,
                f"reshape: operand {operands[0]} has {operands[0].elements} elements, "
                f"{list(self.result_dims)} has {result.elements}",
                "reshape_c2",
            )
        return result

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's reshape."""
        return operand.reshape(self.result_dims)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element with the same row-major number, worked out within the smallest groups of
        axes."""
        source = [e.index(0)] * operands[0].rank
        for old, new in axis_groups(operands[0].dims, shape.dims):
            if len(new) == 1 and len(old) == 1:
                source[old[0]] = index[new[0]]
                continue
            linear = index[new[0]] if new else e.index(0)
            for axis in new[1:]:
                linear = e.add(e.multiply(linear, shape.dims[axis]), index[axis])
            for axis in reversed(old[1:]):
                source[axis] = e.remainder(linear, operands[0].dims[axis])
                linear = e.divide(linear, operands[0].dims[axis])
            if old:
                source[old[0]] = linear
        return e.operand(0, source)


def axis_groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Splits the axes of two shapes with equal, positive element counts into the smallest runs that hold
    equally many elements: pairs of axis numbers of `old` and of `new`. Axes of size 1 are not listed."""
    left = [axis for axis, d in enumerate(old) if d != 1]
    right = [axis for axis, d in enumerate(new) if d != 1]
    if 0 in old or 0 in new:
        return
    while left or right:
        a, b = [left.pop(0)], [right.pop(0)]
        size_a, size_b = old[a[0]], new[b[0]]
        while size_a != size_b:
            if size_a < size_b:
                a.append(left.pop(0))
                size_a *= old[a[-1]]
            else:
                b.append(right.pop(0))
                size_b *= new[b[-1]]
        yield a, b
