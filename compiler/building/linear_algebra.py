"""Builder operations on signals and matrices: Fourier transforms, factorisation, solution."""

from __future__ import annotations

from ..ops import Fft
from .control import ControlOperations
from .core import Dims, Operand, operation


class LinearAlgebraOperations(ControlOperations):
    """Fourier transforms, factorisation, solution."""

    @operation
    def fft(self, operand: Operand, fft_type: str, fft_length: Dims) -> Operand:
        """The Fourier transform of the last len(fft_length) axes. fft_type: FFT, IFFT, RFFT or IRFFT."""
        return self.apply(Fft(fft_type, tuple(fft_length)), operand)
