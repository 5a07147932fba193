"""Ops that move blocks of space into batch or depth and back, take patches, roll and reverse sequences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import as_size
from ..node import Node
from ..operands.axes import axis_of, spatial_entries
from ..operands.value_ranges import check_indices
from ..registry import translates
from .gather import gather_axis

_S64 = ElementType.S64
Pairs = Sequence[Sequence[int]]


def _space_to_batch(b: ComputationBuilder, x: Operand, block: Sequence[int], paddings: Pairs) -> Operand:
    n = len(block)
    rest = len(b.get_shape(x).dims) - n - 1
    x = b.pad(
        x,
        b.scalar_like(x, 0),
        [(0, 0), *((as_size(low), as_size(high)) for low, high in paddings), *[(0, 0)] * rest],
    )
    batch, *dims = b.get_shape(x).dims
    if any(d % s for d, s in zip(dims, block)):
        raise ShapeError(f"padded_shape {dims[:n]} is not divisible by block_shape {list(block)}")
    split = b.reshape(x, [batch, *itertools.chain(*((d // s, s) for d, s in zip(dims, block))), *dims[n:]])
    order = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n + 1, 2), *range(2 * n + 1, 2 * n + 1 + rest)]
    return b.reshape(
        b.transpose(split, order),
        [batch * math.prod(block), *(d // s for d, s in zip(dims, block)), *dims[n:]],
    )


def _batch_to_space(b: ComputationBuilder, x: Operand, block: Sequence[int], crops: Pairs) -> Operand:
    n = len(block)
    batch, *dims = b.get_shape(x).dims
    blocks = math.prod(block)
    if batch % blocks:
        raise ShapeError(
            f"Input batch dimension ({batch}) is not divisible by product of block sizes ({blocks})"
        )
    split = b.reshape(x, [*block, batch // blocks, *dims])
    order = [n, *itertools.chain(*((n + 1 + k, k) for k in range(n))), *range(2 * n + 1, n + 1 + len(dims))]
    whole = [d * s for d, s in zip(dims, block)]
    joined = b.reshape(b.transpose(split, order), [batch // blocks, *whole, *dims[n:]])
    low = [0, *(as_size(c[0]) for c in crops), *[0] * (len(dims) - n)]
    high = [batch // blocks, *(d - as_size(c[1]) for d, c in zip(whole, crops)), *dims[n:]]
    if any(start > end for start, end in zip(low, high)):
        raise ShapeError(
            f"cropped_shape is negative: {whole} with crops {[list(map(int, c)) for c in crops]}"
        )
    return b.slice(joined, low, high)


@translates("SpaceToBatchND", constants=("block_shape", "paddings"))
def space_to_batch_nd(node: Node) -> Operand:
    return _space_to_batch(node.b, node[0], node.integers(1), node.constant(2).tolist())


@translates("BatchToSpaceND", constants=("block_shape", "crops"))
def batch_to_space_nd(node: Node) -> Operand:
    return _batch_to_space(node.b, node[0], node.integers(1), node.constant(2).tolist())


@translates("SpaceToBatch", constants=("paddings",))
def space_to_batch(node: Node) -> Operand:
    return _space_to_batch(node.b, node[0], [node.attr("block_size")] * 2, node.constant(1).tolist())


@translates("BatchToSpace", constants=("crops",))
def batch_to_space(node: Node) -> Operand:
    return _batch_to_space(node.b, node[0], [node.attr("block_size")] * 2, node.constant(1).tolist())


@translates("SpaceToDepth", "DepthToSpace")
def depth_and_space(node: Node) -> Operand:
    b, x, size = node.b, node[0], node.attr("block_size")
    form = node.attr("data_format")
    if form not in ("NHWC", "NCHW"):
        raise UnsupportedError(f"{node.op}: data_format {form}")
    if form == "NCHW":
        x = b.transpose(x, (0, 2, 3, 1))
    batch, height, width, depth = b.get_shape(x).dims
    if node.op == "SpaceToDepth":
        if height % size or width % size:
            raise ShapeError(
                f"Image width {width} and height {height} should be divisible by block_size: {size}"
            )
        x = b.reshape(x, (batch, height // size, size, width // size, size, depth))
        x = b.reshape(
            b.transpose(x, (0, 1, 3, 2, 4, 5)), (batch, height // size, width // size, size * size * depth)
        )
    else:
        if depth % (size * size):
            raise ShapeError(f"Input depth dimension {depth} should be divisible by: {size * size}")
        x = b.reshape(x, (batch, height, width, size, size, depth // (size * size)))
        x = b.reshape(
            b.transpose(x, (0, 1, 3, 2, 4, 5)), (batch, height * size, width * size, depth // (size * size))
        )
    return b.transpose(x, (0, 3, 1, 2)) if form == "NCHW" else x


@translates("ExtractImagePatches", "ExtractVolumePatches")
def extract_patches(node: Node) -> Operand:
    """Every patch, its elements one after the other along the depth."""
    b, x, n = node.b, node[0], len(node.shape(0)) - 2
    sizes, strides, rates = (
        spatial_entries(node.attr(k) or [1] * (n + 2), range(1, n + 1), k)
        for k in ("ksizes", "strides", "rates")
    )
    padding, counts = [(0, 0)], []
    for size, stride, rate, dim in zip(sizes, strides, rates, node.shape(0)[1:]):
        reach = (size - 1) * rate + 1
        count = -(-dim // stride) if node.attr("padding") == "SAME" else (dim - reach) // stride + 1
        total = max(0, (count - 1) * stride + reach - dim) if node.attr("padding") == "SAME" else 0
        counts.append(max(count, 0))
        padding.append((total // 2, total - total // 2))
    x = b.pad(x, b.scalar_like(x, 0), [*padding, (0, 0)])
    batch, depth = node.shape(0)[0], node.shape(0)[-1]
    is_tiled = sizes == strides and all(r == 1 for r in rates)
    patches = _tiles(b, x, counts, sizes) if is_tiled else _windows(b, x, counts, sizes, strides, rates)
    return b.reshape(patches, (batch, *counts, math.prod(sizes) * depth))


def _tiles(b: ComputationBuilder, x: Operand, counts: Sequence[int], sizes: Sequence[int]) -> Operand:
    """[batch, counts..., sizes..., depth]: patches side by side, with what is left over at the ends cut off."""
    n, (batch, *_, depth) = len(sizes), b.get_shape(x).dims
    whole = [count * size for count, size in zip(counts, sizes)]
    x = b.slice(x, [0] * (n + 2), [batch, *whole, depth])
    split = b.reshape(x, (batch, *itertools.chain(*zip(counts, sizes)), depth))
    return b.transpose(split, (0, *range(1, 2 * n, 2), *range(2, 2 * n + 1, 2), 2 * n + 1))


def _windows(
    b: ComputationBuilder,
    x: Operand,
    counts: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
) -> Operand:
    """[batch, counts..., sizes..., depth]: gathered as whole windows, or element by element where they have holes."""
    n, (batch, *_, depth) = len(sizes), b.get_shape(x).dims
    has_holes = any(r != 1 for r in rates)
    dims = (*counts, *sizes) if has_holes else tuple(counts)
    steps = [b.iota(Shape(_S64, dims), axis) for axis in range(len(dims))]
    starts = [step * b.full_like(step, stride) for step, stride in zip(steps, strides)]
    if has_holes:
        starts = [s + step * b.full_like(step, rate) for s, step, rate in zip(starts, steps[n:], rates)]
    return b.gather(
        x,
        b.concat_in_dim([b.reshape(s, (*dims, 1)) for s in starts], len(dims)),
        offset_dims=[0, *range(len(dims) + 1, 2 * n + 2)],
        collapsed_slice_dims=range(1, n + 1) if has_holes else (),
        start_index_map=range(1, n + 1),
        slice_sizes=[batch, *([1] * n if has_holes else sizes), depth],
    )


@translates("Roll", constants=("axis",))
def roll(node: Node) -> Operand:
    """Shifts are data: a window on the array put twice in a row."""
    b, dims, x = node.b, node.shape(0), node[0]
    axes = [axis_of(a, len(dims), node.op) for a in node.integers("axis")]
    if node.shape("shift") != node.shape("axis"):
        raise ShapeError(
            f"Roll: shift {list(node.shape('shift'))} and axis {list(node.shape('axis'))} differ in shape"
        )
    shifts, type_ = b.reshape(node["shift"], (len(axes),)), node.element_type("shift")
    zero = b.constant(0, type_)
    for k, axis in enumerate(axes):
        if dims[axis] < 2:
            continue
        size = b.constant(dims[axis], type_)
        shift = b.rem(b.reshape(b.slice_in_dim(shifts, k, k + 1, 1, 0), ()), size)
        start = b.rem(size - shift, size)
        starts = [start if a == axis else zero for a in range(len(dims))]
        x = b.dynamic_slice(b.concat_in_dim([x, x], axis), starts, dims)
    return x


@translates("ReverseSequence")
def reverse_sequence(node: Node) -> Operand:
    """The first seq_lengths[i] elements of every row reversed."""
    b, dims = node.b, node.shape(0)
    batch, along = (node.attr(k) for k in ("batch_dim", "seq_dim"))
    if min(batch, along) < 0 or max(batch, along) >= len(dims):
        raise ShapeError(f"Invalid batch_dim {batch} or seq_dim {along} of an input of rank {len(dims)}")
    if (count := node.shape("seq_lengths")[0]) != dims[batch]:
        raise ShapeError(f"Length of seq_lengths != input.dims({batch}), ({count} vs. {dims[batch]})")
    order = [batch, *(a for a in range(len(dims)) if a != batch)]
    rows = (dims[batch], dims[along])
    check_indices(node, node["seq_lengths"], dims[along] + 1)
    place = b.iota(Shape(_S64, rows), 1)
    lengths = b.broadcast_in_dim(b.convert_element_type(node["seq_lengths"], _S64), rows, [0])
    source = b.select(b.lt(place, lengths), lengths - b.constant(1, _S64) - place, place)
    taken = gather_axis(node, b.transpose(node[0], order), source, order.index(along), 1)
    return b.transpose(taken, [order.index(a) for a in range(len(dims))])


@translates("Reverse", constants=("dims",))
def reverse_where(node: Node) -> Operand:
    return node.b.rev(
        node[0], [axis for axis, is_reversed in enumerate(node.constant("dims").tolist()) if is_reversed]
    )


@translates("MirrorPadGrad", constants=("paddings",))
def mirror_pad_grad(node: Node) -> Operand:
    """Adds to the elements that were mirrored the gradients of their images.

    Raises: ShapeError  more would be mirrored than there are.
    """
    b, x = node.b, node[0]
    skip = 1 if node.attr("mode") == "REFLECT" else 0
    zero = b.scalar_like(x, 0)
    for axis, (low, high) in enumerate(node.constant("paddings").tolist()):
        size = b.get_shape(x).dims[axis] - low - high
        if min(low, high) < 0 or size <= 0 or max(low, high) > size - skip:
            raise ShapeError(f"MirrorPadGrad: paddings {low}, {high} of axis {axis} exceed its size {size}")
        core = b.slice_in_dim(x, low, low + size, 1, axis)
        if low:
            image = b.rev(b.slice_in_dim(x, 0, low, 1, axis), [axis])
            core = core + b.pad_in_dim(image, zero, axis, skip, size - skip - low)
        if high:
            image = b.rev(b.slice_in_dim(x, low + size, low + size + high, 1, axis), [axis])
            core = core + b.pad_in_dim(image, zero, axis, size - skip - high, skip)
        x = core
    return x


@translates("DataFormatDimMap")
def data_format_dim_map(node: Node) -> Operand:
    b, source, target = node.b, node.attr("src_format"), node.attr("dst_format")
    table = np.array([target.index(c) for c in source])
    rank = b.constant(len(source), node.element_type(0))
    place = b.select(b.lt(node[0], b.scalar_like(node[0], 0)), b.add(node[0], rank), node[0])
    check_indices(node, place, len(source))
    return gather_axis(node, b.constant(table, node.element_type(0)), place, 0, 0)


@translates("DataFormatVecPermute")
def data_format_vec_permute(node: Node) -> Operand:
    source, target, dims = node.attr("src_format"), node.attr("dst_format"), node.shape(0)
    if len(dims) not in (1, 2) or dims[0] not in (len(source), len(source) - 2) or dims[1:] not in ((), (2,)):
        raise ShapeError(f"{node.op}: {list(dims)} is neither one nor two numbers for the axes of {source}")
    if node.shape(0)[0] == len(source) - 2:  # the spatial axes alone
        source, target = (f.replace("N", "").replace("C", "") for f in (source, target))
    order = np.array([source.index(c) for c in target])
    return gather_axis(node, node[0], node.b.constant(order, _S64), 0, 0)


@translates("EnsureShape")
def ensure_shape(node: Node) -> Operand:
    expected, actual = node.attr("shape"), node.shape(0)
    if expected is not None and (
        len(expected) != len(actual) or any(w not in (None, h) for w, h in zip(expected, actual))
    ):
        raise ShapeError(
            f"Shape of tensor input {list(actual)} is not compatible with expected shape "
            f"{[-1 if w is None else w for w in expected]}."
        )
    return node[0]


@translates("DeepCopy")
def deep_copy(node: Node) -> Operand:
    return node[0]


@translates("ToBool")
def to_bool(node: Node) -> Operand:
    """A scalar other than zero, or an array with elements."""
    b, shape = node.b, node.array_shape(0)
    if shape.rank:
        return b.constant(shape.elements > 0, ElementType.PRED)
    return node[0] if shape.element_type is ElementType.PRED else b.ne(node[0], b.scalar_like(node[0], 0))


@translates("UnravelIndex", constants=("dims",))
def unravel_index(node: Node) -> Operand:
    b, dims, type_ = node.b, node.integers("dims"), node.element_type(0)
    if 0 in node.shape(0):
        raise ShapeError("UnravelIndex: there are no indices")
    check_indices(node, node[0], math.prod(dims))
    steps = np.cumprod([1, *dims[:0:-1]])[::-1]
    parts = [
        b.rem(b.div(node[0], b.constant(step, type_)), b.constant(max(dim, 1), type_))
        for step, dim in zip(steps, dims)
    ]
    return b.concat_in_dim([b.reshape(p, (1, *node.shape(0))) for p in parts], 0)
