"""Slices, and what their gradients are made of, whose place is known only at run time though their size is fixed.

`x[i:i + 4]` has four elements wherever it lies inside of x. The code reads the place and leaves the run where the size
is another: near an end of x, or outside, where TensorFlow clips the slice or has an error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode, Tensor, input_range
from ..node import Node
from ..operands.value_ranges import is_trusted, range_of
from ..values import Value

_S64 = ElementType.S64
_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


@dataclasses.dataclass(frozen=True)
class _Span:
    """The part of an axis that is taken: `count` elements, `step` apart, from `start` on."""

    start: Operand | int
    step: int
    count: int


# -- decided for a graph


def slice_constants(node: GraphNode, graph: Graph) -> Sequence[str]:
    """The begin of a Slice, where a size reaches to the end of an axis."""
    sizes = _constants(graph, node.inputs[2])
    reaching = [k for k, size in enumerate(sizes or ()) if size == -1]
    return () if all(_is_fixed(graph, node.inputs[1], k) for k in reaching) else ("begin",)


def strided_slice_constants(node: GraphNode, graph: Graph) -> Sequence[str]:
    """Begin and end, unless the size of every axis is fixed."""
    strides = _constants(graph, node.inputs[3])
    if strides is None:
        return "begin", "end"
    masks = {name: node.attrs[f"{name}_mask"].i for name in _MASKS}
    begin, end = node.inputs[1:3]
    is_known = all(_has_fixed_size(graph, begin, end, masks, k, step) for k, step in enumerate(strides))
    return () if is_known else ("begin", "end")


def gradient_constants(node: GraphNode, graph: Graph) -> Sequence[str]:
    """Begin and end of a StridedSliceGrad where steps go back; else the gradient's own dims tell the size."""
    strides = _constants(graph, node.inputs[3])
    return () if strides is not None and min(strides, default=1) > 0 else ("begin", "end")


def pad_constants(node: GraphNode, graph: Graph) -> Sequence[str]:
    """The paddings, unless the sum for every axis is fixed."""
    return () if _padded_axes(graph, node) is not None else ("paddings",)


def range_constants(node: GraphNode, graph: Graph) -> Sequence[str]:
    """Start and limit, unless they are a fixed number apart."""
    start, limit, delta = (symbolic_size.element(graph, t, 0) for t in node.inputs)
    length = symbolic_size.difference(limit, start)
    is_known = symbolic_size.is_fixed(graph, length) and symbolic_size.is_fixed(graph, delta)
    return () if is_known else ("start", "limit")


def _constants(graph: Graph, vector: Tensor) -> list[int] | None:
    """The elements of a vector of constants."""
    source = graph.nodes.get(vector.node)
    while source is not None and source.op == "Identity":
        vector = source.inputs[0]
        source = graph.nodes.get(vector.node)
    constant = symbolic_size.constant_of(graph, vector.node)
    if constant is not None:
        count = constant.size
    elif source is not None and source.op == "Pack":
        count = len(source.inputs)
    else:
        return None
    elements = [symbolic_size.element(graph, vector, k) for k in range(count)]
    return [p.get((), 0) for p in elements] if all(p.keys() <= {()} for p in elements) else None


def _is_fixed(graph: Graph, tensor: Tensor, number: int) -> bool:
    return symbolic_size.is_fixed(graph, symbolic_size.element(graph, tensor, number))


def _has_fixed_size(
    graph: Graph, begin: Tensor, end: Tensor, masks: dict[str, int], k: int, step: int
) -> bool:
    if any(masks[name] >> k & 1 for name in ("ellipsis", "new_axis", "shrink_axis")):
        return True
    if all(
        masks[name] >> k & 1 or _is_fixed(graph, tensor, k)
        for name, tensor in (("begin", begin), ("end", end))
    ):
        return True
    if (masks["begin"] | masks["end"]) >> k & 1 or step <= 0:
        return False
    ends = (symbolic_size.element(graph, tensor, k) for tensor in (end, begin))
    return symbolic_size.is_fixed(graph, symbolic_size.difference(*ends))


