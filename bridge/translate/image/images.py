"""Image ops: resizing and its gradients, colour spaces, contrast, local response normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib.matrices import widened
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import as_size, is_symbolic, larger
from ..array.gather import gather_axis
from ..array.scatter_gather import scatter_rows
from ..math.reductions import reduce, reducer
from ..nn.nn import full_quotient, narrowed
from ..node import Node
from ..registry import translates

_F32, _S32 = ElementType.F32, ElementType.S32
Taps = list[tuple[Operand, Operand]]  # for every output pixel of an axis: an input pixel, and its weight
_MAX_TAPS = 8  # of a pixel; a product of matrices takes less time than more of them


def scale_of(node: Node, size: int, new_size: int) -> np.float32:
    """Input pixels per output pixel."""
    return _scale(size, new_size, bool(node.attr("align_corners")))


def _scale(size: int, new_size: int, corners: bool) -> np.float32:
    if corners and new_size > 1:
        return np.float32((size - 1) / np.float32(new_size - 1))
    return np.float32(size / np.float32(new_size)) if new_size else np.float32(0)


def _linear(
    size: int, new_size: int, corners: bool, centres: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every output pixel of an axis: the lower and the upper input pixel, and the weight of the upper."""
    at = np.arange(new_size, dtype=np.float32)
    scale = _scale(size, new_size, corners)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if centres else at * scale
    low = np.floor(at)
    return (
        np.maximum(low, 0).astype(np.int64),
        np.minimum(np.ceil(at), size - 1).astype(np.int64),
        (at - low).astype(np.float32),
    )


def _linear_places(
    b: ComputationBuilder, size: int, new_size: int, corners: bool, centres: bool
) -> tuple[Operand, Operand, Operand]:
    """As `_linear`, as operands."""
    if not is_symbolic([size, new_size]):
        known = _linear(size, new_size, corners, centres)
        return b.constant(known[0]), b.constant(known[1]), b.constant(known[2])
    at = pixel_places(b, size, new_size, corners)
    if centres:
        at = pixel_places(b, size, new_size, corners, 0.5) - b.scalar_like(at, 0.5)
    lower = b.floor(at)
    low, high = (b.convert_element_type(x, _S32) for x in (lower, b.ceil(at)))
    last = b.broadcast(b.constant(size - 1, _S32), (new_size,))
    return b.max(low, b.full_like(low, 0)), b.min(high, last), at - lower


def pixel_places(
    b: ComputationBuilder, size: int, new_size: int, corners: bool, shift: float = 0.0
) -> Operand:
    """The number of every output pixel of an axis, shifted, as input pixels; sizes are known at run time only."""
    if corners and new_size > 1:
        sizes = size - 1, new_size - 1
    else:
        sizes = size, new_size
    pixels, new_pixels = (b.convert_element_type(b.constant(s, _S32), _F32) for s in sizes)
    at = b.iota(Shape(_F32, (new_size,)), 0)
    if shift:
        at = at + b.scalar_like(at, shift)
    return at * b.broadcast(b.div(pixels, new_pixels), (new_size,))


