"""Pad: a value around and between the elements, or elements cut off at the edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...runtime.sizes import estimate, larger, surely_less
from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays

MAX_POSITIONS = 1 << 44
"""Positions along an axis of a padded array: code has 64 bits for them."""


@dataclasses.dataclass(frozen=True)
class Pad(Op):
    """Along each axis, element i of the operand goes to low + i * (interior + 1); all other positions hold the
    padding value; elements that fall outside the result (low or high negative) are dropped.

    Shapes: operand [..d..], padding value [], result dims low + d + max(d - 1, 0) * interior + high.
    pad_c1: two array operands of one element type, the second a scalar.
    pad_c2: low, high and interior have one entry per axis of the operand.
    pad_c3: interior padding is not negative.
    pad_c4: the result's dims are not negative.
    pad_c5: no padding, and no axis with its holes, is longer than MAX_POSITIONS.
    Source: operation semantics, Pad.
    """

    opcode: ClassVar[str] = "pad"
    is_index_map: ClassVar[bool] = True
    low: tuple[int, ...] = attribute("padding", "padding")
    high: tuple[int, ...] = attribute("padding", "padding")
    interior: tuple[int, ...] = attribute("padding", "padding")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The padded dims."""
        require_arrays("pad", operands, 2, "pad_c1")
        operand, value = operands
        require(
            value.is_scalar and value.element_type is operand.element_type,
            f"pad: padding value is {value}, a scalar of the type of {operand} is wanted",
            "pad_c1",
        )
        for what, values in (("low", self.low), ("high", self.high), ("interior", self.interior)):
            require(
                len(values) == operand.rank,
                f"pad: {what} has {len(values)} entries, operand {operand} has {operand.rank} axes",
                "pad_c2",
            )
        require(
            all(i >= 0 for i in self.interior),
            f"pad: interior is {self.interior}, 0 or more is wanted",
            "pad_c3",
        )
        reach = (
            *self.low,
            *self.high,
            *(larger(d, 1) * (i + 1) for d, i in zip(operand.dims, self.interior)),
        )
        require(
            max((abs(estimate(r)) for r in reach), default=0) <= MAX_POSITIONS,
            f"pad: operand {operand} is padded by {self.low}, {self.high} and {self.interior}, at most "
            f"{MAX_POSITIONS} places are wanted",
            "pad_c5",
        )
        dims = padded_dims(operand.dims, self.low, self.high, self.interior)
        require(all(d >= 0 for d in dims), f"pad: operand {operand} would become {list(dims)}", "pad_c4")
        return operand.with_dims(dims)

    def reference(self, operand: np.ndarray, value: np.ndarray) -> np.ndarray:
        """The operand placed into an array full of the value."""
        return padded(operand, value, self.low, self.high, self.interior)

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element where the index is the position of one, else the padding value."""
        if 0 in operands[0].dims:
            return e.operand(1, [])
        operand_index, condition = [], None
        for i, size, low, high, gap in zip(index, operands[0].dims, self.low, self.high, self.interior):
            step = gap + 1
            # Counting from `lead` whole steps below element 0 keeps all indices before the division from
            # being negative.
            lead = -(-larger(low, 0) // step)
            position = e.add(i, e.index(lead * step - low)) if lead * step != low else i
            source = e.divide(position, step) if gap else i
            if below := lead if gap else low:
                source = e.add(source, e.index(-below))
            checks = []
            if gap:
                checks.append(e.less(e.remainder(position, step), e.index(1)))
            if not surely_less(low, 1):
                checks.append(e.less(e.index(-1), source))
            if not surely_less(high, 1):
                checks.append(e.less(source, e.index(size)))
            for check in checks:
                condition = check if condition is None else e.both(condition, check)
            operand_index.append(source)
        inside = e.operand(0, operand_index, condition)
        return inside if condition is None else e.choose(condition, inside, e.operand(1, []))


def padded_dims(
    dims: Sequence[int], low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> tuple[int, ...]:
    """Dims after padding."""
    return tuple(lo + d + larger(d - 1, 0) * gap + hi for d, lo, hi, gap in zip(dims, low, high, interior))


def padded(
    array: np.ndarray, value: np.ndarray, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> np.ndarray:
    """The array with `value` around and between its elements."""
    result = np.empty(padded_dims(array.shape, low, high, interior), array.dtype)
    result[...] = value
    sources, targets = [], []
    for size, out, lo, gap in zip(array.shape, result.shape, low, interior):
        target = lo + np.arange(size) * (gap + 1)
        inside = (target >= 0) & (target < out)
        sources.append(np.flatnonzero(inside))
        targets.append(target[inside])
    result[np.ix_(*targets)] = array[np.ix_(*sources)]
    return result
