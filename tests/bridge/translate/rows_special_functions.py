"""Rows of special functions and of rounding to quantized values."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, INTEGERS, WIDE_FLOATS, Given, Random, row

R = Random
BROAD = 5e-5  # Lanczos' and Cephes' series in f32


def unary(ops: str, low: float, high: float, types: str = FLOATS, tolerance: float = 1e-5) -> None:
    """Rows of odd dims."""
    row(ops, R((7, 3), low, high), types=types, tolerance=tolerance)
    for dims in ((), (0, 4), (37, 5)):
        row(ops, R(dims, low, high), types="float32", tolerance=tolerance)


unary("Acos Asin Atanh", -0.99, 0.99)
unary("Atan Asinh Sinh Cosh", -9, 9)
unary("Acosh", 1.1, 9)
row("Acosh", Given([1.0, 1.0001, 1.01, 3e18, np.inf, 0.5, np.nan]), types=WIDE_FLOATS, tolerance=2e-6)
row("Erfc", R((37, 5), -4, 10), types=FLOATS, tolerance=1e-5)
row("Erfc", Given([0.0, 1.0, -1.0, 2.0, 8.0, 9.0, 30.0, -30.0, np.inf, -np.inf, np.nan]), types=WIDE_FLOATS)
COMPLEX_UNARY = "Acos Asin Atan Acosh Asinh Atanh Sinh Cosh"
row(COMPLEX_UNARY, R((7, 3)), types=COMPLEXES, tolerance=2e-5)
row(COMPLEX_UNARY, Given([0, 1e-3 + 1e-3j, 2, -2, 0.5, -0.5, 2j, -2j, 0.5j, complex(2, -0.0), complex(-2, -0.0),
                          complex(-0.0, 2), complex(-0.0, -2), 1e20 + 1e20j, 20j]), types=COMPLEXES, tolerance=2e-5)
row("Atan Atanh", Given([complex(np.inf, 0), complex(-np.inf, 1), complex(1, np.inf)]), types=COMPLEXES)
row("Atan Asinh", Given([0.0, 1e-6, np.inf, -np.inf, np.nan, 1e30]), types=WIDE_FLOATS)
unary("Lgamma", -4.9, 30, tolerance=BROAD)
row("Lgamma", Given([0.0, 1.0, 2.0, -1.0, 1e-5, 1e5, np.inf, np.nan]), types=WIDE_FLOATS, tolerance=BROAD)
unary("Digamma", 0.1, 30, tolerance=BROAD)
unary("Digamma", -4.4, -4.1, types=WIDE_FLOATS, tolerance=3e-4)  # cot near a pole
row("Digamma", Given([1.0, 2.0, 1e-3, 1e5]), types=WIDE_FLOATS, tolerance=BROAD)
unary("Ndtri", 0.001, 0.999, tolerance=BROAD)
row("Ndtri", Given([0.0, 1.0, 0.5, 1e-12, -1.0, 2.0]), types=WIDE_FLOATS, tolerance=BROAD)
unary("Erfinv", -0.99, 0.99, tolerance=BROAD)
row("Erfinv", Given([-1.0, 1.0, 0.0]), types=WIDE_FLOATS, tolerance=BROAD)
unary("BesselI0e BesselI1e", -20, 20)
unary("BesselI0 BesselI1", -20, 20, WIDE_FLOATS, tolerance=BROAD)
row("NextAfter", Given([1.0, 1.0, 0.0, 0.0, -0.0, 2.0, np.nan, -3.0, np.inf]),
    Given([2.0, -2.0, 1.0, -1.0, 1.0, 2.0, 1.0, np.inf, 0.0]), types=WIDE_FLOATS)
row("NextAfter", R((5, 1)), R((3,)), types=WIDE_FLOATS)
row("PopulationCount", R((5, 3), -90, 90), types=INTEGERS)
row("ApproximateEqual", Given([1.0, 2.0, 3.0]), Given([1.0, 2.05, 3.2]), types=f"{WIDE_FLOATS} int32", tolerance=0.1)
for exclusive in (False, True):
    for backwards in (False, True):
        row("CumulativeLogsumexp", R((5, 7)), np.array(1, np.int32), types=FLOATS, exclusive=exclusive,
            reverse=backwards)
row("CumulativeLogsumexp", R((37, 3)), np.array(0, np.int32), types="float32")

X = R((5, 7, 3), -9, 9)
for narrow in (False, True):
    options = {"narrow_range": narrow, "num_bits": 6}
    row("FakeQuantWithMinMaxArgs", X, types="float32", min=-4.0, max=5.0, **options)
    row("FakeQuantWithMinMaxArgsGradient", X, X, types="float32", min=-4.0, max=5.0, **options)
    row("FakeQuantWithMinMaxVars", X, Given(-4.3), Given(5.1), types="float32", **options)
    row("FakeQuantWithMinMaxVarsGradient", X, X, Given(-4.3), Given(5.1), types="float32", **options)
    row("FakeQuantWithMinMaxVarsPerChannel", X, Given([-4.3, -1, 0.1]), Given([5.1, 2, 7.0]), types="float32",
        **options)
    row("FakeQuantWithMinMaxVarsPerChannelGradient", X, X, Given([-4.3, -1, 0.1]), Given([5.1, 2, 7.0]),
        types="float32", **options)
    for given in (False, True):
        for mode in ("HALF_TO_EVEN", "HALF_UP"):
            row("QuantizeAndDequantizeV2 QuantizeAndDequantizeV4", X, Given(-4.3), Given(5.1), types=WIDE_FLOATS,
                signed_input=True, range_given=given, round_mode=mode, **options)
        row("QuantizeAndDequantizeV3", X, Given(-4.3), Given(5.1), np.array(6, np.int32), types=WIDE_FLOATS,
            signed_input=True, range_given=given, narrow_range=narrow)
    row("QuantizeAndDequantizeV2 QuantizeAndDequantizeV4", X, Given([-4.3, -1, -1.0]), Given([5.1, 2, 7.0]),
        types=WIDE_FLOATS, axis=2, range_given=False, **options)
row("QuantizeAndDequantizeV2", R((5, 3), 0, 9), Given(0.0), Given(5.1), types=WIDE_FLOATS, signed_input=False,
    range_given=True)

# Halves between two levels, where the kernels differ from each other; a range of negative size; a gradient's infinity.
for low, high in ((-6.0, 6.0), (0.0, 1.0), (-1.3, 2.9)):
    HALVES = Given(np.arange(-8, 16, 0.5) * (high - low) / 15)
    row("FakeQuantWithMinMaxArgs", HALVES, types="float32", min=low, max=high, num_bits=4)
    row("FakeQuantWithMinMaxVars", HALVES, Given(low), Given(high), types="float32", num_bits=4)
    row("FakeQuantWithMinMaxVarsPerChannel", Given(np.array(HALVES.values)[:, None]), Given([low]), Given([high]),
        types="float32", num_bits=4)
row("FakeQuantWithMinMaxVars", Given([-1.0, 0.0, 2.0, np.nan]), Given(3.0), Given(1.0), types="float32")
row("FakeQuantWithMinMaxArgsGradient", Given([np.inf, np.inf, 1.0]), Given([0.5, 9.0, -9.0]), types="float32")
row("ApproximateEqual", Given([1e-5, 2e-5, -1e-5]), Given([0.0, 0.0, 0.0]), types=WIDE_FLOATS)
