"""Sizes known at run time only: which axes of a result have one, given those of the operands.

`SIZES` has one rule per op, written against an arithmetic that is passed in: shape inference works with marks ("this
axis has one"), the pass `pad_dynamic_dimensions` with the sizes as values of the program.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from ..errors import ShapeError
from ..ir.module import Module
from ..ir.shape import Shape
from ..ops import (
    BitcastConvert,
    Broadcast,
    Call,
    Compare,
    Concatenate,
    Conditional,
    Convert,
    Convolution,
    Copy,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Gather,
    GetDimensionSize,
    GetTupleElement,
    Map,
    Op,
    OptimizationBarrier,
    Pad,
    Reduce,
    ReducePrecision,
    ReduceWindow,
    Reshape,
    Reverse,
    Scatter,
    SetDimensionSize,
    Slice,
    Sort,
    Transpose,
    Tuple,
    While,
    Window,
)
from ..ops.op import require
from ..ops.reshape import axis_groups

S = TypeVar("S")
"""A size that is known at run time only."""
Sizes: TypeAlias = Mapping[int, S]
"""By axis of an array, its size, where that is known at run time only."""


class Arithmetic(Protocol[S]):
    """Arithmetic on sizes, which are opaque to the rules."""

    def add(self, a: S, b: S | int) -> S:
        """a + b; b may be an int."""

    def multiply(self, a: S, b: int) -> S:
        """a * b."""

    def divide(self, a: S, b: int) -> S:
        """a / b, rounded down; a not negative."""

    def smaller(self, a: S, b: S | int) -> S:
        """The smaller of the two; b may be an int."""

    def larger(self, a: S, b: int) -> S:
        """The larger of the two."""


class Marks:
    """The arithmetic of shape inference: a size is only known to be there."""

    def add(self, a: bool, b: bool | int) -> bool:
        """A mark."""
        return True

    multiply = divide = smaller = larger = add


class Rule(Protocol):
    """The sizes of an op's result."""

    def __call__(
        self, op: Any, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S], /
    ) -> Sizes[S]:
        """Given the op, the shapes of its operands, and their sizes."""


