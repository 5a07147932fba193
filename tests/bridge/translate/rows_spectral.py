"""Rows of Fourier transforms."""

from __future__ import annotations

import tensorflow as tf
from op_row import COMPLEXES, Known, Random, row

LONG = 1e-4  # sums of many products


def real_rows(axes: int, dims: tuple[int, ...], real: tuple[int, ...], inverse: tuple[int, ...]) -> None:
    """An RFFT and an IRFFT with these lengths, in f32 and f64."""
    name = f"RFFT{axes}D" if axes > 1 else "RFFT"
    for part, whole in ((tf.float32, tf.complex64), (tf.float64, tf.complex128)):
        row(name, Random(dims), Known(real, "int32"), types=part.name, tolerance=LONG, Tcomplex=whole)
        row(f"I{name}", Random(dims, type=whole.name), Known(inverse, "int32"), types=part.name, tolerance=LONG,
            Treal=part)


for axes, name in ((1, ""), (2, "2D"), (3, "3D")):
    row(f"FFT{name} IFFT{name}", Random((2, 3, 4, 5)), types=COMPLEXES, tolerance=LONG)
    real_rows(axes, (2, 3, 4, 5), (3, 4, 5)[-axes:], (3, 4, 8)[-axes:])
    real_rows(axes, (2, 3, 4, 6), (3, 4, 6)[-axes:], (3, 4, 11)[-axes:])
    real_rows(axes, (2, 3, 4, 6), (2, 4, 5)[-axes:], (2, 3, 6)[-axes:])  # what is longer is cut
