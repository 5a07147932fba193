"""Images resampled: bicubic, by area, with any kernel, crops of boxes, projective transforms."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import is_symbolic
from ..array.gather import gather_axis, gather_points
from ..array.scatter_gather import scatter_points
from ..math.reductions import reduce
from ..node import Node
from ..operands.value_ranges import any_of, check_indices
from ..registry import translates
from .images import (
    Taps,
    image_sizes,
    pixel_places,
    resampled,
    scale_of,
    sum_of_taps,
    symbolic_matrix,
    times_matrix,
)

_F32, _F64, _S32 = ElementType.F32, ElementType.F64, ElementType.S32
Weights = tuple[np.ndarray, np.ndarray]  # for every output pixel: input pixels, and the weight of each


def _matrix(weights: Weights, size: int) -> np.ndarray:
    pixels, shares = weights
    matrix = np.zeros((len(pixels), size), np.float32)
    np.add.at(matrix, (np.arange(len(pixels))[:, None], pixels), shares)
    return matrix


# -- bicubic
# Source: tensorflow/core/kernels/image/resize_bicubic_op.cc, which looks weights up in a table of 1025 places.
_PLACES = 1 << 10
_LEAST_TOTAL = float(1000 * np.finfo(np.float32).tiny)


def _cubic_table(a: float) -> np.ndarray:
    x = np.arange(_PLACES + 1) / np.float32(_PLACES)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    return np.stack([inner, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a], 1).astype(np.float32)


def _cubic(node: Node, size: int, new_size: int) -> Weights:
    half = bool(node.attr("half_pixel_centers"))
    at, scale = np.arange(new_size, dtype=np.float32), scale_of(node, size, new_size)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale
    low = np.floor(at).astype(np.int64)
    place = np.rint((at - low.astype(np.float32)) * np.float32(_PLACES)).astype(np.int64)
    table = _cubic_table(-0.5 if half else -0.75)
    shares = np.stack(
        [table[place, 1], table[place, 0], table[_PLACES - place, 0], table[_PLACES - place, 1]], 1
    )
    positions = low[:, None] + np.arange(-1, 3)
    pixels = np.clip(positions, 0, size - 1)
    if half:
        shares = np.where(pixels == positions, shares, 0).astype(np.float32)
        shares = _normalized(shares)
    return pixels, shares


def _symbolic_cubic(node: Node, size: int, new_size: int) -> Taps:
    """As `_cubic`, where sizes are known at run time only."""
    b, half = node.b, bool(node.attr("half_pixel_centers"))
    at = pixel_places(b, size, new_size, bool(node.attr("align_corners")), 0.5 * half)
    at = at - b.full_like(at, 0.5 * half)
    low = b.floor(at)
    place = b.convert_element_type(b.round_nearest_even((at - low) * b.full_like(at, _PLACES)), _S32)
    other, first = b.full_like(place, _PLACES) - place, b.convert_element_type(low, _S32)
    table = _cubic_table(-0.5 if half else -0.75)
    last = b.broadcast(b.constant(size - 1, _S32), (new_size,))
    taps = []
    for shift, (index, column) in enumerate([(place, 1), (place, 0), (other, 0), (other, 1)], -1):
        share = gather_axis(node, b.constant(table[:, column]), index, 0, 0)
        position = first + b.full_like(first, shift)
        pixels = b.min(b.max(position, b.full_like(position, 0)), last)
        if half:
            share = b.select(b.eq(pixels, position), share, b.full_like(share, 0))
        taps.append((pixels, share))
    if not half:
        return taps
    total = functools.reduce(b.add, (share for _, share in taps))
    usable = b.ge(b.abs(total), b.full_like(total, _LEAST_TOTAL))
    return [(pixels, b.select(usable, b.div(share, total), share)) for pixels, share in taps]


def _normalized(shares: np.ndarray) -> np.ndarray:
    total = shares.sum(1, keepdims=True, dtype=np.float32)
    usable = np.abs(total) >= _LEAST_TOTAL
    return np.where(usable, shares / np.where(usable, total, 1), shares).astype(np.float32)


@translates("ResizeBicubic", constants=("size",))
def resize_bicubic(node: Node) -> Operand:
    x = node.b.convert_element_type(node["images"], _F32)
    for axis, size, new_size in image_sizes(node, node.shape(0), node.integers("size")):
        if is_symbolic((size, new_size)):
            x = sum_of_taps(node, x, axis, _symbolic_cubic(node, size, new_size))
        else:
            x = resampled(node, x, axis, _matrix(_cubic(node, size, new_size), size))
    return x


@translates("ResizeBicubicGrad")
def resize_bicubic_grad(node: Node) -> Operand:
    b, type_ = node.b, node.element_type("original_image")
    x = b.convert_element_type(node["grads"], type_)
    for axis, size, new_size in image_sizes(node, node.shape("original_image"), node.shape("grads")[1:3]):
        if is_symbolic((size, new_size)):
            matrix = symbolic_matrix(b, size, new_size, _symbolic_cubic(node, size, new_size))
            x = times_matrix(b, x, axis, b.convert_element_type(matrix, type_))
        else:
            x = resampled(node, x, axis, _matrix(_cubic(node, size, new_size), size).T)
    return x


# -- by area


def _all_finite(node: Node, x: Operand) -> None:
    """Leaves the run where a pixel is not finite: a product with a weight of zero would spread it."""
    node.bail_out_if(
        any_of(node.b, node.b.not_(node.b.is_finite(x)), range(node.b.get_shape(x).rank)),
        "a value is not finite",
    )


def _area(node: Node, size: int, new_size: int) -> np.ndarray:
    """The share of every input pixel in every output pixel."""
    scale = scale_of(node, size, new_size) or np.float32(size) / np.float32(new_size)
    matrix = np.zeros((new_size, size), np.float32)
    for y in range(new_size):
        start, end = np.float32(y) * scale, np.float32(y + 1) * scale
        for i in range(math.floor(start), math.ceil(end)):
            if i < start:
                share = scale if i + 1 > end else np.float32(i + 1) - start
            else:
                share = end - np.float32(i) if i + 1 > end else np.float32(1)
            matrix[y, min(max(i, 0), size - 1)] += share / scale
    return matrix


@translates("ResizeArea", constants=("size",))
def resize_area(node: Node) -> Operand:
    x = node.b.convert_element_type(node["images"], _F32)
    _all_finite(node, x)
    for axis, size, new_size in image_sizes(node, node.shape(0), node.integers("size")):
        x = resampled(node, x, axis, _area(node, size, new_size))
    return x


# -- with a kernel
# Source: tensorflow/core/kernels/image/scale_and_translate_op.cc, sampling_kernels.h


def _lanczos(radius: float) -> Callable[[np.ndarray], np.ndarray]:
    def kernel(x: np.ndarray) -> np.ndarray:
        safe = np.where(x == 0, 1, x) * math.pi
        return np.where(
            x > radius, 0, np.where(x == 0, 1, radius * np.sin(safe) * np.sin(safe / radius) / safe**2)
        )

    return kernel


def _keys(x: np.ndarray) -> np.ndarray:
    inner, outer = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0, np.where(x >= 1, outer, inner))


def _mitchell(x: np.ndarray) -> np.ndarray:
    inner, outer = ((7 / 6 * x - 2) * x) * x + 8 / 9, ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x >= 2, 0, np.where(x >= 1, outer, inner))


_KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "lanczos1": (1.0, _lanczos(1.0)),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
    "gaussian": (1.5, lambda x: np.where(x >= 1.5, 0, np.exp(-x * x / (2 * 0.5**2)))),
    "box": (1.0, lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))),
    "triangle": (1.0, lambda x: np.maximum(0, 1 - x)),
    "keyscubic": (2.0, _keys),
    "mitchellcubic": (2.0, _mitchell),
}


def _spans(node: Node, size: int, new_size: int, scale: float, translation: float) -> np.ndarray:
    """The matrix [wanted, size] of weights along an axis."""
    radius, kernel = _KERNELS[node.attr("kernel_type")]
    inverse = np.float32(1) / np.float32(scale)
    stretch = max(inverse, np.float32(1)) if node.attr("antialias") else np.float32(1)
    at = (np.arange(new_size, dtype=np.float32) + np.float32(0.5)) * inverse + -inverse * np.float32(
        translation
    )
    reach = np.float32(radius) * stretch
    first = np.clip(np.ceil(at - reach - np.float32(0.5)), 0, size - 1)
    last = np.clip(np.floor(at + reach - np.float32(0.5)), 0, size - 1)
    pixels = np.arange(size, dtype=np.float32)
    shares = kernel(np.abs((pixels + np.float32(0.5) - at[:, None]) / stretch)).astype(np.float32)
    shares = np.where((pixels >= first[:, None]) & (pixels <= last[:, None]), shares, 0).astype(np.float32)
    shares = _normalized(shares)
    return np.where((at < 0) | (at > size), 0, shares.T).T.astype(np.float32)


def _scale_and_translation(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Raises: ShapeError  a scale is not greater than zero, or one is not finite."""
    scale, translation = node.constant("scale"), node.constant("translation")
    if not (scale > 0).all() or not np.isfinite([*scale, *translation]).all():
        raise ShapeError(f"{node.op}: scale {scale.tolist()} or translation {translation.tolist()}")
    return scale, translation


