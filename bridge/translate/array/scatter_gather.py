"""Scatters, stitches, and gathers from variables. Updates whose place is outside of the result are skipped."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import ml_dtypes
import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Computation
from ....compiler.ir.shape import Shape
from ...analysis.symbolic_size import constant_of
from ...analysis.trip_count import identity_source
from ...graph.graph import Graph, GraphNode
from ..control.variables import assign, value_of
from ..math.broadcasting import broadcast_to, with_same_size
from ..math.reductions import initial, reduce, reducer
from ..node import Node
from ..operands.capacity import Capacity
from ..operands.dynamic_dims import Extent, bounds, extents, filled_like, room_of, with_first
from ..operands.dynamic_size_rules import only
from ..operands.value_ranges import check_indices, check_points, range_of
from ..registry import translates
from .gather import gather_axis, gather_points
from .slices import strided_slice_plan


def combiner(b: ComputationBuilder, op: str, element_type: ElementType) -> Computation:
    """The computation old, new -> b.op(old, new); "update" takes the new one.

    "max" and "min" of floats take the new one where it is beyond the old one, so that a NaN is passed over;
    "segment_max" and "segment_min" keep the old one where it is beyond the new one: a NaN stays till the next comes.
    """
    is_choice = op in _BEYOND and element_type.is_float
    if op != "update" and not is_choice:
        return reducer(b, op.removeprefix("segment_"), element_type)
    inner = b.create_sub_builder(f"{op}_{element_type.value}")
    old, new = (inner.parameter(k, Shape(element_type), name) for k, name in enumerate(("old", "new")))
    if not is_choice:
        return inner.build(new)
    one, other = (old, new) if op.startswith("segment") else (new, old)
    return inner.build(inner.select(getattr(inner, _BEYOND[op])(one, other), one, other))


_BEYOND = {"max": "gt", "min": "lt", "segment_max": "gt", "segment_min": "lt"}


def scatter_points(
    b: ComputationBuilder, operand: Operand, indices: Operand, updates: Operand, op: str
) -> Operand:
    """operand[indices[..., :]] combined with updates[...], slices of the axes that an index vector does not name.

    Raises: ShapeError  dims of the updates are not those of the indices and the slices.
    """
    if b.get_shape(indices).is_dynamic or b.get_shape(updates).is_dynamic:
        indices, updates = with_same_size(b, [(indices, 0), (updates, 0)])
    shape, index_dims = b.get_shape(operand), b.get_shape(indices).dims
    depth, outer = index_dims[-1], len(index_dims) - 1
    if depth > shape.rank:
        raise ShapeError(
            f"index innermost dimension length must be <= params rank; saw: {depth} vs. {shape.rank}"
        )
    expected = (*index_dims[:-1], *shape.dims[depth:])
    if b.get_shape(updates).dims != expected:
        raise ShapeError(
            f"Must have updates.shape = indices.shape[:-1] + params_shape[{depth}:]; got "
            f"{list(b.get_shape(updates).dims)} vs. {list(expected)}"
        )
    if not shape.elements or not b.get_shape(updates).elements:
        return operand
    return b.scatter(
        operand,
        indices,
        updates,
        combiner(b, op, shape.element_type),
        index_vector_dim=outer,
        update_window_dims=range(outer, len(expected)),
        inserted_window_dims=range(depth),
        scatter_dims_to_operand_dims=range(depth),
    )


def _checked_points(node: Node, indices: str, dims: Sequence[int]) -> Operand:
    """The vectors of indices, checked where the policy is not to ignore those out of range.

    Raises: ShapeError  there are indices, and the indexed array has no elements.
    """
    if 0 in dims and 0 not in node.shape(indices):
        raise ShapeError(
            f"Indices and updates specified for empty output. indices shape: {list(node.shape(indices))}"
        )
    if node.attr("bad_indices_policy") != "IGNORE":
        check_points(node, node[indices], dims[: node.shape(indices)[-1]])
    return node[indices]


def _into_whole(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    """The updates may have a size that depends on data, the array that they are scattered to may not."""
    return True


def scatter_rows(
    b: ComputationBuilder, operand: Operand, indices: Operand, updates: Operand, op: str
) -> Operand:
    """operand[indices[...]] combined with updates[...]."""
    dims = b.get_shape(indices).dims
    return scatter_points(b, operand, b.reshape(indices, (*dims, 1)), updates, op)


@translates("ScatterNd", constants=("shape",), takes_sizes=only(0, 1), drops_sizes=_into_whole)
def scatter_nd(node: Node) -> Operand:
    b, type_ = node.b, node.element_type("updates")
    op, zero = ("or_", False) if type_ is ElementType.PRED else ("add", 0)
    base = b.broadcast(b.constant(zero, type_), node.integers("shape"))
    return scatter_points(
        b, base, _checked_points(node, "indices", node.integers("shape")), node["updates"], op
    )


_TENSOR_SCATTERS = {
    "TensorScatterUpdate": "update",
    "TensorScatterAdd": "add",
    "TensorScatterSub": "sub",
    "TensorScatterMax": "max",
    "TensorScatterMin": "min",
}


@translates(*_TENSOR_SCATTERS, takes_sizes=only(1, 2), drops_sizes=_into_whole)
def tensor_scatter(node: Node) -> Operand:
    indices = _checked_points(node, "indices", node.shape(0))
    return scatter_points(node.b, node[0], indices, node["updates"], _TENSOR_SCATTERS[node.op])


_VARIABLE_SCATTERS = {
    "Update": "update",
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Max": "max",
    "Min": "min",
}


@translates(*(f"ResourceScatter{name}" for name in _VARIABLE_SCATTERS), stateful=True, takes_sizes=only(1, 2))
def resource_scatter(node: Node) -> None:
    """One update of a row for every index; a scalar is the update of all of them."""
    b, old = node.b, value_of(node, 0)
    expected = (*node.shape("indices"), *b.get_shape(old).dims[1:])
    updates = node["updates"]
    if not node.shape("updates"):
        updates = b.broadcast(updates, expected)
    op = _VARIABLE_SCATTERS[node.op.removeprefix("ResourceScatter")]
    check_indices(node, node["indices"], b.get_shape(old).dims[0])
    assign(node.variable(0), scatter_rows(b, old, node["indices"], updates, op))


@translates(*(f"ResourceScatterNd{name}" for name in ("Update", "Add", "Sub", "Max", "Min")), stateful=True)
def resource_scatter_nd(node: Node) -> None:
    op, old = _VARIABLE_SCATTERS[node.op.removeprefix("ResourceScatterNd")], value_of(node, 0)
    indices = _checked_points(node, "indices", node.b.get_shape(old).dims)
    assign(node.variable(0), scatter_points(node.b, old, indices, node["updates"], op))


def _picked_rows(node: GraphNode, graph: Graph) -> Collection[int]:
    return () if node.attrs["batch_dims"].i else (1,)


@translates("ResourceGather", stateful=True, takes_sizes=_picked_rows)
def resource_gather(node: Node) -> Operand:
    batch, params = node.attr("batch_dims") or 0, value_of(node, 0)
    check_indices(node, node["indices"], node.b.get_shape(params).dims[batch])
    return gather_axis(node, params, node["indices"], batch, batch)


@translates("ResourceGatherNd", stateful=True)
def resource_gather_nd(node: Node) -> Operand:
    params = value_of(node, 0)
    check_points(node, node["indices"], node.b.get_shape(params).dims[: node.shape("indices")[-1]])
    return gather_points(node.b, params, node["indices"])


def _assigned_slice(node: Node, old: Operand, value: Operand) -> Operand:
    """The array with a strided slice of it replaced: by a slice update where all steps are 1, else by a scatter."""
    b, dims = node.b, node.b.get_shape(old).dims
    axes, sliced, final = strided_slice_plan(
        node, dims, node.integers("begin"), node.integers("end"), node.integers("strides")
    )
    value = b.reshape(broadcast_to(b, value, final), sliced)
    if 0 in sliced:
        return old
    if all(step == 1 for _, step, _ in axes):
        return b.dynamic_update_slice(
            old, value, [b.constant(start, ElementType.S32) for start, _, _ in axes]
        )
    places = np.stack(
        np.meshgrid(*(start + step * np.arange(count) for start, step, count in axes), indexing="ij"), -1
    )
    return scatter_points(b, old, b.constant(places, ElementType.S64), value, "update")


@translates("ResourceStridedSliceAssign", constants=("begin", "end", "strides"), stateful=True)
def resource_strided_slice_assign(node: Node) -> None:
    assign(node.variable(0), _assigned_slice(node, value_of(node, 0), node["value"]))


@translates("TensorStridedSliceUpdate", constants=("begin", "end", "strides"))
def tensor_strided_slice_update(node: Node) -> Operand:
    return _assigned_slice(node, node[0], node["value"])


def _is_of_partitions(node: GraphNode, graph: Graph) -> bool:
    """Whether indices are parts of a partition: then data says how many rows there are."""
    indices = node.inputs[: len(node.inputs) // 2]
    return any(graph.nodes[identity_source(graph, t).node].op == "DynamicPartition" for t in indices)


@translates(
    "DynamicStitch",
    "ParallelDynamicStitch",
    more_constants=lambda node, graph: () if _is_of_partitions(node, graph) else ("indices",),
    takes_sizes=lambda node, graph: range(len(node.inputs)) if _is_of_partitions(node, graph) else (),
    sizes=lambda node, graph: (0,) if _is_of_partitions(node, graph) else (),
    sized_by=("data",),
)
def dynamic_stitch(node: Node) -> Operand:
    """Row i of the result is the last one among the data whose index is i; the indices fix the number of rows."""
    if _is_of_partitions(node.graph_node, node.context.graph):
        return _stitched_partitions(node)
    b, data = node.b, node.list("data")
    numbers = [np.atleast_1d(node.constant(k)).ravel() for k in range(len(data))]
    shapes = [b.get_shape(d) for d in data]
    rank = len(node.shape(0))
    inner = shapes[0].dims[rank:]
    for k, shape in enumerate(shapes):
        if shape.dims != (*node.shape(k), *inner):
            raise ShapeError(
                f"data[{k}].shape = {list(shape.dims)} does not start with indices[{k}].shape = "
                f"{list(node.shape(k))}, or does not end as data[0] does"
            )
    rows = b.concat_in_dim([b.reshape(d, (len(n), *inner)) for d, n in zip(data, numbers)], 0)
    joined = np.concatenate(numbers)
    if joined.size and joined.min() < 0:
        raise ShapeError(f"indices[{int(joined.argmin())}] is out of range")
    count = int(joined.max()) + 1 if len(joined) else 0
    last = dict(zip(joined.tolist(), range(len(joined))))
    zeros = b.broadcast(b.constant(0, shapes[0].element_type), (1, *inner))
    if not inner and 0 < count <= _MAX_AXES:  # a shape: its elements must be known one by one
        flat = [(b.reshape(d, (len(n),)), place) for d, n in zip(data, numbers) for place in range(len(n))]
        parts = [flat[last[k]] if k in last else (zeros, 0) for k in range(count)]
        return b.concat_in_dim([b.slice_in_dim(part, place, place + 1, 1, 0) for part, place in parts], 0)
    source = np.array([last.get(k, len(joined)) for k in range(count)], np.int64)
    return gather_axis(node, b.concat_in_dim([rows, zeros], 0), b.constant(source, ElementType.S64), 0, 0)


_MAX_AXES = 16


def _stitched_partitions(node: Node) -> Operand:
    """As `dynamic_stitch`, of indices that are data: there are as many rows as the largest of them says. Leaves the run
    where that is more than there are indices."""
    b, data, indices = node.b, node.list("data"), node.list("indices")
    inner = node.array_shape(len(indices)).dims[len(node.shape(0)) :]
    rows = sum(math.prod(node.shape(k)) for k in range(len(indices)))
    bound = min(rows, max(range_of(node.context, i)[1] + 1 for i in indices))
    size, stitched = b.constant(0, ElementType.S32), b.broadcast(b.scalar_like(data[0], 0), (bound, *inner))
    for place, rows_of_place in zip(indices, data):
        if b.get_shape(place).rank != 1 or b.get_shape(rows_of_place).dims[1:] != inner:
            raise UnsupportedError(f"{node.op}: parts of other than whole rows")
        check_indices(node, place, bound)
        if b.get_shape(place).elements:
            last = reduce(b, place, "max", [0])
            size = b.max(size, last + b.full_like(last, 1))
        stitched = scatter_rows(b, stitched, place, rows_of_place, "update")
    return b.set_dimension_size(stitched, size, 0)


@translates("SparseToDense", constants=("output_shape",), takes_sizes=only(0, 2), drops_sizes=_into_whole)
def sparse_to_dense(node: Node) -> Operand:
    b, dims = node.b, node.integers("output_shape")
    indices, values = node["sparse_indices"], node["sparse_values"]
    index_dims = node.shape("sparse_indices")
    if len(index_dims) < 2:  # one number names an element of a vector
        indices = b.reshape(indices, (index_dims[0] if index_dims else 1, 1))
    count = b.get_shape(indices).dims[0]
    updates = b.broadcast(values, (count,)) if not node.shape("sparse_values") else values
    check_points(node, indices, dims)
    if node.attr("validate_indices") and count > 1:
        strides = b.constant(np.cumprod([1, *dims[:0:-1]])[::-1].copy(), ElementType.S64)
        strides = b.broadcast_in_dim(strides, (count, len(dims)), (1,))
        places = reduce(b, b.mul(b.convert_element_type(indices, ElementType.S64), strides), "add", [1])
        rises = b.lt(b.slice_in_dim(places, 0, count - 1, 1, 0), b.slice_in_dim(places, 1, count, 1, 0))
        node.bail_out_if(b.not_(reduce(b, rises, "and_", [0])), "indices out of order or repeated")
    return scatter_points(b, b.broadcast(node["default_value"], dims), indices, updates, "update")


@translates("InplaceUpdate", "InplaceAdd", "InplaceSub")
def inplace(node: Node) -> Operand:
    """Numbers of rows are counted round: -1 and as many as there are rows name the last and the first."""
    b = node.b
    count = b.full_like(node["i"], max(node.shape("x")[0], 1))
    place = b.rem(b.add(b.rem(node["i"], count), count), count)
    return scatter_rows(b, node["x"], place, node["v"], _VARIABLE_SCATTERS[node.op.removeprefix("Inplace")])


# -- segments: rows of equal segment number are combined

_SEGMENT_OPS = {"Sum": "add", "Prod": "mul", "Max": "segment_max", "Min": "segment_min"}


def _empty_segment(name: str, type_: ElementType) -> float | int:
    """The value of a segment that no row has."""
    if name in ("Sum", "Prod"):
        return 0 if name == "Sum" else 1
    low, high = finite_limits(type_)
    return low if name == "Max" else high


def finite_limits(type_: ElementType) -> Sequence[float | int]:
    """The least and the greatest finite value of a real type."""
    if type_.is_float:
        largest = float(ml_dtypes.finfo(type_.dtype).max)
        return -largest, largest
    info = np.iinfo(type_.dtype)
    return int(info.min), int(info.max)


@translates(
    *(f"UnsortedSegment{name}" for name in _SEGMENT_OPS),
    *(f"Segment{name}V2" for name in _SEGMENT_OPS),
    constants=("num_segments",),
    takes_sizes=only(0, 1),
    drops_sizes=_into_whole,
    sized_by=("num_segments",),
)
def segment_reduction(node: Node) -> Operand:
    b, data, ids = node.b, node["data"], node["segment_ids"]
    rank = len(node.shape("segment_ids"))
    if rank and node.shape("data"):
        data, ids = with_same_size(b, [(data, 0), (ids, 0)])
    shape = b.get_shape(data)
    if b.get_shape(ids).dims != shape.dims[:rank]:
        raise ShapeError(
            f"data.shape = {list(shape.dims)} does not start with segment_ids.shape = "
            f"{list(node.shape('segment_ids'))}"
        )
    name = node.op.removeprefix("Unsorted").removeprefix("Segment").removesuffix("V2")
    sizes = [*extents(node, "num_segments"), *shape.dims[rank:]]
    if node.op.startswith("Unsorted"):
        check_indices(node, ids, sizes[0], low=None)
    base = b.broadcast(
        b.constant(_empty_segment(name, shape.element_type), shape.element_type), bounds(sizes)
    )
    return with_first(b, scatter_rows(b, base, ids, data, _SEGMENT_OPS[name]), sizes)


def _has_constant_ids(node: GraphNode, graph: Graph) -> bool:
    return constant_of(graph, node.inputs[1].node) is not None


@translates(
    "SegmentSum",
    "SegmentMean",
    "SegmentProd",
    "SegmentMax",
    "SegmentMin",
    more_constants=lambda node, graph: ("segment_ids",) if _has_constant_ids(node, graph) else (),
    sizes=lambda node, graph: () if _has_constant_ids(node, graph) else (0,),
    takes_sizes=lambda node, graph: () if _has_constant_ids(node, graph) else (0, 1),
)
def sorted_segment_reduction(node: Node) -> Operand:
    """Segment numbers ascend; a segment that no row has is 0 (a product: 1)."""
    b, name, shape = node.b, node.op.removeprefix("Segment"), node.array_shape("data")
    if len(node.shape("segment_ids")) != 1 or not shape.rank:
        raise ShapeError("segment_ids should be a vector of ascending numbers, one for every row of data")
    data, ids = with_same_size(b, [(node["data"], 0), (node["segment_ids"], 0)])
    shape, constant = b.get_shape(data), node.context.constant_value(ids)
    if b.get_shape(ids).dims != shape.dims[:1]:
        raise ShapeError(f"segment_ids should have the same size as dimension 0 of data, {list(shape.dims)}")
    if constant is not None:
        count: int | Extent = _constant_segments(constant)
    else:
        count = segments(node, ids, math.prod(shape.dims[1:])) if shape.dims[0] else 0
    sizes, op, type_ = [count, *shape.dims[1:]], _of_segments(name, shape), shape.element_type
    base = b.broadcast(initial(b, op.removeprefix("segment_"), type_), bounds(sizes))
    total = scatter_rows(b, base, ids, data, op)
    if name in ("Mean", "Max", "Min"):
        rows = rows_of_segments(b, ids, constant, bounds(sizes)[0])
        if name == "Mean":
            divisor = b.convert_element_type(b.max(rows, b.full_like(rows, 1)), type_)
            total = total / b.broadcast_in_dim(divisor, bounds(sizes), [0])
        else:
            empty = b.broadcast_in_dim(b.eq(rows, b.full_like(rows, 0)), bounds(sizes), [0])
            total = b.select(empty, b.full_like(total, 0), total)
    return with_first(b, total, sizes)


def rows_of_segments(b: ComputationBuilder, ids: Operand, constant: np.ndarray | None, count: int) -> Operand:
    """How many rows each segment has."""
    if constant is not None:
        return b.constant(np.bincount(constant, minlength=count).astype(np.int32))
    ones = filled_like(b, b.convert_element_type(ids, ElementType.S32), 1)
    return scatter_rows(b, b.broadcast(b.constant(0, ElementType.S32), (count,)), ids, ones, "add")


def _of_segments(name: str, data: Shape) -> str:
    """How rows are combined. Of rows that fill a vector TensorFlow passes NaN over, of shorter ones it takes what
    follows a NaN."""
    op, type_ = {"Prod": "mul", "Max": "max", "Min": "min"}.get(name, "add"), data.element_type
    is_short = math.prod(data.dims[1:]) < (4 if type_ is ElementType.F64 else 8)
    return f"segment_{op}" if op in ("max", "min") and type_.is_float and is_short else op


def _constant_segments(ids: np.ndarray) -> int:
    """How many segments constant numbers name. Raises: ShapeError  they do not ascend, or one is negative."""
    if np.any(np.diff(ids) < 0) or np.any(ids < 0):
        raise ShapeError("segment_ids should be a vector of ascending numbers, one for every row of data")
    return int(ids[-1]) + 1 if len(ids) else 0


def check_ascending(node: Node, ids: Operand) -> None:
    """Leaves the run where segment numbers do not ascend."""
    b, shape = node.b, node.b.get_shape(ids)
    (rows,), room = shape.dims, room_of(b, ids) if shape.is_dynamic else ids
    before, after = (b.slice_in_dim(room, start, rows - 1 + start, 1, 0) for start in (0, 1))
    descends = b.lt(after, before)
    if shape.is_dynamic:
        places = b.iota(Shape(ElementType.S32, (rows - 1,)), 0)
        last = b.get_dimension_size(ids, 0) - b.constant(1, ElementType.S32)
        descends = b.and_(descends, b.lt(places, b.broadcast(last, (rows - 1,))))
    node.bail_out_if(reduce(b, descends, "or_", [0]), "segment numbers do not ascend")


def segments(node: Node, ids: Operand, elements: int) -> Extent:
    """How many segments there are, each of so many elements: at first one for each row at most. Leaves the run where
    there are more, with empty ones between them, which the next code has room for, or where the numbers do not ascend.
    """
    b, (rows,) = node.b, node.b.get_shape(ids).dims
    check_ascending(node, ids)
    last = reduce(b, ids, "max", [0])
    last = b.max(last, b.full_like(last, -1))  # of none, whose maximum is the least number
    room = rows
    if node.context.capacity_factor:
        capacity = Capacity.of(node, rows, elements)
        room = capacity.bound
        capacity.check(node, b.convert_element_type(last, ElementType.S64) + b.constant(1, ElementType.S64))
    check_indices(node, ids, room)
    last = b.convert_element_type(last, ElementType.S32)
    return Extent(b.clamp(b.full_like(last, 0), last + b.full_like(last, 1), b.full_like(last, room)), room)


@translates("SparseTensorDenseMatMul", constants=("a_shape",))
def sparse_matrix_product(node: Node) -> Operand:
    """Every element of the sparse matrix adds its row of the dense one, scaled, to a row of the result."""
    b, (rows, columns) = node.b, node.integers("a_shape")
    count, row_column = node.shape("a_values")[0], 1 if node.attr("adjoint_a") else 0
    indices, values, dense = node["a_indices"], node["a_values"], node["b"]
    if node.attr("adjoint_a"):
        rows, columns, values = columns, rows, b.conj(values)
    if node.attr("adjoint_b"):
        dense = b.conj(b.transpose(dense, (1, 0)))
    inner, width = b.get_shape(dense).dims
    if inner != columns:
        raise ShapeError(
            f"Cannot multiply A and B because inner dimension does not match: {columns} vs. {inner}"
        )
    row, column = (
        b.reshape(b.slice_in_dim(indices, k, k + 1, 1, 1), (count,)) for k in (row_column, 1 - row_column)
    )
    base = b.broadcast(b.scalar_like(values, 0), (rows, width))
    for places, size in ((row, rows), (column, columns)):
        check_indices(node, places, size)
    if not count or not inner:
        return base
    picked = gather_axis(node, dense, column, 0, 0)
    return scatter_rows(b, base, row, picked * b.broadcast_in_dim(values, (count, width), [0]), "add")