def _same_axes(op: Op, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    return _smallest(sizes, m)


def _smallest(sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> dict[int, S]:
    """Axis for axis the smallest of the operands' sizes."""
    smallest: dict[int, S] = {}
    for operand_sizes in sizes:
        for axis, size in operand_sizes.items():
            smallest[axis] = m.smaller(smallest[axis], size) if axis in smallest else size
    return smallest


def _broadcast(
    op: Broadcast, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    return {
        op.dimensions[axis]: size
        for axis, size in sizes[0].items()
        if shapes[0].dims[axis] == op.result_dims[op.dimensions[axis]]
    }


def _transpose(
    op: Transpose, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    return {op.dimensions.index(axis): size for axis, size in sizes[0].items()}


def _reduce(op: Reduce, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    result_axes = [axis for axis in range(shapes[0].rank) if axis not in op.dimensions]
    merged = _smallest(sizes[: len(sizes) // 2], m)
    return {number: merged[axis] for number, axis in enumerate(result_axes) if axis in merged}


def window_positions(window: Window, axis: int, size: S, m: Arithmetic[S]) -> S:
    """Positions of a window along an axis of this size."""
    holes = window.base_dilation[axis]
    dilated = m.larger(m.add(m.multiply(size, holes), 1 - holes), 0) if holes > 1 else size
    room = m.add(
        dilated,
        window.pad_low[axis] + window.pad_high[axis] - window.dilated_size[axis] + window.stride[axis],
    )
    return m.divide(m.larger(room, 0), window.stride[axis])


def _reduce_window(
    op: ReduceWindow, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    merged = _smallest(sizes[: len(sizes) // 2], m)
    return {axis: window_positions(op.window, axis, size, m) for axis, size in merged.items()}


def _dot(op: Dot, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    lhs, rhs = sizes
    result: dict[int, S] = {}
    for number, (left, right) in enumerate(zip(op.lhs_batch, op.rhs_batch)):
        result.update(_smallest([{number: s[a]} for s, a in ((lhs, left), (rhs, right)) if a in s], m))
    free = [lhs.get(a) for a in op.lhs_free(shapes[0].rank)] + [
        rhs.get(a) for a in op.rhs_free(shapes[1].rank)
    ]
    result.update({len(op.lhs_batch) + k: size for k, size in enumerate(free) if size is not None})
    return result


def _convolution(
    op: Convolution, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    d, (lhs, rhs) = op.dims, sizes
    grouped = op.feature_groups * op.batch_groups > 1
    require(
        not any(a in rhs for a in d.kernel_spatial)
        and not (
            grouped and (d.input_feature in lhs or d.kernel_output_feature in rhs or d.input_batch in lhs)
        ),
        "convolution: the kernel's spatial axes, and with groups the batch and features, have sizes known when "
        "compiling",
        "dynamic_c2",
    )
    result = {}
    if d.input_batch in lhs:
        result[d.output_batch] = lhs[d.input_batch]
    if d.kernel_output_feature in rhs:
        result[d.output_feature] = rhs[d.kernel_output_feature]
    for k, axis in enumerate(d.input_spatial):
        if axis in lhs:
            result[d.output_spatial[k]] = window_positions(op.window, k, lhs[axis], m)
    return result


def _pad(op: Pad, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    result = {}
    for axis, size in sizes[0].items():
        inside = op.interior[axis]
        dilated = m.larger(m.add(m.multiply(size, inside + 1), -inside), 0) if inside else size
        result[axis] = m.larger(m.add(dilated, op.low[axis] + op.high[axis]), 0)
    return result


def _slice(op: Slice, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    result = {}
    for axis, size in sizes[0].items():
        inside = m.larger(m.add(m.smaller(size, op.limit[axis]), -op.start[axis]), 0)
        result[axis] = m.divide(m.add(inside, op.strides[axis] - 1), op.strides[axis])
    return result


def _dynamic_slice(
    op: DynamicSlice, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    return {axis: size for axis, size in sizes[0].items() if op.slice_sizes[axis] == shapes[0].dims[axis]}


def _first(op: Op, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    return sizes[0]


def _concatenate(
    op: Concatenate, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    result = _smallest(
        [{a: s for a, s in operand_sizes.items() if a != op.dimension} for operand_sizes in sizes], m
    )
    if any(op.dimension in operand_sizes for operand_sizes in sizes):
        total = functools.reduce(m.add, (s[op.dimension] for s in sizes if op.dimension in s))
        fixed = sum(o.dims[op.dimension] for o, s in zip(shapes, sizes) if op.dimension not in s)
        result[op.dimension] = m.add(total, fixed)
    return result


def _reshape(op: Reshape, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    old, new, result = shapes[0].dims, op.result_dims, {}
    grouped = set()
    for left, right in axis_groups(old, new):
        grouped.update(left)
        dynamic_axes = [axis for axis in left if axis in sizes[0]]
        if not dynamic_axes:
            continue
        require(
            dynamic_axes == left[:1],
            f"reshape: {shapes[0]} to {list(new)} joins axis {dynamic_axes[-1]}, of a size known at "
            f"run time only, to axes before it",
            "dynamic_c3",
        )
        inner, rest = _product(old, left[1:]), _product(new, right[1:])
        result[right[0]] = m.divide(m.add(m.multiply(sizes[0][left[0]], inner), rest - 1), rest)
    for axis, size in sizes[0].items():
        if axis not in grouped and axis < len(new) and new[: axis + 1] == old[: axis + 1]:
            result[axis] = size
        else:
            require(
                axis in grouped,
                f"reshape: axis {axis} of {shapes[0]}, of a size known at run time only, is not "
                f"an axis of {list(new)}",
                "dynamic_c3",
            )
    return result


def _product(dims: Sequence[int], axes: Sequence[int]) -> int:
    total = 1
    for axis in axes:
        total *= dims[axis]
    return total


def _bitcast_convert(
    op: BitcastConvert, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]
) -> Sizes[S]:
    last = shapes[0].rank - 1
    require(
        last not in sizes[0] or shapes[0].element_type.item_bytes >= op.element_type.item_bytes,
        f"bitcast-convert: the last axis of {shapes[0]} has a size known at run time only",
        "dynamic_c2",
    )
    return sizes[0]


def _gather(op: Gather, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    operand, indices = sizes
    require(
        op.index_vector_dim not in indices and not any(a in operand for a in op.operand_batching_dims),
        "gather: index vectors and batching axes have sizes known when compiling",
        "dynamic_c2",
    )
    dropped = (*op.collapsed_slice_dims, *op.operand_batching_dims)
    slice_axes = [a for a in range(shapes[0].rank) if a not in dropped]
    batch = [a for a in range(shapes[1].rank) if a != op.index_vector_dim]
    result = {}
    for result_axis, axis in zip(op.offset_dims, slice_axes):
        if axis in operand and op.slice_sizes[axis] == shapes[0].dims[axis]:
            result[result_axis] = operand[axis]
    rest = [a for a in range(len(slice_axes) + len(batch)) if a not in op.offset_dims]
    result.update({result_axis: indices[axis] for result_axis, axis in zip(rest, batch) if axis in indices})
    return result


def _scatter(op: Scatter, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    count = len(shapes) // 2
    require(
        op.index_vector_dim not in sizes[count]
        and not op.input_batching_dims
        and not any(a in update_sizes for update_sizes in sizes[count + 1 :] for a in op.update_window_dims),
        "scatter: index vectors, batching axes and windows have sizes known when compiling",
        "dynamic_c2",
    )
    return _smallest(sizes[:count], m)


def _batch_only(op: Op, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    """Of matrices and transforms: all axes but those that are worked on."""
    require(
        not any(axis >= shape.rank - op.inner_rank for shape, axes in zip(shapes, sizes) for axis in axes),
        f"{op.opcode}: the last {op.inner_rank} axes have sizes known when compiling",
        "dynamic_c2",
    )
    return _smallest(sizes, m)


def _none(op: Op, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    return {}


SIZES: dict[type[Op], Rule] = {
    BitcastConvert: _bitcast_convert,
    Broadcast: _broadcast,
    Compare: _same_axes,
    Concatenate: _concatenate,
    Convert: _same_axes,
    Convolution: _convolution,
    Dot: _dot,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _first,
    Elementwise: _same_axes,
    Gather: _gather,
    GetDimensionSize: _none,
    Map: _same_axes,
    Pad: _pad,
    Reduce: _reduce,
    ReducePrecision: _same_axes,
    ReduceWindow: _reduce_window,
    Reshape: _reshape,
    Reverse: _first,
    Scatter: _scatter,
    Slice: _slice,
    Sort: _same_axes,
    Transpose: _transpose,
}
"""Rules of ops on arrays; those with an `inner_rank` have `_batch_only`. All arrays of a tuple result have the same
sizes."""


def result_sizes(op: Op, shapes: Sequence[Shape], sizes: Sequence[Sizes[S]], m: Arithmetic[S]) -> Sizes[S]:
    """The sizes of an op's result.

    Raises: ShapeError  dynamic_c1: the op takes no sizes known at run time only. dynamic_c2: not along this axis.
        dynamic_c3: a reshape would have to move elements.
    """
    rule = _batch_only if op.inner_rank else SIZES.get(type(op))
    if rule is None:
        if any(sizes):
            raise ShapeError(
                f"{op.opcode}: takes no operand of a size known at run time only, operands are "
                f"{', '.join(map(str, shapes))} (dynamic_c1)"
            )
        return {}
    return rule(op, shapes, sizes, m)


_MARKS = Marks()


def infer_shape(op: Op, shapes: Sequence[Shape]) -> Shape:
    """The result's shape, with marks at the axes whose size is known at run time only.

    Raises: ShapeError  the op's constraints; as `result_sizes`.
    """
    if type(op) is GetTupleElement:  # a large tuple has many, and each would look at all of its parts
        return op.infer(shapes)
    for shape in shapes:  # every instruction that is built comes here
        if shape.dynamic or (shape.tuple_shapes and shape.is_dynamic):
            return _infer_marked(op, shapes)
    return op.infer(shapes)


def _infer_marked(op: Op, shapes: Sequence[Shape]) -> Shape:
    if isinstance(op, (Tuple, GetTupleElement, Copy, OptimizationBarrier, SetDimensionSize)):
        return op.infer(shapes)
    result = op.infer([s.static() for s in shapes])
    if isinstance(op, While):
        return merged_marks(shapes[0], op.body.root.shape)
    if isinstance(op, Conditional):
        for branch in op.branches:
            result = merged_marks(result, branch.root.shape)
        return result
    if isinstance(op, Call):
        return op.to_apply.root.shape
    if not all(s.is_array for s in shapes):
        result_sizes(op, shapes, [{0: True} if s.is_dynamic else {} for s in shapes], _MARKS)
        return result
    marks = result_sizes(op, shapes, [dict.fromkeys(s.dynamic, True) for s in shapes], _MARKS)
    return _marked(result, marks)


def _marked(shape: Shape, marks: Sizes[bool]) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(_marked(s, marks) for s in shape.tuple_shapes)
    return shape.with_dynamic(marks) if marks else shape


def merged_marks(one: Shape, other: Shape) -> Shape:
    """A shape with the marks of two compatible ones."""
    if one.is_tuple:
        return Shape.tuple(map(merged_marks, one.tuple_shapes, other.tuple_shapes))
    return one.with_dynamic((*one.dynamic, *other.dynamic)) if one.is_array else one


def with_marks(shape: Shape, marked: Shape) -> Shape:
    """A shape with the dynamic axes of a compatible one."""
    if shape.tuple_shapes:
        parts = tuple(map(with_marks, shape.tuple_shapes, marked.tuple_shapes))
        return shape if all(map(operator.is_, parts, shape.tuple_shapes)) else Shape.tuple(parts)
    return shape if shape.dynamic == marked.dynamic else shape.with_dynamic(marked.dynamic)


def is_dynamic(module: Module) -> bool:
    """Whether any size in the module is known at run time only: such sizes are set, or come from outside."""
    return any(
        isinstance(i.op, SetDimensionSize) or (not i.operands and i.shape.is_dynamic)
        for computation in module.computations()
        for i in computation.instructions
    )
