"""Values quantized with a scale and a zero point: to floats and back, sums, products and convolutions of them.

Scales are known when compiling. A result is brought to its scale by a product with an integer and a shift, as
TensorFlow's kernels do.
Source: tensorflow/core/kernels/uniform_quant_ops/math_utils.h, dequantize_op.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ops import ConvolutionDims
from ...tf_internals import symbols as tfp
from ..math.broadcasting import broadcast
from ..node import Node
from ..registry import translates
from .convolutions import message_dims

_S32, _S64, _F32 = ElementType.S32, ElementType.S64, ElementType.F32


def _along(
    b: ComputationBuilder, values: np.ndarray, type_: ElementType, dims: Sequence[int], axis: int
) -> Operand:
    """A scalar everywhere, or a vector along an axis."""
    array = b.constant(values, type_)
    if values.ndim and not 0 <= axis < len(dims):
        raise ShapeError(
            f"there are {values.shape[0]} scales, of an array of {len(dims)} axes for axis {axis}"
        )
    if values.ndim and values.shape[0] != dims[axis]:
        raise ShapeError(f"there are {values.shape[0]} scales for the {dims[axis]} elements of axis {axis}")
    return b.broadcast_in_dim(array, dims, [axis] if values.ndim else [])


def _check_axis(node: Node, scales: str, axis: int) -> None:
    """Checks that values per axis come with an axis, and only then.

    Raises: ShapeError  there are scales for the elements of an axis and no axis (-1), or one scale and an axis.
    """
    rank = len(node.shape(scales))
    if axis < -1 or rank != (0 if axis == -1 else 1):
        raise ShapeError(f"{node.op}: quantization axis {axis}, and {scales} has {rank} axes")


def _check_product_axes(node: Node, right: int, result: int) -> None:
    """Of a product only the right side and the result have scales along an axis, that of the output features.

    Raises: ShapeError  it is another one.
    """
    for side, allowed in (("lhs", -1), ("rhs", right), ("output", result)):
        axis = node.attr(f"{side}_quantization_axis")
        if axis not in (-1, allowed):
            raise ShapeError(f"{node.op}: {side}_quantization_axis is {axis}, it can be -1 or {allowed}")
        _check_axis(node, f"{side}_scales", axis)


def _quantized(node: Node, x: Operand, result: ElementType, name: str = "") -> Operand:
    """Clamped to the range of quantized values that attributes give; what the result's type does not hold wraps."""
    b = node.b
    low, high = (node.attr(f"{name}quantization_{end}_val") for end in ("min", "max"))
    x = b.convert_element_type(b.clamp(b.scalar_like(x, low), x, b.scalar_like(x, high)), _S32)
    return b.convert_element_type(x, result)


@translates("UniformQuantize", constants=("scales", "zero_points"))
def uniform_quantize(node: Node) -> Operand:
    """round(x / scale) + zero point."""
    b, dims, axis = node.b, node.shape(0), node.attr("quantization_axis")
    _check_axis(node, "scales", axis)
    inverse = np.float32(1) / node.constant("scales").astype(np.float32)
    scale = _along(b, inverse, _F32, dims, axis)
    zero = _along(b, node.constant("zero_points"), _F32, dims, axis)
    x = b.floor(node[0] * scale + zero + b.full_like(zero, 0.5))
    return _quantized(node, x, node.attr("Tout"))


@translates("UniformDequantize", constants=("scales", "zero_points"))
def uniform_dequantize(node: Node) -> Operand:
    b, dims, axis = node.b, node.shape(0), node.attr("quantization_axis")
    _check_axis(node, "scales", axis)
    scale = _along(b, node.constant("scales"), _F32, dims, axis)
    zero = _along(b, node.constant("zero_points"), _S32, dims, axis)
    x = b.convert_element_type(node[0], _S32) - zero
    return b.convert_element_type(b.convert_element_type(x, _F32) * scale, node.attr("Tout"))


# -- change of scale


