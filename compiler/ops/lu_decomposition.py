"""LuDecomposition: a matrix with exchanged rows as a product of a unit lower and an upper triangular one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...runtime.sizes import larger, smaller
from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .cholesky import FACTORABLE
from .op import Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class LuDecomposition(Op):
    """A tuple (lu, pivots, permutation) with a[permutation] = l u, for matrices a of m rows and n columns.

    lu has a's shape: below the diagonal are the elements of l, whose diagonal is ones; the others are those of u. Step
    k of min(m, n) exchanges row k with the row pivots[k] >= k that has the largest element of column k; the first of
    equal ones. That is the largest absolute value, or with one_norm the largest |re| + |im|, as LAPACK chooses.
    pivots and permutation are s32, permutation has m elements. A column without a pivot, of zeros, gives zeros in l.
    NaN is larger than nothing, and nothing is larger than NaN. Leading axes are a batch.
    lu_decomposition_c1: one operand, an array.
    lu_decomposition_c2: it has two axes at least, of less than 2^31 elements.
    lu_decomposition_c3: it is f32, f64, c64 or c128.
    Source: XLA's custom call LuDecomposition; LAPACK, getrf.
    """

    opcode: ClassVar[str] = "lu-decomposition"
    one_norm: bool = attribute("bool", "one_norm", default=False)

    @property
    def inner_rank(self) -> int:
        """Matrices."""
        return 2

    def flops(self, instruction: Instruction) -> int:
        """A product and a difference for each element right of and below each pivot."""
        *batch, rows, columns = instruction.operands[0].shape.dims
        short, long = smaller(rows, columns), larger(rows, columns)
        return math.prod(batch) * short * short * (3 * long - short) // 3

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """The matrices."""
        return ((0, 0),)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape, and those of the pivots and the permutation."""
        require_arrays("lu-decomposition", operands, 1, "lu_decomposition_c1")
        operand = operands[0]
        require(
            operand.rank >= 2 and all(d < 1 << 31 for d in operand.dims[-2:]),
            f"lu-decomposition: operand is {operand}, matrices are wanted",
            "lu_decomposition_c2",
        )
        require(
            operand.element_type in FACTORABLE,
            f"lu-decomposition: operand is {operand}, f32, f64, c64 or c128 is wanted",
            "lu_decomposition_c3",
        )
        *batch, rows, columns = operand.dims
        return Shape.tuple(
            [
                operand.without_layout(),
                Shape(ElementType.S32, (*batch, smaller(rows, columns))),
                Shape(ElementType.S32, (*batch, rows)),
            ]
        )

    def reference(self, operand: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step by step, in double precision, matrix by matrix."""
        wide = operand.astype(np.complex128 if np.iscomplexobj(operand) else np.float64)
        *batch, rows, columns = operand.shape
        pivots = np.empty((*batch, min(rows, columns)), np.int32)
        permutation = np.empty((*batch, rows), np.int32)
        with np.errstate(all="ignore"):
            for index in np.ndindex(*batch):
                pivots[index], permutation[index] = self._factor(wide[index])
        return wide.astype(operand.dtype), pivots, permutation

    def _factor(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Factors a matrix in place; returns the pivots and the permutation."""
        order = np.arange(a.shape[0])
        pivots = []
        for k in range(min(a.shape)):
            sizes = abs(a[k:, k].real) + abs(a[k:, k].imag) if self.one_norm else abs(a[k:, k])
            pivot = (
                k if np.isnan(sizes[0]) else k + int(np.argmax(np.nan_to_num(sizes, nan=-1, posinf=np.inf)))
            )
            pivots.append(pivot)
            a[[k, pivot]], order[[k, pivot]] = a[[pivot, k]], order[[pivot, k]]
            if a[k, k] != 0:
                a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return np.array(pivots, np.int32), order