@translates("ScaleAndTranslate", constants=("size", "scale", "translation"))
def scale_and_translate(node: Node) -> Operand:
    x = node.b.convert_element_type(node["images"], _F32)
    _all_finite(node, x)
    scale, translation = _scale_and_translation(node)
    for axis, size, new_size in image_sizes(node, node.shape(0), node.integers("size")):
        x = resampled(node, x, axis, _spans(node, size, new_size, scale[axis - 1], translation[axis - 1]))
    return x


@translates("ScaleAndTranslateGrad", constants=("scale", "translation"))
def scale_and_translate_grad(node: Node) -> Operand:
    x, (scale, translation) = node["grads"], _scale_and_translation(node)
    _all_finite(node, x)
    for axis, size, new_size in image_sizes(node, node.shape("original_image"), node.shape("grads")[1:3]):
        x = resampled(node, x, axis, _spans(node, size, new_size, scale[axis - 1], translation[axis - 1]).T)
    return x


# -- crops of boxes


def _crop_places(b: ComputationBuilder, boxes: Operand, axis: int, size: int, crop_size: int) -> Operand:
    """Where in an image's height (0) or width (1) the pixels of the crops lie: f32[boxes, wanted]."""
    count = b.get_shape(boxes).dims[0]
    start, end = (b.reshape(b.slice_in_dim(boxes, k, k + 1, 1, 1), (count,)) for k in (axis, axis + 2))
    dims, last = (count, crop_size), b.constant(size - 1, _F32)
    if crop_size > 1:
        step = (end - start) * last / b.constant(float(crop_size - 1), _F32)
        at = b.broadcast_in_dim(b.iota(Shape(_F32, (crop_size,)), 0), dims, [1])
        return b.broadcast_in_dim(start * last, dims, [0]) + at * b.broadcast_in_dim(step, dims, [0])
    return b.broadcast_in_dim((start + end) * b.constant(0.5, _F32) * last, dims, [0])


