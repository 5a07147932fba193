"""Rows of QR, of singular and eigenvalues (vectors, whose signs are free, have a test of their own), and of tridiagonal
systems."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, WIDE_FLOATS, Given, Random, row, xla

R = Random
TYPES = f"{WIDE_FLOATS} {COMPLEXES}"
LONG = 1e-4  # chains of eliminations and rotations in f32

for dims in ((5, 3), (3, 5), (2, 4, 4)):
    for full in (False, True):
        row("Qr", R(dims), types=TYPES, full_matrices=full, tolerance=LONG)
    row("Svd", R(dims), types=TYPES, outputs=1, compute_uv=False, tolerance=LONG)
    row("Svd", R(dims), types="float32", outputs=1, full_matrices=True, tolerance=LONG)
row("Qr", R((1, 1)), types=TYPES, tolerance=LONG)
row("Qr", Given([[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]), types="float32")
row("Svd", R((0, 3)), types="float32")
row("Svd", R((11, 7)), types="float32", outputs=1, compute_uv=False, tolerance=LONG)
for size in (1, 2, 5, 8):
    row("SelfAdjointEigV2", R((2, size, size)), types=TYPES, outputs=1, compute_v=False, tolerance=LONG)
row("SelfAdjointEigV2", R((3, 3)), types=WIDE_FLOATS, outputs=1, tolerance=LONG)
row("SelfAdjointEigV2", Given(np.diag([3.0, -1.0, 3.0, 0.0])), types="float32", outputs=1, compute_v=False)
row("XlaSelfAdjointEig", R((4, 4)), types="float32", lower=True, max_iter=50, epsilon=1e-6, outputs=1, reference=xla,
    tolerance=LONG)
row("XlaSvd", R((5, 3)), types="float32", max_iter=50, epsilon=1e-6, precision_config="", outputs=1, reference=xla,
    tolerance=LONG)
_BANDS = np.random.default_rng(3).uniform(-1, 1, (2, 3, 7)) + np.array([0, 3, 0])[:, None]
for pivoting in (False, True):
    row("TridiagonalSolve", Given(_BANDS), R((2, 7, 3)), types=TYPES, partial_pivoting=pivoting, tolerance=LONG)
    row("TridiagonalSolve", Given(_BANDS[0, :, :1]), R((1, 2)), types="float32", partial_pivoting=pivoting,
        tolerance=LONG)
row("TridiagonalSolve", Given([[1.0, 2.0, 1.0, 0.0], [0.0, 1.0, 0.0, 2.0], [0.0, 3.0, 1.0, 4.0]]), R((4, 1)),
    types=WIDE_FLOATS, tolerance=LONG)
