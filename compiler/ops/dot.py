"""Dot: products summed over contracting axes, with batch axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import COMPLEXES, FLOATS, INTEGERS, NUMBERS, ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .numeric import convert, narrow, wide
from .op import Op, attribute, require, require_arrays, require_axes


@dataclasses.dataclass(frozen=True)
class Dot(Op):
    """Products of two arrays, summed over pairs of contracting axes, for every position along pairs of batch
    axes.

    Shapes: result dims are the batch dims, the other dims of the left operand, the other dims of the right.
    The result has preferred_type, or the operands' type; integers wrap in it, floats are summed at least in
    f32.
    dot_c1: two arrays of numbers of one element type, or of floats of at most 8 bits; with preferred_type also of s8
    and u8, or f32 and then f16, bf16, s8 or u8.
    dot_c2: lhs_contracting and lhs_batch are distinct axes of the left operand.
    dot_c3: rhs_contracting and rhs_batch are distinct axes of the right operand.
    dot_c4: as many contracting axes on the left as on the right, of the same sizes.
    dot_c5: as many batch axes on the left as on the right, of the same sizes.
    dot_c6: preferred_type is as the operands' type: integer, float or complex.
    has_small_rhs: no byte of the right operand is larger than 64, which the compiler finds out where it is constant.
    Source: operation semantics, DotGeneral.
    """

    opcode: ClassVar[str] = "dot"
    is_contraction: ClassVar[bool] = True
    lhs_contracting: tuple[int, ...] = attribute("dims", "lhs_contracting_dims")
    rhs_contracting: tuple[int, ...] = attribute("dims", "rhs_contracting_dims")
    lhs_batch: tuple[int, ...] = attribute("dims", "lhs_batch_dims", default=())
    rhs_batch: tuple[int, ...] = attribute("dims", "rhs_batch_dims", default=())
    preferred_type: ElementType | None = attribute("result_type", "", default=None)
    has_small_rhs: bool = attribute("bool", "has_small_rhs", default=False)

    def flops(self, instruction: Instruction) -> int:
        """A multiplication and an addition for each term."""
        dims = instruction.operands[0].shape.dims
        return 2 * instruction.shape.elements * math.prod(dims[axis] for axis in self.lhs_contracting)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """Batch dims, free dims of the left, free dims of the right."""
        kind = require_product("dot", operands, self.preferred_type, ("dot_c1", "dot_c6"))
        lhs, rhs = operands
        require_axes(
            "dot",
            "lhs_contracting and lhs_batch",
            (*self.lhs_contracting, *self.lhs_batch),
            lhs.rank,
            "dot_c2",
        )
        require_axes(
            "dot",
            "rhs_contracting and rhs_batch",
            (*self.rhs_contracting, *self.rhs_batch),
            rhs.rank,
            "dot_c3",
        )
        for what, left, right, label in (
            ("contracting", self.lhs_contracting, self.rhs_contracting, "dot_c4"),
            ("batch", self.lhs_batch, self.rhs_batch, "dot_c5"),
        ):
            require(
                [lhs.dims[a] for a in left] == [rhs.dims[a] for a in right],
                f"dot: {what} axes {left} of {lhs} and {right} of {rhs} do not match",
                label,
            )
        return Shape(
            kind,
            (
                *(lhs.dims[a] for a in self.lhs_batch),
                *(lhs.dims[a] for a in self.lhs_free(lhs.rank)),
                *(rhs.dims[a] for a in self.rhs_free(rhs.rank)),
            ),
        )

    def lhs_free(self, rank: int) -> list[int]:
        """Axes of the left operand that are neither contracted nor batch."""
        return [a for a in range(rank) if a not in self.lhs_contracting and a not in self.lhs_batch]

    def rhs_free(self, rank: int) -> list[int]:
        """Axes of the right operand that are neither contracted nor batch."""
        return [a for a in range(rank) if a not in self.rhs_contracting and a not in self.rhs_batch]

    def reference(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """A batch of matrix products."""
        m, n = self.lhs_free(lhs.ndim), self.rhs_free(rhs.ndim)
        batch = [lhs.shape[a] for a in self.lhs_batch]
        depth = math.prod(lhs.shape[a] for a in self.lhs_contracting)
        m_dims, n_dims = [lhs.shape[a] for a in m], [rhs.shape[a] for a in n]
        left, right, dtype = factors(lhs, rhs, self.preferred_type)
        left = left.transpose(*self.lhs_batch, *m, *self.lhs_contracting)
        right = right.transpose(*self.rhs_batch, *self.rhs_contracting, *n)
        with np.errstate(all="ignore"):
            product = left.reshape([*batch, math.prod(m_dims), depth]) @ right.reshape(
                [*batch, depth, math.prod(n_dims)]
            )
        return narrow(product.reshape([*batch, *m_dims, *n_dims]), dtype)


def require_product(
    opcode: str, operands: Sequence[Shape], preferred: ElementType | None, labels: tuple[str, str]
) -> ElementType:
    """Checks the types of two factors; returns the result's.

    Raises: ShapeError  labels[0]: not two arrays of numbers of one type; labels[1]: the preferred type is of
    another kind.
    """
    require_arrays(opcode, operands, 2, labels[0])
    left, right = operands[0].element_type, operands[1].element_type
    bytes_ = {ElementType.S8, ElementType.U8}
    same = (
        left is right
        or (max(left.bits, right.bits) <= 8 and left.is_float and right.is_float)
        or (preferred is not None and {left, right} == bytes_)
        or (left is preferred is ElementType.F32 and right in {ElementType.F16, ElementType.BF16, *bytes_})
    )
    require(
        same and left in NUMBERS,
        f"{opcode}: operands {operands[0]} and {operands[1]} are not of one type of numbers",
        labels[0],
    )
    kind = preferred or left
    fits = any(kind in group and left in group for group in (INTEGERS, FLOATS, COMPLEXES))
    require(fits, f"{opcode}: preferred type is {kind.value}, operands are {left.value}", labels[1])
    return kind


def factors(
    lhs: np.ndarray, rhs: np.ndarray, preferred: ElementType | None
) -> tuple[np.ndarray, np.ndarray, np.dtype]:
    """Both operands in the type of the arithmetic, and the result's type."""
    dtype = preferred.dtype if preferred else lhs.dtype
    if lhs.dtype.kind in "iu" or wide(lhs).dtype.kind in "iu":
        return wide(convert(lhs, dtype)), wide(convert(rhs, dtype)), dtype
    return wide(lhs), wide(rhs), dtype
