"""Sparse arrays, as indices [count, rank], values [count] and a shape; segments of rows that indices pick."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ...graph.graph import Graph, GraphNode
from ..math.broadcasting import with_same_size
from ..math.reductions import reduce
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_dims import Extent, bounds, extents, filled_like, room_of, size_of, with_first
from ..operands.dynamic_size_rules import only
from ..operands.value_ranges import any_of, check_indices, check_points
from ..registry import first_output, translates
from .dynamic_shape_ops import cumulative
from .gather import gather_axis, gather_points
from .scatter_gather import check_ascending, rows_of_segments, scatter_points, scatter_rows, segments
from .sorting import sorted_to_the_end, sorted_with_places

_S32, _S64, _F32 = ElementType.S32, ElementType.S64, ElementType.F32
_NAMES = ("Sum", "Mean", "SqrtN")


def _both(node: GraphNode, graph: Graph) -> Collection[int]:
    return 0, 1


def _none(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    return True


# -- segments of rows that indices pick, as embeddings of bags of words


def _divisors(node: Node, ids: Operand, name: str, count: int, type_: ElementType) -> Operand:
    """What the sum of each segment is divided by: its rows, or their root; of an empty one 1."""
    b = node.b
    rows = b.convert_element_type(rows_of_segments(b, ids, None, count), type_)
    rows = b.max(rows, b.full_like(rows, 1))
    return b.sqrt(rows) if name == "SqrtN" else rows


def _name(node: Node) -> str:
    return next(name for name in _NAMES if name in node.op)


def _checked(node: Node) -> tuple[Operand, Operand]:
    """Indices and segment numbers, as many of one as of the other."""
    indices, ids = with_same_size(node.b, [(node["indices"], 0), (node["segment_ids"], 0)])
    return indices, ids


def _computed_in(type_: ElementType) -> ElementType:
    return _F32 if type_.is_float and type_.bits < 32 else type_


def _reduced(node: Node, count: int | Extent, indices: Operand, ids: Operand) -> Operand:
    b, shape = node.b, node.array_shape("data")
    type_, sizes = _computed_in(shape.element_type), [count, *shape.dims[1:]]
    check_indices(node, indices, size_of(b, node["data"], 0))
    base = b.broadcast(b.constant(0, type_), bounds(sizes))
    if b.get_shape(ids).elements and shape.elements:
        rows = b.convert_element_type(gather_axis(node, node["data"], indices, 0, 0), type_)
        base = scatter_rows(b, base, ids, rows, "add")
        if _name(node) != "Sum":
            divisors = _divisors(node, ids, _name(node), bounds(sizes)[0], type_)
            base = base / b.broadcast_in_dim(divisors, bounds(sizes), [0])
    return with_first(b, b.convert_element_type(base, shape.element_type), sizes)


@translates(*(f"SparseSegment{name}" for name in _NAMES), sizes=first_output, takes_sizes=only(0, 1, 2))
def sparse_segments(node: Node) -> Operand:
    """As many segments as the last number says."""
    indices, ids = _checked(node)
    elements = math.prod(node.shape("data")[1:])
    count = segments(node, ids, elements) if node.b.get_shape(ids).elements else 0
    return _reduced(node, count, indices, ids)


@translates(
    *(f"SparseSegment{name}WithNumSegments" for name in _NAMES),
    constants=("num_segments",),
    takes_sizes=only(0, 1, 2),
    drops_sizes=_none,
    sized_by=("num_segments",),
)
def counted_sparse_segments(node: Node) -> Operand:
    indices, ids = _checked(node)
    (count,) = extents(node, "num_segments")
    if node.b.get_shape(ids).elements:
        check_ascending(node, ids)
        check_indices(node, ids, count)
    return _reduced(node, count, indices, ids)


def _shares(node: Node, grad: Operand, ids: Operand) -> Operand:
    """The gradient of each segment, by what its sum is divided by."""
    b, shape = node.b, node.b.get_shape(grad)
    if _name(node) == "Sum":
        return grad
    divisors = _divisors(node, ids, _name(node), shape.dims[0], shape.element_type)
    return grad / with_first(b, b.broadcast_in_dim(divisors, shape.dims, [0]), [size_of(b, grad, 0)])


@translates(
    *(f"SparseSegment{name}Grad" for name in _NAMES),
    constants=("output_dim0",),
    takes_sizes=only(0, 1, 2),
    drops_sizes=_none,
    sized_by=("output_dim0",),
)
def sparse_segments_gradient(node: Node) -> Operand:
    """Every picked row gets its share of the gradient of its segment."""
    b, shape, (indices, ids) = node.b, node.array_shape("grad"), _checked(node)
    (rows,) = extents(node, "output_dim0")
    type_, sizes = _computed_in(shape.element_type), [rows, *shape.dims[1:]]
    check_indices(node, indices, rows)
    check_indices(node, ids, size_of(b, node["grad"], 0))
    base = b.broadcast(b.constant(0, type_), bounds(sizes))
    if b.get_shape(ids).elements and shape.elements:
        grad = _shares(node, b.convert_element_type(node["grad"], type_), ids)
        base = scatter_rows(b, base, indices, gather_axis(node, grad, ids, 0, 0), "add")
    return with_first(b, b.convert_element_type(base, shape.element_type), sizes)


@translates(*(f"SparseSegment{name}GradV2" for name in _NAMES), sizes=_both, takes_sizes=only(0, 1, 2))
def sparse_segments_gradient_by_row(node: Node) -> tuple[Operand, Operand]:
    """As `sparse_segments_gradient`, of those rows alone that are picked, and which they are."""
    b, shape, (indices, ids) = node.b, node.array_shape("grad"), _checked(node)
    (count,), type_ = b.get_shape(indices).dims, _computed_in(shape.element_type)
    if count and not shape.elements:
        raise UnsupportedError(f"{node.op}: of {shape}, without elements")
    if not count:
        none = b.zeros(Shape(shape.element_type, (0, *shape.dims[1:])))
        return none, b.zeros(Shape(node.element_type("indices"), (0,)))
    check_indices(node, ids, size_of(b, node["grad"], 0))
    limit = b.convert_element_type(node["dense_output_dim0"], node.element_type("indices"))
    outside = [
        b.ge(reduce(b, indices, "max", [0]), limit),
        b.lt(reduce(b, indices, "min", [0]), b.full_like(limit, 0)),
    ]
    node.bail_out_if(b.or_(*outside), "an index is out of range")
    is_sized, used = b.get_shape(indices).is_dynamic, size_of(b, indices, 0)
    ordered, places = (
        sorted_to_the_end(b, indices, False) if is_sized else sorted_with_places(b, indices, 0, False)
    )
    numbers = b.iota(Shape(_S32, (count,)), 0)
    before = b.concat_in_dim(
        [b.slice_in_dim(ordered, 0, 1, 1, 0), b.slice_in_dim(ordered, 0, count - 1, 1, 0)], 0
    )
    starts = b.or_(b.ne(ordered, before), b.eq(numbers, b.full_like(numbers, 0)))
    if isinstance(used, Extent):
        starts = b.and_(starts, b.lt(numbers, b.broadcast(used.value, (count,))))
    order = cumulative(b, b.convert_element_type(starts, _S32), "add") - b.full_like(numbers, 1)
    order = b.max(order, b.full_like(order, 0))
    row_of = with_first(b, scatter_rows(b, b.full_like(numbers, 0), places, order, "update"), [used])
    first, size = (b.get_tuple_element(b.nonzero(starts), k) for k in range(2))
    first = b.set_dimension_size(b.reshape(first, (count,)), size, 0)
    grad = _shares(node, b.convert_element_type(node["grad"], type_), ids)
    base = b.broadcast(b.constant(0, type_), (count, *shape.dims[1:]))
    rows = scatter_rows(b, base, row_of, gather_axis(node, grad, ids, 0, 0), "add")
    rows = b.set_dimension_size(b.convert_element_type(rows, shape.element_type), size, 0)
    return rows, gather_axis(node, ordered, first, 0, 0)


# -- indices


def _strides(node: Node, sizes: Sequence[Operand]) -> list[Operand]:
    """How far apart neighbours along each axis are, of scalars of s64."""
    b, strides = node.b, [node.b.constant(1, _S64)]
    for size in reversed(sizes[1:]):
        strides.insert(0, b.mul(strides[0], size))
    return strides[: len(sizes)]


def scalars(node: Node, vector: Operand) -> list[Operand]:
    """The elements of a vector."""
    b, (count,) = node.b, node.b.get_shape(vector).dims
    return [b.reshape(b.slice_in_dim(vector, k, k + 1, 1, 0), ()) for k in range(count)]


def _product(node: Node, sizes: Sequence[Operand]) -> Operand:
    return functools.reduce(node.b.mul, sizes, node.b.constant(1, _S64))


def column(node: Node, indices: Operand, k: int) -> Operand:
    """The indices along an axis."""
    return node.b.reshape(node.b.slice_in_dim(indices, k, k + 1, 1, 1), node.b.get_shape(indices).dims[:1])


def check_inside(node: Node, indices: Operand, sizes: Sequence[Operand]) -> None:
    """Leaves the run where an index lies outside of a sparse array."""
    b = node.b
    for k, size in enumerate(sizes):
        places = column(node, indices, k)
        outside = b.or_(
            b.lt(places, b.full_like(places, 0)), b.ge(places, b.broadcast(size, b.get_shape(places).dims))
        )
        node.bail_out_if(any_of(b, outside, [0]), "an index is outside of the sparse array")


def linear_places(node: Node, indices: Operand, sizes: Sequence[Operand]) -> Operand:
    """The place of each index in row-major order, s64. Leaves the run where there are more places than numbers."""
    b, dims = node.b, node.b.get_shape(indices).dims[:1]
    places = b.constant(1.0, ElementType.F64)
    for size in sizes:
        places = b.mul(places, b.convert_element_type(size, ElementType.F64))
    leave_unless(
        node, b.lt(places, b.constant(2.0**62, ElementType.F64)), "the shape has more places than numbers"
    )
    terms = [
        b.mul(column(node, indices, k), b.broadcast(stride, dims))
        for k, stride in enumerate(_strides(node, sizes))
    ]
    return functools.reduce(b.add, terms) if terms else b.broadcast(b.constant(0, _S64), dims)


def leave_unless(node: Node, good: Operand, what: str) -> None:
    """Leaves the run where a pred does not hold. Raises: ShapeError  so it is in every run."""
    constant = node.context.constant_value(good)
    if constant is None:
        node.bail_out_if(node.b.not_(good), what)
    elif not constant:
        raise ShapeError(f"{node.op}: {what}")


@translates("SparseReshape", takes_sizes=only(0), keeps_sizes=[0])
def sparse_reshape(node: Node) -> tuple[Operand, Operand]:
    b, indices = node.b, node["input_indices"]
    old, new = scalars(node, node["input_shape"]), scalars(node, node["new_shape"])
    one, zero, none = (b.constant(n, _S64) for n in (1, 0, -1))
    is_open = [b.eq(size, none) for size in new]
    total, known = _product(node, old), _product(node, [b.select(o, one, s) for o, s in zip(is_open, new)])
    leave_unless(node, b.gt(known, zero), "new_shape has a size that is 0 or negative")
    open_size = b.div(total, b.max(known, one))
    sizes = [b.select(o, open_size, s) for o, s in zip(is_open, new)]
    count = functools.reduce(b.add, [b.convert_element_type(o, _S64) for o in is_open], zero)
    leave_unless(node, b.le(count, one), "new_shape has two open sizes")
    leave_unless(node, b.eq(_product(node, sizes), total), "new_shape has another number of elements")
    shape = b.concat_in_dim([b.reshape(s, (1,)) for s in sizes], 0) if sizes else node["new_shape"]
    rows = node.shape("input_indices")[0]
    if not rows or not sizes:
        none = b.broadcast(zero, (rows, len(sizes)))
        return with_first(b, none, [size_of(b, indices, 0)]), shape
    check_inside(node, indices, old)
    place, columns = linear_places(node, indices, old), []
    for stride in _strides(node, sizes):
        step = b.broadcast(b.max(stride, one), (rows,))
        columns.append(b.reshape(b.div(place, step), (rows, 1)))
        place = b.rem(place, step)
    return b.concat_in_dim(columns, 1), shape


@translates("SparseReorder")
def sparse_reorder(node: Node) -> tuple[Operand, Operand]:
    indices, values = node["input_indices"], node["input_values"]
    if not node.shape("input_values")[0] or not node.shape("input_indices")[1]:
        return indices, values
    sizes = scalars(node, node["input_shape"])
    check_inside(node, indices, sizes)
    _, places = sorted_with_places(node.b, linear_places(node, indices, sizes), 0, False)
    return gather_axis(node, indices, places, 0, 0), gather_axis(node, values, places, 0, 0)


@translates(
    "SparseFillEmptyRows", constants=("dense_shape",), sizes=_both, takes_sizes=only(0, 1), keeps_sizes=[3]
)
def fill_empty_rows(node: Node) -> Sequence[Operand]:
    """Rows in order, each empty one with one element of the default value."""
    b, (rows, *_) = node.b, node.integers("dense_shape")
    indices, values = with_same_size(b, [(node["indices"], 0), (node["values"], 0)])
    (count, rank), used = b.get_shape(indices).dims, size_of(b, indices, 0)
    if not rows:
        if count:
            raise ShapeError("Received SparseTensor with dense_shape[0] = 0 but indices")
        none = [b.zeros(Shape(t, (0,))) for t in (ElementType.PRED, _S64)]
        return indices, values, *none
    of_row = column(node, indices, 0)
    check_indices(node, of_row, rows)
    numbers = b.iota(Shape(_S64, (rows,)), 0)
    is_empty = b.eq(rows_of_segments(b, of_row, None, rows), b.broadcast(b.constant(0, _S32), (rows,)))
    fillers = b.select(is_empty, numbers, b.full_like(numbers, rows))  # those of no use come last
    if isinstance(used, Extent):
        beyond = b.ge(b.iota(Shape(_S32, (count,)), 0), b.broadcast(used.value, (count,)))
        of_row = b.select(beyond, b.broadcast(b.constant(rows, _S64), (count,)), room_of(b, of_row))
        indices, values = room_of(b, indices), room_of(b, values)
    order, places = sorted_with_places(b, b.concat_in_dim([of_row, fillers], 0), 0, False)
    first = b.pad(b.reshape(numbers, (rows, 1)), b.constant(0, _S64), [(0, 0, 0), (0, rank - 1, 0)])
    default = b.broadcast(node["default_value"], (rows,))
    size = used.value if isinstance(used, Extent) else b.constant(count, _S32)
    size = size + reduce(b, b.convert_element_type(is_empty, _S32), "add", [0])
    outputs = [
        b.set_dimension_size(gather_axis(node, b.concat_in_dim(pair, 0), places, 0, 0), size, 0)
        for pair in ([indices, first], [values, default])
    ]
    back = scatter_rows(b, b.full_like(order, 0), places, b.iota(Shape(_S64, (count + rows,)), 0), "update")
    return *outputs, is_empty, with_first(b, b.slice_in_dim(back, 0, count, 1, 0), [used])


@translates("SparseFillEmptyRowsGrad", takes_sizes=only(0, 1), keeps_sizes=[0])
def fill_empty_rows_gradient(node: Node) -> tuple[Operand, Operand]:
    """What the values get, and the default value: all that no value gets."""
    b, places, grad = node.b, node["reverse_index_map"], node["grad_values"]
    check_indices(node, places, size_of(b, grad, 0))
    unused = filled_like(b, b.convert_element_type(grad, node.element_type("grad_values")), 0)
    ones = filled_like(b, b.convert_element_type(places, _S32), 1)
    used = scatter_rows(b, b.broadcast(b.constant(0, _S32), node.shape("grad_values")), places, ones, "max")
    used = with_first(b, used, [size_of(b, grad, 0)])
    rest = reduce(b, b.select(b.eq(used, filled_like(b, used, 0)), grad, unused), "add", [0])
    values = (
        gather_axis(node, grad, places, 0, 0)
        if node.shape("reverse_index_map")[0]
        else b.zeros(Shape(node.element_type("grad_values"), (0,)))
    )
    return values, rest


# -- with dense arrays


def _check_shape(node: Node, sizes: Sequence[Operand], dims: Sequence[int]) -> None:
    """Leaves the run unless dims, of which those of 1 are stretched, are the last ones of a shape with elements."""
    b = node.b
    for size in sizes:
        leave_unless(node, b.gt(size, b.constant(0, _S64)), "a size is 0 or negative")
    for size, dim in zip(sizes[len(sizes) - len(dims) :], dims):
        if dim != 1:
            leave_unless(node, b.eq(size, b.constant(dim, _S64)), "shapes differ")


@translates("SparseTensorDenseAdd", takes_sizes=only(0, 1), drops_sizes=_none)
def add_to_dense(node: Node) -> Operand:
    b, dims = node.b, node.shape("b")
    if node.shape("a_shape") != (len(dims),):
        raise ShapeError("Two operands should have the same ndims")
    for size, dim in zip(scalars(node, node["a_shape"]), dims):
        leave_unless(node, b.eq(size, b.constant(dim, node.element_type("a_shape"))), "shapes differ")
    check_points(node, node["a_indices"], dims)
    return scatter_points(b, node["b"], node["a_indices"], node["a_values"], "add")


@translates("SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseDenseCwiseAdd", takes_sizes=only(0, 1))
def with_dense(node: Node) -> Operand:
    """Every value with the element of the dense array at its place, which is stretched to the sparse one's shape."""
    b, dims, (rank,) = node.b, node.shape("dense"), node.shape("sp_shape")
    if len(dims) > rank:
        raise ShapeError("SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes")
    sizes = scalars(node, node["sp_shape"])
    _check_shape(node, sizes, dims)
    indices, values = with_same_size(b, [(node["sp_indices"], 0), (node["sp_values"], 0)])
    check_inside(node, indices, sizes)
    columns = [k for k, dim in enumerate(dims, rank - len(dims)) if dim != 1]
    kept = b.reshape(node["dense"], [d for d in dims if d != 1])
    if not columns:
        element = b.broadcast(kept, b.get_shape(values).dims)
        element = with_first(b, element, [size_of(b, values, 0)])
    else:
        parts = [b.slice_in_dim(indices, k, k + 1, 1, 1) for k in columns]
        points = b.concat_in_dim(parts, 1)
        check_points(node, points, b.get_shape(kept).dims)
        element = gather_points(b, kept, points)
    return {"Mul": b.mul, "Div": b.div, "Add": b.add}[node.op[-3:]](values, element)


