"""Ragged arrays: values [count, ...] and, for each ragged axis, the places where its rows begin and end.

Splits of n rows are n + 1 ascending numbers, 0 first. Row i has the values from splits[i] to splits[i + 1].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import estimate
from ...graph.graph import Graph, GraphNode
from ..math.broadcasting import broadcast_to
from ..math.reductions import reduce
from ..node import Node
from ..operands.capacity import Capacity
from ..operands.value_ranges import check_indices
from ..registry import translates
from .dynamic_shape_ops import cumulative
from .gather import gather_axis
from .scatter_gather import check_ascending, rows_of_segments, scatter_rows

_S32, _S64 = ElementType.S32, ElementType.S64


def _slice(b: ComputationBuilder, vector: Operand, begin: int, end: int) -> Operand:
    return b.slice_in_dim(vector, begin, end, 1, 0)


def _element(b: ComputationBuilder, vector: Operand, place: int) -> Operand:
    return b.reshape(_slice(b, vector, place, place + 1), ())


def _lengths(b: ComputationBuilder, splits: Operand) -> Operand:
    """How many values each row has."""
    (ends,) = b.get_shape(splits).dims
    return _slice(b, splits, 1, ends) - _slice(b, splits, 0, ends - 1)


def _rows(node: Node, splits: Operand) -> int:
    """How many rows there are."""
    dims = node.b.get_shape(splits).dims
    if len(dims) != 1 or not dims[0]:
        raise ShapeError(f"{node.op}: ragged splits are vectors of one number or more; got {list(dims)}")
    return dims[0] - 1


def _check_splits(node: Node, splits: Operand, count: int, is_exact: bool) -> None:
    """Leaves the run unless splits ascend from 0, up to a number of values that are there, or up to all of them."""
    b, rows = node.b, _rows(node, splits)
    type_ = b.get_shape(splits).element_type
    last, all_values = _element(b, splits, rows), b.constant(count, type_)
    check_ascending(node, splits)
    node.bail_out_if(b.ne(_element(b, splits, 0), b.constant(0, type_)), "splits do not begin with 0")
    is_wrong = b.ne(last, all_values) if is_exact else b.gt(last, all_values)
    node.bail_out_if(is_wrong, "splits do not end where the values do")


def _row_of_value(b: ComputationBuilder, splits: Operand, count: int) -> Operand:
    """The row of each of so many values, s32. There are rows, and values; those behind the last row are in it."""
    rows = b.get_shape(splits).dims[0] - 1
    begins = b.min(_slice(b, splits, 1, rows), b.full_like(_slice(b, splits, 1, rows), count))
    steps = b.broadcast(b.constant(0, _S32), (count + 1,))
    if rows > 1:
        ones = b.broadcast(b.constant(1, _S32), (rows - 1,))
        steps = scatter_rows(b, steps, b.max(begins, b.full_like(begins, 0)), ones, "add")
    return cumulative(b, _slice(b, steps, 0, count), "add")


# -- to dense arrays

_ROW_SPLITS, _ROW_IDS, _FIRST_SIZE = "ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE"


def _unsupported_partition(node: GraphNode) -> str | None:
    first, *others = [kind.decode() for kind in node.attrs["row_partition_types"].list.s] or [""]
    kinds = {*others} if first == _FIRST_SIZE and others else {first, *others}
    is_known = kinds <= {_ROW_SPLITS, _ROW_IDS} and first != _ROW_IDS
    return None if is_known else "its rows are told in another way than by row splits or row numbers"


@translates("RaggedTensorToTensor", constants=("shape",), unsupported=_unsupported_partition)
def ragged_to_dense(node: Node) -> Operand:
    """Every place in the dense array has the value that the splits say, or the default value.

    Raises: UnsupportedError  the size of a ragged axis is to be that of the longest row, which nobody computed.
    """
    b, values = node.b, node["values"]
    shape, kinds = b.get_shape(values), node.attr("row_partition_types")
    depth = len(kinds) - (kinds[0] == _FIRST_SIZE)
    if not shape.rank:
        raise ShapeError(f"{node.op}: values are a scalar")
    dims = _dense_dims(node, shape.dims[1:], depth)
    partitions = _all_splits(node, dims[0])
    for level, splits in enumerate(partitions):
        following = partitions[level + 1 :]
        count = _rows(node, following[0]) if following else shape.dims[0]
        _check_splits(node, splits, count, is_exact=bool(following))
    default = _default_value(node, shape)
    if not math.prod(dims) or not shape.dims[0] or not all(_rows(node, splits) for splits in partitions):
        return b.broadcast_in_dim(default, dims, range(depth + 1, len(dims)))
    place, is_there = _place_of_value(node, partitions, dims[: depth + 1])
    source = b.select(is_there, b.clamp(*_ends(b, place, shape.dims[0])), b.full_like(place, shape.dims[0]))
    behind = b.broadcast_in_dim(default, (1, *shape.dims[1:]), range(1, shape.rank))
    return gather_axis(node, b.concat_in_dim([values, behind], 0), source, 0, 0)


def _all_splits(node: Node, asked: int) -> list[Operand]:
    """The splits of all ragged axes. Where row numbers tell the first ones, there are to be as many rows as were asked
    for."""
    b, all_splits, rows = node.b, list[Operand](), asked
    for kind, tensor in zip(node.attr("row_partition_types"), node.list("row_partition_tensors")):
        if kind == _FIRST_SIZE:
            size = b.reshape(tensor, ())
            node.bail_out_if(
                b.ne(size, b.constant(asked, b.get_shape(size).element_type)), "other rows are asked for"
            )
        else:
            all_splits.append(tensor if kind == _ROW_SPLITS else _splits_of(node, tensor, rows))
            rows = b.get_shape(tensor).dims[0] if kind == _ROW_IDS and b.get_shape(tensor).rank else -1
    return all_splits


def _splits_of(node: Node, ids: Operand, rows: int) -> Operand:
    """The splits of so many rows, of which values have these numbers. Leaves the run where the numbers do not ascend.

    Raises: UnsupportedError  it is not known how many rows there are.
    """
    b, shape = node.b, node.b.get_shape(ids)
    if shape.rank != 1:
        raise ShapeError(f"{node.op}: row numbers are a vector; got {list(shape.dims)}")
    if rows < 0:
        raise UnsupportedError(f"{node.op}: row numbers behind row splits")
    first = b.zeros(Shape(shape.element_type, (1,)))
    if not shape.dims[0] or not rows:
        if shape.dims[0]:
            raise ShapeError(f"{node.op}: row numbers, but no rows")
        return b.broadcast(b.constant(0, shape.element_type), (rows + 1,))
    check_indices(node, ids, rows)
    check_ascending(node, ids)
    lengths = b.convert_element_type(rows_of_segments(b, ids, None, rows), shape.element_type)
    return b.concat_in_dim([first, cumulative(b, lengths, "add")], 0)


def _ends(b: ComputationBuilder, place: Operand, count: int) -> tuple[Operand, Operand, Operand]:
    """What keeps a place among so many."""
    type_ = b.get_shape(place).element_type
    return b.constant(0, type_), place, b.constant(count - 1, type_)


def _dense_dims(node: Node, inner: Sequence[int], depth: int) -> tuple[int, ...]:
    asked: Sequence[int] = node.integers("shape")
    if not node.shape("shape"):
        if asked[0] != -1:
            raise ShapeError(f"{node.op}: the only valid scalar shape is -1, got {asked[0]}")
        asked = [-1] * (1 + depth + len(inner))
    if len(asked) != 1 + depth + len(inner) or any(size < -1 for size in asked):
        raise ShapeError(f"{node.op}: shape {list(asked)} is not one of the ragged array's")
    if any(size == -1 for size in asked[1 : depth + 1]):
        raise UnsupportedError(f"{node.op}: a size is that of the longest row")
    if any(size not in (-1, dim) for size, dim in zip(asked[depth + 1 :], inner)):
        raise ShapeError(f"{node.op}: shape {list(asked)} does not end as the values' {list(inner)}")
    rows = asked[0]
    if rows == -1:
        if node.attr("row_partition_types")[0] == _FIRST_SIZE:
            raise UnsupportedError(f"{node.op}: the number of rows is that of a tensor")
        rows = _rows(node, node.list("row_partition_tensors")[0])
    return rows, *asked[1 : depth + 1], *inner


def _default_value(node: Node, values: Shape) -> Operand:
    """What stands where no value does, of the dims of one value."""
    b, default = node.b, node["default_value"]
    if b.get_shape(default).rank >= values.rank:
        raise ShapeError(f"{node.op}: default_value has as many axes as the values")
    return broadcast_to(b, default, values.dims[1:])


def _place_of_value(
    node: Node, partitions: Sequence[Operand], dims: Sequence[int]
) -> tuple[Operand, Operand]:
    """(which value stands at each place of these dims, whether one does). There are no empty partitions."""
    b, type_ = node.b, node.element_type("row_partition_tensors")
    first = partitions[0]
    starts = _resized(b, _slice(b, first, 0, _rows(node, first)), dims[0])
    lengths = _resized(b, _lengths(b, first), dims[0])
    for level in range(1, len(dims)):
        here, outer = tuple(dims[: level + 1]), range(level)
        column = b.iota(Shape(type_, here), level)
        is_there = b.lt(column, b.broadcast_in_dim(lengths, here, outer))
        place = b.broadcast_in_dim(starts, here, outer) + column
        if level < len(partitions):
            splits = partitions[level]
            rows = _rows(node, splits)
            row = b.clamp(*_ends(b, place, rows))
            starts = gather_axis(node, _slice(b, splits, 0, rows), row, 0, 0)
            lengths = gather_axis(node, _lengths(b, splits), row, 0, 0)
            lengths = b.select(is_there, lengths, b.full_like(lengths, 0))
    return place, is_there


def _resized(b: ComputationBuilder, vector: Operand, count: int) -> Operand:
    """So many elements of a vector, zeros behind them."""
    (size,) = b.get_shape(vector).dims
    if count <= size:
        return vector if count == size else _slice(b, vector, 0, count)
    return b.pad(vector, b.scalar_like(vector, 0), [(0, count - size, 0)])


# -- made of rows

_MIN_ROOM, _PER_ROW = 64, 16  # values that the first code has room for, in all and for each range


def _joined_rows(
    node: Node, lengths: Operand, capacity: Capacity
) -> tuple[Operand, Operand, Operand, Operand]:
    """(splits of rows of these lengths, s64, how many values they have, s32, of each value its row and its place in
    the row, s64). There are rows. Leaves the run where there is no room for so many values."""
    b, (rows,), room = node.b, node.b.get_shape(lengths).dims, capacity.bound
    lengths = b.convert_element_type(lengths, _S64)
    shortest, longest = (reduce(b, lengths, op, [0]) for op in ("min", "max"))
    zero, limit = b.constant(0, _S64), b.constant(room, _S64)
    node.bail_out_if(b.lt(shortest, zero), "a row has a negative length")
    capacity.check(node, longest)
    lengths = b.clamp(zero, lengths, limit)  # so that their sum is one
    splits = b.concat_in_dim([b.reshape(zero, (1,)), cumulative(b, lengths, "add")], 0)
    total = _element(b, splits, rows)
    capacity.check(node, total)
    row = _row_of_value(b, splits, room)
    begin = gather_axis(node, _slice(b, splits, 0, rows), row, 0, 0)
    place = b.iota(Shape(_S64, (room,)), 0) - begin
    return splits, b.convert_element_type(b.min(total, limit), _S32), row, place


def _second(node: GraphNode, graph: Graph) -> Collection[int]:
    return (1,)


@translates("RaggedRange", sizes=_second, types={"T": frozenset({_S32, _S64})})
def ragged_range(node: Node) -> tuple[Operand, Operand]:
    """The rows of range(start, limit, delta)."""
    b, type_, splits_type = node.b, node.element_type("starts"), node.attr("Tsplits") or _S64
    shapes = [node.shape(k) for k in range(3)]
    counts = {dims[0] for dims in shapes if dims}
    if any(len(dims) > 1 for dims in shapes) or len(counts) > 1:
        raise ShapeError("starts, limits, and deltas must have the same shape")
    rows = counts.pop() if counts else 1
    if not rows:
        return b.zeros(Shape(splits_type, (1,))), b.zeros(Shape(type_, (0,)))
    starts, limits, deltas = (b.broadcast(node[k], (rows,)) if not shapes[k] else node[k] for k in range(3))
    zeros = b.full_like(deltas, 0)
    node.bail_out_if(reduce(b, b.eq(deltas, zeros), "or_", [0]), "a delta is 0")
    wide = [b.convert_element_type(operand, _S64) for operand in (starts, limits, deltas)]
    none, one = b.full_like(wide[0], 0), b.full_like(wide[0], 1)
    rises = b.gt(wide[2], none)
    distance = b.select(rises, wide[1] - wide[0], wide[0] - wide[1])
    step = b.select(rises, wide[2], none - wide[2])
    if type_ is _S64:
        node.bail_out_if(reduce(b, b.lt(step, none), "or_", [0]), "a delta has no absolute value")
    step = b.max(step, one)
    is_empty = b.select(rises, b.le(wide[1], wide[0]), b.ge(wide[1], wide[0]))
    if type_ is _S64:
        wraps = b.and_(b.not_(is_empty), b.lt(distance, one))
        node.bail_out_if(reduce(b, wraps, "or_", [0]), "a range is longer than any array")
    lengths = b.select(is_empty, none, b.div(b.max(distance, one) - one, step) + one)
    splits, total, row, place = _joined_rows(
        node, lengths, Capacity.of(node, max(estimate(rows) * _PER_ROW, _MIN_ROOM))
    )
    place = b.convert_element_type(place, type_)
    values = gather_axis(node, starts, row, 0, 0) + place * gather_axis(node, deltas, row, 0, 0)
    return b.convert_element_type(splits, splits_type), b.set_dimension_size(values, total, 0)


def _other_ranks(node: GraphNode) -> str | None:
    ranks = [node.attrs[f"{kind}_RAGGED_RANK"].i for kind in ("PARAMS", "OUTPUT")]
    return None if ranks == [1, 1] else "it picks other than rows of one ragged axis by a vector"


@translates("RaggedGather", sizes=_second, unsupported=_other_ranks)
def ragged_gather(node: Node) -> tuple[Operand, Operand]:
    """Rows that a vector of indices picks."""
    b, splits, values, indices = node.b, node.list("params_nested_splits")[0], node[1], node["indices"]
    shape, (picked,) = b.get_shape(values), node.shape("indices")
    rows = _rows(node, splits)
    _check_splits(node, splits, shape.dims[0], is_exact=False)
    if not picked:
        none = b.zeros(Shape(shape.element_type, (0, *shape.dims[1:])))
        return b.zeros(Shape(b.get_shape(splits).element_type, (1,))), none
    if not rows or not shape.dims[0]:
        raise UnsupportedError(f"{node.op}: nothing to pick from")
    check_indices(node, indices, rows)
    begins = gather_axis(node, _slice(b, splits, 0, rows), indices, 0, 0)
    lengths = gather_axis(node, _lengths(b, splits), indices, 0, 0)
    per_row = -(-3 * max(estimate(shape.dims[0]), 1) // (2 * max(estimate(rows), 1)))
    capacity = Capacity.of(node, max(estimate(picked) * per_row, _MIN_ROOM), math.prod(shape.dims[1:]))
    new_splits, total, row, place = _joined_rows(node, lengths, capacity)
    source = b.convert_element_type(gather_axis(node, begins, row, 0, 0), _S64) + place
    taken = gather_axis(node, values, b.clamp(*_ends(b, source, shape.dims[0])), 0, 0)
    new_splits = b.convert_element_type(new_splits, b.get_shape(splits).element_type)
    return new_splits, b.set_dimension_size(taken, total, 0)


# -- to sparse arrays


@translates("RaggedTensorToSparse")
def ragged_to_sparse(node: Node) -> tuple[Operand, Operand, Operand]:
    """Indices of all values, the values, and the least shape that has room for them."""
    b, partitions, values = node.b, node.list("rt_nested_splits"), node["rt_dense_values"]
    shape = b.get_shape(values)
    if not shape.rank:
        raise ShapeError(f"{node.op}: values are a scalar")
    counts = [_rows(node, splits) for splits in partitions]
    for splits, count in zip(partitions, [*counts[1:], shape.dims[0]]):
        _check_splits(node, splits, count, is_exact=True)
    sizes = [b.constant(counts[0], _S64)]
    for splits, rows in zip(partitions, counts):
        longest = reduce(b, _lengths(b, splits), "max", [0]) if rows else b.constant(0, _S64)
        longest = b.convert_element_type(longest, _S64)
        sizes.append(b.max(longest, b.constant(0, _S64)))
    sizes += [b.constant(dim, _S64) for dim in shape.dims[1:]]
    dense_shape = b.concat_in_dim([b.reshape(size, (1,)) for size in sizes], 0)
    rank, elements = len(partitions) + shape.rank, shape.elements
    if not elements:
        return b.zeros(Shape(_S64, (0, rank))), b.reshape(values, (elements,)), dense_shape
    return _indices(node, partitions, shape.dims), b.reshape(values, (elements,)), dense_shape


def _indices(node: Node, partitions: Sequence[Operand], dims: Sequence[int]) -> Operand:
    """The indices of all elements of values of these dims, which has elements."""
    b, columns, place = node.b, list[Operand](), node.b.iota(Shape(_S64, (dims[0],)), 0)
    for level, splits in reversed(list(enumerate(partitions))):
        count = dims[0] if level == len(partitions) - 1 else _rows(node, partitions[level + 1])
        splits = b.convert_element_type(splits, _S64)
        rows = b.get_shape(splits).dims[0] - 1
        row_of = _row_of_value(b, splits, count)
        row = row_of if not columns else gather_axis(node, row_of, place, 0, 0)
        columns.insert(0, place - gather_axis(node, _slice(b, splits, 0, rows), row, 0, 0))
        place = b.convert_element_type(row, _S64)
    columns.insert(0, place)
    outer = [b.reshape(b.broadcast_in_dim(c, dims, [0]), (math.prod(dims), 1)) for c in columns]
    inner = [
        b.reshape(b.iota(Shape(_S64, tuple(dims)), axis), (math.prod(dims), 1))
        for axis in range(1, len(dims))
    ]
    return functools.reduce(lambda x, y: b.concat_in_dim([x, y], 1), [*outer, *inner])
