"""Rows of Bessel functions and of integrals without a closed form."""

from __future__ import annotations

import numpy as np
from op_row import WIDE_FLOATS, Given, Random, row

R = Random
SERIES = 2e-5  # TensorFlow's series, and sums of large terms of opposite sign near zeros
ENDS = [0.0, -0.0, -1.0, -20.0, 1e-4, 0.5, 1.0, 1.6, 2.0, 3.999, 4.0, 6.0, 8.0, 12.0, 24.0, 60.0, np.inf, -np.inf,
        np.nan]
OPS = "BesselJ0 BesselJ1 BesselY0 BesselY1 BesselK0 BesselK0e BesselK1 BesselK1e Spence Dawsn Expint FresnelSin " \
      "FresnelCos"

row(OPS, R((37, 3), 0.05, 40), types=WIDE_FLOATS, tolerance=SERIES)
row(OPS, R((5,), 0.1, 9), types="float16 bfloat16", tolerance=SERIES)
row("BesselJ0 BesselJ1 Dawsn FresnelSin FresnelCos", R((37,), -30, 30), types="float32", tolerance=SERIES)
row(OPS.replace("BesselY1 ", ""), Given(ENDS), types=WIDE_FLOATS, tolerance=SERIES)
row("BesselY1", Given(ENDS[2:]), types=WIDE_FLOATS, tolerance=SERIES)  # at 0 TensorFlow gives NaN in f32
row(OPS, R((0, 3)), types="float32")
row("FresnelSin FresnelCos", Given([3e38, -3e38, 1e25]), types="float32")
