"""Fft: the discrete Fourier transform along the last axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of
from ..ir.module import Instruction
from ..ir.shape import Shape
from .op import Op, attribute, require, require_arrays

FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")


@dataclasses.dataclass(frozen=True)
class Fft(Op):
    """The transform of the last len(fft_length) axes, whose lengths in the time domain are fft_length.

    FFT: X[k] = sum_j x[j] exp(-2 pi i j k / n) along each of the axes. IFFT: its inverse, with the factor
    1 / n. RFFT: FFT of a real array without the second half of the last axis, which the first one implies.
    IRFFT: the inverse of RFFT; of what an RFFT gives as real (frequency 0, and n / 2 of an even n) the
    imaginary part is not read.
    fft_c1: one operand, an array.
    fft_c2: fft_type is FFT, IFFT, RFFT or IRFFT.
    fft_c3: one to three lengths, none negative, for axes that the operand has.
    fft_c4: the operand is c64 or c128; for RFFT f32 or f64.
    fft_c5: the axes have these lengths; the last one of an IRFFT has n // 2 + 1 (0 for n = 0).
    Source: operation semantics, Fft.
    """

    opcode: ClassVar[str] = "fft"
    fft_type: str = attribute("word", "fft_type")
    fft_length: tuple[int, ...] = attribute("sizes", "fft_length")

    @property
    def inner_rank(self) -> int:
        """The axes that are transformed."""
        return len(self.fft_length)

    def flops(self, instruction: Instruction) -> int:
        """5 n log2(n), the usual count."""
        elements = max(instruction.operands[0].shape.elements, instruction.shape.elements)
        return int(5 * elements * math.log2(max(2, math.prod(self.fft_length))))

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape; for RFFT and IRFFT with the other last dim and type."""
        require_arrays("fft", operands, 1, "fft_c1")
        operand, lengths = operands[0], self.fft_length
        require(
            self.fft_type in FFT_TYPES,
            f"fft: fft_type is {self.fft_type}, one of {', '.join(FFT_TYPES)} is wanted",
            "fft_c2",
        )
        require(
            1 <= len(lengths) <= min(3, operand.rank) and all(n >= 0 for n in lengths),
            f"fft: fft_length is {lengths}, 1 to 3 lengths for axes of {operand} are wanted",
            "fft_c3",
        )
        required = (
            (ElementType.F32, ElementType.F64)
            if self.fft_type == "RFFT"
            else (ElementType.C64, ElementType.C128)
        )
        require(
            operand.element_type in required,
            f"fft: {self.fft_type} of {operand}, {' or '.join(t.value for t in required)} is wanted",
            "fft_c4",
        )
        half = lengths[-1] // 2 + 1 if lengths[-1] else 0
        time, frequency = lengths, (*lengths[:-1], half)
        length = frequency if self.fft_type == "IRFFT" else time
        require(
            operand.dims[-len(lengths) :] == length,
            f"fft: {self.fft_type} with fft_length {lengths} of {operand}, last dims {length} are wanted",
            "fft_c5",
        )
        if self.fft_type == "RFFT":
            return Shape(operand.element_type.complex, (*operand.dims[:-1], half))
        if self.fft_type == "IRFFT":
            return Shape(operand.element_type.real, (*operand.dims[:-1], lengths[-1]))
        return operand.without_layout()

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """NumPy's, in double precision."""
        shape = self.infer([Shape(element_type_of(operand.dtype), operand.shape)])
        if 0 in shape.dims or 0 in operand.shape:
            return np.zeros(shape.dims, shape.element_type.dtype)
        axes = tuple(range(operand.ndim - len(self.fft_length), operand.ndim))
        wide = operand.astype(np.float64 if self.fft_type == "RFFT" else np.complex128)
        functions: dict[str, Callable[..., np.ndarray]] = {
            "FFT": np.fft.fftn,
            "IFFT": np.fft.ifftn,
            "RFFT": np.fft.rfftn,
            "IRFFT": np.fft.irfftn,
        }
        return functions[self.fft_type](wide, self.fft_length, axes).astype(shape.element_type.dtype)