_MAX_AXES = 8


def _padded_axes(graph: Graph, node: GraphNode) -> list[symbolic_size.Polynomial] | None:
    """What paddings add to every axis, up to as many axes as there may be; None when that is not fixed."""
    paddings = node.inputs[1]
    source = graph.nodes.get(paddings.node)
    if source is None or source.op in ("Const", "_Arg") or source.op in symbolic_size.SHAPE_OPS:
        return None
    sums = []
    for axis in range(_MAX_AXES):
        low, high = (symbolic_size.element(graph, paddings, 2 * axis + k) for k in range(2))
        sums.append(symbolic_size.difference(high, symbolic_size.difference({}, low)))
    return sums if symbolic_size.is_fixed(graph, sums[0]) else None


# -- translated


def _constant_value(node: Node, polynomial: symbolic_size.Polynomial) -> int | None:
    """The value of a polynomial of the graph's elements when it is known."""
    values = node.context.values

    def read(tensor: Tensor) -> np.ndarray | None:
        value: Value | None = values.get(tensor)
        return node.context.constant_value(value) if isinstance(value, Operand) else None

    return symbolic_size.value(polynomial, read)


def _element(node: Node, which: str, number: int) -> symbolic_size.Polynomial:
    tensor = node.graph_node.inputs[input_range(node.definition, which)[0]]
    return symbolic_size.element(node.context.graph, tensor, number)


def _at(node: Node, which: str, number: int) -> Operand:
    """An element of an integer input, as s64."""
    b = node.b
    flat = b.reshape(node[which], (math.prod(node.shape(which)),))
    return b.convert_element_type(b.reshape(b.slice_in_dim(flat, number, number + 1, 1, 0), ()), _S64)


def _bail_out_unless(node: Node, tests: Sequence[Operand], what: str) -> None:
    constants = [node.context.constant_value(test) for test in tests]
    tests = [test for test, value in zip(tests, constants) if value is None or not value]
    if tests:
        holds = functools.reduce(node.b.and_, tests)
        node.bail_out_if(node.b.not_(holds), f"{what}, which is not compiled")


def _within(b: ComputationBuilder, start: Operand, room: int) -> Operand:
    return b.and_(b.ge(start, b.constant(0, _S64)), b.le(start, b.constant(room, _S64)))


def dynamic_slice(node: Node) -> Operand:
    """A Slice with a begin that is read at run time."""
    b, dims, sizes = node.b, node.shape(0), list(node.integers("size"))
    starts, tests = [], []
    for k, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        begin_value = _constant_value(node, _element(node, "begin", k))
        if size == -1:
            if begin_value is None:
                raise UnsupportedError("Slice: a size of -1 needs a begin that is known when compiling")
            sizes[k] = dim - begin_value
        if not 0 <= sizes[k] <= dim:
            raise ShapeError(f"Expected size[{k}] in [0, {dim}], got {size}")
        starts.append(_at(node, "begin", k))
        if sizes[k] != dim or begin_value != 0:
            tests.append(_within(b, starts[-1], dim - sizes[k]))
    _bail_out_unless(node, tests, "the slice reaches over an end")
    return b.dynamic_slice(node[0], starts, sizes)


def dynamic_strided_slice(node: Node) -> Operand:
    """A StridedSlice with ends that are read at run time."""
    b, dims = node.b, node.shape(0)
    spans, tests, final = [], [], []
    for k, axis in _axes(node, len(dims), len(node.integers("strides"))):
        if axis is None:
            final.append(1)
            continue
        span, more = _span(node, k, dims[axis])
        spans.append(span)
        tests += more
        if k is None or not (node.attr("shrink_axis_mask") or 0) >> k & 1:
            final.append(span.count)
    _bail_out_unless(node, tests, "the slice reaches over an end")
    starts = [b.constant(s.start, _S64) if not isinstance(s.start, Operand) else s.start for s in spans]
    low = [
        b.add(start, b.constant((s.count - 1) * s.step, _S64)) if s.step < 0 and s.count else start
        for start, s in zip(starts, spans)
    ]
    taken = b.dynamic_slice(node[0], low, [_reach(s) for s in spans])
    taken = b.slice(taken, [0] * len(spans), [_reach(s) for s in spans], [abs(s.step) for s in spans])
    backwards = [k for k, s in enumerate(spans) if s.step < 0]
    return b.reshape(b.rev(taken, backwards) if backwards else taken, final)


