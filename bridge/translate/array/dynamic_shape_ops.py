"""Ops whose result has a size that depends on data: arrays of the largest size that can be, and the size as a value."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import INTEGERS, ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ..math.reductions import initial, reduce, reducer
from ..node import Node
from ..operands.dynamic_dims import Extent, filled_like, room_of, size_of, with_first
from ..operands.dynamic_size_rules import only
from ..operands.value_ranges import check_indices, note, note_points
from ..registry import first_output, translates
from .gather import gather_axis
from .scatter_gather import scatter_rows
from .sorting import sorted_to_the_end, sorted_with_places

_TYPES = frozenset(ElementType) - {
    ElementType.F16
}  # TensorFlow has a kernel of that name that computes nothing


@translates("Where", sizes=first_output, takes_sizes=only(0), types={"T": _TYPES})
def where(node: Node) -> Operand:
    """The coordinates of the elements that are not zero."""
    b, shape = node.b, node.array_shape(0)
    if not 0 < shape.rank < 9:
        raise ShapeError(f"WhereOp : Unhandled input dimensions: {shape.rank}")
    used, values = size_of(b, node[0], 0), node[0]
    if isinstance(used, Extent):
        values, shape = room_of(b, values), Shape(shape.element_type, shape.dims)
    is_set = values if shape.element_type is ElementType.PRED else b.ne(values, b.zeros(shape))
    if isinstance(used, Extent):
        rows = b.iota(Shape(ElementType.S32, shape.dims), 0)
        is_set = b.and_(is_set, b.lt(rows, b.broadcast(used.value, shape.dims)))
    indices = b.nonzero(is_set)
    rows, count = (b.get_tuple_element(indices, k) for k in range(2))
    result = b.set_dimension_size(rows, count, 0)
    note(node.context, result, (0, max(max(shape.dims) - 1, 0)))
    note_points(node.context, result, shape.dims)
    return result


def _three(node: GraphNode, graph: Graph) -> Collection[int]:
    return range(3)


@translates("ComputeAccidentalHits", sizes=_three)
def accidental_hits(node: Node) -> Sequence[Operand]:
    """The true classes that were sampled: whose they are, the last place among the samples, and what masks them."""
    b, true, samples = node.b, node.shape("true_classes"), node.shape("sampled_candidates")
    if len(true) != 2 or true[1] != node.attr("num_true") or len(samples) != 1:
        raise ShapeError(
            f"true_candidates must be a batch_size * num_true matrix and sampled_candidates a vector, got "
            f"{list(true)} and {list(samples)}"
        )
    size, dims = math.prod(true), (math.prod(true), *samples)
    true_classes = b.broadcast_in_dim(b.reshape(node["true_classes"], (size,)), dims, (0,))
    is_hit = b.eq(true_classes, b.broadcast_in_dim(node["sampled_candidates"], dims, (1,)))
    places = b.iota(Shape(ElementType.S64, dims), 1)
    last = reduce(b, b.select(is_hit, places, b.full_like(places, -1)), "max", [1])
    hits = b.nonzero(b.ge(last, b.full_like(last, 0)))
    rows, count = (b.get_tuple_element(hits, k) for k in range(2))
    rows = b.set_dimension_size(b.reshape(rows, (size,)), count, 0)
    indices = b.convert_element_type(b.div(rows, b.full_like(rows, max(true[1], 1))), ElementType.S32)
    weights = b.broadcast(b.constant(np.finfo(np.float32).min, ElementType.F32), (size,))
    return indices, gather_axis(node, last, rows, 0, 0), b.set_dimension_size(weights, count, 0)


# -- partitions

_MAX_PARTITIONS = 8


def _many(node: GraphNode) -> str | None:
    count = node.attrs["num_partitions"].i
    return (
        None
        if count <= _MAX_PARTITIONS
        else f"it makes {count} parts, each of which would take memory for all of the data"
    )


def _every_output(node: GraphNode, graph: Graph) -> Collection[int]:
    return range(node.attrs["num_partitions"].i)


@translates("DynamicPartition", sizes=_every_output, unsupported=_many)
def dynamic_partition(node: Node) -> Sequence[Operand]:
    """For every number the rows that have it, in order."""
    b, count, dims, own = node.b, node.attr("num_partitions"), node.shape("data"), node.shape("partitions")
    if dims[: len(own)] != own:
        raise ShapeError(
            f"data.shape must start with partitions.shape, got data.shape = {list(dims)}, "
            f"partitions.shape = {list(own)}"
        )
    size = math.prod(own)
    data, numbers = b.reshape(node["data"], (size, *dims[len(own) :])), b.reshape(node["partitions"], (size,))
    if not size:
        return [data] * count
    check_indices(node, numbers, count)
    parts = []
    for number in range(count):
        members = b.nonzero(b.eq(numbers, b.full_like(numbers, number)))
        rows, length = (b.get_tuple_element(members, k) for k in range(2))
        places = b.set_dimension_size(b.reshape(rows, (size,)), length, 0)
        parts.append(gather_axis(node, data, places, 0, 0))
    return parts


# -- values without repetition

_FLOATS = frozenset({ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F64})


def _by_axis(node: GraphNode, graph: Graph) -> Sequence[str]:
    return ("axis",) if node.op.endswith("V2") else ()


def _unique_sizes(node: GraphNode, graph: Graph) -> Collection[int]:
    return (0, 2) if "Counts" in node.op else (0,)


@translates(
    "Unique",
    "UniqueV2",
    "UniqueWithCounts",
    "UniqueWithCountsV2",
    sizes=_unique_sizes,
    types={"T": INTEGERS | _FLOATS | {ElementType.PRED}},
    more_constants=_by_axis,
    takes_sizes=only(0),
    keeps_sizes=[1],
)
def unique(node: Node) -> Sequence[Operand]:
    """The different values in the order in which they first come, and where every element's is among them. Every NaN is
    a value of its own."""
    b, dims = node.b, node.shape(0)
    along = [] if not node.op.endswith("V2") else node.integers("axis")
    if len(dims) != 1 or any(along):
        raise UnsupportedError(f"{node.op}: rows of an array of {len(dims)} axes; vectors are compiled")
    index_type, (size,) = node.attr("out_idx") or ElementType.S32, dims
    if not size:
        none = b.zeros(Shape(index_type, (0,)))
        return [node[0], none, none][: 3 if "Counts" in node.op else 2]
    operand, used, keys = node[0], size_of(b, node[0], 0), _integers(b, node[0])
    if isinstance(used, Extent):
        operand = room_of(b, operand)
        values, places = sorted_to_the_end(b, keys, False)
    else:
        values, places = sorted_with_places(b, keys, 0, False)
    numbers = b.iota(Shape(ElementType.S32, dims), 0)
    before = b.concat_in_dim(
        [b.slice_in_dim(values, 0, 1, 1, 0), b.slice_in_dim(values, 0, size - 1, 1, 0)], 0
    )
    starts = b.or_(b.ne(values, before), b.eq(numbers, b.full_like(numbers, 0)))
    if node.element_type(0).is_float:
        in_order = gather_axis(node, operand, places, 0, 0)
        starts = b.or_(starts, b.ne(in_order, in_order))
    if isinstance(used, Extent):
        starts = b.and_(starts, b.lt(numbers, b.broadcast(used.value, dims)))
    none = b.full_like(numbers, 0)
    first = cumulative(b, b.select(starts, numbers, none), "max")  # of the run that an element belongs to
    is_first = scatter_rows(b, none, places, b.convert_element_type(starts, ElementType.S32), "update")
    order = cumulative(b, is_first, "add") - b.full_like(none, 1)
    of_run = gather_axis(node, order, gather_axis(node, places, first, 0, 0), 0, 0)
    index = b.convert_element_type(scatter_rows(b, none, places, of_run, "update"), index_type)
    index = with_first(b, index, [used])
    note(node.context, index, (0, size - 1))
    firsts = b.nonzero(b.ne(is_first, none))
    rows, count = (b.get_tuple_element(firsts, k) for k in range(2))
    picked = gather_axis(node, operand, b.set_dimension_size(b.reshape(rows, dims), count, 0), 0, 0)
    if "Counts" not in node.op:
        return picked, index
    counts = scatter_rows(b, b.zeros(Shape(index_type, dims)), index, filled_like(b, index, 1), "add")
    return picked, index, b.set_dimension_size(counts, count, 0)


_BITS = {16: ElementType.S16, 32: ElementType.S32, 64: ElementType.S64}


def _integers(b: ComputationBuilder, values: Operand) -> Operand:
    """Integers that are equal where values are. 0 and -0 are equal but in the floats of 16 bits, which TensorFlow
    hashes by their bits."""
    type_ = b.get_shape(values).element_type
    if type_ is ElementType.PRED:
        return b.convert_element_type(values, ElementType.S32)
    if not type_.is_float:
        return values
    if type_.bits > 16:
        zero = b.full_like(values, 0)
        values = b.select(b.eq(values, zero), zero, values)
    return b.bitcast_convert_type(values, _BITS[type_.bits])


def cumulative(b: ComputationBuilder, vector: Operand, op: str) -> Operand:
    """What `op` makes of every element and all before it."""
    shape = b.get_shape(vector)
    return b.reduce_window_with_general_padding(
        vector,
        initial(b, op, shape.element_type),
        reducer(b, op, shape.element_type),
        list(shape.dims),
        [1],
        [(shape.dims[0] - 1, 0)],
    )
