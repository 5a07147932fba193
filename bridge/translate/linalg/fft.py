"""Fourier transforms."""

from __future__ import annotations

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError
from ....runtime.sizes import is_symbolic
from ..node import Node
from ..registry import translates


def _axes(op: str) -> int:
    """The number of axes that an op transforms: FFT and FFT1D's name has none, FFT2D a 2."""
    return int(op[-2]) if op.endswith("D") else 1


@translates("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fft(node: Node) -> Operand:
    axes, dims = _axes(node.op), node.shape(0)
    if len(dims) < axes:
        raise ShapeError(f"Input must have rank of at least {axes} but got: {len(dims)}")
    return node.b.fft(
        node[0], "IFFT" if node.op.startswith("I") else "FFT", [int(d) for d in dims[len(dims) - axes :]]
    )


@translates("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D", constants=("fft_length",))
def real_fft(node: Node) -> Operand:
    """The first elements of each axis, as many as the lengths ask for."""
    axes, dims, lengths = _axes(node.op), node.shape(0), [int(n) for n in node.integers("fft_length")]
    if len(dims) < axes:
        raise ShapeError(f"Input must have rank of at least {axes} but got: {len(dims)}")
    if len(lengths) != axes or min(lengths) < 0:
        raise ShapeError(f"fft_length must have shape [{axes}] and no negative elements, got {lengths}")
    inverse = node.op.startswith("I")
    target_dims = [*dims[: len(dims) - axes], *lengths]
    if inverse:
        target_dims[-1] = lengths[-1] // 2 + 1 if lengths[-1] else 0
    if any(need > size for need, size in zip(target_dims, dims)):
        raise ShapeError(
            f"Input dims must be at least {target_dims} for fft_length {lengths} but got: {list(dims)}"
        )
    operand = node[0]
    if is_symbolic(dims[len(dims) - axes :]) or list(dims) != target_dims:
        operand = node.b.slice(operand, [0] * len(dims), target_dims)
    return node.b.fft(operand, "IRFFT" if inverse else "RFFT", lengths)
