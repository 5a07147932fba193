"""Builder operations on signals and matrices: Fourier transforms, factorisation, solution."""

from __future__ import annotations

from ..ops import Cholesky, Fft, LuDecomposition, SelfAdjointEig, TriangularSolve
from .control import ControlOperations
from .core import Dims, Operand, operation
from .other_types import apply_on_any_type


class LinearAlgebraOperations(ControlOperations):
    """Fourier transforms, factorisation, solution."""

    @operation
    def fft(self, operand: Operand, fft_type: str, fft_length: Dims) -> Operand:
        """The Fourier transform of the last len(fft_length) axes. fft_type: FFT, IFFT, RFFT or IRFFT.

        Shapes: [.., n], where n are the fft_length; but RFFT's result, and IRFFT's operand, have n // 2 + 1 elements
            along the last axis.
        """
        return self.apply(Fft(fft_type, tuple(fft_length)), operand)

    @operation
    def cholesky(self, a: Operand, lower: bool) -> Operand:
        """The lower triangular l with a = l l^H, or with lower false the upper triangular u with a = u^H u; the
        other triangle is zero. Leading axes are a batch. Floats below f32 are computed in f32."""
        return apply_on_any_type(self, Cholesky(lower), a)

    @operation
    def lu_decomposition(self, a: Operand, one_norm: bool = False) -> Operand:
        """A tuple (lu, pivots, permutation): the unit lower triangular l and the upper triangular u in one matrix, with
        a[permutation] = l u; pivots[k] >= k is the row that step k exchanged with row k. Leading axes are a batch.
        Floats below f32 are computed in f32.

        one_norm: pivots have the largest |re| + |im|, as LAPACK chooses; else the largest absolute value.
        Shapes: a and lu [.., m, n], pivots [.., min(m, n)] and permutation [.., m], s32.
        """
        return apply_on_any_type(self, LuDecomposition(one_norm), a)

    @operation
    def self_adjoint_eig(self, a: Operand, vectors: bool = True) -> Operand:
        """A tuple: the eigenvalues of Hermitian matrices in ascending order, and with `vectors` unit eigenvectors as
        columns. The lower triangle is read. Leading axes are a batch. Floats below f32 are computed in f32.

        Shapes: a and the vectors [.., n, n], the values [.., n], real.
        """
        return apply_on_any_type(self, SelfAdjointEig(vectors), a)

    @operation
    def triangular_solve(
        self,
        a: Operand,
        b: Operand,
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose_a: str = "NO_TRANSPOSE",
    ) -> Operand:
        """x with op(a) x = b, or with left_side false x op(a) = b. transpose_a says what op is: NO_TRANSPOSE,
        TRANSPOSE or ADJOINT. Leading axes are a batch. Floats below f32 are computed in f32."""
        return apply_on_any_type(self, TriangularSolve(left_side, lower, unit_diagonal, transpose_a), a, b)