def image_sizes(node: Node, dims: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """(axis, input size, output size) of height and width."""
    if len(dims) != 4 or len(sizes) != 2 or any(size <= 0 for size in (*sizes, *dims[1:3])):
        raise ShapeError(f"{node.op}: input image must be of non-zero size: {list(dims)} to {list(sizes)}")
    if all(
        name in node.definition.attr and node.attr(name) for name in ("align_corners", "half_pixel_centers")
    ):
        raise ShapeError(f"{node.op}: half_pixel_centers and align_corners exclude each other")
    return [(axis, as_size(dims[axis]), as_size(sizes[axis - 1])) for axis in (1, 2)]


@translates("ResizeBilinear", constants=("size",))
def resize_bilinear(node: Node) -> Operand:
    return bilinear(
        node,
        node["images"],
        node.integers("size"),
        _F32,
        bool(node.attr("align_corners")),
        bool(node.attr("half_pixel_centers")),
    )


def bilinear(
    node: Node, x: Operand, sizes: Sequence[int], type_: ElementType, corners: bool, centres: bool
) -> Operand:
    """Images of other sizes, in the given type, every pixel a mix of the four around its place."""
    b, dims = node.b, node.b.get_shape(x).dims
    x = b.convert_element_type(x, type_)
    for axis, size, new_size in reversed(image_sizes(node, dims, sizes)):
        low, high, weight = _linear_places(b, size, new_size, corners, centres)
        lower, upper = (gather_axis(node, x, places, axis, 0) for places in (low, high))
        weight = b.convert_element_type(weight, type_)
        x = lower + (upper - lower) * b.broadcast_in_dim(weight, b.get_shape(lower).dims, [axis])
    return x


def resampled(node: Node, x: Operand, axis: int, matrix: np.ndarray) -> Operand:
    """An axis of [batch, height, width, channels] multiplied by a matrix [new, old]: as weighted sums of a few pixels
    each, where rows have few weights."""
    b = node.b
    pixels, shares = _taps(matrix)
    if pixels.shape[1] > _MAX_TAPS:
        return times_matrix(b, x, axis, b.constant(matrix, b.get_shape(x).element_type))
    type_ = b.get_shape(x).element_type
    columns = zip(pixels.T, shares.T)
    return sum_of_taps(node, x, axis, [(b.constant(p), b.constant(share, type_)) for p, share in columns])


def sum_of_taps(node: Node, x: Operand, axis: int, taps: Taps) -> Operand:
    """Images whose pixels along an axis are sums of weighted ones."""
    b, total = node.b, None
    # An axis after the other: fused, each pixel of the first were computed for each tap.
    x = b.optimization_barrier(x)
    for pixels, share in taps:
        taken = gather_axis(node, x, pixels, axis, 0)
        part = taken * b.broadcast_in_dim(share, b.get_shape(taken).dims, [axis])
        total = part if total is None else total + part
    assert total is not None
    return total


def times_matrix(b: ComputationBuilder, x: Operand, axis: int, matrix: Operand) -> Operand:
    """An axis of [batch, height, width, channels] multiplied by a matrix [new, old]."""
    product = b.dot_general(x, matrix, ([axis], [1]), ([], []))
    return b.transpose(product, (0, 3, 1, 2) if axis == 1 else (0, 1, 3, 2))


def _taps(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the weights in each row of a matrix, and those weights: as many for each row, at least one."""
    is_weight = matrix != 0
    count = max(1, int(is_weight.sum(1).max(initial=0)))
    first = np.argsort(~is_weight, axis=1, kind="stable")[:, :count]
    shares = np.take_along_axis(matrix, first, 1)
    return np.where(shares != 0, first, first[:, :1]), shares


@translates("ResizeBilinearGrad")
def resize_bilinear_grad(node: Node) -> Operand:
    """The transposed interpolation: a product with the matrix of weights along each axis."""
    b, dims, type_ = node.b, node.shape("original_image"), node.element_type("original_image")
    compute_type = ElementType.F64 if type_ is ElementType.F64 else _F32
    centering = bool(node.attr("align_corners")), bool(node.attr("half_pixel_centers"))
    x = b.convert_element_type(node["grads"], compute_type)
    for axis, size, new_size in image_sizes(node, dims, node.shape("grads")[1:3]):
        if is_symbolic([size, new_size]):
            low, high, weight = _linear_places(b, size, new_size, *centering)
            taps = [(low, b.full_like(weight, 1) - weight), (high, weight)]
            matrix = b.convert_element_type(symbolic_matrix(b, size, new_size, taps), compute_type)
            x = times_matrix(b, x, axis, matrix)
        else:
            x = resampled(node, x, axis, _linear_matrix(size, new_size, *centering))
    return b.convert_element_type(x, type_)


def symbolic_matrix(b: ComputationBuilder, size: int, new_size: int, taps: Taps) -> Operand:
    """The weight of every input pixel (row) in every output pixel (column) of an axis."""
    dims = size, new_size
    row, total = b.iota(Shape(_S32, dims), 0), None
    for pixels, share in taps:
        column = b.broadcast_in_dim(share, dims, [1])
        part = b.select(b.eq(row, b.broadcast_in_dim(pixels, dims, [1])), column, b.full_like(column, 0))
        total = part if total is None else total + part
    assert total is not None
    return total


def _linear_matrix(size: int, new_size: int, corners: bool, centres: bool) -> np.ndarray:
    """As `symbolic_matrix`, as numbers."""
    lower, upper, upper_weight = _linear(size, new_size, corners, centres)
    matrix = np.zeros((size, new_size), np.float32)
    np.add.at(matrix, (lower, np.arange(new_size)), 1 - upper_weight)
    np.add.at(matrix, (upper, np.arange(new_size)), upper_weight)
    return matrix


def _nearest(node: Node, size: int, new_size: int) -> Operand:
    """The input pixel of every output pixel of an axis."""
    b = node.b
    if not is_symbolic([size, new_size]):
        return b.constant(_nearest_pixels(node, size, new_size))
    at = pixel_places(
        b, size, new_size, bool(node.attr("align_corners")), 0.5 * node.attr("half_pixel_centers")
    )
    if node.attr("align_corners"):
        at = at + b.scalar_like(at, 0.5)
    places = b.convert_element_type(b.floor(at), _S32)
    last = b.broadcast(b.constant(size - 1, _S32), (new_size,))
    return b.min(b.max(places, b.full_like(places, 0)), last)


def _nearest_pixels(node: Node, size: int, new_size: int) -> np.ndarray:
    """As `_nearest`, as numbers."""
    at = np.arange(new_size, dtype=np.float32)
    scale = scale_of(node, size, new_size)
    at = (at + np.float32(0.5)) * scale if node.attr("half_pixel_centers") else at * scale
    if node.attr("align_corners"):
        places = np.floor(at + np.float32(0.5))
    else:
        places = np.floor(at)
    return np.clip(places, 0, size - 1).astype(np.int64)


@translates("ResizeNearestNeighbor", constants=("size",))
def resize_nearest(node: Node) -> Operand:
    x = node["images"]
    for axis, size, new_size in image_sizes(node, node.shape(0), node.integers("size")):
        x = gather_axis(node, x, _nearest(node, size, new_size), axis, 0)
    return x


@translates("ResizeNearestNeighborGrad", constants=("size",))
def resize_nearest_grad(node: Node) -> Operand:
    """Every gradient goes to the pixel that was taken."""
    b, x = node.b, node["grads"]
    sizes = node.integers("size")
    for axis, size, new_size in image_sizes(node, (1, *sizes, 1), node.shape(0)[1:3]):
        order = (axis, *(a for a in range(4) if a != axis))
        rows = b.transpose(x, order)
        base = b.broadcast(b.scalar_like(x, 0), (size, *b.get_shape(rows).dims[1:]))
        summed = scatter_rows(b, base, _nearest(node, size, new_size), rows, "add")
        x = b.transpose(summed, [order.index(a) for a in range(4)])
    return x


# -- colours


def _channels(b: ComputationBuilder, x: Operand) -> list[Operand]:
    """The three channels, without their axis."""
    dims = b.get_shape(x).dims
    if not dims or dims[-1] != 3:
        raise ShapeError(f"input must have 3 channels but instead has {dims[-1] if dims else 0} channels.")
    last = len(dims) - 1
    return [b.reshape(b.slice_in_dim(x, k, k + 1, 1, last), dims[:-1]) for k in range(3)]


def _joined(b: ComputationBuilder, channels: Sequence[Operand]) -> Operand:
    dims = b.get_shape(channels[0]).dims
    return b.concat_in_dim([b.reshape(c, (*dims, 1)) for c in channels], len(dims))


def hsv_of_rgb(b: ComputationBuilder, red: Operand, green: Operand, blue: Operand) -> list[Operand]:
    """Hue, saturation, value."""
    zero, one, sixth = (b.scalar_like(red, v) for v in (0, 1, 1 / 6))
    value = b.max(b.max(red, green), blue)
    chroma = value - b.min(b.min(red, green), blue)
    full = b.get_shape(red).dims
    saturation = b.select(b.gt(value, zero), chroma / value, b.broadcast(zero, full))
    norm = sixth / chroma
    hue = b.select(
        b.eq(red, value),
        norm * (green - blue),
        b.select(
            b.eq(green, value),
            norm * (blue - red) + b.scalar_like(red, 2 / 6),
            norm * (red - green) + b.scalar_like(red, 4 / 6),
        ),
    )
    hue = b.select(b.gt(chroma, zero), hue, b.broadcast(zero, full))
    return [b.select(b.lt(hue, zero), hue + one, hue), saturation, value]


def rgb_of_hsv(b: ComputationBuilder, hue: Operand, saturation: Operand, value: Operand) -> list[Operand]:
    """Red, green, blue."""
    zero, one = b.scalar_like(hue, 0), b.scalar_like(hue, 1)
    six = hue * b.scalar_like(hue, 6)

    def weight(of: Callable[[Operand], Operand]) -> Operand:
        share = b.clamp(zero, of(six), one)
        return ((one - saturation) + saturation * share) * value

    def number(x: float) -> Operand:
        return b.scalar_like(hue, x)

    return [
        weight(lambda h: b.abs(h - number(3)) - one),
        weight(lambda h: number(2) - b.abs(h - number(2))),
        weight(lambda h: number(2) - b.abs(h - number(4))),
    ]


@translates("RGBToHSV", "HSVToRGB")
def colour_space(node: Node) -> Operand:
    b, type_ = node.b, node.element_type(0)
    turn = hsv_of_rgb if node.op == "RGBToHSV" else rgb_of_hsv
    return narrowed(b, _joined(b, turn(b, *_channels(b, widened(b, node[0])))), type_)


@translates("AdjustHue", "AdjustSaturation")
def adjust_colour(node: Node) -> Operand:
    b, type_ = node.b, node.element_type(0)
    hue, saturation, value = hsv_of_rgb(b, *_channels(b, b.convert_element_type(node[0], _F32)))
    if node.op == "AdjustHue":
        hue = hue + node["delta"]
        hue = hue - b.floor(hue)
    else:
        zero, one = b.full_like(hue, 0), b.full_like(hue, 1)
        saturation = saturation * node["scale"]
        saturation = b.select(b.gt(saturation, zero), saturation, zero)  # NaN counts as 0
        saturation = b.select(b.lt(saturation, one), saturation, one)
    return narrowed(b, _joined(b, rgb_of_hsv(b, hue, saturation, value)), type_)


@translates("AdjustContrastv2")
def adjust_contrast(node: Node) -> Operand:
    """The distance of every pixel from its channel's mean is scaled."""
    b, shape = node.b, node.array_shape(0)
    x = b.convert_element_type(node[0], _F32)
    height, width = shape.rank - 3, shape.rank - 2
    count = larger(shape.dims[height] * shape.dims[width], 1)
    total = reduce(b, x, "add", [height, width])
    mean = total * full_quotient(b, total, 1, count)
    other_axes = [a for a in range(shape.rank) if a not in (height, width)]
    mean = b.broadcast_in_dim(mean, shape.dims, other_axes)
    return narrowed(b, (x - mean) * node["contrast_factor"] + mean, shape.element_type)


# -- local response normalization


def _window_sums(b: ComputationBuilder, x: Operand, radius: int) -> Operand:
    """Sums over the channels at most `radius` away."""
    type_ = b.get_shape(x).element_type
    return b.reduce_window_with_general_padding(
        x,
        b.constant(0, type_),
        reducer(b, "add", type_),
        (1, 1, 1, 2 * radius + 1),
        (1,) * 4,
        [(0, 0)] * 3 + [(radius, radius)],
    )


@translates("LRN", "LRNGrad")
def local_response_normalization(node: Node) -> Operand:
    """x / n^beta with n = bias + alpha sum(x^2); the gradient dy / n^beta - 2 alpha beta x sum(dy y / n)."""
    b, type_ = node.b, node.element_type(0)
    x = widened(b, node["input" if node.op == "LRN" else "input_image"])
    radius = int(node.attr("depth_radius"))
    alpha, beta, bias = (b.scalar_like(x, node.attr(k)) for k in ("alpha", "beta", "bias"))
    norm = _window_sums(b, x * x, radius) * alpha + bias
    power = b.pow(norm, b.broadcast(-beta, b.get_shape(norm).dims))
    if node.op == "LRN":
        return narrowed(b, x * power, type_)
    dy, y = widened(b, node["input_grads"]), widened(b, node["output_image"])
    sums = _window_sums(b, dy * y / norm, radius)
    return narrowed(b, dy * power - x * sums * alpha * beta * b.scalar_like(x, 2), type_)
