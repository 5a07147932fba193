"""BlockScaledDot: a matrix product with weights of four bits, which have a scale for each block of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Instruction
from ..ir.shape import Shape
from .op import Op, attribute, require, require_arrays

_E = ElementType


@dataclasses.dataclass(frozen=True)
class BlockScaledDot(Op):
    """The product of f32 values (m, k) and weights (k, n), each of which is (q - zero) * scale.

    The q are integers of four bits with a sign, two to a byte along n, the first one in the low bits: the weights are
    s8 (k, (n + 1) / 2). Blocks of rows have a scale for each column, f32 (blocks, n), and may have a zero, s8 (blocks,
    n). Row r belongs to block r / block_size; where block_size is 0 the last operand, s32 (k), is the block of each
    row. Numbers of blocks that do not exist are clamped.
    Shapes: (m, k), (k, (n + 1) / 2), (blocks, n)[, (blocks, n)][, (k)] -> (m, n)
    block_scaled_dot_c1: two matrices and the scales; the zeros if has_zeros; the blocks of rows if block_size is 0.
    block_scaled_dot_c2: they have these types.
    block_scaled_dot_c3: they have these shapes; there is a block for every row.
    Source: the Open Compute Project's microscaling formats, with the layout of keras.quantizers.pack_int4.
    """

    opcode: ClassVar[str] = "block-scaled-dot"
    block_size: int = attribute("int", "block_size", default=0)
    has_zeros: bool = attribute("bool", "has_zeros", default=False)

    def flops(self, instruction: Instruction) -> int:
        """A multiplication and an addition for each term."""
        return 2 * instruction.shape.elements * instruction.operands[0].shape.dims[1]

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """Rows of the values, columns of the scales."""
        name = "block-scaled-dot"
        types = [_E.F32, _E.S8, _E.F32, *[_E.S8] * self.has_zeros, *[_E.S32] * (not self.block_size)]
        require_arrays(name, operands, len(types), "block_scaled_dot_c1")
        listed = ", ".join(map(str, operands))
        require(
            [o.element_type for o in operands] == types,
            f"{name}: operands are {listed}; {', '.join(t.value for t in types)} are wanted",
            "block_scaled_dot_c2",
        )
        values, weights, scales, *others = (o.dims for o in operands)
        ranks = len(values) == len(weights) == len(scales) == 2
        require(
            ranks
            and self.block_size >= 0
            and weights == (values[1], (scales[1] + 1) // 2)
            and (not self.has_zeros or others[0] == scales)
            and (self.block_size > 0 or others[-1] == (values[1],))
            and (scales[0] * self.block_size >= values[1] if self.block_size else scales[0] > 0),
            f"{name}: operands are {listed}, block_size is {self.block_size}; (m, k), (k, (n + 1) / 2), (blocks, n) "
            "are wanted",
            "block_scaled_dot_c3",
        )
        return Shape(_E.F32, (values[0], scales[1]))

    def reference(
        self, values: np.ndarray, weights: np.ndarray, scales: np.ndarray, *others: np.ndarray
    ) -> np.ndarray:
        """A product with weights in f32."""
        rows, columns = values.shape[1], scales.shape[1]
        blocks = np.arange(rows) // self.block_size if self.block_size else others[-1]
        blocks = np.clip(blocks, 0, len(scales) - 1)
        whole = unpacked(weights, columns).astype(np.float32)
        if self.has_zeros:
            whole = whole - others[0][blocks].astype(np.float32)
        with np.errstate(all="ignore"):
            product: np.ndarray = values @ (whole * scales[blocks])
        return product


def packed(weights: np.ndarray) -> np.ndarray:
    """Integers from -8 to 7, two to a byte along the last axis, the first one in the low bits."""
    if weights.shape[-1] % 2:
        weights = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, 1)])
    low, high = weights[..., ::2].astype(np.int8), weights[..., 1::2].astype(np.int8)
    result: np.ndarray = (low & 15) | (high << 4)
    return result


def unpacked(weights: np.ndarray, columns: int) -> np.ndarray:
    """The integers that `packed` stores, so many to a row."""
    pairs = np.stack([np.left_shift(weights, 4) >> 4, weights >> 4], -1)
    return pairs.reshape(*weights.shape[:-1], 2 * weights.shape[-1])[..., :columns]
