"""Rows of reductions, arg-reductions and scans."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, INTEGERS, NUMBERS, REALS, WIDE_FLOATS, Given, Random, row

R = Random
AXES = [((5, 3), [1]), ((5, 3), [0]), ((5, 3), [0, 1]), ((5, 3), []), ((0, 3), [0]), ((), []), ((2, 37, 5), [0, -1]),
        ((2, 37, 5), [1]), ((1, 1031), [1])]
EVERY = {"Sum": NUMBERS, "Mean": f"{FLOATS} {COMPLEXES} int32 int64", "Prod": NUMBERS, "Max": REALS, "Min": REALS,
         "EuclideanNorm": f"{FLOATS} {COMPLEXES}"}

for op in ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm"):
    for dims, axes in AXES:
        main = "bool" if op in ("All", "Any") else "float32"
        low, high = (0.7, 1.3) if op == "Prod" else (-2.5, 2.5)
        if op == "Mean" and 0 in dims:
            continue
        every = EVERY.get(op, "bool") if (dims, axes) == ((5, 3), [1]) else main
        row(op, R(dims, low, high, "bool" if main == "bool" else None), np.array(axes, np.int32), types=every,
            keep_dims=axes == [1] and dims == (5, 3))
row("Max Min", Given([[np.nan, 1.0, 2.0], [-np.inf, np.inf, 0.0]]), np.array([1], np.int32), types=WIDE_FLOATS)
row("L2Loss", R((5, 3)))
row("ArgMax ArgMin", R((5, 7), -3, 3), np.array(1, np.int32), types=f"{REALS} bool")
row("ArgMax ArgMin", R((5, 7), -3, 3), np.array(-2, np.int32), types="float32", output_type="int32")
row("ArgMax ArgMin", Given([[-np.inf, -np.inf], [np.inf, np.inf]]), np.array(1, np.int32), types="float32")
row("ArgMax ArgMin", R((0, 7)), np.array(1, np.int32), types="float32")
for exclusive in (False, True):
    for backwards in (False, True):
        row("Cumsum Cumprod", R((5, 7), 0.5, 1.5), np.array(1, np.int32), types=NUMBERS, exclusive=exclusive,
            reverse=backwards)
row("Cumsum Cumprod", R((5, 7), 0.5, 1.5), np.array(-2, np.int32), types="float32")
row("Cumsum Cumprod", R((0, 7), 0.5, 1.5), np.array(0, np.int32), types="float32")
row("Cumsum", R((331,)), np.array(0, np.int32), types="float32")
row("Mean", Given([[100, 120, 7, 90], [1, 2, 3, 5]]), np.array([1], np.int32), types=INTEGERS)
row("Mean", Given([[2**31 - 1, 2**31 - 3], [-2**31, -3]]), np.array([1], np.int32), types="int32 int64")
row("Mean", R((0, 3)), np.array([0], np.int32), types=f"{INTEGERS} {COMPLEXES}")  # of nothing: 0