def _crop(
    node: Node, dims: Sequence[int], crop_sizes: Sequence[int]
) -> tuple[list[Operand], Operand, Operand]:
    """([y, x] of every pixel of the crops, which lie inside, the image of each), f32[n, height, width] of them."""
    b, boxes = node.b, node["boxes"]
    count = node.shape("boxes")[0]
    if node.shape("boxes") != (count, 4) or node.shape("box_ind") != (count,):
        raise ShapeError(
            f"boxes must be [n, 4] and box_ind [n], got {list(node.shape('boxes'))} and "
            f"{list(node.shape('box_ind'))}"
        )
    check_indices(node, node["box_ind"], dims[0])
    full = (count, *crop_sizes)
    places, inside = [], None
    for axis in range(2):
        at = _crop_places(b, boxes, axis, dims[axis + 1], crop_sizes[axis])
        within = b.and_(b.ge(at, b.full_like(at, 0)), b.le(at, b.full_like(at, dims[axis + 1] - 1)))
        within = b.broadcast_in_dim(within, full, [0, axis + 1])
        inside = within if inside is None else b.and_(inside, within)
        places.append(b.broadcast_in_dim(at, full, [0, axis + 1]))
    assert inside is not None
    return places, inside, b.broadcast_in_dim(node["box_ind"], full, [0])


