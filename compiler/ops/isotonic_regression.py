"""IsotonicRegression: the nearest lines that do not increase."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .op import Op, require, require_arrays

FITTED = (ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F64)
"""The types of lines that are fitted."""
_MAX_ELEMENTS = 1 << 31


@dataclasses.dataclass(frozen=True)
class IsotonicRegression(Op):
    """A tuple: for every line along the last axis the line that does not increase and whose squared distance from it is
    least; and the numbers (s32) of its segments, which count from 0 in every line.

    A segment is a pool of neighbours that were joined, all of which get their mean. An element begins a pool of its
    own; while the mean of the last pool is greater than that of the one before, the two are joined: their sums are
    added, the mean is the sum divided by the count. Every sum, count and mean is rounded to the operand's type. Equal
    elements are not joined, and NaN is not greater than anything, nor less.
    isotonic_regression_c1: one operand, an array.
    isotonic_regression_c2: it has an axis, the last of less than 2^31 elements.
    isotonic_regression_c3: it is f16, bf16, f32 or f64.
    Source: TensorFlow, "IsotonicRegression"; Best and Chakravarti, Active set algorithms for isotonic regression.
    """

    opcode: ClassVar[str] = "isotonic-regression"

    @property
    def inner_rank(self) -> int:
        """Lines."""
        return 1

    def flops(self, instruction: Instruction) -> int:
        """At most one addition and one division for each element."""
        return 2 * instruction.operands[0].shape.elements

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape, twice, the second of s32."""
        require_arrays("isotonic-regression", operands, 1, "isotonic_regression_c1")
        operand = operands[0]
        require(
            operand.rank > 0 and operand.dims[-1] < _MAX_ELEMENTS,
            f"isotonic-regression: operand is {operand}, lines of less than {_MAX_ELEMENTS} elements are wanted",
            "isotonic_regression_c2",
        )
        require(
            operand.element_type in FITTED,
            f"isotonic-regression: operand is {operand}, f16, bf16, f32 or f64 is wanted",
            "isotonic_regression_c3",
        )
        return Shape.tuple([operand.without_layout(), Shape(ElementType.S32, operand.dims)])

    def reference(self, operand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Line by line, element by element."""
        fitted, segments = np.empty_like(operand), np.empty(operand.shape, np.int32)
        with np.errstate(all="ignore"):
            for line in np.ndindex(*operand.shape[:-1]):
                pools = _pools(operand[line])
                counts = [count for _, count in pools]
                fitted[line] = np.repeat(_means(pools, operand.dtype), counts)
                segments[line] = np.repeat(np.arange(len(pools)), counts)
        return fitted, segments


Pool = tuple[np.number, int]
"""The sum and the count of neighbours."""


def _pools(line: np.ndarray) -> list[Pool]:
    """The segments of a line."""
    pools: list[Pool] = []
    for element in line:
        pools.append((element, 1))
        while len(pools) > 1:
            before, last = _means(pools[-2:], line.dtype)
            if not last > before:
                break
            (last_sum, last_count), (sum_, count) = pools.pop(), pools.pop()
            pools.append((sum_ + last_sum, count + last_count))
    return pools


def _means(pools: Sequence[Pool], dtype: np.dtype) -> np.ndarray:
    sums, counts = (np.array(column, dtype) for column in zip(*pools)) if pools else [np.empty(0, dtype)] * 2
    result: np.ndarray = sums / counts
    return result
