"""Sorting, top-k, search in sorted rows, and counting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....compiler.passes.expand_top_k import MAX_WITHOUT_SORT
from ...graph.graph import GraphNode
from ...tf_internals.dtypes import element_type
from ..math.reductions import reduce
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_dims import Extent, extents, room_of
from ..operands.value_ranges import any_of, check_indices, check_not_negative
from ..registry import first_input, translates
from .gather import gather_axis
from .scatter_gather import scatter_points

_S32, _F32 = ElementType.S32, ElementType.F32


def sorted_with_places(
    b: ComputationBuilder, operand: Operand, axis: int, descending: bool
) -> tuple[Operand, Operand]:
    """The elements in order along an axis and the s32 places that they come from; equal ones keep their order."""
    shape = b.get_shape(operand)
    inner = b.create_sub_builder("descending" if descending else "ascending")
    x, y = (inner.parameter(k, Shape(shape.element_type), name) for k, name in enumerate("xy"))
    for k, name in enumerate(("at_x", "at_y")):
        inner.parameter(k + 2, Shape(_S32), name)
    before = inner.build(inner.gt(x, y) if descending else inner.lt(x, y))
    both = b.sort([operand, b.iota(Shape(_S32, shape.dims), axis)], before, axis, is_stable=True)
    return b.get_tuple_element(both, 0), b.get_tuple_element(both, 1)


def sorted_to_the_end(b: ComputationBuilder, vector: Operand, descending: bool) -> tuple[Operand, Operand]:
    """As `sorted_with_places`, of a vector whose size depends on data: as long as its bound. What lies behind its end
    comes last."""
    shape = b.get_shape(vector)
    size, places = b.get_dimension_size(vector, 0), b.iota(Shape(_S32, shape.dims), 0)
    is_behind = b.ge(places, b.broadcast(size, shape.dims))
    values = b.select(is_behind, b.zeros(Shape(shape.element_type, shape.dims)), room_of(b, vector))
    inner = b.create_sub_builder("in_order_to_the_end")
    far_x, far_y = (inner.parameter(n, Shape(_S32), f"behind_{n}") for n in range(2))
    x, y = (inner.parameter(n + 2, Shape(shape.element_type), name) for n, name in enumerate("xy"))
    for n, name in enumerate(("at_x", "at_y")):
        inner.parameter(n + 4, Shape(_S32), name)
    is_first = inner.gt(x, y) if descending else inner.lt(x, y)
    is_before = inner.or_(inner.lt(far_x, far_y), inner.and_(inner.eq(far_x, far_y), is_first))
    operands = [b.convert_element_type(is_behind, _S32), values, places]
    ordered = b.sort(operands, inner.build(is_before), 0, is_stable=True)
    return b.get_tuple_element(ordered, 1), b.get_tuple_element(ordered, 2)


def _check_k(node: Node, k: int, dim: int) -> None:
    if not 0 <= k <= dim:
        raise ShapeError(f"input must have at least k columns. Had {dim}, needed {k}")


@translates("TopKV2", constants=("k",), takes_sizes=first_input, sized_by=("k",))
def top_k(node: Node) -> tuple[Operand, Operand]:
    """A heap chooses and orders them, as TensorFlow's does.

    Of one element, or of all, there is a sorted order only. So it is of many sorted ones, which differ from a heap's
    where there are NaNs alone; sorting is several times faster.
    """
    if node.array_shape(0).is_dynamic:
        return _top_of_dynamic(node)
    b, shape, k = node.b, node.array_shape(0), node.integers("k")[0]
    _check_k(node, k, shape.dims[-1])
    order = "NUMBERS"
    if 1 < k < shape.dims[-1] and (k <= MAX_WITHOUT_SORT or not node.attr("sorted")):
        order = "HEAP_SORTED" if node.attr("sorted") else "HEAP"
    best = b.top_k(node[0], k, True, order)
    values, numbers = b.get_tuple_element(best, 0), b.get_tuple_element(best, 1)
    return values, b.convert_element_type(numbers, node.attr("index_type") or _S32)


def _top_of_dynamic(node: Node) -> tuple[Operand, Operand]:
    """As `top_k`, of a vector whose size depends on data; what lies behind its end comes last. Leaves the run where
    there is a NaN, for the order is then another one."""
    b, shape, k = node.b, node.array_shape(0), extents(node, "k")[0]
    if shape.rank != 1:
        raise UnsupportedError(f"{node.op}: of rows whose number depends on data")
    size = b.get_dimension_size(node[0], 0)
    if shape.element_type.is_float:
        node.bail_out_if(reduce(b, b.is_nan(node[0]), "or_", [0]), "a NaN among elements to be ordered")
    count = k.value if isinstance(k, Extent) else b.constant(k, _S32)
    node.bail_out_if(b.or_(b.lt(size, count), b.lt(count, b.full_like(count, 0))), "k is not in [0, size]")
    results = list(sorted_to_the_end(b, node[0], True))
    results[1] = b.convert_element_type(results[1], node.attr("index_type") or _S32)
    if isinstance(k, Extent):
        bound = min(k.bound, shape.dims[0])
        cut = [b.slice_in_dim(r, 0, bound, 1, 0) for r in results]
        return b.set_dimension_size(cut[0], k.value, 0), b.set_dimension_size(cut[1], k.value, 0)
    limit = min(k, shape.dims[0])
    if limit < k:
        raise ShapeError(f"input must have at least k columns. Had {shape.dims[0]}, needed {k}")
    return b.slice_in_dim(results[0], 0, limit, 1, 0), b.slice_in_dim(results[1], 0, limit, 1, 0)


@translates("ApproxTopK")
def approximate_top_k(node: Node) -> tuple[Operand, Operand]:
    """Exact, whatever recall is asked for."""
    b, shape, k = node.b, node.array_shape(0), node.attr("k")
    axis = axis_of(node.attr("reduction_dimension"), shape.rank, node.op)
    _check_k(node, k, shape.dims[axis])
    if axis == shape.rank - 1:
        best = b.top_k(node[0], k, node.attr("is_max_k"), "NUMBERS")
        return b.get_tuple_element(best, 0), b.get_tuple_element(best, 1)
    values, numbers = sorted_with_places(b, node[0], axis, node.attr("is_max_k"))
    return b.slice_in_dim(values, 0, k, 1, axis), b.slice_in_dim(numbers, 0, k, 1, axis)


@translates("NthElement")
def nth_element(node: Node) -> Operand:
    """The n-th in order of every row; n is data."""
    b, dims = node.b, node.shape(0)
    axis = len(dims) - 1
    ordered, _ = sorted_with_places(b, node[0], axis, bool(node.attr("reverse")))
    check_indices(node, node["n"], dims[axis])
    zero = b.constant(0, node.element_type("n"))
    picked = b.dynamic_slice(ordered, [zero] * axis + [node["n"]], [*dims[:-1], 1])
    return b.reshape(picked, dims[:-1])


_FITTED_AS = {
    ElementType.S8: _F32,
    ElementType.S16: _F32,
    _S32: ElementType.F64,
    ElementType.S64: ElementType.F64,
    **{t: t for t in (ElementType.F16, ElementType.BF16, _F32, ElementType.F64)},
}
"""By input type, the one output type that TensorFlow has a kernel for."""


def _unsupported_fit(node: GraphNode) -> str | None:
    source = element_type(node.attrs["T"].type)
    target = element_type(node.attrs["output_dtype"].type) if "output_dtype" in node.attrs else _F32
    has_kernel = source is not None and _FITTED_AS.get(source) is target
    return None if has_kernel else "TensorFlow has no kernel for these types"


@translates("IsotonicRegression", types={"T": frozenset(_FITTED_AS)}, unsupported=_unsupported_fit)
def isotonic_regression(node: Node) -> tuple[Operand, Operand]:
    """Of every line along the last axis; a scalar is a line. Integers are converted first."""
    b, dims = node.b, node.shape(0)
    lines = b.reshape(b.convert_element_type(node[0], node.attr("output_dtype")), dims or (1,))
    both = b.isotonic_regression(lines)
    return b.reshape(b.get_tuple_element(both, 0), dims), b.reshape(b.get_tuple_element(both, 1), dims)


@translates("InTopK", "InTopKV2")
def in_top_k(node: Node) -> Operand:
    """Whether fewer than k predictions exceed the target's; false where a prediction is not finite or a target not a
    class."""
    b, dims, targets = node.b, node.shape("predictions"), node["targets"]
    predictions, type_ = node["predictions"], node.element_type("targets")
    k = b.constant(node.attr("k"), type_) if node.op == "InTopK" else node["k"]
    along = b.broadcast_in_dim(targets, dims, [0])
    hot = b.eq(b.iota(Shape(type_, dims), 1), along)
    chosen = reduce(b, b.select(hot, predictions, b.scalar_like(predictions, 0)), "add", [1])
    more = b.convert_element_type(b.gt(predictions, b.broadcast_in_dim(chosen, dims, [0])), type_)
    finite = reduce(b, b.is_finite(predictions), "and_", [1])
    valid = b.and_(b.ge(targets, b.scalar_like(targets, 0)), b.lt(targets, b.scalar_like(targets, dims[1])))
    return b.and_(b.and_(finite, valid), b.lt(reduce(b, more, "add", [1]), k))


@translates("LowerBound", "UpperBound")
def bound(node: Node) -> Operand:
    """For every value the number of elements of its sorted row that are less (or, for the upper bound, not greater, as
    none is than NaN). The steps are those of the C++ library's binary search, so that unsorted rows give the same."""
    b, rows, values = node.b, node["sorted_inputs"], node["values"]
    length, dims = node.shape("sorted_inputs")[1], node.shape("values")
    number = lambda n: b.broadcast(b.constant(n, "s32"), dims)  # noqa: E731
    first, remaining = number(0), number(length)
    for _ in range(length.bit_length() if isinstance(length, int) else 31):
        half = b.shift_right_logical(remaining, number(1))
        middle = first + half
        element = gather_axis(node, rows, middle, 1, 1)
        is_below = b.lt(element, values) if node.op == "LowerBound" else b.not_(b.lt(values, element))
        is_below = b.and_(is_below, b.gt(remaining, number(0)))
        first = b.select(is_below, middle + number(1), first)
        remaining = b.select(is_below, remaining - half - number(1), half)
    return b.convert_element_type(first, node.attr("out_type"))


