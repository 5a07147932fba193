"""TriangularSolve: linear equations with triangular matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.module import Instruction
from ..ir.shape import Shape
from .cholesky import FACTORABLE
from .op import Op, attribute, require, require_arrays

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


@dataclasses.dataclass(frozen=True)
class TriangularSolve(Op):
    """x with op(a) x = b, or with left_side false x op(a) = b, where op(a) is a, its transpose or its adjoint.

    Only the lower or the upper triangle of a is read, and with unit_diagonal not its diagonal, which is then taken
    for ones. Leading axes are a batch. A zero on the diagonal yields infinities or NaN.
    triangular_solve_c1: two operands, arrays of f32, f64, c64 or c128, both of the same type.
    triangular_solve_c2: a has square matrices in its last two axes.
    triangular_solve_c3: b has the batch axes of a and then [m, k], or [k, m] with left_side false, where m is a's
        size.
    triangular_solve_c4: transpose_a is NO_TRANSPOSE, TRANSPOSE or ADJOINT.
    Source: operation semantics, TriangularSolve.
    """

    opcode: ClassVar[str] = "triangular-solve"
    left_side: bool = attribute("bool", "left_side", default=False)
    lower: bool = attribute("bool", "lower", default=False)
    unit_diagonal: bool = attribute("bool", "unit_diagonal", default=False)
    transpose_a: str = attribute("word", "transpose_a", default="NO_TRANSPOSE")

    @property
    def inner_rank(self) -> int:
        """Matrices."""
        return 2

    def flops(self, instruction: Instruction) -> int:
        """n for each unknown."""
        return instruction.shape.elements * instruction.operands[0].shape.dims[-1]

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """The right-hand sides."""
        return ((0, 1),)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape of b."""
        require_arrays("triangular-solve", operands, 2, "triangular_solve_c1")
        a, b = operands
        require(
            a.element_type in FACTORABLE and a.element_type is b.element_type,
            f"triangular-solve: operands are {a} and {b}, one type of f32, f64, c64 and c128 is wanted",
            "triangular_solve_c1",
        )
        require(
            a.rank >= 2 and a.dims[-1] == a.dims[-2],
            f"triangular-solve: a is {a}, square matrices are wanted",
            "triangular_solve_c2",
        )
        axis = -2 if self.left_side else -1
        require(
            a.rank == b.rank and a.dims[:-2] == b.dims[:-2] and b.dims[axis] == a.dims[-1],
            f"triangular-solve: b is {b}, the batch axes of {a} and {a.dims[-1]} in axis {axis} are wanted",
            "triangular_solve_c3",
        )
        require(
            self.transpose_a in TRANSPOSES,
            f"triangular-solve: transpose_a is {self.transpose_a}, one of {', '.join(TRANSPOSES)} is wanted",
            "triangular_solve_c4",
        )
        return b.without_layout()

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Row by row, in double precision."""
        wide = np.complex128 if np.iscomplexobj(a) else np.float64
        matrix, x = a.astype(wide), b.astype(wide)
        if self.transpose_a != "NO_TRANSPOSE":
            matrix = np.swapaxes(matrix, -1, -2)
        if self.transpose_a == "ADJOINT":
            matrix = np.conj(matrix)
        if not self.left_side:
            matrix, x = np.swapaxes(matrix, -1, -2), np.array(np.swapaxes(x, -1, -2))
        size = a.shape[-1]
        is_lower = self.lower == (self.left_side == (self.transpose_a == "NO_TRANSPOSE"))
        with np.errstate(all="ignore"):
            for i in range(size) if is_lower else reversed(range(size)):
                solved = slice(0, i) if is_lower else slice(i + 1, size)
                row = x[..., i, :] - np.einsum("...j,...jk->...k", matrix[..., i, solved], x[..., solved, :])
                x[..., i, :] = row if self.unit_diagonal else row / matrix[..., i, i, None]
        return np.ascontiguousarray((x if self.left_side else np.swapaxes(x, -1, -2)).astype(b.dtype))
