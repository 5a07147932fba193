"""Convolutions and pooling, with their gradients."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.matrices import widened
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....compiler.ops import ConvolutionDims
from ....runtime.sizes import larger, surely_less
from ..array.scatter_gather import finite_limits, scatter_rows
from ..array.slices import mirrored
from ..image.images import bilinear
from ..math.reductions import initial, reducer
from ..node import Node
from ..operands.axes import spatial_entries
from ..registry import translates
from .nn import narrowed


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Which axis of activations is batch, feature and spatial."""

    batch: int
    feature: int
    spatial: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, rank: int) -> _Layout:
        spatial = {4: "HW", 5: "DHW"}.get(rank, "")
        text = node.attr("data_format") or "CHANNELS_LAST"
        text = {"CHANNELS_LAST": f"N{spatial}C", "CHANNELS_FIRST": f"NC{spatial}"}.get(text, text)
        if len(text) != rank:
            raise UnsupportedError(f"{node.op}: data_format {text} of a tensor with {rank} axes")
        return cls(text.index("N"), text.index("C"), tuple(k for k, c in enumerate(text) if c not in "NC"))

    def pick(self, values: Sequence[int] | None, name: str) -> tuple[int, ...]:
        """The spatial entries of an attribute that has one per axis, 1 and 1 for the others; 1 where it has none."""
        return spatial_entries(values, self.spatial, name) if values else (1,) * len(self.spatial)

    def paddings(self, values: Sequence[int]) -> list[tuple[int, int]]:
        """(low, high) of the spatial axes from paddings of all.

        Raises: ShapeError  there are not two for every axis, one is negative, or not 0 for batch or features.
        """
        pairs = list(zip(values[::2], values[1::2]))
        if (
            len(values) != 2 * len(self.spatial) + 4
            or min(values) < 0
            or any(pairs[self.batch] + pairs[self.feature])
        ):
            raise ShapeError(
                f"explicit paddings {list(values)} should be two for every axis, and 0 for batch and features"
            )
        return [pairs[a] for a in self.spatial]

    def dims(self, batch: int, geometry: Sequence[_Geometry], features: int) -> tuple[int, ...]:
        """Dims of the result with that many features."""
        dims = dict(
            zip((self.batch, *self.spatial, self.feature), (batch, *(g.output for g in geometry), features))
        )
        return tuple(dims[axis] for axis in range(len(dims)))


@dataclasses.dataclass(frozen=True)
class _Geometry:
    """One spatial axis of a convolution or a pool. Units: elements."""

    input: int
    window: int
    output: int
    stride: int
    dilation: int
    low: int
    high: int