def quantized_multiplier(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(q, shift), s64: each factor is about q 2^(shift - 31)."""
    fractions, shifts = np.frexp(factors.astype(np.float64))
    whole = np.floor(fractions * 2.0**31 + 0.5).astype(np.int64)
    full = whole == 1 << 31
    whole, shifts = np.where(full, whole // 2, whole), np.where(full, shifts + 1, shifts)
    whole, shifts = np.where(shifts < -31, 0, whole), np.where(shifts < -31, 0, shifts)
    return np.where(shifts > 30, (1 << 31) - 1, whole), np.minimum(shifts, 30).astype(np.int64)


def _rescaled(b: ComputationBuilder, x: Operand, factors: np.ndarray, axis: int) -> Operand:
    """The s32 values times a factor, rounded; in s64."""
    dims = b.get_shape(x).dims
    multipliers, shifts = quantized_multiplier(np.asarray(factors))
    by = 31 - shifts
    multiplier, shift = (_along(b, v, _S64, dims, axis) for v in (multipliers, by))
    half = _along(b, np.left_shift(np.int64(1), by - 1), _S64, dims, axis)
    scaled_value = b.convert_element_type(x, _S64)
    return b.shift_right_arithmetic(scaled_value * multiplier + half, shift)


def _requantized(node: Node, x: Operand, prefix: str, target: str, axis: int) -> Operand:
    """Values of one scale and zero point as s32 values of another's, unlimited."""
    b, dims = node.b, node.b.get_shape(x).dims
    scales, zeros = node.constant(f"{prefix}_scales"), node.constant(f"{prefix}_zero_points")
    to_scales, to_zeros = node.constant(f"{target}_scales"), node.constant(f"{target}_zero_points")
    x = b.convert_element_type(x, _S32) - _along(b, zeros, _S32, dims, axis)
    moved = _rescaled(b, x, scales.astype(np.float64) / to_scales.astype(np.float64), axis)
    return b.convert_element_type(moved, _S32) + _along(b, to_zeros, _S32, dims, axis)


_REQUANTIZED = ("input_scales", "input_zero_points", "output_scales", "output_zero_points")
_BINARY = tuple(f"{side}_{what}" for side in ("lhs", "rhs", "output") for what in ("scales", "zero_points"))


@translates("UniformRequantize", constants=_REQUANTIZED)
def uniform_requantize(node: Node) -> Operand:
    axes = [node.attr(f"{side}_quantization_axis") for side in ("input", "output")]
    for side, axis in zip(("input", "output"), axes):
        _check_axis(node, f"{side}_scales", axis)
    axis = max(axes)
    if min(axes) not in (-1, axis):
        raise ShapeError(f"{node.op}: the quantization axes {axes} should be the same")
    moved = _requantized(node, node[0], "input", "output", axis)
    return _quantized(node, moved, node.attr("Tout"), "output_")


@translates("UniformQuantizedAdd", constants=_BINARY)
def uniform_add(node: Node) -> Operand:
    b = node.b
    parts = []
    rank = max(len(node.shape(k)) for k in range(2))
    target = node.attr("output_quantization_axis")
    for side in ("lhs", "rhs", "output"):
        _check_axis(node, f"{side}_scales", node.attr(f"{side}_quantization_axis"))
    for number, prefix in enumerate(("lhs", "rhs")):
        at = -1 if target < 0 else target - rank + len(node.shape(number))
        operand = node[number]
        if at >= 0 and node.shape(number)[at] == 1 and node.constant("output_scales").size != 1:
            raise UnsupportedError(f"{node.op}: an operand with one element along the axis of the scales")
        parts.append(_requantized(node, operand, prefix, "output", at))
    left, right = broadcast(b, *parts)
    dims = b.get_shape(left).dims
    total = left + right - _along(b, node.constant("output_zero_points"), _S32, dims, target)
    return _quantized(node, total, node.attr("T"), "output_")


@translates("UniformQuantizedClipByValue", constants=("scales", "zero_points"))
def uniform_clip(node: Node) -> Operand:
    b, dims, axis = node.b, node.shape(0), node.attr("quantization_axis")
    low, high = (b.broadcast_in_dim(node[k], dims, [axis] if node.shape(k) else []) for k in ("min", "max"))
    return b.min(b.max(node[0], low), high)


# -- products


def _centred(node: Node, which: str, axis: int) -> Operand:
    """An operand less its zero point, s32."""
    b = node.b
    zero = _along(b, node.constant(f"{which}_zero_points"), _S32, node.shape(which), axis)
    return b.convert_element_type(node[which], _S32) - zero


def _product_result(node: Node, total: Operand, axis: int) -> Operand:
    """Sums of products at the result's scale."""
    b = node.b
    left, right, target = (
        node.constant(f"{side}_scales").astype(np.float64) for side in ("lhs", "rhs", "output")
    )
    zero = _along(b, node.constant("output_zero_points"), _S32, b.get_shape(total).dims, axis)
    moved = b.convert_element_type(_rescaled(b, total, left * right / target, axis), _S32) + zero
    return _quantized(node, moved, node.attr("Tout"), "output_")


@translates("UniformQuantizedDot", constants=_BINARY)
def uniform_dot(node: Node) -> Operand:
    b = node.b
    _check_product_axes(node, 1, 1)
    if (
        len(node.shape("lhs")) != 2
        or len(node.shape("rhs")) != 2
        or node.shape("lhs")[1] != node.shape("rhs")[0]
    ):
        raise ShapeError(
            f"lhs {list(node.shape('lhs'))} and rhs {list(node.shape('rhs'))} are no matrices to multiply"
        )
    total = b.dot_general(
        _centred(node, "lhs", -1),
        _centred(node, "rhs", node.attr("rhs_quantization_axis")),
        ([1], [0]),
        ([], []),
    )
    return _product_result(node, total, 1)


@translates("UniformQuantizedConvolution", constants=_BINARY)
def uniform_convolution(node: Node) -> Operand:
    """The convolution of what lies above the zero points: padding is zero there."""
    b, rank = node.b, len(node.shape("lhs"))
    spatial = rank - 2
    if rank < 2 or len(node.shape("rhs")) != rank:
        raise ShapeError(f"{node.op}: operands of ranks {rank} and {len(node.shape('rhs'))}")
    text = node.definition.attr["dimension_numbers"].s
    numbers = _convolution_numbers(text, rank)
    _check_product_axes(node, numbers.kernel_output_feature, numbers.output_feature)
    strides, base, dilation = (
        [*(node.attr(k) or [1] * spatial)] for k in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    for name, sizes in (("window_strides", strides), ("lhs_dilation", base), ("rhs_dilation", dilation)):
        if len(sizes) != spatial or min(sizes, default=1) < 1:
            raise ShapeError(f"{name} {sizes} should be {spatial} positive numbers")
    total = b.conv_general_dilated(
        _centred(node, "lhs", -1),
        _centred(node, "rhs", node.attr("rhs_quantization_axis")),
        strides,
        _paddings(node, numbers, strides, base, dilation),
        base,
        dilation,
        numbers,
        node.attr("feature_group_count"),
        node.attr("batch_group_count"),
    )
    return _product_result(node, total, numbers.output_feature)


def _convolution_numbers(text: bytes, rank: int) -> ConvolutionDims:
    if not text:
        return ComputationBuilder.create_default_conv_dimension_numbers(rank - 2)
    return message_dims(tfp.uniform_convolution_numbers(text))


def _paddings(
    node: Node, numbers: ConvolutionDims, strides: Sequence[int], base: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    kind, spatial = node.attr("padding"), len(strides)
    if kind == "EXPLICIT":
        paddings = node.attr("explicit_padding") or [0] * 2 * spatial
        if len(paddings) != 2 * spatial or min(paddings, default=0) < 0:
            raise ShapeError(
                f"explicit_padding {[*paddings]} should be {2 * spatial} numbers that are not negative"
            )
        return [(paddings[2 * k], paddings[2 * k + 1]) for k in range(spatial)]
    result = []
    for k in range(spatial):
        size = (node.shape("lhs")[numbers.input_spatial[k]] - 1) * base[k] + 1
        reach = (node.shape("rhs")[numbers.kernel_spatial[k]] - 1) * dilation[k] + 1
        total = (
            max(0, (math.ceil(size / strides[k]) - 1) * strides[k] + reach - size) if kind == "SAME" else 0
        )
        result.append((total // 2, total - total // 2))
    return result


# -- values quantized by a range


@translates("Dequantize")
def dequantize(node: Node) -> Operand:
    b, type_, mode, axis = node.b, node.element_type(0), node.attr("mode"), node.attr("axis")
    dims, smallest, largest = node.shape(0), np.iinfo(type_.dtype).min, np.iinfo(type_.dtype).max
    low, high = node["min_range"], node["max_range"]
    if axis == -1:
        low, high = b.reshape(low, ()), b.reshape(high, ())

    def number(value: float) -> Operand:
        return b.scalar_like(low, value)

    def to_dims(value: Operand) -> Operand:
        return b.broadcast_in_dim(value, dims, [] if axis == -1 else [axis])

    x = b.convert_element_type(node[0], _F32)
    if mode == "MIN_COMBINED":
        half = (float(largest) - float(smallest) + 1) / 2 if type_.is_signed else 0.0
        scale = (high - low) / number(float(largest) - float(smallest))
        result = (x + b.full_like(x, half)) * to_dims(scale) + to_dims(low)
    elif mode == "SCALED":
        bottom = smallest + int(bool(node.attr("narrow_range")))
        scale = high / number(float(largest))
        if bottom:
            scale = b.max(low / number(float(bottom)), scale)
        result = x * to_dims(scale)
    else:
        steps = 2.0**type_.bits
        scale = (high - low) * number(steps / (steps - 1)) / number(steps)
        rounded = b.round(low / scale) * scale
        equal = b.eq(low, high)
        result = to_dims(rounded) + (x - b.full_like(x, float(smallest))) * to_dims(scale)
        result = b.select(to_dims(equal), to_dims(low), result)
    return b.convert_element_type(result, node.attr("dtype") or _F32)
