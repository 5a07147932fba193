"""Slices, strided slices and their gradients, and padding."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError
from ....runtime.sizes import as_size
from ..node import Node
from ..operands.dynamic_size_rules import padded_behind
from ..registry import translates
from .dynamic_slices import (
    dynamic_mirror_pad,
    dynamic_pad,
    dynamic_slice,
    dynamic_slice_gradient,
    dynamic_strided_slice,
    ellipsis_of,
    gradient_constants,
    pad_constants,
    slice_constants,
    span_within,
    strided_slice_constants,
)
from .gather import gather_axis
from .row_slices import drops_rows, gradient_of_rows, is_of_rows, slice_of_rows, sliced_rows


@translates("Slice", constants=("size",), more_constants=slice_constants)
def slice_(node: Node) -> Operand:
    """A begin that is known only at run time is read there; the sizes fix the result's shape."""
    dims, sizes = node.shape(0), list(node.integers("size"))
    begin = node.constant_or_none("begin")
    if begin is None:
        return dynamic_slice(node)
    start = [as_size(v) for v in begin.ravel()]
    sizes = [d - b if s == -1 else s for d, b, s in zip(dims, start, sizes)]
    for axis, (d, b, s) in enumerate(zip(dims, start, sizes)):
        if not 0 <= b <= d or not 0 <= s <= d - b:
            raise ShapeError(
                f"Expected begin[{axis}] in [0, {d}] and size[{axis}] in [0, {d - b}], got {b} and {s}"
            )
    return node.b.slice(node[0], start, [b + s for b, s in zip(start, sizes)])