def _geometry(
    node: Node,
    layout: _Layout,
    dims: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int] | None = None,
) -> list[_Geometry]:
    strides = node.attr("strides") if strides is None else strides
    if not strides:
        raise ShapeError(f"{node.op}: strides are wanted for {len(dims)} axes")
    strides = layout.pick(strides, "strides")
    dilations = layout.pick(node.attr("dilations"), "dilations")
    padding = node.attr("padding")
    explicit = layout.paddings(node.attr("explicit_paddings") or []) if padding == "EXPLICIT" else []
    result = []
    for k, axis in enumerate(layout.spatial):
        reach = (window[k] - 1) * dilations[k] + 1
        size, stride = dims[axis], strides[k]
        if padding == "EXPLICIT":
            low, high = explicit[k]
            output = (size + low + high - reach) // stride + 1
        elif padding == "SAME":
            output = -(-size // stride)
            total = larger(0, (output - 1) * stride + reach - size)
            low, high = total // 2, total - total // 2
        else:
            output, low, high = (size - reach) // stride + 1, 0, 0
        if output < 0 or (output == 0 and size > 0 and padding != "SAME"):
            raise ShapeError(
                f"{node.op}: computed output size would be negative: {size} elements, window {reach}"
            )
        result.append(_Geometry(size, window[k], output, stride, dilations[k], low, high))
    return result


def _check_dims(node: Node, which: str, expected: Sequence[int]) -> None:
    """Compares the dims of an operand, the result of the op whose gradient this is or its gradient.

    Raises: ShapeError  they are others.
    """
    if node.shape(which) != tuple(expected):
        raise ShapeError(
            f"{node.op}: {which} has the shape {list(node.shape(which))}, wanted {list(expected)}"
        )


def _dims_numbers(layout: _Layout, spatial: int, kernel_input: int, kernel_output: int) -> ConvolutionDims:
    return ConvolutionDims(
        layout.batch,
        layout.feature,
        layout.spatial,
        kernel_input,
        kernel_output,
        tuple(range(spatial)),
        layout.batch,
        layout.feature,
        layout.spatial,
    )


def message_dims(message: Any) -> ConvolutionDims:
    """The dimension numbers of a protocol buffer message: XLA's, or that of TensorFlow's uniform quantization."""
    return ConvolutionDims(
        message.input_batch_dimension,
        message.input_feature_dimension,
        tuple(message.input_spatial_dimensions),
        message.kernel_input_feature_dimension,
        message.kernel_output_feature_dimension,
        tuple(message.kernel_spatial_dimensions),
        message.output_batch_dimension,
        message.output_feature_dimension,
        tuple(message.output_spatial_dimensions),
    )


def _depthwise_kernel(b: ComputationBuilder, kernel: Operand) -> Operand:
    """[..., features, multiplier] as [..., 1, features * multiplier]."""
    *spatial, features, multiplier = b.get_shape(kernel).dims
    return b.reshape(kernel, (*spatial, 1, features * multiplier))


def _groups(node: Node, features: int, kernel: Sequence[int]) -> int:
    """The groups into which a kernel [..., inner, outer] divides the features of the input.

    Raises: ShapeError  it cannot.
    """
    inner, outer = kernel[-2:]
    if not math.prod(kernel):
        raise ShapeError(f"filter must not have zero elements: {list(kernel)}")
    if node.op.startswith("Depthwise"):
        if inner != features:
            raise ShapeError(f"input and filter must have the same depth: {features} vs {inner}")
        return features
    if not inner or features % inner or not features or outer % (features // inner):
        raise ShapeError(
            f"input depth must be evenly divisible by filter depth: {features} vs {inner}, of {outer}"
        )
    return features // inner


@translates("Conv", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
def convolution(node: Node) -> Operand:
    if node.op == "Conv" and node.attr("batch_dims") != 1:
        raise UnsupportedError(f"Conv: {node.attr('batch_dims')} batch axes")
    b, dims, kernel = node.b, node.shape(0), node[1]
    layout = _Layout.of(node, len(dims))
    spatial = len(layout.spatial)
    groups = _groups(node, dims[layout.feature], node.shape(1))
    if node.op == "DepthwiseConv2dNative":
        kernel = _depthwise_kernel(b, kernel)
    geometry = _geometry(node, layout, dims, b.get_shape(kernel).dims[:spatial])
    return b.conv_general_dilated(
        node[0],
        kernel,
        [g.stride for g in geometry],
        [(g.low, g.high) for g in geometry],
        rhs_dilation=[g.dilation for g in geometry],
        dimension_numbers=_dims_numbers(layout, spatial, spatial, spatial + 1),
        feature_group_count=groups,
    )


@translates("FusedPadConv2D", constants=("paddings",))
@translates("FusedResizeAndPadConv2D", constants=("size", "paddings"))
def padded_convolution(node: Node) -> Operand:
    """A convolution of an image that is resized, if asked for, and mirrored over its ends.

    Where strides leave a rest, the windows lie as this op has always laid them, not as Conv2D does.
    """
    b, x, dims, paddings = node.b, node[0], node.shape(0), node.constant("paddings").tolist()
    if len(dims) != 4 or len(paddings) != 4 or any(paddings[0] + paddings[3]):
        raise ShapeError(
            f"{node.op}: an image has height and width to pad, got paddings {paddings} of {list(dims)}"
        )
    if dims[0] > 1:
        raise UnsupportedError(
            f"{node.op}: TensorFlow gives the second image of a batch the first one's results"
        )
    if node.op.startswith("FusedResize"):
        corners = bool(node.attr("resize_align_corners"))
        x = bilinear(node, x, node.integers("size"), node.element_type(0), corners, False)
    x = mirrored(b, x, paddings, node.attr("mode"))
    size, window = b.get_shape(x).dims, node.shape("filter")
    if window[2] != size[3]:
        raise ShapeError(f"input and filter must have the same depth: {size[3]} vs {window[2]}")
    strides, is_valid = (
        spatial_entries(node.attr("strides"), (1, 2), "strides"),
        node.attr("padding") == "VALID",
    )
    padding = []
    for axis, reach in ((1, window[0]), (2, window[1])):
        stride = strides[axis - 1]
        count = -(-(size[axis] - reach + 1) // stride) if is_valid else -(-size[axis] // stride)
        if count <= 0:
            raise ShapeError(
                f"{node.op}: computed output size would be negative: {size[axis]} pixels, window {reach}"
            )
        total = (count - 1) * stride + reach - size[axis]
        before = total + is_valid
        low = before // 2 if before >= 0 else -(-before // 2)  # rounded towards zero
        padding.append((low, total - low))
    numbers = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    return b.conv_general_dilated(x, node["filter"], strides, padding, dimension_numbers=numbers)


@translates(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNativeBackpropInput",
    constants=("input_sizes",),
)
def convolution_input_gradient(node: Node) -> Operand:
    """The gradient as a convolution of the output's gradient, its stride as holes, with the kernel reversed."""
    b, dims, kernel, dy = node.b, node.integers("input_sizes"), node["filter"], node["out_backprop"]
    layout = _Layout.of(node, len(node.shape("out_backprop")))
    spatial = len(layout.spatial)
    if len(dims) == spatial:  # sizes of the spatial axes alone
        full = list(node.shape("out_backprop"))
        for axis, size in zip(layout.spatial, dims):
            full[axis] = size
        full[layout.feature] = node.shape("filter")[-2]
        dims = tuple(full)
    groups = _groups(node, dims[layout.feature], node.shape("filter"))
    if node.op.startswith("Depthwise"):
        kernel = _depthwise_kernel(b, kernel)
    *window, inner, outer = b.get_shape(kernel).dims
    geometry = _geometry(node, layout, dims, window)
    _check_dims(node, "out_backprop", layout.dims(dims[layout.batch], geometry, outer))
    if groups > 1:  # the groups' output features become the groups' input features
        kernel = b.reshape(kernel, (*window, inner, groups, outer // groups))
        order = (*range(spatial), spatial + 1, spatial, spatial + 2)
        kernel = b.reshape(b.transpose(kernel, order), (*window, groups * inner, outer // groups))
    padding = []
    for g in geometry:
        reach = (g.window - 1) * g.dilation + 1
        low = reach - 1 - g.low
        padding.append((low, g.input + reach - 1 - low - ((g.output - 1) * g.stride + 1)))
    return b.conv_general_dilated(
        dy,
        kernel,
        [1] * spatial,
        padding,
        lhs_dilation=[g.stride for g in geometry],
        rhs_dilation=[g.dilation for g in geometry],
        dimension_numbers=_dims_numbers(layout, spatial, spatial + 1, spatial),
        feature_group_count=groups,
        window_reversal=[True] * spatial,
    )


@translates(
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNativeBackpropFilter",
    constants=("filter_sizes",),
)
def convolution_filter_gradient(node: Node) -> Operand:
    """The gradient as a convolution of the input, its features as batch, with the output's gradient as kernel."""
    b, sizes, x, dy = node.b, node.integers("filter_sizes"), node["input"], node["out_backprop"]
    dims = node.shape("input")
    layout = _Layout.of(node, len(dims))
    spatial = len(layout.spatial)
    *window, inner, outer = sizes
    groups = _groups(node, dims[layout.feature], sizes)
    geometry = _geometry(node, layout, dims, window)
    outputs = outer * inner if node.op.startswith("Depthwise") else outer
    _check_dims(node, "out_backprop", layout.dims(dims[layout.batch], geometry, outputs))
    padding = []
    for g in geometry:
        needed = (g.output - 1) * g.stride + 1 + (g.window - 1) * g.dilation
        padding.append((g.low, needed - g.input - g.low))
    numbers = ConvolutionDims(
        input_batch=layout.feature,
        input_feature=layout.batch,
        input_spatial=layout.spatial,
        kernel_input_feature=layout.batch,
        kernel_output_feature=layout.feature,
        kernel_spatial=layout.spatial,
        output_batch=spatial,
        output_feature=spatial + 1,
        output_spatial=tuple(range(spatial)),
    )
    result = b.conv_general_dilated(
        x,
        dy,
        [g.dilation for g in geometry],
        padding,
        rhs_dilation=[g.stride for g in geometry],
        dimension_numbers=numbers,
        batch_group_count=groups,
    )
    return b.reshape(result, sizes)


# -- pooling


def _pool(
    b: ComputationBuilder, x: Operand, op: str, layout: _Layout, geometry: Sequence[_Geometry]
) -> Operand:
    shape = b.get_shape(x)
    window, strides, padding = _windows(shape.rank, layout, geometry)
    return b.reduce_window_with_general_padding(
        x, initial(b, op, shape.element_type), reducer(b, op, shape.element_type), window, strides, padding
    )


def _windows(
    rank: int, layout: _Layout, geometry: Sequence[_Geometry]
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    window, strides, padding = [1] * rank, [1] * rank, [(0, 0)] * rank
    for axis, g in zip(layout.spatial, geometry):
        window[axis], strides[axis] = g.window, g.stride
        padding[axis] = (g.low, larger(0, (g.output - 1) * g.stride + g.window - g.input - g.low))
    return window, strides, padding


def _pool_geometry(node: Node, dims: Sequence[int]) -> tuple[_Layout, list[_Geometry]]:
    """The window's sizes and strides are attributes, of V2 ops inputs."""
    layout = _Layout.of(node, len(dims))
    by_input = node.op.endswith("V2")
    size = node.integers("ksize") if by_input else node.attr("ksize")
    if len(size) == len(dims) and (size[layout.batch] != 1 or size[layout.feature] != 1):
        raise UnsupportedError(f"{node.op}: pools over batch or features")
    strides = node.integers("strides") if by_input else None
    return layout, _geometry(node, layout, dims, layout.pick(size, "ksize"), strides)


def _pooled(layout: _Layout, dims: Sequence[int], geometry: Sequence[_Geometry]) -> tuple[int, ...]:
    """Dims of the result of pooling an array of these dims."""
    return layout.dims(dims[layout.batch], geometry, dims[layout.feature])


@translates("MaxPoolV2", constants=("ksize", "strides"))
@translates("MaxPool", "MaxPool3D")
def max_pool(node: Node) -> Operand:
    """Of floats the largest number above the lowest finite one, which stands where there is none: NaN is no number."""
    b, type_ = node.b, node.element_type(0)
    layout, geometry = _pool_geometry(node, node.shape(0))
    if not type_.is_float:
        return _pool(b, node[0], "max", layout, geometry)
    inner = b.create_sub_builder(f"larger_{type_.value}")
    old, new = (inner.parameter(k, Shape(type_), name) for k, name in enumerate(("old", "new")))
    larger = inner.build(inner.select(inner.gt(new, old), new, old))
    lowest = -np.inf if type_ is ElementType.BF16 else finite_limits(type_)[0]  # that of f32, rounded
    return b.reduce_window_with_general_padding(
        node[0], b.constant(lowest, type_), larger, *_windows(len(node.shape(0)), layout, geometry)
    )


@translates("MaxPoolGradV2", constants=("ksize", "strides"))
@translates("MaxPoolGrad", "MaxPool3DGrad")
def max_pool_grad(node: Node) -> Operand:
    b, x, dy = node.b, node["orig_input"], node["grad"]
    shape = b.get_shape(x)
    layout, geometry = _pool_geometry(node, shape.dims)
    _check_dims(node, "orig_output", _pooled(layout, shape.dims, geometry))
    window, strides, padding = _windows(shape.rank, layout, geometry)
    type_ = shape.element_type
    inner = b.create_sub_builder("keeps")
    best, new = (inner.parameter(k, Shape(type_), name) for k, name in enumerate(("best", "new")))
    return b.select_and_scatter_with_general_padding(  # what a window begins with stays where it is NaN
        x,
        inner.build(inner.not_(inner.lt(best, new))),
        window,
        strides,
        padding,
        dy,
        b.constant(0, type_),
        reducer(b, "add", type_),
    )


def _window_elements(
    b: ComputationBuilder, x: Operand, fill: Operand, layout: _Layout, geometry: Sequence[_Geometry]
) -> list[Operand]:
    """For every place in the window, in order, the element there of each window: the padded array's strided slices."""
    rank = len(b.get_shape(x).dims)
    window, strides, padding = _windows(rank, layout, geometry)
    padded = b.pad(x, fill, padding)
    dims = b.get_shape(padded).dims
    counts = [(d - w) // s + 1 for d, w, s in zip(dims, window, strides)]
    return [
        b.slice(padded, place, [p + (c - 1) * s + 1 for p, c, s in zip(place, counts, strides)], strides)
        for place in itertools.product(*map(range, window))
    ]


def _at_largest(
    b: ComputationBuilder, x: Operand, values: Operand, layout: _Layout, geometry: Sequence[_Geometry]
) -> tuple[Operand, Operand]:
    """The largest element of every window, and the value at the first place that has it."""
    shape = b.get_shape(x)
    type_ = shape.element_type
    best = chosen = seen = None
    paddings = itertools.chain(*_windows(shape.rank, layout, geometry)[2])
    is_padded = not all(surely_less(size, 1) for size in paddings)
    is_inside = b.broadcast(b.constant(True), shape.dims)
    for element, value, inside in zip(
        _window_elements(b, x, initial(b, "max", type_), layout, geometry),
        _window_elements(b, values, b.scalar_like(values, 0), layout, geometry),
        _window_elements(b, is_inside, b.constant(False), layout, geometry),
    ):
        if best is None or chosen is None or seen is None:
            best, chosen, seen = element, value, inside
        else:
            larger = b.gt(element, best)
            if is_padded:  # the padding may be as large as the smallest elements
                larger, seen = b.and_(inside, b.or_(larger, b.not_(seen))), b.or_(seen, inside)
            best, chosen = b.select(larger, element, best), b.select(larger, value, chosen)
    if best is None or chosen is None:
        raise ShapeError("a pool's window has no elements")
    return best, chosen


@translates("MaxPoolGradGradV2", constants=("ksize", "strides"))
@translates("MaxPoolGradGrad", "MaxPool3DGradGrad")
def max_pool_grad_grad(node: Node) -> Operand:
    """The gradient at the place of every window's largest element."""
    layout, geometry = _pool_geometry(node, node.shape(0))
    _check_dims(node, "orig_output", _pooled(layout, node.shape(0), geometry))
    return _at_largest(node.b, node["orig_input"], node["grad"], layout, geometry)[1]


@translates("MaxPoolWithArgmax")
def max_pool_with_argmax(node: Node) -> tuple[Operand, Operand]:
    """Places count through height, width and depth, and through the batch if asked for."""
    b, dims, type_ = node.b, node.shape(0), node.attr("Targmax")
    layout, geometry = _pool_geometry(node, dims)
    counted = dims if node.attr("include_batch_in_index") else dims[1:]
    places = b.reshape(b.iota("s64", math.prod(counted)), counted)
    places = b.broadcast_in_dim(places, dims, range(len(dims) - len(counted), len(dims)))
    return _at_largest(b, node[0], b.convert_element_type(places, type_), layout, geometry)


@translates("MaxPoolGradWithArgmax")
def max_pool_grad_with_argmax(node: Node) -> Operand:
    """Every gradient goes to the place that its window's maximum had."""
    b, dims, count = node.b, node.shape("input"), math.prod(node.shape("grad"))
    places, type_ = node["argmax"], node.element_type("argmax")
    if not node.attr("include_batch_in_index"):
        image = b.iota(Shape(type_, node.shape("grad")), 0) * b.constant(math.prod(dims[1:]), type_)
        places = places + image
    base = b.broadcast(b.scalar_like(node["grad"], 0), (math.prod(dims),))
    summed = scatter_rows(b, base, b.reshape(places, (count,)), b.reshape(node["grad"], (count,)), "add")
    return b.reshape(summed, dims)


def _counts(
    b: ComputationBuilder,
    dims: Sequence[int],
    layout: _Layout,
    geometry: Sequence[_Geometry],
    type_: ElementType,
) -> Operand:
    """How many elements every window holds, padding left out."""
    ones = b.broadcast(b.constant(1, type_), [d if a in layout.spatial else 1 for a, d in enumerate(dims)])
    return _pool(b, ones, "add", layout, geometry)


def _averaged(
    b: ComputationBuilder, sums: Operand, dims: Sequence[int], layout: _Layout, geometry: Sequence[_Geometry]
) -> Operand:
    """Sums divided by the number of elements of their window, padding left out."""
    shape = b.get_shape(sums)
    if all(g.low == 0 and (g.output - 1) * g.stride + g.window <= g.input for g in geometry):
        count = 1
        for g in geometry:
            count *= g.window
        return b.div(sums, b.broadcast(b.constant(count, shape.element_type), shape.dims))
    counts = _counts(b, dims, layout, geometry, shape.element_type)
    return b.div(sums, b.broadcast_in_dim(counts, shape.dims, range(shape.rank)))


@translates("AvgPool", "AvgPool3D")
def avg_pool(node: Node) -> Operand:
    b, shape = node.b, node.array_shape(0)
    layout, geometry = _pool_geometry(node, shape.dims)
    sums = _pool(b, widened(b, node[0]), "add", layout, geometry)
    return narrowed(b, _averaged(b, sums, shape.dims, layout, geometry), shape.element_type)


@translates("AvgPoolGrad", "AvgPool3DGrad", constants=("orig_input_shape",))
def avg_pool_grad(node: Node) -> Operand:
    """Every element of the input gets the shares of the windows that it lies in."""
    b, dims, type_ = node.b, node.integers("orig_input_shape"), node.element_type("grad")
    layout, geometry = _pool_geometry(node, dims)
    _check_dims(node, "grad", _pooled(layout, dims, geometry))
    shares = _averaged(b, widened(b, node["grad"]), dims, layout, geometry)
    compute_type = b.get_shape(shares).element_type
    rank = len(dims)
    paddings = [(0, 0, 0)] * rank
    window = [1] * rank
    for axis, g in zip(layout.spatial, geometry):
        low = g.window - 1 - g.low
        paddings[axis] = (low, g.input + g.window - 1 - low - ((g.output - 1) * g.stride + 1), g.stride - 1)
        window[axis] = g.window
    padded = b.pad(shares, b.constant(0, compute_type), paddings)
    result = b.reduce_window_with_general_padding(
        padded,
        b.constant(0, compute_type),
        reducer(b, "add", compute_type),
        window,
        [1] * rank,
        [(0, 0)] * rank,
    )
    return narrowed(b, result, type_)