def _corners(
    b: ComputationBuilder, places: Sequence[Operand], image: Operand, method: str
) -> list[tuple[Operand, Operand]]:
    """(index [.., 3], weight) of the pixels that each crop's pixel is made of."""

    def index(y: Operand, x: Operand) -> Operand:
        parts = [image, *(b.convert_element_type(v, _S32) for v in (y, x))]
        dims = b.get_shape(image).dims
        return b.concat_in_dim([b.reshape(p, (*dims, 1)) for p in parts], len(dims))

    if method == "nearest":
        y, x = (b.round(p) for p in places)
        return [(index(y, x), b.full_like(y, 1))]
    ends = [(b.floor(p), b.ceil(p)) for p in places]
    upper = [p - low for p, (low, _) in zip(places, ends)]
    one = b.full_like(upper[0], 1)
    shares = [(one - u, u) for u in upper]
    return [
        (index(ends[0][k], ends[1][m]), shares[0][k] * shares[1][m])
        for k, m in itertools.product(range(2), range(2))
    ]


def _per_channel(b: ComputationBuilder, x: Operand, depth: int) -> Operand:
    dims = b.get_shape(x).dims
    return b.broadcast_in_dim(x, (*dims, depth), range(len(dims)))


@translates("CropAndResize", constants=("crop_size",))
def crop_and_resize(node: Node) -> Operand:
    b, dims = node.b, node.shape("image")
    places, inside, image = _crop(node, dims, node.integers("crop_size"))
    _all_finite(node, node["boxes"])  # TensorFlow's error
    total = None
    for index, share in _corners(b, places, image, node.attr("method")):
        value = b.convert_element_type(gather_points(b, node["image"], index), _F32)
        value = value * _per_channel(b, share, dims[3])
        total = value if total is None else total + value
    assert total is not None
    return b.select(
        _per_channel(b, inside, dims[3]), total, b.full_like(total, node.attr("extrapolation_value"))
    )


@translates("CropAndResizeGradImage", constants=("image_size",))
def crop_and_resize_grad_image(node: Node) -> Operand:
    b, dims, type_ = node.b, node.integers("image_size"), node.attr("T")
    if dims[3] != node.shape("grads")[3]:
        raise ShapeError(f"image_size {list(dims)} and grads {list(node.shape('grads'))} are incompatible")
    places, inside, image = _crop(node, dims, node.shape("grads")[1:3])
    summed = _F64 if type_ is _F64 else _F32
    result = b.broadcast(b.constant(0, summed), dims)
    for index, share in _corners(b, places, image, node.attr("method")):
        share = b.select(inside, share, b.full_like(share, 0))
        part = b.convert_element_type(node["grads"] * _per_channel(b, share, dims[3]), summed)
        result = scatter_points(b, result, index, part, "add")
    return b.convert_element_type(result, type_)


@translates("CropAndResizeGradBoxes")
def crop_and_resize_grad_boxes(node: Node) -> Operand:
    b, dims, crop_sizes = node.b, node.shape("image"), node.shape("grads")[1:3]
    places, inside, image = _crop(node, dims, crop_sizes)
    values = [
        b.convert_element_type(gather_points(b, node["image"], index), _F32)
        for index, _ in _corners(b, places, image, "bilinear")
    ]
    columns = []
    for axis, (low, high) in enumerate((((0, 1), (2, 3)), ((0, 2), (1, 3)))):
        other = places[1 - axis]
        share = _per_channel(b, other - b.floor(other), dims[3])
        slopes = [values[h] - values[k] for k, h in zip(low, high)]
        slope = (b.full_like(share, 1) - share) * slopes[0] + share * slopes[1]
        slope = reduce(b, slope * node["grads"], "add", [3])
        slope = b.select(inside, slope, b.full_like(slope, 0))
        size, count = dims[axis + 1], crop_sizes[axis]
        steps = np.arange(count, dtype=np.float32) / (count - 1) if count > 1 else np.array([0.5], np.float32)
        last = b.broadcast(b.constant(size - 1, _F32), (count,))
        for shares in (1 - steps, steps):
            along = b.broadcast_in_dim(b.constant(shares) * last, b.get_shape(slope).dims, [axis + 1])
            columns.append(reduce(b, slope * along, "add", [1, 2]))
    order = [columns[0], columns[2], columns[1], columns[3]]
    return b.concat_in_dim([b.reshape(c, (node.shape("boxes")[0], 1)) for c in order], 1)


# -- projective transforms
# Source: tensorflow/core/kernels/image/image_ops.h


