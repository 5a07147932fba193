"""Sparse arrays of others: joined, added, cut, and with a softmax in each row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ..math.reductions import reduce
from ..node import Node
from ..operands.axes import axis_of
from ..operands.value_ranges import any_of
from ..registry import translates
from .dynamic_shape_ops import cumulative
from .gather import gather_axis
from .scatter_gather import check_ascending, scatter_rows
from .sorting import sorted_with_places
from .sparse import check_inside, column, leave_unless, linear_places, scalars

_S32, _S64 = ElementType.S32, ElementType.S64
_WIDE_FLOATS = frozenset({ElementType.F32, ElementType.F64})


def _first_two(node: GraphNode, graph: Graph) -> Collection[int]:
    return 0, 1


def _kept(node: Node, is_kept: Operand, arrays: Sequence[Operand]) -> list[Operand]:
    """The rows of arrays for which a pred holds: a size that depends on data."""
    b, (count,) = node.b, node.b.get_shape(is_kept).dims
    places, size = (b.get_tuple_element(b.nonzero(is_kept), k) for k in range(2))
    places = b.set_dimension_size(b.reshape(places, (count,)), size, 0)
    return [gather_axis(node, array, places, 0, 0) for array in arrays]


def _together(b: ComputationBuilder, numbers: Sequence[Operand]) -> Operand:
    return b.concat_in_dim([b.reshape(number, (1,)) for number in numbers], 0)


@translates("SparseConcat")
def sparse_concat(node: Node) -> tuple[Operand, Operand, Operand]:
    """The elements of all, moved along an axis, in order."""
    b, values = node.b, node.list("values")
    sizes = [scalars(node, shape) for shape in node.list("shapes")]
    rank = len(sizes[0])
    if any(len(each) != rank for each in sizes):
        raise ShapeError(f"{node.op}: ranks differ")
    axis = axis_of(node.attr("concat_dim"), rank, node.op)
    for each in sizes[1:]:
        for k in range(rank):
            if k != axis:
                leave_unless(node, b.eq(each[k], sizes[0][k]), "shapes differ")
    moved, offset = [], b.constant(0, _S64)
    for indices, own_values, each in zip(node.list("indices"), values, sizes):
        if b.get_shape(indices).dims != (*b.get_shape(own_values).dims, rank):
            raise ShapeError(f"{node.op}: indices are not of the shape that values and shapes tell")
        (count, _), columns = b.get_shape(indices).dims, [column(node, indices, k) for k in range(rank)]
        if count:
            check_inside(node, indices, each)
        columns[axis] = columns[axis] + b.broadcast(offset, (count,))
        moved.append(b.concat_in_dim([b.reshape(c, (count, 1)) for c in columns], 1))
        offset = offset + each[axis]
    whole = [offset if k == axis else size for k, size in enumerate(sizes[0])]
    joined, together = b.concat_in_dim(moved, 0), b.concat_in_dim(values, 0)
    if b.get_shape(joined).dims[0]:
        _, places = sorted_with_places(b, linear_places(node, joined, whole), 0, False)
        joined, together = (gather_axis(node, a, places, 0, 0) for a in (joined, together))
    return joined, together, _together(b, whole)


@translates("SparseSlice", sizes=_first_two)
def sparse_slice(node: Node) -> tuple[Operand, Operand, Operand]:
    """The elements in a part of the array, counted from where it begins."""
    b, indices, values, rank = node.b, node["indices"], node["values"], node.shape("shape")[0]
    starts, lengths, sizes = (scalars(node, node[name]) for name in ("start", "size", "shape"))
    zero, columns, results = b.constant(0, _S64), [], []
    (count,) = b.get_shape(values).dims
    is_kept = b.broadcast(b.constant(True), (count,))
    for k in range(rank):
        leave_unless(node, b.ge(starts[k], zero), "start is negative")
        leave_unless(node, b.ge(lengths[k], zero), "size is negative")
        leave_unless(node, b.ge(sizes[k], zero), "the shape is negative")
        results.append(b.clamp(zero, sizes[k] - starts[k], lengths[k]))
        own, length = column(node, indices, k), b.broadcast(lengths[k], (count,))
        place = own - b.broadcast(starts[k], (count,))
        is_inside = b.and_(b.ge(place, b.full_like(place, 0)), b.lt(place, length))
        is_kept = b.and_(is_kept, b.and_(is_inside, b.ge(own, b.full_like(own, 0))))
        columns.append(b.reshape(place, (count, 1)))
    if not rank:
        raise UnsupportedError(f"{node.op}: of a sparse scalar")
    if not count:
        return indices, values, _together(b, results)
    kept = _kept(node, is_kept, [b.concat_in_dim(columns, 1), values])
    return kept[0], kept[1], _together(b, results)


@translates("SparseSoftmax", types={"T": _WIDE_FLOATS})
def sparse_softmax(node: Node) -> Operand:
    """The softmax of the elements that differ in their last index only. Leaves the run where indices do not ascend,
    which TensorFlow orders."""
    b, indices, values = node.b, node["sp_indices"], node["sp_values"]
    (count, rank), type_ = node.shape("sp_indices"), node.element_type("sp_values")
    if rank < 2:
        raise ShapeError(f"Input should have rank >= 2, but received rank {rank}")
    sizes = scalars(node, node["sp_shape"])
    for size in sizes:
        leave_unless(node, b.ge(size, b.constant(0, _S64)), "the shape is negative")
    if not count:
        return values
    check_inside(node, indices, sizes)
    check_ascending(node, linear_places(node, indices, sizes))
    rows = b.slice_in_dim(indices, 0, rank - 1, 1, 1)
    before, after = (b.slice_in_dim(rows, k, count - 1 + k, 1, 0) for k in range(2))
    steps = b.convert_element_type(any_of(b, b.ne(before, after), [1]), _S32)
    groups = cumulative(b, b.concat_in_dim([b.zeros(Shape(_S32, (1,))), steps], 0), "add")
    lowest = b.broadcast(b.constant(-float("inf"), type_), (count,))
    largest = gather_axis(node, scatter_rows(b, lowest, groups, values, "max"), groups, 0, 0)
    powers = b.exp(values - largest)
    sums = scatter_rows(b, b.full_like(powers, 0), groups, powers, "add")
    return powers / gather_axis(node, sums, groups, 0, 0)


def _ascends(b: ComputationBuilder, places: Operand) -> Operand:
    """Whether each number is larger than the one before."""
    (count,) = b.get_shape(places).dims
    before, after = (b.slice_in_dim(places, k, max(count - 1, 0) + k, 1, 0) for k in range(2))
    return reduce(b, b.lt(before, after), "and_", [0])


@translates("SparseAdd", sizes=_first_two)
def sparse_add(node: Node) -> tuple[Operand, Operand, Operand]:
    """The elements of both in order, those of one place added. A sum nearer to 0 than a threshold is left out.

    Leaves the run where the indices of one do not ascend.
    """
    b, shapes = node.b, [scalars(node, node[f"{name}_shape"]) for name in "ab"]
    indices, values = ([node[f"{name}_{part}"] for name in "ab"] for part in ("indices", "values"))
    counts = [b.get_shape(v).dims[0] for v in values]
    if len(shapes[0]) != len(shapes[1]) or not shapes[0]:
        raise ShapeError(f"{node.op}: ranks differ, or are 0")
    for one, other in zip(*shapes):
        leave_unless(node, b.eq(one, other), "shapes differ")
    for k in range(2):
        if not counts[k]:
            return indices[1 - k], values[1 - k], node["a_shape"]
    places = []
    for each in indices:
        check_inside(node, each, shapes[0])
        places.append(linear_places(node, each, shapes[0]))
        if b.get_shape(each).dims[0] > 1:
            node.bail_out_if(b.not_(_ascends(b, places[-1])), "indices do not ascend")
    ordered, order = sorted_with_places(b, b.concat_in_dim(places, 0), 0, False)
    joined, addends = (gather_axis(node, b.concat_in_dim(a, 0), order, 0, 0) for a in (indices, values))
    total = sum(counts)
    is_pair = b.eq(b.slice_in_dim(ordered, 0, total - 1, 1, 0), b.slice_in_dim(ordered, 1, total, 1, 0))
    no = b.zeros(Shape(ElementType.PRED, (1,)))
    is_first, is_second = b.concat_in_dim([is_pair, no], 0), b.concat_in_dim([no, is_pair], 0)
    following = b.concat_in_dim(
        [b.slice_in_dim(addends, 1, total, 1, 0), b.slice_in_dim(addends, 0, 1, 1, 0)], 0
    )
    sums = b.select(is_first, addends + following, addends)
    size = b.abs(sums)
    is_large = b.ge(size, b.broadcast(node["thresh"], (total,)))
    is_kept = b.and_(b.not_(is_second), b.or_(b.not_(is_first), is_large))
    kept = _kept(node, is_kept, [joined, sums])
    return kept[0], kept[1], node["a_shape"]
