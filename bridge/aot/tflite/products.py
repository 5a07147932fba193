"""Convolutions and matrix products: of floats, of floats with weights that are stored in 8 bits, and of integers.

Products of integers have the form for which the compiler has its kernels of bytes (compiler/quantization/rewrite.py
makes the same): bytes in the target's form, sums in s32 over whole quads of features, weights without a zero point, and
then a factor and a shift for each output feature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ....compiler.analysis.quads import QUAD
from ....compiler.errors import ShapeError
from ...tf_internals import symbols as tfp
from .model_file import Quantization
from .operation import Operation, Result, Value, constant
from .registry import translates
from .windows import PADDINGS

_LONGEST_SUM = 60_000  # products of u8 and s8 whose sum s32 holds


@dataclasses.dataclass(frozen=True)
class Window:
    """What a convolution does along its two spatial axes. base_dilation: more than 1 where it is transposed."""

    strides: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilations: tuple[int, int] = (1, 1)
    base_dilation: tuple[int, int] = (1, 1)


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    reach = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _window(op: Operation, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    strides, dilations = _strides(op), _dilations(op)
    padding = ((0, 0), (0, 0))
    if _padding(op) == "SAME":
        first, second = map(_same, spatial, kernel, strides, dilations)
        padding = (first, second)
    return Window(strides, padding, dilations)


def _strides(op: Operation) -> tuple[int, int]:
    strides = int(op.option("strideH")), int(op.option("strideW"))
    if min(strides) < 1:
        raise ShapeError(f"strides {list(strides)} are not positive")
    return strides


def _dilations(op: Operation) -> tuple[int, int]:
    return int(op.option("dilationHFactor", 1)), int(op.option("dilationWFactor", 1))


def _padding(op: Operation) -> str:
    return PADDINGS[int(op.option("padding"))]


# -- weights


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of 8 bits around zero. scales: of each output feature, or one."""

    integers: np.ndarray
    scales: np.ndarray


def _weights(value: Value, channel_axis: int) -> Weights | None:
    """The integers of constant weights; None: they are none, or have zero points or scales of another axis."""
    array, kind = value.tensor.value, value.tensor.quantization
    if array is None or kind is None or value.tensor.dtype not in (np.int8, np.uint8):
        return None
    zero = 128 if array.dtype == np.uint8 else 0
    if (kind.zero_points != zero).any() or not (kind.is_whole or kind.axis == channel_axis):
        return None
    return Weights((array.astype(np.int16) - zero).astype(np.int8), kind.scales)


def _bias(op: Operation, which: int, kind: Quantization | None, weights: Weights) -> np.ndarray | None:
    """The bias as numbers in f64; None where it is computed."""
    if not op.has(which):
        return np.zeros(1)
    tensor = op.value(which).tensor
    if tensor.value is None:
        return None
    if tensor.value.dtype.kind == "f":
        return tensor.value.astype(np.float64)
    scales = weights.scales.astype(np.float64) * (1.0 if kind is None else kind.scales.astype(np.float64))
    return tensor.value.astype(np.float64) * scales


def _biased(op: Operation, x: tf.Tensor, which: int = 2) -> tf.Tensor:
    """Numbers with the bias, and after the activation."""
    return op.activated(x + _numbers_of_bias(op, which) if op.has(which) else x)


def _numbers_of_bias(op: Operation, which: int) -> tf.Tensor:
    """The bias; the scale of integers is that of the products, whatever the file says of them."""
    tensor = op.value(which).tensor
    if tensor.value is None or tensor.value.dtype.kind == "f":
        return op.number(which)
    operands = [op.value(k) for k in ((0, 1) if which == 2 else (1, 2))]
    kinds = [v.tensor.quantization for v in operands]
    first, second = (np.ones(1) if kind is None else kind.scales.astype(np.float64) for kind in kinds)
    return constant((tensor.value * first * second).astype(np.float32))


def requantized(
    op: Operation,
    sums: tf.Tensor,
    weights: Weights,
    features: np.ndarray,
    bias: np.ndarray,
    source: int = 0,
) -> tf.Tensor:
    """Sums of products of bytes as the result is stored. features: the sum of the weights of each output feature."""
    kind = op.stored_quantization(op.value(source).tensor)
    tensor = op.results[0]
    factors = weights.scales.astype(np.float64) * float(kind.scales[0])
    if not op.is_bytes(tensor):
        shift = bias - features * int(kind.zero_points[0]) * factors
        return op.activated(tf.cast(sums, tf.float32) * factors.astype(np.float32) + shift.astype(np.float32))
    target = op.stored_quantization(tensor)
    scale = float(target.scales[0])
    shift = (bias - features * int(kind.zero_points[0]) * factors) / scale
    x = tf.cast(sums, tf.float32) * (factors / scale).astype(np.float32)
    is_unsigned = op.form.dtype == tf.uint8
    zero = int(target.zero_points[0])
    x = x + (shift + zero + (0.5 if is_unsigned else 0.0)).astype(np.float32)
    x = x if is_unsigned else tf.round(x)
    return op.cast(_clipped(op, x, scale, zero, 0.5 if is_unsigned else 0.0), op.form.dtype)