def _unsupported_boundaries(node: GraphNode) -> str | None:
    boundaries = list(node.attrs["boundaries"].list.f)
    return (
        None
        if boundaries == sorted(boundaries)
        else "its boundaries are not sorted, which is TensorFlow's error"
    )


@translates("Bucketize", unsupported=_unsupported_boundaries)
def bucketize(node: Node) -> Operand:
    """The number of boundaries that are not greater, as none is than NaN."""
    b, dims = node.b, node.shape(0)
    boundaries = np.array(node.attr("boundaries") or [], np.float32)
    pair_dims = (*dims, len(boundaries))
    values = b.convert_element_type(
        node[0], ElementType.F32 if node.element_type(0) is not ElementType.F64 else ElementType.F64
    )
    limits = b.convert_element_type(b.constant(boundaries), b.get_shape(values).element_type)
    below = b.lt(
        b.broadcast_in_dim(values, pair_dims, range(len(dims))),
        b.broadcast_in_dim(limits, pair_dims, [len(dims)]),
    )
    return reduce(b, b.convert_element_type(b.not_(below), _S32), "add", [len(dims)])


# -- counting


def _counted(
    b: ComputationBuilder, places: Operand, weights: Operand, bins: Sequence[int], op: str = "add"
) -> Operand:
    base = b.broadcast(b.scalar_like(weights, 0), bins)
    return scatter_points(b, base, places, weights, op)


