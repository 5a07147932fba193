"""Ops that make, move and reshape arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode
from ..control.tensor_list import zeros_like_list
from ..math.broadcasting import broadcast_dims, broadcast_to, with_same_size
from ..node import Node
from ..registry import every_input, first_input, translates
from ..values import TensorList, Text, Value
from .dynamic_dims import Extent, bounds, extents_or_none, size_of, with_first
from .dynamic_dims import extents as measured_extents
from .dynamic_size_rules import along_others, keep_first, padded_behind
from .dynamic_slices import (
    gradient_constants,
    moving_mirror_pad,
    moving_pad,
    moving_range,
    moving_slice,
    moving_slice_gradient,
    moving_strided_slice,
    pad_constants,
    range_constants,
    slice_constants,
    strided_slice_constants,
)
from .row_slices import drops_rows, gradient_of_rows, is_of_rows, slice_of_rows, sliced_rows
from .value_ranges import any_of, check_indices, check_points, out_of_range

_S64 = ElementType.S64


def spatial_entries(values: Sequence[int], spatial: Sequence[int], name: str) -> tuple[int, ...]:
    """The entries for some axes of an attribute of images that has one for every axis: strides, sizes of windows.

    Raises: ShapeError  it has not, one is not positive, or one of the two other axes is not 1.
    """
    others = [v for axis, v in enumerate(values) if axis not in spatial]
    if len(values) != len(spatial) + 2 or min(values) <= 0 or others != [1, 1]:
        raise ShapeError(
            f"{name} {list(values)} should be positive for every axis, and 1 for batch and features"
        )
    return tuple(values[axis] for axis in spatial)


def axis_of(axis: int, rank: int, op: str) -> int:
    """An axis number, counted from the end when negative, as one from 0.

    Raises: ShapeError  out of range.
    """
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"{op}: axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


@translates("Const", "HostConst")
def const(node: Node) -> Operand | Text:
    value = node.attr("value")
    return Text(value) if value.dtype == object else node.b.constant(value)


@translates("Shape", takes_sizes=first_input)
@translates("ShapeN")
def shape(node: Node) -> Sequence[Operand]:
    """Sizes that depend on data are read at run time."""
    type_ = node.attr("out_type")
    return tuple(
        _dims_of(node.b, node[k], type_)
        if node.array_shape(k).is_dynamic
        else node.b.constant(np.array(node.shape(k)), type_)
        for k in range(len(node.inputs))
    )


def _dims_of(b: ComputationBuilder, operand: Operand, type_: ElementType) -> Operand:
    rest = b.constant(np.array(b.get_shape(operand).dims[1:]), type_)
    first = b.convert_element_type(b.get_dimension_size(operand, 0), type_)
    return b.concat_in_dim([b.reshape(first, (1,)), rest], 0)


@translates("Size", takes_sizes=first_input)
def size(node: Node) -> Operand:
    dims, type_ = node.shape(0), node.attr("out_type")
    if not node.array_shape(0).is_dynamic:
        return node.b.constant(math.prod(dims), type_)
    first = node.b.convert_element_type(node.b.get_dimension_size(node[0], 0), type_)
    return first * node.b.constant(math.prod(dims[1:]), type_)


@translates("Rank")
def rank(node: Node) -> Operand:
    return node.b.constant(len(node.shape(0)), ElementType.S32)


def _reshaped_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if its rows stay, or it becomes a vector."""
    wanted = symbolic_size.constant_of(graph, node.inputs[1].node)
    return (0,) if wanted is None or wanted.ravel().tolist() in ([-1], [-1, 1]) else ()


@translates("Reshape", constants=("shape",), takes_sizes=_reshaped_with_size, sized_by=("shape",))
def reshape(node: Node) -> Operand:
    if node.array_shape(0).is_dynamic:
        return _reshape_rows(node)
    sizes, have = measured_extents(node, "shape"), math.prod(node.shape(0))
    wanted = bounds(sizes)
    if sizes and isinstance(sizes[0], Extent):
        rest = math.prod(wanted[1:])
        wanted[0] = have // rest if rest > 0 else 0
        node.leave_where(
            node.b.ne(sizes[0].value, node.b.constant(wanted[0], ElementType.S32)),
            "an array is reshaped to another size",
        )
    if -1 in wanted:  # where a 0 is wanted, TensorFlow leaves zeros out on both sides
        count = math.prod(d for d in node.shape(0) if d or 0 not in wanted)
        wanted[wanted.index(-1)] = count // math.prod(d for d in wanted if d not in (0, -1))
    if math.prod(wanted) != have:
        raise ShapeError(
            f"Input to reshape is a tensor with {have} values, but the requested shape has "
            f"{math.prod(wanted)}"
        )
    return node.b.reshape(node[0], wanted)