def _clipped(op: Operation, x: tf.Tensor, scale: float, zero: int, offset: float) -> tf.Tensor:
    """Integers as floats inside the limits of the fused activation, where the type's own are wider."""
    limits = op.limits()
    assert limits is not None
    type_limits = op.form.dtype.min, op.form.dtype.max
    for number, limit, function in zip(limits, type_limits, (tf.maximum, tf.minimum)):
        if number is None:
            continue
        at = round(number / scale) + zero
        if type_limits[0] < at < type_limits[1] or at in type_limits and at != limit:
            x = function(x, np.float32(at + (offset if function is tf.minimum else 0)))
    return x


# -- convolutions


_NUMBERS = {
    "input_batch_dimension": 0,
    "input_feature_dimension": 3,
    "input_spatial_dimensions": [1, 2],
    "output_batch_dimension": 0,
    "output_feature_dimension": 3,
    "output_spatial_dimensions": [1, 2],
}


def _numbers(kernel_input: int, kernel_output: int, spatial: Sequence[int]) -> dict[str, object]:
    return _NUMBERS | {
        "kernel_input_feature_dimension": kernel_input,
        "kernel_output_feature_dimension": kernel_output,
        "kernel_spatial_dimensions": list(spatial),
    }


def byte_convolution(
    op: Operation, x: tf.Tensor, zero_point: int, kernel: np.ndarray, window: Window, groups: int
) -> tf.Tensor:
    """The sums in s32. Padding has the zero point.

    Shapes: kernel [output features, height, width, input features of a group].
    """
    dims = _result_dims(x, kernel.shape[1:3], window, kernel.shape[0])
    is_depthwise = groups > 1 and kernel.shape[-1] == 1
    low, high, interior = [0] * 4, [0] * 4, [0] * 4
    if zero_point and (any(map(any, window.padding)) or max(window.base_dilation) > 1):
        for axis, (before, after) in enumerate(window.padding, 1):
            low[axis], high[axis], interior[axis] = before, after, window.base_dilation[axis - 1] - 1
        window = dataclasses.replace(window, padding=((0, 0), (0, 0)), base_dilation=(1, 1))
    if is_depthwise:
        kernel, numbers = kernel.transpose(1, 2, 3, 0), _numbers(2, 3, (0, 1))
    elif op.form.by_output:
        numbers = _numbers(3, 0, (1, 2))
    else:
        kernel, numbers = kernel.transpose(1, 2, 0, 3), _numbers(3, 2, (0, 1))
    if any((*low, *high, *interior)):
        x = tfp.xla_pad(x, tf.constant(zero_point, x.dtype), low, high, interior)
    sums = _convolution(x, constant(np.ascontiguousarray(kernel)), window, groups, numbers, tf.int32)
    sums.set_shape(dims)
    return sums


def _result_dims(x: tf.Tensor, kernel: Sequence[int], window: Window, outer: int) -> list[int | None]:
    """The dims of a convolution's result, which TensorFlow does not infer."""
    spatial = [
        ((size - 1) * gaps + sum(pads) - (reach - 1) * dilation) // stride + 1
        for size, reach, stride, pads, dilation, gaps in zip(
            x.shape[1:3], kernel, window.strides, window.padding, window.dilations, window.base_dilation
        )
    ]
    return [x.shape[0], *spatial, outer]


def _convolution(
    x: tf.Tensor,
    kernel: tf.Tensor,
    window: Window,
    groups: int,
    numbers: dict[str, object],
    result: tf.DType,
) -> tf.Tensor:
    return tfp.xla_convolution(
        x,
        kernel,
        window.strides,
        window.padding,
        window.base_dilation,
        window.dilations,
        groups,
        numbers,
        result,
    )


def _integers(op: Operation, x: Value, weights: Weights | None, terms: int, groups: int, inner: int) -> bool:
    """Whether a product is computed in integers."""
    return (
        weights is not None
        and op.is_bytes(x.tensor)
        and x.stored is not None
        and op.is_bytes(op.results[0])
        and op.limits() is not None
        and 0 < terms <= _LONGEST_SUM
        and (groups == 1 or inner == 1 or inner % QUAD == 0)
    )