def _weights(node: Node, dims: Sequence[int]) -> Operand:
    """The weights; ones where there are none."""
    b, type_ = node.b, node.element_type("weights")
    if node.shape("weights") == (0,) and tuple(dims) != (0,):
        return b.broadcast(b.constant(1, type_), dims)
    return node["weights"]


@translates("Bincount", constants=("size",))
def bincount(node: Node) -> Operand:
    b, count = node.b, math.prod(node.shape("arr"))
    check_not_negative(node, node["arr"])
    places = b.reshape(node["arr"], (count, 1))
    weights = b.reshape(_weights(node, node.shape("arr")), (count,))
    return _counted(b, places, weights, node.integers("size")[:1])


@translates("DenseBincount", constants=("size",))
def dense_bincount(node: Node) -> Operand:
    b, dims, size = node.b, node.shape("input"), node.integers("size")[0]
    check_not_negative(node, node["input"])
    weights, op = _weights(node, dims), "add"
    if node.attr("binary_output"):
        weights, op = b.broadcast(b.scalar_like(weights, 1), dims), "max"
    places = b.reshape(node["input"], (*dims, 1))
    if len(dims) == 1:
        return _counted(b, places, weights, (size,), op)
    rows = b.iota(Shape(node.element_type("input"), (*dims, 1)), 0)
    return _counted(b, b.concat_in_dim([rows, places], 2), weights, (dims[0], size), op)


@translates("HistogramFixedWidth", constants=("nbins",))
def histogram(node: Node) -> Operand:
    b, shape, bins = node.b, node.array_shape("values"), node.integers("nbins")[0]
    limits = b.convert_element_type(node["value_range"], ElementType.F64)
    low, high = (b.reshape(b.slice_in_dim(limits, k, k + 1, 1, 0), ()) for k in range(2))
    values = b.convert_element_type(b.reshape(node["values"], (shape.elements,)), ElementType.F64)
    node.bail_out_if(b.not_(b.lt(low, high)), "value_range is not a range")
    if shape.element_type.is_float:
        node.bail_out_if(any_of(b, b.ne(values, values), [0]), "a value is NaN")
    step = (high - low) / b.scalar_like(high, bins)
    place = b.clamp(b.scalar_like(values, 0), (values - low) / step, b.scalar_like(values, bins - 1))
    ones = b.broadcast(b.constant(1, node.attr("dtype") or _S32), (shape.elements,))
    return _counted(b, b.reshape(b.convert_element_type(place, _S32), (shape.elements, 1)), ones, (bins,))