def _reshape_rows(node: Node) -> Operand:
    """An array of a number of rows that depends on data, whose first size follows from the others."""
    b, dims, (first, *rest) = node.b, node.shape(0), measured_extents(node, "shape")
    inner, wanted = math.prod(dims[1:]), math.prod(bounds(rest))
    if isinstance(first, int) and -1 not in (first, *rest) and 0 < first * wanted <= math.prod(dims):
        return _reshape_all(node, [first, *bounds(rest)])
    if first != -1 and not isinstance(first, Extent) or -1 in rest or not wanted or inner % wanted:
        raise UnsupportedError(
            f"Reshape: {node.array_shape(0)}, of a size that depends on data, to other rows"
        )
    result = b.reshape(node[0], [dims[0] * (inner // wanted), *bounds(rest)])
    if isinstance(first, Extent):
        b.leave_if(b.ne(first.value, b.get_dimension_size(result, 0)), "an array is reshaped to another size")
    return result


def _reshape_all(node: Node, wanted: Sequence[int]) -> Operand:
    """An array of a number of rows that depends on data, with as many elements as these dims have."""
    b, count = node.b, math.prod(wanted)
    flat = b.reshape(node[0], [math.prod(node.shape(0))])
    b.leave_if(
        b.ne(b.get_dimension_size(flat, 0), b.constant(np.int32(count))),
        "an array is reshaped to another size",
    )
    return b.reshape(gather_axis(node, flat, b.iota(Shape(ElementType.S32, (count,)), 0), 0, 0), wanted)


def _expanded_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if the new axis comes behind."""
    axis = symbolic_size.constant_of(graph, node.inputs[1].node)
    return (0,) if axis is not None and axis.size == 1 and (axis.item() > 0 or axis.item() == -1) else ()


@translates("ExpandDims", constants=("dim",), takes_sizes=_expanded_with_size)
def expand_dims(node: Node) -> Operand:
    dims, axis = list(node.shape(0)), node.integers("dim")[0]
    dims.insert(axis_of(axis, len(dims) + 1, node.op), 1)
    return node.b.reshape(node[0], dims)


def _squeezed_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """The first input, if it is said which axes are dropped."""
    axes = node.attrs["squeeze_dims"].list.i if "squeeze_dims" in node.attrs else ()
    return (0,) if axes and 0 not in axes else ()


@translates("Squeeze", takes_sizes=_squeezed_with_size)
def squeeze(node: Node) -> Operand:
    dims = node.shape(0)
    axes = {axis_of(a, len(dims), node.op) for a in node.attr("squeeze_dims") or []}
    if axes & set(node.array_shape(0).dynamic):
        raise UnsupportedError("Squeeze: an axis that is dropped has a size that depends on data")
    if any(dims[a] != 1 for a in axes):
        raise ShapeError(f"Can not squeeze dim[{min(axes)}], expected a dimension of 1, got {list(dims)}")
    return node.b.reshape(node[0], [d for a, d in enumerate(dims) if (a not in axes if axes else d != 1)])


@translates("Transpose", "ConjugateTranspose", constants=("perm",))
def transpose(node: Node) -> Operand:
    order = [axis_of(a, len(node.shape(0)), node.op) for a in node.integers("perm")]
    result = node.b.transpose(node[0], order)
    return (
        node.b.conj(result) if node.op == "ConjugateTranspose" and node.element_type(0).is_complex else result
    )


@translates("InvertPermutation", constants=("x",))
def invert_permutation(node: Node) -> Operand:
    numbers = node.constant(0)
    if not np.array_equal(np.sort(numbers), np.arange(numbers.size)):
        raise ShapeError(f"InvertPermutation: {numbers.tolist()} is no permutation")
    return node.b.constant(np.argsort(numbers), node.element_type(0))


@translates("BroadcastTo", constants=("shape",), takes_sizes=first_input, sized_by=("shape",))
def broadcast_to_shape(node: Node) -> Operand:
    b, sizes, dims = node.b, measured_extents(node, "shape"), node.shape(0)
    if node.array_shape(0).is_dynamic:
        if len(dims) != len(sizes):
            raise UnsupportedError("BroadcastTo: an array of a size that depends on data gets axes before it")
        wanted = sizes[0].value if isinstance(sizes[0], Extent) else b.constant(sizes[0], ElementType.S32)
        node.leave_where(
            b.ne(wanted, b.get_dimension_size(node[0], 0)), "an array is stretched to another size"
        )
        return broadcast_to(b, node[0], (dims[0], *bounds(sizes[1:])))
    if sizes and isinstance(sizes[0], Extent) and len(dims) == len(sizes) and dims[0] != 1:
        b.leave_if(
            b.ne(sizes[0].value, b.constant(np.int32(dims[0]))), "an array is stretched to another size"
        )
    return with_first(b, broadcast_to(b, node[0], bounds(sizes)), sizes)


@translates("BroadcastArgs", constants=("s0", "s1"))
def broadcast_args(node: Node) -> Operand:
    dims = broadcast_dims(node.integers(0), node.integers(1))
    return node.b.constant(np.array(dims), node.element_type(0))


def _are_axes(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    return True


@translates("BroadcastGradientArgs", constants=("s0", "s1"), sized_by=("s0", "s1"), drops_sizes=_are_axes)
def broadcast_gradient_args(node: Node) -> Sequence[Operand]:
    """For each input the axes over which its gradient is summed. A size that depends on data is taken not to be one
    that was stretched."""
    measured = [measured_extents(node, k) for k in ("s0", "s1")]
    if any(isinstance(e, int) and e < 0 for extents_ in measured for e in extents_):
        raise ShapeError(f"Incompatible shapes: {' vs. '.join(map(str, measured))}")
    shapes = [tuple(-1 if isinstance(e, Extent) else e for e in extents_) for extents_ in measured]
    broadcast_dims(*(tuple(1 if d == -1 else d for d in s) for s in shapes))  # checks them
    if shapes[0] == shapes[1]:
        return tuple(node.b.constant(np.array([], np.int32), node.element_type(k)) for k in range(2))
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for k in range(2):
        axes = [
            a
            for a in range(rank)
            if padded[k][a] == 1
            and (padded[1 - k][a] != 1 or a < rank - len(shapes[k]) or padded[0][a] == padded[1][a] == 1)
        ]
        result.append(node.b.constant(np.array(axes), node.element_type(k)))
    return tuple(result)


def _joined_rows(node: GraphNode, graph: Graph) -> Collection[int]:
    """All inputs, if it is known whether their rows come one after the other or are put together."""
    axis = symbolic_size.constant_of(graph, node.inputs[-1].node)
    return every_input(node, graph) if axis is not None and axis >= 0 else ()


@translates("ConcatV2", constants=("axis",), takes_sizes=_joined_rows)
def concat(node: Node) -> Operand:
    parts = node.list("values")
    axis = axis_of(node.integers("axis")[0], len(node.b.get_shape(parts[0]).dims), node.op)
    return node.b.concat_in_dim(parts, axis)


@translates("Concat", constants=("concat_dim",))
def concat_first(node: Node) -> Operand:
    parts = node.list("values")
    return node.b.concat_in_dim(parts, node.integers("concat_dim")[0])


@translates("ParallelConcat")
def parallel_concat(node: Node) -> Operand:
    return node.b.concat_in_dim(node.list("values"), 0)


@translates("ConcatOffset", constants=("concat_dim", "shape"))
def concat_offset(node: Node) -> Sequence[Operand]:
    shapes = [list(node.integers(k)) for k in range(1, len(node.inputs))]
    axis, offset, result = axis_of(node.integers(0)[0], len(shapes[0]), node.op), 0, []
    for k, dims in enumerate(shapes):
        result.append(
            node.b.constant(
                np.array([offset if a == axis else 0 for a in range(len(dims))]), node.element_type(k + 1)
            )
        )
        offset += dims[axis]
        dims[axis] = shapes[0][axis]
    if any(dims != shapes[0] for dims in shapes):
        raise ShapeError(f"All dimensions except {axis} must match: {shapes}")
    return tuple(result)


def _packed_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    return every_input(node, graph) if node.attrs["axis"].i else ()


@translates("Pack", takes_sizes=_packed_behind)
def pack(node: Node) -> Operand:
    parts = node.list("values")
    if any(node.b.get_shape(p).is_dynamic for p in parts):
        parts = with_same_size(node.b, [(p, 0) for p in parts])
    dims = list(node.b.get_shape(parts[0]).dims)
    axis = axis_of(node.attr("axis"), len(dims) + 1, node.op)
    dims.insert(axis, 1)
    return node.b.concat_in_dim([node.b.reshape(p, dims) for p in parts], axis)


@translates("Unpack")
def unpack(node: Node) -> Sequence[Operand]:
    dims = list(node.shape(0))
    axis = axis_of(node.attr("axis"), len(dims), node.op)
    if dims[axis] != node.attr("num"):
        raise ShapeError(f"Unpack: axis {axis} of {dims} should have {node.attr('num')} elements")
    kept = dims[:axis] + dims[axis + 1 :]
    return tuple(
        node.b.reshape(node.b.slice_in_dim(node[0], k, k + 1, 1, axis), kept) for k in range(dims[axis])
    )


@translates("Split", constants=("split_dim",), takes_sizes=along_others("value", "split_dim"))
def split(node: Node) -> Sequence[Operand]:
    count, dims = node.attr("num_split"), node.shape("value")
    axis = axis_of(node.integers("split_dim")[0], len(dims), node.op)
    keep_first(node, node["value"], axis)
    if dims[axis] % count:
        raise ShapeError(
            f"Split: {dims[axis]} elements of axis {axis} cannot be split into {count} equal parts"
        )
    return _cut(node, node["value"], [dims[axis] // count] * count, axis)


@translates("SplitV", constants=("size_splits", "split_dim"), takes_sizes=along_others("value", "split_dim"))
def split_v(node: Node) -> Sequence[Operand]:
    dims, sizes = node.shape("value"), list(node.integers("size_splits"))
    if len(sizes) != node.attr("num_split"):
        raise ShapeError(f"SplitV: {len(sizes)} sizes of {node.attr('num_split')} parts")
    axis = axis_of(node.integers("split_dim")[0], len(dims), node.op)
    keep_first(node, node["value"], axis)
    if -1 in sizes:
        sizes[sizes.index(-1)] = dims[axis] - sum(s for s in sizes if s != -1)
    if sum(sizes) != dims[axis]:
        raise ShapeError(f"SplitV: sizes {sizes} do not sum to the {dims[axis]} elements of axis {axis}")
    return _cut(node, node["value"], sizes, axis)


def _cut(node: Node, value: Operand, sizes: Sequence[int], axis: int) -> Sequence[Operand]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(node.b.slice_in_dim(value, ends[k], ends[k + 1], 1, axis) for k in range(len(sizes)))


@translates("Slice", constants=("size",), more_constants=slice_constants)
def slice_(node: Node) -> Operand:
    """A begin that is known only at run time is read there; the sizes fix the result's shape."""
    dims, sizes = node.shape(0), list(node.integers("size"))
    begin = node.constant_or_none("begin")
    if begin is None:
        return moving_slice(node)
    start = [int(v) for v in begin.ravel()]
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
    ellipsis = next((k for k in range(specs) if masks["ellipsis"] >> k & 1), None)
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
            index = begin[k] + length if begin[k] < 0 else begin[k]
            if not 0 <= index < length:
                raise ShapeError(f"slice index {begin[k]} of dimension {len(axes)} out of bounds.")
            axes.append((index, 1, 1))
            sliced.append(1)
            continue
        span = slice(
            None if masks["begin"] >> k & 1 else begin[k], None if masks["end"] >> k & 1 else end[k], step
        )
        start, stop, _ = span.indices(length)
        count = max(0, -(-(stop - start) // step) if step > 0 else -(-(start - stop) // -step))
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
        return moving_strided_slice(node)
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
    if node.constant_or_none("shape") is None or is_of_rows(node, node["dy"]):
        return gradient_of_rows(node, gather_axis)
    if node.constant_or_none("begin") is None or node.constant_or_none("end") is None:
        return moving_slice_gradient(node)
    b, dims = node.b, node.integers("shape")
    axes, sliced, wanted = strided_slice_plan(
        node, dims, node.integers("begin"), node.integers("end"), node.integers("strides")
    )
    if node.shape("dy") != tuple(wanted):
        raise ShapeError(f"shape of dy was {list(node.shape('dy'))} instead of {list(wanted)}")
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
        return moving_pad(node)
    paddings = node.constant("paddings").tolist()
    if min((side for both in paddings for side in both), default=0) < 0:
        raise ShapeError(f"Paddings must be non-negative: {paddings}")
    value = node["constant_values"] if node.op == "PadV2" else node.b.constant(0, node.element_type(0))
    return node.b.pad(node[0], value, [(int(low), int(high), 0) for low, high in paddings])


@translates("MirrorPad", more_constants=pad_constants)
def mirror_pad(node: Node) -> Operand:
    if node.constant_or_none("paddings") is None:
        return moving_mirror_pad(node)
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


@translates("Tile", constants=("multiples",), sized_by=("multiples",))
def tile(node: Node) -> Operand:
    b, dims, counts = node.b, node.shape(0), measured_extents(node, "multiples")
    times = bounds(counts)
    if len(times) != len(dims):
        raise ShapeError(
            f"Expected multiples argument to be a vector of length {len(dims)} but got length {len(times)}"
        )
    spread, kept = [], []
    for count, length in zip(times, dims):
        spread += [count, length]
        kept.append(len(spread) - 1)
    tiled = with_first(b, b.broadcast_in_dim(node[0], spread, kept), counts)
    return b.reshape(tiled, [c * d for c, d in zip(times, dims)])


@translates("Fill", constants=("dims",), sized_by=("dims",))
def fill(node: Node) -> Operand:
    sizes = measured_extents(node, "dims")
    return with_first(node.b, node.b.broadcast(node["value"], bounds(sizes)), sizes)


@translates("ZerosLike", "OnesLike", takes_sizes=first_input)
def zeros_like(node: Node) -> Value:
    value = node.inputs[0]
    if isinstance(value, TensorList):
        return zeros_like_list(node, value)
    shape_ = node.array_shape(0)
    made = node.b.broadcast(
        node.b.constant(0 if node.op == "ZerosLike" else 1, shape_.element_type), shape_.dims
    )
    return with_first(node.b, made, [size_of(node.b, node[0], 0)]) if shape_.is_dynamic else made


@translates("Empty", constants=("shape",))
def empty(node: Node) -> Operand:
    return node.b.broadcast(node.b.constant(0, node.attr("dtype")), node.integers("shape"))


@translates("FakeParam")
def fake_param(node: Node) -> Operand:
    """What a branch gives in the place of a value that only another one makes: it is not read."""
    dims = node.attr("shape")
    if dims is None or None in dims:
        raise UnsupportedError(f"{node.op}: its shape {dims} is not known")
    return node.b.broadcast(node.b.constant(0, node.attr("dtype")), dims)


@translates("DeviceIndex")
def device_index(node: Node) -> Operand:
    """The place of this device among the names; their number when it is none of them."""
    names = node.attr("device_names") or []
    return node.b.constant(names.index("CPU") if "CPU" in names else len(names), ElementType.S32)


@translates("ListDiff", fixed=("x", "y"))
def list_diff(node: Node) -> Sequence[Operand]:
    """The elements of one constant that the other lacks, and their places."""
    places = np.flatnonzero(~np.isin(node.constant("x"), node.constant("y")))
    return (
        node.b.constant(node.constant("x")[places], node.element_type("x")),
        node.b.constant(places, node.attr("out_idx") or ElementType.S32),
    )


@translates("Range", constants=("delta",), more_constants=range_constants, sized_by=("limit",))
def range_(node: Node) -> Operand:
    if (
        node.constant_or_none("start") is not None
        and node.constant_or_none("limit") is None
        and (sizes := extents_or_none(node, "limit")) is not None
    ):
        return _numbers_below(node, sizes)
    if node.constant_or_none("start") is None or node.constant_or_none("limit") is None:
        return moving_range(node)
    start, limit, delta = (node.constant(k) for k in range(3))
    if delta == 0:
        raise ShapeError("Requires delta != 0: 0")
    if not (start <= limit if delta > 0 else start >= limit):  # also where one is NaN
        raise ShapeError(
            f"Requires start {'<=' if delta > 0 else '>='} limit when delta is {delta}: {start}/{limit}"
        )
    if node.element_type(0).is_integer:
        numbers = np.arange(start.item(), limit.item(), delta.item())
    else:  # one rounding of the product, one of the sum
        with np.errstate(all="ignore"):
            size = abs(float((limit - start) / delta))
            if not size < 2.0**63:
                raise ShapeError(f"Requires ((limit - start) / delta) < 2^63: {start}, {limit}, {delta}")
            numbers = start + np.arange(math.ceil(size)).astype(start.dtype) * delta
    return node.b.constant(numbers, node.element_type(0))


def _numbers_below(node: Node, limit: Sequence[int | Extent]) -> Operand:
    """Numbers up to one that depends on data."""
    b, (start, delta) = node.b, (int(node.constant(k).item()) for k in ("start", "delta"))
    if delta != 1 or not isinstance(limit[0], Extent):
        raise UnsupportedError(f"Range: from {start} in steps of {delta} to a limit that depends on data")
    count = Extent(b.sub(limit[0].value, b.constant(start, ElementType.S32)), max(limit[0].bound - start, 0))
    node.leave_where(b.lt(count.value, b.constant(0, ElementType.S32)), "it starts behind its limit")
    numbers = b.iota(Shape(node.element_type("start"), (count.bound,)), 0)
    return with_first(b, b.add(numbers, b.full_like(numbers, start)), [count])


@translates("LinSpace", constants=("num",))
def lin_space(node: Node) -> Operand:
    b, type_, count = node.b, node.element_type(0), node.integers("num")[0]
    if count <= 0:
        raise ShapeError(f"Requires num > 0: {count}")
    if count == 1:
        return b.reshape(node["start"], (1,))
    steps = b.iota(Shape(type_, (count,)), 0)
    step = b.div(b.sub(node["stop"], node["start"]), b.constant(count - 1, type_))
    inner = b.add(b.broadcast(node["start"], (count,)), b.mul(steps, b.broadcast(step, (count,))))
    last = b.eq(b.iota(Shape(_S64, (count,)), 0), b.broadcast(b.constant(count - 1, _S64), (count,)))
    return b.select(last, b.broadcast(node["stop"], (count,)), inner)


def _hot_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    return (0,) if node.attrs["axis"].i == -1 or node.attrs["axis"].i > 0 else ()


@translates("OneHot", constants=("depth",), takes_sizes=_hot_behind)
def one_hot(node: Node) -> Operand:
    b, depth, dims = node.b, node.integers("depth")[0], node.shape("indices")
    axis = node.attr("axis")
    axis = len(dims) if axis == -1 else axis
    full = (*dims[:axis], depth, *dims[axis:])
    places = b.broadcast_in_dim(b.iota(Shape(node.element_type("indices"), (depth,)), 0), full, [axis])
    wanted = b.broadcast_in_dim(node["indices"], full, [k for k in range(len(full)) if k != axis])
    return b.select(
        b.eq(places, wanted), b.broadcast(node["on_value"], full), b.broadcast(node["off_value"], full)
    )


@translates("ReverseV2", constants=("axis",), takes_sizes=first_input)
def reverse(node: Node) -> Operand:
    axes = [axis_of(a, len(node.shape(0)), node.op) for a in node.integers("axis")]
    return node.b.rev(node[0], axes)


def _gathered_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """Indices and rows, if what they pick follows the first axis; of GatherNd the indices."""
    if node.op == "GatherV2":
        axis = symbolic_size.constant_of(graph, node.inputs[2].node)
        if axis is None or axis.any() or node.attrs["batch_dims"].i:
            return ()
    return (1,) if node.op == "GatherNd" else (0, 1)


def _picked(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    """Whether as many rows are picked whatever the data: of a number of rows that depends on it."""
    return 1 not in sized


@translates("GatherV2", constants=("axis",), takes_sizes=_gathered_with_size, drops_sizes=_picked)
def gather_v2(node: Node) -> Operand:
    axis = axis_of(node.integers("axis")[0], len(node.shape(0)), node.op)
    check_indices(node, node["indices"], size_of(node.b, node["params"], axis))
    return gather_axis(node, node["params"], node["indices"], axis, node.attr("batch_dims") or 0)


@translates("Gather", takes_sizes=_gathered_with_size, drops_sizes=_picked)
def gather(node: Node) -> Operand:
    check_indices(node, node["indices"], size_of(node.b, node["params"], 0))
    return gather_axis(node, node["params"], node["indices"], 0, 0)


def gather_axis(node: Node, params: Operand, indices: Operand, axis: int, batch_dims: int) -> Operand:
    """params[batch..., outer..., indices[batch..., :], inner...]."""
    b = node.b
    dims, index_dims = b.get_shape(params).dims, b.get_shape(indices).dims
    batch = batch_dims + len(index_dims) if batch_dims < 0 else batch_dims
    if not dims[axis]:
        return _gathered_from_nothing(b, params, (*dims[:axis], *index_dims[batch:], *dims[axis + 1 :]))
    sizes = [1 if a == axis or a < batch else d for a, d in enumerate(dims)]
    _leave_where_few(b, params, indices, math.prod(sizes))
    new = len(index_dims) - batch
    offset = [*range(batch, axis), *range(axis + new, len(dims) - 1 + new)]
    return b.gather(
        params,
        indices,
        offset_dims=offset,
        collapsed_slice_dims=[axis],
        start_index_map=[axis],
        index_vector_dim=len(index_dims),
        slice_sizes=sizes,
        operand_batching_dims=list(range(batch)),
        start_indices_batching_dims=list(range(batch)),
    )


def _leave_where_few(b: ComputationBuilder, params: Operand, indices: Operand, elements: int) -> None:
    """Leaves the run where few of many slices, each of so many elements, are wanted: as many are gathered as can be."""
    shape = b.get_shape(indices)
    if (
        0 not in shape.dynamic
        or shape.dims[0] * elements * b.get_shape(params).element_type.item_bytes < _MANY_BYTES
    ):
        return
    few = b.lt(b.get_dimension_size(indices, 0), b.constant(np.int32(shape.dims[0] // _FEW)))
    b.leave_if(few, "few slices of many are gathered, which TensorFlow does sooner")


_MANY_BYTES = 8 << 20
_FEW = 8  # one of so many


def _gathered_from_nothing(b: ComputationBuilder, params: Operand, dims: Sequence[int]) -> Operand:
    if math.prod(dims):
        raise ShapeError(f"indices are not in [0, 0): {b.get_shape(params)} has no elements")
    return b.zeros(Shape(b.get_shape(params).element_type, tuple(dims)))


@translates("GatherNd", takes_sizes=_gathered_with_size)
def gather_nd(node: Node) -> Operand:
    """With the policy to ignore them, indices out of range give zeros."""
    b, params, indices = node.b, node["params"], node["indices"]
    depth = node.shape("indices")[-1]
    if node.attr("bad_indices_policy") != "IGNORE":
        check_points(node, indices, node.shape("params")[:depth])
        return gather_points(b, params, indices)
    if not depth or not node.array_shape("params").elements:
        raise UnsupportedError("GatherNd: what is gathered from has no elements")
    taken = gather_points(b, params, indices)
    bad = any_of(b, out_of_range(b, indices, node.shape("params")[:depth]), [len(node.shape("indices")) - 1])
    outer = range(len(node.shape("indices")) - 1)
    return b.select(b.broadcast_in_dim(bad, b.get_shape(taken).dims, outer), b.full_like(taken, 0), taken)


def gather_points(b: ComputationBuilder, params: Operand, indices: Operand) -> Operand:
    """params[indices[..., :]], slices of the axes that an index vector does not name.

    Raises: ShapeError  there are indices into an array without elements.
    """
    dims, index_dims = b.get_shape(params).dims, b.get_shape(indices).dims
    depth, outer = index_dims[-1], len(index_dims) - 1
    if 0 in dims:
        if math.prod(index_dims[:-1]):
            raise ShapeError(f"Requested more than 0 entries, but params is empty: {list(dims)}")
        return b.zeros(Shape(b.get_shape(params).element_type, (*index_dims[:-1], *dims[depth:])))
    _leave_where_few(b, params, indices, math.prod(dims[depth:]))
    return b.gather(
        params,
        indices,
        offset_dims=list(range(outer, outer + len(dims) - depth)),
        collapsed_slice_dims=list(range(depth)),
        start_index_map=list(range(depth)),
        index_vector_dim=outer,
        slice_sizes=[1] * depth + list(dims[depth:]),
    )
