"""Rows of LU, least squares, banded systems, functions of matrices."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, WIDE_FLOATS, Given, Random, row

R = Random
TYPES = f"{WIDE_FLOATS} {COMPLEXES}"
LONG = 1e-4  # chains of eliminations in f32
_RANDOM = np.random.default_rng(9)
_ANY = _RANDOM.uniform(-1, 1, (2, 5, 5)) + 3 * np.eye(5)[::-1]
_POSITIVE = _ANY @ _ANY.transpose(0, 2, 1) / 4 + np.eye(5)
_LOWER = np.tril(_RANDOM.uniform(-1, 1, (2, 5, 5))) + 3 * np.eye(5)

row("Lu", Given(_ANY), types=TYPES, tolerance=LONG)
row("Lu", R((1, 1)), types="float32")
row("Lu", R((7, 7)), types="float64", output_idx_type="int64")
for dims in ((2, 5, 3), (2, 3, 5)):
    row("MatrixSolveLs", R(dims), R((2, dims[1], 2)), Given(0.0, "float64"), types=WIDE_FLOATS, fast=False,
        tolerance=2e-4)
    row("MatrixSolveLs", R(dims), R((2, dims[1], 2)), Given(0.3, "float64"), types=TYPES, fast=True, tolerance=2e-4)
for lower in (False, True):
    bands = _RANDOM.uniform(-1, 1, (2, 3, 6))
    bands[:, 0 if lower else 2] += 3
    for adjoint in (False, True):
        row("BandedTriangularSolve", Given(bands), R((2, 6, 2)), types=WIDE_FLOATS, lower=lower, adjoint=adjoint,
            tolerance=LONG)
row("CholeskyGrad", Given(_LOWER), R((2, 5, 5)), types=WIDE_FLOATS, tolerance=LONG)
row("MatrixSquareRoot", Given(_POSITIVE), types="float64 complex64 complex128", tolerance=1e-3)
row("MatrixLogarithm", Given(_POSITIVE), types="complex64 complex128", tolerance=1e-3)
row("MatrixLogarithm", Given([[[0.5 + 2j, 1j], [0.3, 7.0 - 1j]], [[1.0, 30.0], [0.0, 1.0]]]),
    types="complex64 complex128", tolerance=1e-3)
row("MatrixLogarithm", Given([[1e-3 + 1j]]), types="complex128", tolerance=1e-3)
