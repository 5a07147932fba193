"""Cholesky: a Hermitian positive definite matrix as a product of a triangular one and its adjoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .op import Op, attribute, require, require_arrays

FACTORABLE = (ElementType.F32, ElementType.F64, ElementType.C64, ElementType.C128)
"""The types of matrices that are factored and solved."""


@dataclasses.dataclass(frozen=True)
class Cholesky(Op):
    """With lower, the lower triangular L of a = L L^H; else the upper triangular U of a = U^H U.

    Only that triangle of the operand is read; the other one of the result is zero. Leading axes are a batch. A
    matrix that is not positive definite gives NaN somewhere, which elements are NaN is not defined; the reference
    gives a matrix of NaN.
    cholesky_c1: one operand, an array.
    cholesky_c2: its last two axes have the same size.
    cholesky_c3: it is f32, f64, c64 or c128.
    Source: operation semantics, Cholesky.
    """

    opcode: ClassVar[str] = "cholesky"
    lower: bool = attribute("bool", "lower", default=False)

    @property
    def inner_rank(self) -> int:
        """Matrices."""
        return 2

    def flops(self, instruction: Instruction) -> int:
        """A third of n cubed for each matrix."""
        return instruction.shape.elements * instruction.shape.dims[-1] // 3

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """The matrices."""
        return ((0, 0),)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        require_arrays("cholesky", operands, 1, "cholesky_c1")
        operand = operands[0]
        require(
            operand.rank >= 2 and operand.dims[-1] == operand.dims[-2],
            f"cholesky: operand is {operand}, square matrices are wanted",
            "cholesky_c2",
        )
        require(
            operand.element_type in FACTORABLE,
            f"cholesky: operand is {operand}, f32, f64, c64 or c128 is wanted",
            "cholesky_c3",
        )
        return operand.without_layout()

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's, in double precision, matrix by matrix."""
        size = operand.shape[-1]
        triangle = np.tril(operand) if self.lower else np.conj(np.swapaxes(np.triu(operand), -1, -2))
        wide = triangle.astype(np.complex128 if np.iscomplexobj(operand) else np.float64)
        factors = np.empty_like(wide)
        for index in np.ndindex(*operand.shape[:-2]):
            factors[index] = _factor(wide[index]) if size else wide[index]
        result = factors if self.lower else np.conj(np.swapaxes(factors, -1, -2))
        return np.ascontiguousarray(result.astype(operand.dtype))


def _factor(matrix: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)
