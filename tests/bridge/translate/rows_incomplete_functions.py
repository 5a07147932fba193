"""Rows of incomplete gamma and beta functions, zeta and polygamma."""

from __future__ import annotations

import numpy as np
from op_row import FLOATS, WIDE_FLOATS, Given, Random, row

R = Random
SINGLE = 3e-4  # TensorFlow's own series are in f32
ENDS = [0.0, 0.0, 1.0, 2.0, -1.0, np.nan, 3.0, 0.5, 20.0, 1e-4, 150.0]
PLACES = [0.0, 1.0, 0.0, np.inf, 1.0, 1.0, np.nan, -1.0, 20.0, 1e-6, 130.0]

for low, high in ((0.05, 2), (1, 40)):
    row("Igamma Igammac", R((7, 3), low, high), R((7, 3), 0.01, high), types=FLOATS, tolerance=SINGLE)
    row("IgammaGradA", R((7, 3), low, high), R((7, 3), 0.05, high), types=WIDE_FLOATS, tolerance=SINGLE)
    row("RandomGammaGrad", R((7, 3), low, high), R((7, 3), 0.05, high), types="float64")
row("RandomGammaGrad", R((7, 3), 1, 4), R((7, 3), 0.5, 8), types="float32", tolerance=SINGLE)
row("Igamma Igammac", R((5, 1), 0.1, 9), R((3,), 0, 9), types=WIDE_FLOATS, tolerance=SINGLE)
row("Igamma Igammac", R((0, 3), 0.1, 9), R((3,), 0, 9), types="float32")
row("Igamma Igammac", R((), 0.1, 9), R((), 0, 9), types="float32", tolerance=SINGLE)
row("Igamma Igammac", Given(ENDS), Given(PLACES), types=WIDE_FLOATS, tolerance=SINGLE)
row("Igamma Igammac", Given([1e4]), Given([1.01e4]), types="float64", tolerance=1e-3)  # lgamma(1e4) has 5 digits less
row("Betainc", R((7, 3), 0.05, 9), R((7, 3), 0.05, 9), R((7, 3), 0, 1), types=WIDE_FLOATS, tolerance=SINGLE)
row("Betainc", R((), 0.5, 9), R((), 0.5, 9), R((37,), 0, 1), types=WIDE_FLOATS, tolerance=SINGLE)
row("Betainc", Given([1.0, 2.0, 0.5, 2.0, 3.0, np.nan, 100.0, 40.0]),
    Given([1.0, 3.0, 2.0, -1.0, 1.0, 1.0, 120.0, 1e-2]),
    Given([0.0, 1.0, 0.3, 0.5, 1.5, 0.5, 0.45, 0.9]), types=WIDE_FLOATS, tolerance=SINGLE)
row("Zeta", R((7, 3), 1.05, 30), R((7, 3), 0.1, 30), types=WIDE_FLOATS, tolerance=1e-5)
row("Zeta", Given([1.0, 0.5, 2.0, 2.0, 3.0, 2.0, 2.5, np.nan, 3.0]),
    Given([2.0, 2.0, 0.0, -1.0, -2.0, -1.5, -0.5, 1.0, 1e5]), types=WIDE_FLOATS, tolerance=1e-5)
row("Zeta", Given([4.0]), Given([-20.25]), types="float64")
row("Zeta", R((5, 1), 2, 5), R((3,), 1, 5), types=WIDE_FLOATS, tolerance=1e-5)
row("Polygamma", R((7, 3), 0.1, 9, "float32"), R((7, 3), 0.1, 20, "float32"), types="float32")
row("Polygamma", Given([[0.0], [1.0], [2.0], [5.0], [-1.0], [0.5]]), Given([0.25, 1.0, 2.5, 40.0]), types=WIDE_FLOATS,
    tolerance=5e-5)
LIMITS = [0.0, -0.0, 1.0, 2.0, 0.5, 30.0, -2.0, -2.5, np.inf, -np.inf, np.nan]
PAIRS = (Given([x for x in LIMITS for _ in LIMITS]), Given(LIMITS * len(LIMITS)))
row("Igamma Igammac IgammaGradA RandomGammaGrad Zeta Polygamma", *PAIRS, types="float64", tolerance=SINGLE)
for place in (0.0, 1.0, np.nan):
    row("Betainc", *PAIRS, Given([place] * len(LIMITS)**2), types=WIDE_FLOATS)
row("Igamma Igammac", Given([0.5, 1.0, 7.0]), Given([1e20, 3e38, 1e30]), types=WIDE_FLOATS)
