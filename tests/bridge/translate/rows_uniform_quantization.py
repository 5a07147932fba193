"""Rows of values quantized with a scale and a zero point, or by a range."""

from __future__ import annotations

from op_row import Given, Known, Random, row, xla

R = Random
BYTE = {"quantization_min_val": -128, "quantization_max_val": 127}
WORD = {"quantization_min_val": -(2**31), "quantization_max_val": 2**31 - 1}


def output(limits: dict[str, int]) -> dict[str, int]:
    """The limits of an output."""
    return {f"output_{k}": v for k, v in limits.items()}


def sided(side: str, limits: dict[str, int]) -> dict[str, int]:
    """The limits of an operand."""
    return {f"{side}_{k}": v for k, v in limits.items()}


SCALE, ZERO = Known(0.25, "float32"), Known(3, "int32")
SCALES, ZEROS = Known([0.25, 0.5, 2.0], "float32"), Known([3, 0, -2], "int32")
X = R((5, 3), -50, 50, "float32")
Q8, Q32 = R((5, 3), -128, 127, "qint8"), R((5, 3), -9000, 9000, "qint32")

for scales, zeros, axis in ((SCALE, ZERO, -1), (SCALES, ZEROS, 1)):
    row("UniformQuantize", X, scales, zeros, types="float32", Tout="qint8", quantization_axis=axis, **BYTE)
    row("UniformDequantize", Q8, scales, zeros, types="float32", Tout="float32", quantization_axis=axis, **BYTE)
    row("UniformDequantize", Q32, scales, zeros, types="float32", Tout="float32", quantization_axis=axis, **WORD)
    for to_scales, to_zeros, to_axis in ((SCALE, ZERO, -1), (Known([0.3, 0.7, 1.5], "float32"), ZEROS, 1)):
        row("UniformRequantize", Q32, scales, zeros, to_scales, to_zeros, types="float32", Tout="qint8",
            input_quantization_axis=axis, output_quantization_axis=to_axis, **sided("input", WORD), **output(BYTE))
    ends = (3,) if axis == 1 else ()
    row("UniformQuantizedClipByValue", Q32, R(ends, -900, -100, "qint32"), R(ends, 100, 900, "qint32"), scales, zeros,
        types="float32", quantization_axis=axis, **WORD)
row("UniformRequantize", Q8, SCALE, ZERO, Known(0.3, "float32"), Known(-7, "int32"), types="float32", Tout="qint8",
    **sided("input", BYTE), **output(BYTE))
row("UniformQuantizedAdd", Q32, R((3,), -900, 900, "qint32"), SCALE, ZERO, Known(0.5, "float32"), Known(1, "int32"),
    Known(0.7, "float32"), Known(-2, "int32"), types="float32", **sided("lhs", WORD), **sided("rhs", WORD),
    **output(WORD))
row("UniformQuantizedAdd", Q32, R((3,), -900, 900, "qint32"), SCALES, ZEROS, Known([0.5, 1.0, 0.1], "float32"), ZEROS,
    Known([0.7, 0.3, 0.2], "float32"), ZEROS, types="float32", lhs_quantization_axis=1, rhs_quantization_axis=0,
    output_quantization_axis=1, **sided("lhs", WORD), **sided("rhs", WORD), **output(WORD))
ENDS = {**sided("lhs", BYTE), **sided("rhs", BYTE), **output(WORD)}
row("UniformQuantizedDot", R((5, 7), -128, 127, "qint8"), R((7, 3), -128, 127, "qint8"), SCALE, ZERO,
    Known(0.5, "float32"), Known(0, "int32"), Known(0.1, "float32"), Known(20, "int32"), types="float32",
    Tout="qint32", **ENDS)
row("UniformQuantizedDot", R((5, 7), -128, 127, "qint8"), R((7, 3), -128, 127, "qint8"), SCALE, ZERO, SCALES,
    Known([0, 0, 0], "int32"), SCALES, ZEROS, types="float32", Tout="qint32", rhs_quantization_axis=1,
    output_quantization_axis=1, **ENDS)
IMAGES, KERNEL = R((2, 3, 7, 6), -128, 127, "qint8"), R((4, 3, 3, 2), -128, 127, "qint8")
for extra in ({"padding": "SAME", "window_strides": [2, 1]}, {"padding": "VALID", "rhs_dilation": [2, 1]},
              {"padding": "EXPLICIT", "explicit_padding": [1, 2, 0, 1], "lhs_dilation": [1, 2]}):
    row("UniformQuantizedConvolution", IMAGES, KERNEL, SCALE, ZERO, Known(0.5, "float32"), Known(0, "int32"),
        Known(0.1, "float32"), Known(20, "int32"), types="float32", Tout="qint32", **extra, **ENDS)

for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
    for type_ in ("qint8", "quint8"):
        row("Dequantize", R((5, 3), -128, 127, type_), Given(-3.5, "float32"), Given(7.25, "float32"), types="float32",
            mode=mode)
row("Dequantize", R((5, 3), -128, 127, "qint8"), Given([-1, -2, 0], "float32"), Given([1, 4, 3], "float32"),
    types="float32", mode="SCALED", axis=1, narrow_range=True)
row("Dequantize", R((5, 3), -128, 127, "qint8"), Given(-3.5, "float32"), Given(7.25, "float32"), types="float32",
    mode="SCALED", dtype="bfloat16")
row("XlaDequantize", R((5, 3), 0, 2**31 - 2, "uint32"), types="float32", min_range=-1.5, max_range=3.0,
    mode="MIN_COMBINED", transpose_output=False, reference=xla)
