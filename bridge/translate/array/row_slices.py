"""Slices along a first axis of a size that depends on data, and slices whose size does: `r[::-1]`, `r[1:]`, `x[:n]`.

The ends are read at run time, as TensorFlow reads them: from the end where they are negative, and no further than the
array goes. Rows are gathered from there, as many as there may be, and the number of those that count goes with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import as_size
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode, Tensor, input_range
from ..node import Node
from ..operands.dynamic_dims import Extent, bounds, size_of, with_first
from ..operands.dynamic_dims import extents as measured_extents
from ..operands.dynamic_size_rules import sliced_behind
from ..operands.value_ranges import range_of

_S32, _S64 = ElementType.S32, ElementType.S64
Gather = Callable[[Node, Operand, Operand, int, int], Operand]


# -- decided for a graph


def sliced_rows(node: GraphNode, graph: Graph) -> Collection[int]:
    """The input of a StridedSlice (of its gradient: the slice's) whose first range is of the first axis."""
    operand = 0 if node.op == "StridedSlice" else 4
    if operand == 0 and sliced_behind(node, graph):
        return (0,)
    strides = symbolic_size.folded(graph, node.inputs[3])
    is_first = not (node.attrs["new_axis_mask"].i | node.attrs["ellipsis_mask"].i) & 1
    return (operand,) if is_first and strides is not None and strides.size else ()


def drops_rows(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    """Whether a StridedSlice takes one row."""
    return bool(node.attrs["shrink_axis_mask"].i & ~node.attrs["ellipsis_mask"].i & 1)


# -- translated


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Row number `start + k * step` for every k below `count`, which is at most `room`; `single`: one, without axis."""

    start: Operand
    step: int
    count: Operand
    room: int
    single: bool = False


def is_of_rows(node: Node, operand: Operand | None) -> bool:
    """Whether the number of rows of a slice is known at run time only, or that of the array that is sliced."""
    if operand is not None and node.b.get_shape(operand).is_dynamic:
        return not (
            _mask(node, "begin")
            and _mask(node, "end")
            and node.integers("strides")[0] == 1
            or _mask(node, "ellipsis")
        )
    if _mask(node, "shrink_axis") or _mask(node, "ellipsis") or _mask(node, "new_axis"):
        return False
    ends = [name for name in ("begin", "end") if not _mask(node, name)]
    if all(node.constant_or_none(name) is not None for name in ends):
        return False
    polynomials = {name: _element(node, name, 0) for name in ends}
    if all(_constant_value(node, p) is not None for p in polynomials.values()):
        return False
    return (
        len(ends) == 1
        or _constant_value(node, symbolic_size.difference(polynomials["end"], polynomials["begin"])) is None
    )


def slice_of_rows(node: Node, plan: Callable[..., Operand], gather: Gather) -> Operand:
    """A StridedSlice along the first axis; `plan` takes ranges of the others, whose ends are known."""
    b, x, dims = node.b, node[0], node.shape(0)
    if not dims:
        raise ShapeError("Index out of range using input dim 0; input has only 0 dims")
    rows = _rows(node, size_of(b, x, 0), dims[0])
    if not rows.room:
        taken = b.slice_in_dim(x, 0, 0, 1, 0)
    else:
        first = node.context.constant_value(rows.start)
        if rows.step == 1 and not rows.single and first is not None and not first:
            taken = b.slice_in_dim(b.set_dimension_size(x, b.constant(dims[0], _S32), 0), 0, rows.room, 1, 0)
        else:
            taken = gather(node, x, _numbers(node, rows, dims[0]), 0, 0)
        if not rows.single:
            taken = b.set_dimension_size(taken, b.convert_element_type(rows.count, _S32), 0)
    begin, end = (_others(node, name) for name in ("begin", "end"))
    return plan(
        node, taken, begin, [b.get_shape(taken).dims[0], *end[1:]], [1, *node.integers("strides")[1:]]
    )


def _numbers(node: Node, rows: _Rows, bound: int) -> Operand:
    """The numbers of the rows; of those that do not count, of some row."""
    b = node.b
    steps = b.iota(Shape(_S64, (rows.room,)), 0) * b.broadcast(b.constant(rows.step, _S64), (rows.room,))
    numbers = b.add(b.broadcast(rows.start, (rows.room,)), steps)
    return b.clamp(b.constant(0, _S64), numbers, b.constant(bound - 1, _S64))


def _rows(node: Node, size: int | Extent, bound: int) -> _Rows:
    """The rows that the first range takes of as many."""
    b, zero, one = node.b, node.b.constant(0, _S64), node.b.constant(1, _S64)
    n = b.convert_element_type(size.value, _S64) if isinstance(size, Extent) else b.constant(bound, _S64)
    if _mask(node, "shrink_axis"):
        index = _from_end(node, _at(node, "begin"), n)
        node.bail_out_if(b.or_(b.lt(index, zero), b.ge(index, n)), "a row is taken that is not there")
        if not bound:
            raise ShapeError("slice index of an empty dimension is out of bounds.")
        return _Rows(index, 1, one, 1, True)
    step = node.integers("strides")[0]
    if not step:
        raise ShapeError("strides[0] must be non-zero")
    low, high = (zero, n) if step > 0 else (b.constant(-1, _S64), b.sub(n, one))
    start, stop = (low, high) if step > 0 else (high, low)
    if not _mask(node, "begin"):
        start = b.clamp(low, _from_end(node, _at(node, "begin"), n), high)
    if not _mask(node, "end"):
        stop = b.clamp(low, _from_end(node, _at(node, "end"), n), high)
    span, width = b.sub(stop, start) if step > 0 else b.sub(start, stop), abs(step)
    count = b.div(b.add(b.max(span, zero), b.constant(width - 1, _S64)), b.constant(width, _S64))
    return _Rows(start, step, count, -(-_longest(node, bound, step) // width))


def _longest(node: Node, bound: int, step: int) -> int:
    """What a range reaches over at most, by ends that are known or cannot be greater."""
    if step < 0:
        return bound
    first = None if _mask(node, "begin") else _constant_value(node, _element(node, "begin", 0))
    first = max(first or 0, 0)
    last = bound
    if not _mask(node, "end"):
        low, high = range_of(node.context, _at(node, "end"))
        last = min(bound, high) if 0 <= low <= high else max(bound + high, 0) if low <= high < 0 else bound
    return max(min(last, bound) - first, 0)


def _from_end(node: Node, index: Operand, n: Operand) -> Operand:
    return node.b.select(node.b.lt(index, node.b.constant(0, _S64)), node.b.add(index, n), index)


def _mask(node: Node, name: str) -> int:
    """Whether the first range has a mask."""
    return int(node.attr(f"{name}_mask") or 0) & 1


def _at(node: Node, which: str, number: int = 0) -> Operand:
    """An end, as s64."""
    b = node.b
    return b.convert_element_type(b.reshape(b.slice_in_dim(node[which], number, number + 1, 1, 0), ()), _S64)


def _element(node: Node, which: str, number: int) -> symbolic_size.Polynomial:
    tensor = node.graph_node.inputs[input_range(node.definition, which)[0]]
    return symbolic_size.element(node.context.graph, tensor, number)


def _constant_value(node: Node, polynomial: symbolic_size.Polynomial) -> int | None:
    values = node.context.values

    def read(tensor: Tensor) -> np.ndarray | None:
        value = values.get(tensor)
        return node.context.constant_value(value) if isinstance(value, Operand) else None

    return symbolic_size.value(polynomial, read)


def _others(node: Node, which: str) -> list[int]:
    """The ends of the ranges behind the first."""
    starts = [0]
    for k in range(1, len(node.integers("strides"))):
        start = node.context.constant_value(_at(node, which, k))
        if start is None:
            raise UnsupportedError(
                f"{node.op}: {which} of range {k} must be known when compiling, for the number of rows is not"
            )
        starts.append(as_size(start))
    return starts


def gradient_of_rows(node: Node, gather: Gather) -> Operand:
    """A StridedSliceGrad of a slice of rows: zeros but where a row was taken, which is found by its number."""
    b, sizes, strides = node.b, measured_extents(node, "shape"), node.integers("strides")
    if len(strides) > 1:
        raise UnsupportedError(
            f"{node.op}: of a slice along several axes, of a number of rows that depends on data"
        )
    first, dims = sizes[0], bounds(sizes)
    rows = _rows(node, first, dims[0])
    dy = b.reshape(node["dy"], (1, *dims[1:])) if rows.single else node["dy"]
    rows_given, zero = b.get_shape(dy).dims[0], b.constant(0, _S64)
    if not rows_given:
        return with_first(b, b.broadcast(b.scalar_like(dy, 0), dims), [first])
    ahead = b.sub(b.iota(Shape(_S64, (dims[0],)), 0), b.broadcast(rows.start, (dims[0],)))
    ahead = ahead if rows.step > 0 else b.neg(ahead)
    width = b.full_like(ahead, abs(rows.step))
    place, is_taken = b.div(ahead, width), b.eq(b.rem(ahead, width), b.full_like(ahead, 0))
    for test in (b.ge(ahead, b.full_like(ahead, 0)), b.lt(place, b.broadcast(rows.count, (dims[0],)))):
        is_taken = b.and_(is_taken, test)
    taken_rows = gather(node, dy, b.clamp(zero, place, b.constant(rows_given - 1, _S64)), 0, 0)
    is_taken = b.broadcast_in_dim(is_taken, dims, [0])
    return with_first(b, b.select(is_taken, taken_rows, b.full_like(taken_rows, 0)), [first])
