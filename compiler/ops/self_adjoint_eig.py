"""SelfAdjointEig: eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.module import Instruction
from ..ir.shape import Shape
from .cholesky import FACTORABLE
from .op import Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class SelfAdjointEig(Op):
    """A tuple: the eigenvalues of Hermitian matrices in ascending order, which are real, and with `vectors` unit
    eigenvectors as the columns of matrices.

    The lower triangle is read, and of its diagonal the real parts. A vector may have any sign, a complex one any factor
    of modulus one, and those of equal eigenvalues are any basis. Errors are of the order of the rounding of the largest
    eigenvalue. A matrix that has NaN or infinities gives NaN. Leading axes are a batch.
    self_adjoint_eig_c1: one operand, an array.
    self_adjoint_eig_c2: its last two axes have the same size.
    self_adjoint_eig_c3: it is f32, f64, c64 or c128.
    Source: XLA's custom call Eigh; LAPACK, syevd and heevd.
    """

    opcode: ClassVar[str] = "self-adjoint-eig"
    vectors: bool = attribute("bool", "vectors", default=False)

    @property
    def inner_rank(self) -> int:
        """Matrices."""
        return 2

    def flops(self, instruction: Instruction) -> int:
        """Two thirds of n cubed for the values, and four times n cubed with the vectors."""
        shape = instruction.operands[0].shape
        values = shape.elements * shape.dims[-1] * 2 // 3
        return values * 7 if self.vectors else values

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape without its last axis, real; and the operand's shape."""
        require_arrays("self-adjoint-eig", operands, 1, "self_adjoint_eig_c1")
        operand = operands[0]
        require(
            operand.rank >= 2 and operand.dims[-1] == operand.dims[-2],
            f"self-adjoint-eig: operand is {operand}, square matrices are wanted",
            "self_adjoint_eig_c2",
        )
        require(
            operand.element_type in FACTORABLE,
            f"self-adjoint-eig: operand is {operand}, f32, f64, c64 or c128 is wanted",
            "self_adjoint_eig_c3",
        )
        values = Shape(operand.element_type.real, operand.dims[:-1])
        return Shape.tuple([values, operand.without_layout()] if self.vectors else [values])

    def reference(self, operand: np.ndarray) -> tuple[np.ndarray, ...]:
        """NumPy's, in double precision, matrix by matrix."""
        wide = operand.astype(np.complex128 if np.iscomplexobj(operand) else np.float64)
        values, vectors = np.full(operand.shape[:-1], np.nan), np.full_like(wide, np.nan)
        for index in np.ndindex(*operand.shape[:-2]):
            if np.isfinite(np.tril(wide[index])).all():
                values[index], vectors[index] = np.linalg.eigh(wide[index])
        results = values.astype(operand.real.dtype), vectors.astype(operand.dtype)
        return results if self.vectors else results[:1]