@translates(
    "SparseReduceSum",
    constants=("input_shape", "reduction_axes"),
    takes_sizes=only(0, 1),
    drops_sizes=_none,
)
def sparse_sum(node: Node) -> Operand:
    """The sum over axes, as a dense array."""
    b, dims = node.b, node.integers("input_shape")
    axes = {axis_of(a, len(dims), node.op) for a in node.integers("reduction_axes")}
    kept = [k for k in range(len(dims)) if k not in axes]
    type_ = node.element_type("input_values")
    indices = node["input_indices"]
    check_points(node, indices, dims)
    if not kept:
        values = b.convert_element_type(node["input_values"], _computed_in(type_))
        total = b.convert_element_type(reduce(b, values, "add", [0]), type_)
    else:
        base = b.broadcast(b.constant(0, _computed_in(type_)), [dims[k] for k in kept])
        if math.prod(dims) and node.shape("input_indices")[0]:
            points = b.concat_in_dim([b.slice_in_dim(indices, k, k + 1, 1, 1) for k in kept], 1)
            values = b.convert_element_type(node["input_values"], _computed_in(type_))
            base = scatter_points(b, base, points, values, "add")
        total = b.convert_element_type(base, type_)
    return (
        b.reshape(total, [1 if k in axes else d for k, d in enumerate(dims)])
        if node.attr("keep_dims")
        else total
    )