def _known_spatial(x: Value) -> Sequence[int] | None:
    shape = None if x.stored is None else x.stored.shape
    known = None if shape is None or shape.rank != 4 else shape.as_list()[1:3]
    return None if known is None or None in known else known


@translates("CONV_2D", "DEPTHWISE_CONV_2D", stores=True)
def convolution(op: Operation) -> Result:
    """Weights are [output features, height, width, inner features]; of a depthwise one [1, height, width, features]."""
    x, kernel = op.value(0), op.value(1)
    is_depthwise = op.name == "DEPTHWISE_CONV_2D"
    if len(x.tensor.dims) != 4 or len(kernel.tensor.dims) != 4:
        raise ShapeError(
            f"dims {list(x.tensor.dims)} and weights {list(kernel.tensor.dims)}, 4 axes are wanted"
        )
    outer, height, width, inner = kernel.tensor.dims
    features = x.tensor.dims[3]
    if is_depthwise:
        outer, inner = inner, 1
    if not inner or features % inner or outer % (features // inner or 1):
        raise ShapeError(f"{features} features and weights {list(kernel.tensor.dims)}")
    groups = features // inner
    weights, spatial = _weights(kernel, 3 if is_depthwise else 0), _known_spatial(x)
    bias = None if weights is None else _bias(op, 2, x.quantization, weights)
    if weights is not None and bias is not None and spatial is not None:
        window = _window(op, spatial, (height, width))
        integers = weights.integers.transpose(3, 1, 2, 0) if is_depthwise else weights.integers
        if _integers(op, x, weights, height * width * inner, groups, inner):
            zero = int(op.stored_quantization(x.tensor).zero_points[0])
            sums = byte_convolution(op, op.stored(0), zero, integers, window, groups)
            totals = integers.astype(np.int64).sum(axis=(1, 2, 3))
            return requantized(op, sums, weights, totals, bias)
        if x.tensor.dtype == np.float32 and op.results[0].dtype == np.float32:
            kernel_of = constant(np.ascontiguousarray(integers.transpose(1, 2, 3, 0)))
            product = _convolution(
                op.number(0), kernel_of, window, groups, _numbers(2, 3, (0, 1)), tf.float32
            )
            return op.activated(product * weights.scales + bias.astype(np.float32))
    return op.store(_biased(op, _float_convolution(op, is_depthwise, groups)))


def _float_convolution(op: Operation, is_depthwise: bool, groups: int) -> tf.Tensor:
    """The convolution of numbers."""
    kernel = _transposed(op, 1, (1, 2, 3, 0) if not is_depthwise else (1, 2, 0, 3))
    strides, dilations = _strides(op), _dilations(op)
    if is_depthwise and strides[0] == strides[1] and groups > 1:
        height, width, _, outer = kernel.shape
        kernel = tf.reshape(kernel, [height, width, groups, outer // groups])
        return tf.nn.depthwise_conv2d(
            op.number(0), kernel, [1, *strides, 1], _padding(op), dilations=list(dilations)
        )
    return tf.nn.conv2d(op.number(0), kernel, strides, _padding(op), dilations=list(dilations))


def _transposed(op: Operation, which: int, axes: Sequence[int]) -> tf.Tensor:
    """An operand as numbers with other axes."""
    value = op.value(which)
    if value.tensor.value is None:
        return tf.transpose(op.number(which), axes)
    kind, array = value.quantization, value.tensor.value
    numbers = array if kind is None else kind.numbers(array)
    return constant(np.ascontiguousarray(numbers.transpose(axes)))


@translates("TRANSPOSE_CONV", stores=True)
def transposed_convolution(op: Operation) -> Result:
    """Operands: the dims of the result, weights [output features, height, width, input features], values."""
    kernel, x = op.value(1), op.value(2)
    dims = op.integers(0)
    strides = _strides(op)
    weights = _weights(kernel, 0)
    bias = None if weights is None else _bias(op, 3, x.quantization, weights)
    spatial = _known_spatial(x)
    if len(dims) != 4 or len(kernel.tensor.dims) != 4:
        raise ShapeError(f"a result of {dims} with weights {list(kernel.tensor.dims)}, 4 axes are wanted")
    outer, height, width, inner = kernel.tensor.dims
    is_integer = _integers(op, x, weights, height * width * inner, 1, inner)
    if is_integer and weights is not None and bias is not None and spatial is not None:
        window = _transposed_window(dims[1:3], spatial, (height, width), strides, _padding(op))
        integers = weights.integers[:, ::-1, ::-1]
        zero = int(op.stored_quantization(x.tensor).zero_points[0])
        sums = byte_convolution(op, op.stored(2), zero, integers, window, 1)
        totals = integers.astype(np.int64).sum(axis=(1, 2, 3))
        return requantized(op, sums, weights, totals, bias, 2)
    numbers = op.number(2)
    batch = numbers.shape[0] if numbers.shape[0] is not None else tf.shape(numbers)[0]
    result = tf.nn.conv2d_transpose(
        numbers, _transposed(op, 1, (1, 2, 0, 3)), [batch, *dims[1:3], outer], strides, _padding(op)
    )
    return op.store(_biased(op, result, 3))


def _transposed_window(
    result: Sequence[int],
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: tuple[int, int],
    padding: str,
) -> Window:
    """The convolution of values with gaps between them that a transposed one is."""
    pads = []
    for size, own, reach, stride in zip(result, spatial, kernel, strides):
        before = _same(size, reach, stride, 1)[0] if padding == "SAME" else 0
        low = reach - 1 - before
        high = size - ((own - 1) * stride + 1) - low + reach - 1
        if low < 0 or high < 0:
            raise ShapeError(f"a transposed convolution from {list(spatial)} to {list(result)}")
        pads.append((low, high))
    return Window((1, 1), (pads[0], pads[1]), base_dilation=strides)


@translates("CONV_3D", "CONV_3D_TRANSPOSE")
def convolution_of_volumes(op: Operation) -> Result:
    """Of numbers. Operands: values, weights [depth, height, width, input features, output features]; of a transposed
    one: the dims of the result, weights with both features swapped, values."""
    strides, dilations = (
        [1, *(int(op.option(name.format(axis), 1)) for axis in "DHW"), 1]
        for name in ("stride{}", "dilation{}Factor")
    )
    if op.name == "CONV_3D":
        return _biased(
            op, tf.nn.conv3d(op.number(0), op.number(1), strides, _padding(op), "NDHWC", dilations)
        )
    result = tf.nn.conv3d_transpose(
        op.number(2), op.number(1), op.number(0), strides, _padding(op), "NDHWC", dilations
    )
    return _biased(op, result, 3)


# -- matrix products


@translates("FULLY_CONNECTED", stores=True)
def fully_connected(op: Operation) -> Result:
    """Weights are [output features, features]."""
    x, kernel = op.value(0), op.value(1)
    if len(kernel.tensor.dims) != 2 or int(op.option("weightsFormat", 0)):
        raise ShapeError(f"weights {list(kernel.tensor.dims)} in the format {op.option('weightsFormat', 0)}")
    outer, inner = kernel.tensor.dims
    weights = _weights(kernel, 0)
    bias = None if weights is None else _bias(op, 2, x.quantization, weights)
    if weights is not None and bias is not None and _integers(op, x, weights, inner, 1, inner):
        values, integers = _rows(op.stored(0), inner), weights.integers
        totals = integers.astype(np.int64).sum(axis=1)
        sums = tfp.xla_dot(values, constant(integers), (1, 1), tf.int32)
        return _unrowed(op, requantized(op, sums, weights, totals, bias), outer)
    if weights is not None and bias is not None and op.results[0].dtype == np.float32 == x.tensor.dtype:
        product = tfp.xla_dot(_rows(op.number(0), inner), constant(weights.integers), (1, 1), tf.float32)
        return _unrowed(op, op.activated(product * weights.scales + bias.astype(np.float32)), outer)
    product = tf.matmul(_rows(op.number(0), inner), _transposed(op, 1, (1, 0)))
    return _unrowed(op, op.store(_biased(op, product)), outer)


def _rows(x: tf.Tensor, inner: int) -> tf.Tensor:
    return x if x.shape.rank == 2 and x.shape[1] == inner else tf.reshape(x, [-1, inner])


def _unrowed(op: Operation, result: tf.Tensor, outer: int) -> tf.Tensor:
    """The result of rows with the axes of the operand, where these are kept."""
    if not op.option("keepNumDims", False):
        return result
    value = op.value(0)
    x = op.number(0) if value.stored is None else value.stored
    if x.shape.rank == 2:
        return result
    dims = x.shape.as_list()[:-1]
    if dims.count(None) > 1:
        return tf.reshape(result, tf.concat([tf.shape(x)[:-1], [outer]], 0))
    return tf.reshape(result, [-1 if d is None else d for d in dims] + [outer])


@translates("BATCH_MATMUL")
def batch_matmul(op: Operation) -> Result:
    return tf.matmul(
        op.number(0), op.number(1), adjoint_a=bool(op.option("adjX")), adjoint_b=bool(op.option("adjY"))
    )
