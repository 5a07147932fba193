"""Rows of factorizations and linear systems."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, WIDE_FLOATS, Given, Random, row

R = Random
_RANDOM = np.random.default_rng(5)
_ANY = _RANDOM.uniform(-2, 2, (2, 5, 5)) + 4 * np.eye(5)[::-1]  # the largest elements are off the diagonal
_POSITIVE = _ANY @ _ANY.transpose(0, 2, 1) + np.eye(5)
_TRIANGULAR = _RANDOM.uniform(-1, 1, (2, 5, 5)) + 3 * np.eye(5)
LONG = 1e-4  # chains of eliminations in f32

row("Cholesky", Given(_POSITIVE), types=f"{WIDE_FLOATS} {COMPLEXES}", tolerance=LONG)
row("Cholesky", Given([[4.0]]), types="float32")
row("Cholesky", Given([[[-1.0]], [[2.0]], [[0.0]]]), types=WIDE_FLOATS)
for adjoint in (False, True):
    for lower in (False, True):
        row("MatrixTriangularSolve", Given(_TRIANGULAR), R((2, 5, 3)), types=f"{WIDE_FLOATS} {COMPLEXES}", lower=lower,
            adjoint=adjoint, tolerance=LONG)
    row("MatrixSolve", Given(_ANY), R((2, 5, 3)), types=f"{WIDE_FLOATS} {COMPLEXES}", adjoint=adjoint, tolerance=LONG)
    row("MatrixInverse", Given(_ANY), types=f"{WIDE_FLOATS} {COMPLEXES}", adjoint=adjoint, tolerance=LONG)
row("MatrixTriangularSolve", Given(_TRIANGULAR[0]), R((2, 5, 1)), types="float32", tolerance=LONG)
row("MatrixInverse", Given([[0.0, 2.0], [4.0, 0.0]]), types="float32")
row("MatrixDeterminant LogMatrixDeterminant", Given(_ANY), types=f"{WIDE_FLOATS} {COMPLEXES}", tolerance=LONG)
row("MatrixDeterminant", R((3, 1, 1)), types="float32")
SINGULAR = Given([np.ones((3, 3)), np.zeros((3, 3)), [[0, 0, 2], [0, 3, 1], [0, 1, 5]],
                  [[1, 2, 3], [2, 4, 6], [1, 0, 1]]])
row("MatrixDeterminant LogMatrixDeterminant", SINGULAR, types=f"{WIDE_FLOATS} {COMPLEXES}")
