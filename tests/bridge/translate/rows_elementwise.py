"""Rows of elementwise ops."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, INTEGERS, NUMBERS, REALS, SIGNED, WIDE_FLOATS, Given, Random, row

R = Random
ODD = ((), (0, 4), (1,), (37, 5))
SPECIAL = Given([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-6, 87.0, -87.0])


def unary(ops: str, low: float = -2.5, high: float = 2.5, types: str = FLOATS, tolerance: float = 1e-5,
          special: bool = True) -> None:
    """Rows of ops of one input: all types, odd dims and special values."""
    row(ops, R((7, 3), low, high), types=types, tolerance=tolerance)
    for dims in ODD:
        row(ops, R(dims, low, high), types="float32", tolerance=tolerance)
    if special:
        row(ops, SPECIAL, types=WIDE_FLOATS, tolerance=tolerance)


def binary(ops: str, low: float = -2.5, high: float = 2.5, low2: float | None = None, types: str = FLOATS,
           tolerance: float = 1e-5) -> None:
    """Rows of ops of two inputs that broadcast."""
    least = low if low2 is None else low2
    row(ops, R((7, 3), low, high), R((7, 3), least, high), types=types, tolerance=tolerance)
    main = types.split()[0]
    for left, right in (((), (5,)), ((4, 1, 3), (7, 1)), ((0, 3), (1, 3)), ((1,), (1,)), ((17,), ())):
        row(ops, R(left, low, high), R(right, least, high), types=main, tolerance=tolerance)


unary("Neg Square", types=f"{REALS} {COMPLEXES}")
unary("Abs Sign", -9, 9, f"{FLOATS} {SIGNED}")
unary("Ceil Floor Rint Round IsFinite IsInf IsNan", -9, 9)
unary("Exp Expm1 Sin Cos Tanh Sigmoid Erfc Elu Selu Softsign Softplus")
unary("Erf", special=False)  # of infinity TensorFlow's kernel for f64 gives NaN
unary("Tan", -1.2, 1.2, special=False)
unary("Log Sqrt Rsqrt Log1p", 0.1, 9)
unary("Exp Sigmoid Tanh Sin Cos Log Sqrt Rsqrt Log1p Expm1 Tan", 0.3, 1.1, COMPLEXES, special=False)
unary("Reciprocal Inv", 0.5, 3, f"{FLOATS} {COMPLEXES}")
unary("Relu Relu6", -9, 9, REALS, special=False)
row("Relu Relu6 Elu Selu", SPECIAL, types=WIDE_FLOATS)
unary("Identity StopGradient PreventGradient Snapshot ZerosLike OnesLike", types=f"{NUMBERS} bool")
row("IdentityN", [R((3,)), R((0, 2), type="int32"), R((), type="bool")], types="float32")
row("Invert", R((5, 3), -9, 9), types=INTEGERS)  # Round of integers: TensorFlow's kernel gives 0
row("LogicalNot", R((5, 3), type="bool"))
row("LeakyRelu", R((5, 3)), alpha=0.3)
row("LeakyReluGrad", R((5, 3)), R((5, 3)), alpha=0.3)
row("Conj", R((5, 3)), types=COMPLEXES)
row("ComplexAbs Real Imag Angle", R((5, 3)), types="complex64")
row("ComplexAbs Real Imag Angle", R((5, 3)), types="complex128",
    Tout="float64")

binary("Add AddV2 Sub Mul", types=NUMBERS)
binary("RealDiv Div", 1, 9, types=f"{FLOATS} {COMPLEXES} {INTEGERS}")
binary("FloorDiv", -90, 90, 1, types=REALS)
binary("FloorMod TruncateMod Mod TruncateDiv", -90, 90, 1, types=f"int32 int64 int8 int16 uint8 {FLOATS}")
row("FloorDiv FloorMod TruncateMod TruncateDiv Mod", Given([7, -7, 7, -7, 0, 9]), Given([2, 2, -2, -2, 3, -9]),
    types="int32 int64 float32 float64")
binary("Maximum Minimum", -9, 9, types=REALS)
binary("SquaredDifference", types=f"{FLOATS} int32 int64 {COMPLEXES}")
binary("Pow", 0.3, 3, types=f"{FLOATS} {COMPLEXES}", tolerance=3e-5)
row("Pow", R((7, 3), -4, 4), R((3,), 0, 5), types="int32 int64 int8 int16 uint8")
row("Pow", Given([-2.0, -2.0, 0.0, 0.0, 1.0, np.inf]), Given([3.0, 0.5, 0.0, 2.0, np.nan, -1.0]), types=WIDE_FLOATS)
binary("Atan2")
binary("Less LessEqual Greater GreaterEqual", -3, 3, types=REALS)
binary("Equal NotEqual", -3, 3, types=f"{NUMBERS} bool")
row("Less Equal NotEqual GreaterEqual", SPECIAL, Given([np.nan]), types=WIDE_FLOATS)
row("LogicalAnd LogicalOr", R((5, 3), type="bool"), R((3,), type="bool"))
binary("BitwiseAnd BitwiseOr BitwiseXor", -90, 90, types=INTEGERS)
row("LeftShift RightShift", R((5, 3), -90, 90), R((3,), 0, 6), types=INTEGERS)
row("LeftShift RightShift", R((5, 33), -90, 90), R((33,), -70, 90), types=INTEGERS)
binary("DivNoNan MulNoNan Xdivy", -3, 3, types=f"{FLOATS} {COMPLEXES}")
row("DivNoNan", Given([1, 0, np.nan, np.inf]), Given([0, 0, 0, 2]), types=WIDE_FLOATS)
row("MulNoNan", Given([1, np.inf, np.nan, np.inf]), Given([0, 0, 0, 2]), types=WIDE_FLOATS)
row("Xdivy Xlogy Xlog1py", Given([0, 0, 1, 2]), Given([0, np.nan, 0, 2]), types=WIDE_FLOATS)
binary("Xlogy Xlog1py", 0.1, 3, types=f"{FLOATS} {COMPLEXES}")
row("Complex", R((5, 3)), R((3,)), types="float32")
row("Complex", R((5, 3)), R((3,)), types="float64", Tout="complex128")
row("AddN", [R((5, 3)), R((5, 3)), R((5, 3))], types=NUMBERS)
row("AddN", [R((0, 3))], types="float32")
row("AccumulateNV2", [R((5, 3)), R((5, 3))], shape=(5, 3), types="float32")

row("ReluGrad Relu6Grad", R((5, 3), -9, 9), R((5, 3), -9, 9), types=REALS)
row("TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad", R((5, 3), 0.3, 0.9), R((5, 3)),
    types=f"{FLOATS} {COMPLEXES}")
row("SoftplusGrad SoftsignGrad EluGrad SeluGrad", R((5, 3)), R((5, 3)))
ENDS = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
row("ReluGrad Relu6Grad EluGrad SeluGrad TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad",
    Given([x for x in ENDS for _ in ENDS]), Given(ENDS * len(ENDS)), types=FLOATS)

for target in ("float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8", "int8", "bool", "complex64"):
    row("Cast", R((5, 3), 0, 100), types=f"{NUMBERS} bool", DstT=target)
row("Bitcast", R((5, 3)), types="float32", type="int32")
row("Bitcast", R((5, 4)), types="float32", type="uint8")
row("Bitcast", R((5, 4), 0, 200), types="uint8", type="int32")
row("Bitcast", R((5, 3)), types="float64", type="int64")
row("Bitcast", R((5, 3)), types="float16 bfloat16 uint16", type="int16")
row("Bitcast", R((5, 3)), types="int8", type="uint8")
row("Bitcast", R((5, 3)), types="int16", type="float16")
row("ClipByValue", R((5, 3), -9, 9), R((), -3, 0), R((), 1, 4), types=REALS)
row("ClipByValue", R((5, 3), -9, 9), R((5, 3), -3, 0), R((5, 3), 1, 4), types="float32")
row("Select", R((5, 3), type="bool"), R((5, 3)), R((5, 3)), types=f"{NUMBERS} bool")
row("Select", R((5,), type="bool"), R((5, 3)), R((5, 3)), types="float32")
row("Select", R((), type="bool"), R((5, 3)), R((5, 3)), types="float32")
row("SelectV2", R((5, 1), type="bool"), R((5, 3)), R((3,)), types=f"{NUMBERS} bool")
row("SelectV2", R((), type="bool"), R((2, 1, 3)), R((4, 1)), types="float32")
row("SelectV2", R((0, 3), type="bool"), R((0, 3)), R(()), types="float32")

# Out of range, TensorFlow's kernels give what the processor gives; for u32 that depends on where a number stands.
OUTSIDE = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, 2.0**32, -(2.0**31), 2.0**63, 2.0**64, -(2.0**63), -1.5, 1.5,
           -7e9, 9.2e18, 1.8e19]
for target in ("int32", "int64", "uint64"):
    row("Cast", Given(OUTSIDE), types=WIDE_FLOATS, DstT=target)
    row("Cast", Given([np.nan, np.inf, -np.inf, 6e4, -1.5, 0.0, -0.0]), types=FLOATS, DstT=target)
row("Cast", Given([-1.0, -2.5, 4e9, -2e9, 0.0, 7.5]), types=WIDE_FLOATS, DstT="uint32")
row("Log1p", Given([1e30, 1.6e38, 1.8e38, 3.3e38, 1e-37, -1e-37]), types="float32 bfloat16")
row("Log1p", Given([1e300, 8e307, 1.7e308, 1e-300]), types="float64")
row("RsqrtGrad", Given([2.0, 2.0, 1.5]), Given([1e4, -1e4, 3e3]), types="float16")