def _mapped(b: ComputationBuilder, at: Operand, size: int, mode: str) -> Operand:
    """A place outside of an axis brought inside, as the mode wants it."""
    last, zero = b.scalar_like(at, size - 1), b.scalar_like(at, 0)
    if mode == "CONSTANT":
        return at
    if mode != "NEAREST" and size > 1:
        whole = b.scalar_like(at, 2 * size if mode == "REFLECT" else size - 1)
        turns = b.select(b.lt(at, zero), b.ceil(at / whole), b.floor(at / whole))  # towards zero
        if mode == "REFLECT":
            below = at - turns * whole
            below = b.select(b.lt(below, b.full_like(at, -size)), below + whole, b.full_like(at, -1) - below)
            above = at - turns * whole
            above = b.select(b.ge(above, b.full_like(at, size)), b.full_like(at, 2 * size - 1) - above, above)
        else:
            length = b.full_like(at, size)
            below, above = at + length * (b.full_like(at, 1) - turns), at - length * turns
        at = b.select(b.lt(at, zero), below, b.select(b.gt(at, b.full_like(at, size - 1)), above, at))
    return b.clamp(zero, at, last)


def _bilinear(
    b: ComputationBuilder,
    read: Callable[[Operand, Operand], Operand],
    at: tuple[Operand, Operand],
    type_: ElementType,
    depth: int,
) -> Operand:
    """The values at rows and columns `at`, between the four pixels around that `read` gives."""
    compute_type = _F64 if type_ is _F64 else _F32
    low = [b.floor(v) for v in at]
    upper = [_per_channel(b, b.convert_element_type(v - f, compute_type), depth) for v, f in zip(at, low)]
    lower = [b.full_like(u, 1) - u for u in upper]
    high = [f + b.full_like(f, 1) for f in low]
    rows = [
        b.convert_element_type(read(v, low[1]), compute_type) * lower[1]
        + b.convert_element_type(read(v, high[1]), compute_type) * upper[1]
        for v in (low[0], high[0])
    ]
    return b.convert_element_type(rows[0] * lower[0] + rows[1] * upper[0], type_)


@translates("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", constants=("output_shape",))
def projective_transform(node: Node) -> Operand:
    b, (batch, height, width, depth) = node.b, node.shape("images")
    new_sizes, type_ = node.integers("output_shape"), node.element_type("images")
    transforms = node["transforms"]
    if node.shape("transforms") not in ((batch, 8), (1, 8)):
        raise ShapeError(f"transforms must be [{batch}, 8] or [1, 8], got {list(node.shape('transforms'))}")
    full = (batch, *new_sizes)
    count = node.shape("transforms")[0]

    def parameter(k: int) -> Operand:
        column = b.slice_in_dim(transforms, k, k + 1, 1, 1)
        if count == batch:
            return b.broadcast_in_dim(b.reshape(column, (batch,)), full, [0])
        return b.broadcast(b.reshape(column, ()), full)

    x, y = (b.iota(Shape(_F32, full), axis) for axis in (2, 1))
    projection = parameter(6) * x + parameter(7) * y + b.full_like(x, 1)
    mode = node.attr("fill_mode") or "CONSTANT"
    at_x = _mapped(b, (parameter(0) * x + parameter(1) * y + parameter(2)) / projection, width, mode)
    at_y = _mapped(b, (parameter(3) * x + parameter(4) * y + parameter(5)) / projection, height, mode)
    fill = node["fill_value"] if node.op.endswith("V3") else b.constant(0.0, _F32)
    image = b.iota(Shape(_S32, full), 0)

    def read(y: Operand, x: Operand) -> Operand:
        inside = b.and_(
            b.and_(b.ge(y, b.full_like(y, 0)), b.lt(y, b.full_like(y, height))),
            b.and_(b.ge(x, b.full_like(x, 0)), b.lt(x, b.full_like(x, width))),
        )
        index = b.concat_in_dim(
            [
                b.reshape(v, (*full, 1))
                for v in (image, b.convert_element_type(y, _S32), b.convert_element_type(x, _S32))
            ],
            3,
        )
        value = gather_points(b, node["images"], index)
        other = b.broadcast(b.convert_element_type(fill, type_), (*full, depth))
        return b.select(_per_channel(b, inside, depth), value, other)

    if node.attr("interpolation") == "NEAREST":
        result = read(b.round(at_y), b.round(at_x))
    else:
        result = _bilinear(b, read, (at_y, at_x), type_, depth)
    flat = _per_channel(b, b.eq(projection, b.full_like(projection, 0)), depth)
    return b.select(flat, b.broadcast(b.convert_element_type(fill, type_), (*full, depth)), result)