def strided_slice_plan(
    node: Node, dims: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
    """((start, step, count) per axis, dims after slicing, dims of the result with new and without dropped axes)."""
    masks = {
        name: node.attr(f"{name}_mask") or 0
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    specs = len(begin)
    ellipsis = ellipsis_of(masks["ellipsis"], specs)
    used = sum(
        1
        for k in range(specs)
        if k != ellipsis and not (masks["new_axis"] >> k & 1 and (ellipsis is None or k != ellipsis))
    )
    axes: list[tuple[int, int, int]] = []
    sliced: list[int] = []
    final: list[int] = []
    for k in range(specs):
        if k == ellipsis:
            for _ in range(len(dims) - used):
                size_ = dims[len(axes)]
                axes.append((0, 1, size_))
                sliced.append(size_)
                final.append(size_)
            continue
        if masks["new_axis"] >> k & 1:
            final.append(1)
            continue
        if len(axes) >= len(dims):
            raise ShapeError(
                f"Index out of range using input dim {len(axes)}; input has only {len(dims)} dims"
            )
        length, step = dims[len(axes)], strides[k]
        if step == 0:
            raise ShapeError(f"strides[{k}] must be non-zero")
        if masks["shrink_axis"] >> k & 1:
            if step < 0:
                raise ShapeError("only stride 1 allowed on non-range indexing.")
            index = begin[k] + length if begin[k] < 0 else begin[k]
            if not 0 <= index < length:
                raise ShapeError(f"slice index {begin[k]} of dimension {len(axes)} out of bounds.")
            axes.append((index, 1, 1))
            sliced.append(1)
            continue
        first, last = (
            None if masks[name] >> k & 1 else ends[k] for name, ends in (("begin", begin), ("end", end))
        )
        start, count = span_within(first, last, step, length)
        axes.append((start, step, count))
        sliced.append(count)
        final.append(count)
    for size_ in dims[len(axes) :]:
        axes.append((0, 1, size_))
        sliced.append(size_)
        final.append(size_)
    return axes, sliced, final


@translates(
    "StridedSlice",
    constants=("strides",),
    more_constants=strided_slice_constants,
    takes_sizes=sliced_rows,
    drops_sizes=drops_rows,
    sized_by=("begin", "end"),
)
def strided_slice(node: Node) -> Operand:
    if is_of_rows(node, node[0]):
        return slice_of_rows(node, _slice_known, gather_axis)
    begin, end = node.constant_or_none("begin"), node.constant_or_none("end")
    if begin is None or end is None:
        return dynamic_strided_slice(node)
    return _slice_known(node, node[0], begin.tolist(), end.tolist(), node.integers("strides"))


def _slice_known(
    node: Node, operand: Operand, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> Operand:
    axes, _, final = strided_slice_plan(node, node.b.get_shape(operand).dims, begin, end, strides)
    return node.b.reshape(take_strided(node, operand, axes), final)


def take_strided(node: Node, operand: Operand, axes: Sequence[tuple[int, int, int]]) -> Operand:
    """Elements start + step * i, i < count, along every axis; steps may be negative."""
    low = [s if step > 0 else s + step * (count - 1) if count else 0 for s, step, count in axes]
    high = [b + abs(step) * (count - 1) + 1 if count else b for b, (_, step, count) in zip(low, axes)]
    result = node.b.slice(operand, low, high, [abs(step) for _, step, _ in axes])
    backwards = [k for k, (_, step, _) in enumerate(axes) if step < 0]
    return node.b.rev(result, backwards) if backwards else result


@translates(
    "StridedSliceGrad",
    constants=("shape", "strides"),
    more_constants=gradient_constants,
    takes_sizes=sliced_rows,
    sized_by=("shape",),
)
def strided_slice_grad(node: Node) -> Operand:
    has_rows = node.b.get_shape(node["dy"]).is_dynamic and is_of_rows(node, node["dy"])
    if node.constant_or_none("shape") is None or has_rows:
        return gradient_of_rows(node, gather_axis)
    if node.constant_or_none("begin") is None or node.constant_or_none("end") is None:
        return dynamic_slice_gradient(node)
    b, dims = node.b, node.integers("shape")
    axes, sliced, target = strided_slice_plan(
        node, dims, node.integers("begin"), node.integers("end"), node.integers("strides")
    )
    if node.shape("dy") != tuple(target):
        raise ShapeError(f"shape of dy was {list(node.shape('dy'))} instead of {list(target)}")
    gradient = b.reshape(node["dy"], sliced)
    backwards = [k for k, (_, step, _) in enumerate(axes) if step < 0]
    if backwards:
        gradient = b.rev(gradient, backwards)
    low = [s if step > 0 else s + step * (count - 1) if count else 0 for s, step, count in axes]
    inner = [abs(step) - 1 for _, step, _ in axes]
    high = [
        d - first - ((count - 1) * (i + 1) + 1 if count else 0)
        for d, first, i, (_, _, count) in zip(dims, low, inner, axes)
    ]
    return b.pad(gradient, b.constant(0, node.element_type("dy")), list(zip(low, high, inner)))


@translates("Pad", "PadV2", more_constants=pad_constants, takes_sizes=padded_behind)
def pad(node: Node) -> Operand:
    if node.constant_or_none("paddings") is None:
        return dynamic_pad(node)
    paddings = node.constant("paddings").tolist()
    if min((side for both in paddings for side in both), default=0) < 0:
        raise ShapeError(f"Paddings must be non-negative: {paddings}")
    value = node["constant_values"] if node.op == "PadV2" else node.b.constant(0, node.element_type(0))
    return node.b.pad(node[0], value, [(as_size(low), as_size(high), 0) for low, high in paddings])


@translates("MirrorPad", more_constants=pad_constants)
def mirror_pad(node: Node) -> Operand:
    if node.constant_or_none("paddings") is None:
        return dynamic_mirror_pad(node)
    return mirrored(node.b, node[0], node.constant("paddings").tolist(), node.attr("mode"))


def mirrored(b: ComputationBuilder, x: Operand, paddings: Sequence[Sequence[int]], mode: str) -> Operand:
    """The array with what lies inside of its ends mirrored outside: (low, high) elements of every axis.

    Raises: ShapeError  there are not as many.
    """
    result, skip = x, 1 if mode == "REFLECT" else 0
    for axis, (low, high) in enumerate(paddings):
        length = b.get_shape(result).dims[axis]
        if max(low, high) > length - skip or min(low, high) < 0:
            raise ShapeError(f"MirrorPad: paddings {low}, {high} of axis {axis} exceed its size {length}")
        parts = [result]
        if low:
            parts.insert(0, b.rev(b.slice_in_dim(result, skip, skip + low, 1, axis), [axis]))
        if high:
            end = length - skip
            parts.append(b.rev(b.slice_in_dim(result, end - high, end, 1, axis), [axis]))
        result = b.concat_in_dim(parts, axis) if len(parts) > 1 else result
    return result