def _reach(span: _Span) -> int:
    """Elements from the first that is taken to the last."""
    return (span.count - 1) * abs(span.step) + 1 if span.count else 0


def span_within(first: int | None, last: int | None, step: int, length: int) -> tuple[int, int]:
    """(start, number of elements) of a Python slice of so many; of sizes that are known at run time only too."""
    low, high = (0, length) if step > 0 else (-1, length - 1)
    ends = []
    for end, default in ((first, low if step > 0 else high), (last, high if step > 0 else low)):
        if end is None:
            ends.append(default)
            continue
        place = end + length if end < 0 else end
        ends.append(low if place < low else high if place > high else place)
    start, stop = ends
    return start, max(0, -(-(stop - start) // step) if step > 0 else -(-(start - stop) // -step))


def ellipsis_of(mask: int, specs: int) -> int | None:
    """The number of the range, of as many, that stands for axes taken whole. Raises: ShapeError  there are several."""
    numbers = [k for k in range(specs) if mask >> k & 1]
    if len(numbers) > 1:
        raise ShapeError("Multiple ellipses in slice spec not allowed")
    return numbers[0] if numbers else None


def _axes(node: Node, rank: int, specs: int) -> Iterator[tuple[int | None, int | None]]:
    """(number of the range, axis) of all ranges: no number for axes that are taken whole, no axis for new ones."""
    masks = {name: node.attr(f"{name}_mask") or 0 for name in _MASKS}
    ellipsis = ellipsis_of(masks["ellipsis"], specs)
    used = sum(1 for k in range(specs) if k != ellipsis and not masks["new_axis"] >> k & 1)
    if used > rank:
        raise ShapeError(f"Index out of range using input dim {rank}; input has only {rank} dims")
    axis = 0
    for k in range(specs):
        if k == ellipsis:
            yield from ((None, axis + more) for more in range(rank - used))
            axis += rank - used
        elif masks["new_axis"] >> k & 1:
            yield k, None
        else:
            yield k, axis
            axis += 1
    yield from ((None, more) for more in range(axis, rank))


def _span(node: Node, k: int | None, dim: int) -> tuple[_Span, list[Operand]]:
    """What range `k` takes of an axis, and what must hold for that."""
    if k is None:
        return _Span(0, 1, dim), []
    if (node.attr("shrink_axis_mask") or 0) >> k & 1:
        index = _at(node, "begin", k)
        if node.integers("strides")[k] < 0:
            raise ShapeError("only stride 1 allowed on non-range indexing.")
        if not dim:
            raise ShapeError("slice index of an empty dimension is out of bounds.")
        value = _constant_value(node, _element(node, "begin", k))
        if value is not None and not -dim <= value < dim:
            raise ShapeError(f"slice index {value} of dimension {k} out of bounds.")
        (low, high), is_stored = range_of(node.context, index), is_trusted(node.context, index)
        index = index if low >= 0 else _from_end(node.b, index, dim)
        is_within = value is not None or is_stored or -dim <= low and high < dim
        return _Span(index, 1, 1), [] if is_within else [_within(node.b, index, dim - 1)]
    step = node.integers("strides")[k]
    if step == 0:
        raise ShapeError(f"strides[{k}] must be non-zero")
    is_open = [bool((node.attr(f"{name}_mask") or 0) >> k & 1) for name in ("begin", "end")]
    ends = [
        None if open_ else _constant_value(node, _element(node, name, k))
        for name, open_ in zip(("begin", "end"), is_open)
    ]
    if all(open_ or end is not None for open_, end in zip(is_open, ends)):
        start, count = span_within(ends[0], ends[1], step, dim)
        return _Span(start if count else 0, step, count), []
    size = (
        None
        if any(is_open)
        else _constant_value(
            node, symbolic_size.difference(_element(node, "end", k), _element(node, "begin", k))
        )
    )
    if size is None or step < 0:
        raise UnsupportedError(
            "StridedSlice: the size of the result depends on values that are known only at run time"
        )
    if size > dim:
        raise ShapeError(
            f"StridedSlice: a slice of {size} elements reaches over the ends of an axis of {dim}"
        )
    return _dynamic_size(node, k, dim, step, max(0, -(-size // step)), max(0, size))


def _dynamic_size(
    node: Node, k: int, dim: int, step: int, count: int, size: int
) -> tuple[_Span, list[Operand]]:
    """A range whose ends are read at run time, with `size` elements; `count` of them are taken."""
    b = node.b
    start, stop = (_clamped(b, _from_end(b, _at(node, name, k), dim), dim) for name in ("begin", "end"))
    length = b.max(b.sub(stop, start), b.constant(0, _S64))
    return _Span(start, step, count), [b.eq(length, b.constant(size, _S64))]


def _from_end(b: ComputationBuilder, index: Operand, dim: int) -> Operand:
    return b.select(b.lt(index, b.constant(0, _S64)), b.add(index, b.constant(dim, _S64)), index)


def _clamped(b: ComputationBuilder, index: Operand, dim: int) -> Operand:
    return b.clamp(b.constant(0, _S64), index, b.constant(dim, _S64))


def dynamic_pad(node: Node) -> Operand:
    """A Pad with paddings that are read at run time; their sums are known."""
    b, dims = node.b, node.shape(0)
    value = node["constant_values"] if node.op == "PadV2" else b.constant(0, node.element_type(0))
    starts, added = _dynamic_paddings(node, lambda dim, more: more)
    whole = b.broadcast(value, [dim + more for dim, more in zip(dims, added)])
    return b.dynamic_update_slice(whole, node[0], starts)


def _dynamic_paddings(node: Node, larger: Callable[[int, int], int]) -> tuple[list[Operand], list[int]]:
    """(what is added before every axis, what is added in all); `most` tells from dim and sum what a side may have."""
    b = node.b
    sums = _padded_axes(node.context.graph, node.graph_node) or []
    starts, added, tests = [], [], []
    for axis, dim in enumerate(node.shape(0)):
        total = _constant_value(node, sums[axis]) if axis < len(sums) else None
        if total is None or total < 0:
            raise UnsupportedError(f"{node.op}: what is added to axis {axis} is known only at run time")
        low, high = (_at(node, "paddings", 2 * axis + k) for k in range(2))
        starts.append(low)
        added.append(total)
        tests += [_within(b, side, larger(dim, total)) for side in (low, high)]
        tests.append(b.eq(b.add(low, high), b.constant(total, _S64)))
    _bail_out_unless(node, tests, "the paddings are not as was assumed")
    return starts, added


def dynamic_mirror_pad(node: Node) -> Operand:
    """A MirrorPad with paddings that are read at run time; their sums are known. It gathers along every axis."""
    b, skip = node.b, 1 if node.attr("mode") == "REFLECT" else 0
    starts, added = _dynamic_paddings(node, lambda dim, more: min(more, dim - skip))
    result = node[0]
    for axis, (start, more) in enumerate(zip(starts, added)):
        if not more:
            continue
        dim = b.get_shape(result).dims[axis]
        place = b.sub(b.iota(Shape(_S64, (dim + more,)), 0), b.broadcast(start, (dim + more,)))
        before, after = (b.sub(b.full_like(place, k), place) for k in (skip - 1, 2 * dim - 1 - skip))
        place = b.select(
            b.lt(place, b.full_like(place, 0)),
            before,
            b.select(b.ge(place, b.full_like(place, dim)), after, place),
        )
        rank = len(b.get_shape(result).dims)
        result = b.gather(
            result,
            place,
            offset_dims=[a for a in range(rank) if a != axis],
            collapsed_slice_dims=[axis],
            start_index_map=[axis],
            index_vector_dim=1,
            slice_sizes=[1 if a == axis else d for a, d in enumerate(b.get_shape(result).dims)],
        )
    return result


def dynamic_range(node: Node) -> Operand:
    """A Range of fixed length from a start that is read at run time."""
    b, type_ = node.b, node.element_type("start")
    delta = int(node.constant("delta").item())
    if not type_.is_integer:
        raise UnsupportedError(
            "Range: start and limit of floating-point numbers must be known when compiling"
        )
    length = _constant_value(
        node, symbolic_size.difference(_element(node, "limit", 0), _element(node, "start", 0))
    )
    if delta == 0:
        raise ShapeError("Requires delta != 0: 0")
    if length is None:
        raise UnsupportedError(
            "Range: the size of the result depends on values that are known only at run time"
        )
    if length * delta < 0:
        raise ShapeError(f"Requires start <= limit when delta > 0: {length} between them, delta {delta}")
    start = node["start"]
    distance = b.sub(_at(node, "limit", 0), _at(node, "start", 0))
    _bail_out_unless(
        node, [b.eq(distance, b.constant(length, _S64))], "start and limit are not as was assumed"
    )
    steps = b.constant(np.arange(0, length, delta), type_)
    return b.add(steps, b.broadcast(start, b.get_shape(steps).dims))


def dynamic_slice_gradient(node: Node) -> Operand:
    """A StridedSliceGrad with ends that are read at run time: the gradient's own dims are the slice's."""
    b, dims = node.b, node.integers("shape")
    dy_dims = iter(node.shape("dy"))
    spans: list[_Span] = []
    tests: list[Operand] = []
    for k, axis in _axes(node, len(dims), len(node.integers("strides"))):
        is_single = k is not None and bool((node.attr("shrink_axis_mask") or 0) >> k & 1)
        count = 1 if is_single else next(dy_dims)
        if axis is None:
            continue
        span, more = _given_span(node, k, dims[axis], count, is_single)
        spans.append(span)
        tests += more
    _bail_out_unless(node, tests, "the gradient is not of the slice's size")
    type_ = node.element_type("dy")
    zero = b.constant(0, type_)
    gradient = b.pad(
        b.reshape(node["dy"], [s.count for s in spans]), zero, [(0, 0, s.step - 1) for s in spans]
    )
    starts = [b.constant(s.start, _S64) if not isinstance(s.start, Operand) else s.start for s in spans]
    return b.dynamic_update_slice(b.broadcast(zero, dims), gradient, starts)


def _given_span(
    node: Node, k: int | None, dim: int, count: int, is_single: bool
) -> tuple[_Span, list[Operand]]:
    b = node.b
    if k is None or is_single:
        return _span(node, k, dim)
    step = node.integers("strides")[k]
    zero, last = b.constant(0, _S64), b.constant(dim, _S64)
    is_open = [bool((node.attr(f"{name}_mask") or 0) >> k & 1) for name in ("begin", "end")]
    start = zero if is_open[0] else _clamped(b, _from_end(b, _at(node, "begin", k), dim), dim)
    stop = last if is_open[1] else _clamped(b, _from_end(b, _at(node, "end", k), dim), dim)
    room = b.add(b.max(b.sub(stop, start), zero), b.constant(step - 1, _S64))
    if (count - 1) * step + 1 > dim:
        raise ShapeError(f"StridedSliceGrad: {count} elements {step} apart of an axis of {dim}")
    return _Span(start, step, count), [b.eq(b.div(room, b.constant(step, _S64)), b.constant(count, _S64))]
