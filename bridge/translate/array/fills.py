"""Arrays made of a value or of a sequence: fills, ranges, one-hot rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ....runtime.sizes import AnySize
from ...graph.graph import Graph, GraphNode
from ..control.variants import zeros_like_variant
from ..float_sizes import Quotient, compared, steps_between
from ..node import Node
from ..operands.dynamic_dims import Extent, bounds, extents_or_none, filled_like, with_first
from ..operands.dynamic_dims import extents as measured_extents
from ..registry import first_input, translates
from ..size_evaluation import holds_sizes
from ..values import Optional, TensorList, Value
from .dynamic_slices import (
    dynamic_range,
    range_constants,
)

_S64 = ElementType.S64
Number = AnySize | np.ndarray


@translates("Fill", constants=("dims",), sized_by=("dims",))
def fill(node: Node) -> Operand:
    sizes = measured_extents(node, "dims")
    return with_first(node.b, node.b.broadcast(node["value"], bounds(sizes)), sizes)


@translates("ZerosLike", "OnesLike", takes_sizes=first_input)
def zeros_like(node: Node) -> Value:
    value = node.inputs[0]
    if node.op == "ZerosLike" and isinstance(value, TensorList | Optional):
        return zeros_like_variant(node.b, value)
    return filled_like(node.b, node[0], 0 if node.op == "ZerosLike" else 1)


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
    start, limit = (node.context.size_value(node[k]) for k in ("start", "limit"))
    if start is not None and limit is None and (sizes := extents_or_none(node, "limit")) is not None:
        return _numbers_below(node, sizes)
    if start is None or limit is None:
        return dynamic_range(node)
    delta = node.constant("delta")
    if delta == 0:
        raise ShapeError("Requires delta != 0: 0")
    if any(map(holds_sizes, (start, limit, delta))):
        return _numbers_between(node, start.item(), limit.item(), delta.item())
    if not (start <= limit if delta > 0 else start >= limit):  # also where one is NaN
        raise _wrong_direction(start, limit, delta)
    if node.element_type(0).is_integer:
        numbers = np.arange(start.item(), limit.item(), delta.item())
    else:  # one rounding of the product, one of the sum
        with np.errstate(all="ignore"):
            size = abs(float((limit - start) / delta))
            if not size < 2.0**63:
                raise ShapeError(f"Requires ((limit - start) / delta) < 2^63: {start}, {limit}, {delta}")
            numbers = start + np.arange(math.ceil(size)).astype(start.dtype) * delta
    return node.b.constant(numbers, node.element_type(0))


def _wrong_direction(start: Number, limit: Number, delta: Number) -> ShapeError:
    return ShapeError(
        f"Requires start {'<=' if delta > 0 else '>='} limit when delta is {delta}: {start}/{limit}"
    )


def _numbers_between(node: Node, start: AnySize, limit: AnySize, delta: AnySize) -> Operand:
    """Numbers between sizes that are known at run time only."""
    b, type_ = node.b, node.element_type(0)
    ends = [Quotient.of(number) for number in (start, limit, delta)]
    steps = steps_between(ends, type_)
    if steps is None:
        raise UnsupportedError(
            f"Range: from {start} to {limit} by {delta} there may be fewer {type_} numbers"
        )
    if not compared(operator.le if delta > 0 else operator.ge, start, limit):
        raise _wrong_direction(start, limit, delta)
    numbers = b.iota(Shape(type_, (steps,)), 0)
    if delta != 1:
        numbers = b.mul(numbers, b.full_like(numbers, delta))
    return b.add(numbers, b.broadcast(node["start"], (steps,)))


def _numbers_below(node: Node, limit: Sequence[int | Extent]) -> Operand:
    """Numbers up to one that depends on data."""
    b, (start, delta) = node.b, (int(node.constant(k).item()) for k in ("start", "delta"))
    if delta != 1 or not isinstance(limit[0], Extent):
        raise UnsupportedError(f"Range: from {start} in steps of {delta} to a limit that depends on data")
    count = Extent(b.sub(limit[0].value, b.constant(start, ElementType.S32)), max(limit[0].bound - start, 0))
    node.bail_out_if(b.lt(count.value, b.constant(0, ElementType.S32)), "it starts behind its limit")
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
    start, stop = (b.broadcast(node[name], (count,)) for name in ("start", "stop"))
    inner = b.add(start, b.mul(steps, b.broadcast(step, (count,))))
    numbers = b.iota(Shape(_S64, (count,)), 0)
    first, last = (b.eq(numbers, b.broadcast(b.constant(k, _S64), (count,))) for k in (0, count - 1))
    return b.select(
        first, start, b.select(last, stop, inner)
    )  # the ends as they are, also where a step is NaN


def _hot_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    return (0,) if node.attrs["axis"].i == -1 or node.attrs["axis"].i > 0 else ()


@translates("OneHot", constants=("depth",), takes_sizes=_hot_behind)
def one_hot(node: Node) -> Operand:
    b, depth, dims = node.b, node.integers("depth")[0], node.shape("indices")
    axis = node.attr("axis")
    axis = len(dims) if axis == -1 else axis
    full = (*dims[:axis], depth, *dims[axis:])
    places = b.broadcast_in_dim(b.iota(Shape(node.element_type("indices"), (depth,)), 0), full, [axis])
    indices = b.broadcast_in_dim(node["indices"], full, [k for k in range(len(full)) if k != axis])
    return b.select(
        b.eq(places, indices), b.broadcast(node["on_value"], full), b.broadcast(node["off_value"], full)
    )
