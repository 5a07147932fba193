"""Reductions, arg-reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.element_types import COMPLEXES, FLOATS, ElementType
from ....compiler.ir.module import Computation
from ....compiler.ir.shape import Shape
from ....runtime.sizes import estimate
from ...analysis import symbolic_size
from ...analysis.repeat_bounds import repeat_bounds
from ...graph.graph import Graph, GraphNode
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_size_rules import along_others, keep_first, only
from ..operands.value_ranges import note
from ..registry import first_input, translates


def reducer(b: ComputationBuilder, op: str, element_type: ElementType) -> Computation:
    """The scalar computation x, y -> b.op(x, y)."""
    inner = b.create_sub_builder(f"{op}_{element_type.value}")
    x, y = (inner.parameter(k, Shape(element_type), name) for k, name in enumerate("xy"))
    return inner.build(getattr(inner, op)(x, y))


def initial(b: ComputationBuilder, op: str, element_type: ElementType) -> Operand:
    """The value that `op` leaves unchanged."""
    if op in ("max", "min"):
        if element_type.is_float:
            return b.constant(-np.inf if op == "max" else np.inf, element_type)
        bits, signed = element_type.bits, element_type.is_signed
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return b.constant(low if op == "max" else high, element_type)
    return b.constant({"add": 0, "mul": 1, "and_": True, "or_": False}[op], element_type)


def reduce(
    b: ComputationBuilder, operand: Operand, op: str, axes: Sequence[int], keep: bool = False
) -> Operand:
    """The reduction over axes; small floats are summed in f32. Over axes of size 1 the elements stay, -0 too."""
    shape = b.get_shape(operand)
    type_ = shape.element_type
    if not shape.dynamic and all(shape.dims[a] == 1 for a in axes):
        return operand if keep else b.reshape(operand, [d for a, d in enumerate(shape.dims) if a not in axes])
    compute_type = ElementType.F32 if op in ("add", "mul") and type_.is_float and type_.bits < 32 else type_
    if compute_type is not type_:
        operand = b.convert_element_type(operand, compute_type)
    result = b.reduce([operand], [initial(b, op, compute_type)], reducer(b, op, compute_type), list(axes))
    if compute_type is not type_:
        result = b.convert_element_type(result, type_)
    return b.reshape(result, [1 if a in axes else d for a, d in enumerate(shape.dims)]) if keep else result


_OPS = {"Sum": "add", "Mean": "add", "Prod": "mul", "Max": "max", "Min": "min", "All": "and_", "Any": "or_"}


def _distinct_axes(node: Node) -> list[int]:
    axes = sorted(axis_of(a, node.array_shape(0).rank, node.op) for a in node.integers(1))
    for axis, following in zip(axes, axes[1:]):
        if axis == following:
            raise ShapeError(f"Invalid reduction arguments: Axes contains duplicate dimension: {axis}")
    return axes


def _reduces_first(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    axes = symbolic_size.constant_of(graph, node.inputs[1].node)
    return axes is not None and 0 in axes


@translates(*_OPS, constants=("reduction_indices",), takes_sizes=first_input, drops_sizes=_reduces_first)
def reduction(node: Node) -> Operand:
    b, shape = node.b, node.array_shape(0)
    axes = _distinct_axes(node)
    keep = bool(node.attr("keep_dims"))
    is_of_integers = node.op == "Max" and shape.element_type.is_integer
    if is_of_integers and node.constant_or_none(0) is None and node.name in repeat_bounds(node.context.graph):
        return _bound_of_repeats(node)
    if node.op != "Mean":
        return reduce(b, node[0], _OPS[node.op], axes, keep)
    type_ = shape.element_type
    small = type_.bits < 32 if type_.is_float else type_.is_integer and type_.bits < 64
    compute_type = (
        ElementType.F32 if type_.is_float else ElementType.S64 if type_.is_signed else ElementType.U64
    )
    operand = b.convert_element_type(node[0], compute_type) if small else node[0]
    total = reduce(b, operand, "add", axes, keep)
    result_shape = b.get_shape(total)
    count_type = result_shape.element_type
    static_count = math.prod(shape.dims[a] for a in axes if a not in shape.dynamic)
    count = b.constant(
        static_count if type_.is_float else max(static_count, 1), count_type
    )  # of nothing it is NaN or 0
    for axis in set(axes) & set(shape.dynamic):
        count = b.mul(count, b.convert_element_type(b.get_dimension_size(operand, axis), count_type))
    if type_.is_integer and shape.dynamic:
        count = b.max(count, b.constant(1, count_type))
    mean = b.div(total, b.broadcast(count, result_shape.dims))
    return b.convert_element_type(mean, type_) if small else mean


_MIN_REPEATS, _MAX_REPEATS = 8, 64  # of the first code
_MASK_ELEMENTS, _MAX_MASK_ELEMENTS = (
    1 << 16,
    1 << 26,
)  # the mask that the first code should have, and any code has


def _bound_of_repeats(node: Node) -> Operand:
    """A number in the place of a maximum that only a mask and the tile that it masks are made by. Leaves the run where
    the maximum is larger; the next code has a larger one.

    Raises: UnsupportedError  code is not made anew for larger ones.
    """
    b, shape, factor = node.b, node.array_shape(0), node.context.capacity_factor
    rows = max(estimate(shape.elements), 1)
    bound = min(max(_MASK_ELEMENTS // rows, _MIN_REPEATS), _MAX_REPEATS) * factor
    if not factor or rows * bound > _MAX_MASK_ELEMENTS:
        raise UnsupportedError(f"{node.op}: nothing bounds how often a row is repeated")
    largest = reduce(b, node[0], "max", range(shape.rank))
    b.overflow_if(
        b.gt(largest, b.constant(bound, shape.element_type)), f"a row is repeated more than {bound} times"
    )
    return b.constant(bound, shape.element_type)


@translates("EuclideanNorm", constants=("reduction_indices",), types={"T": FLOATS | COMPLEXES})
def euclidean_norm(node: Node) -> Operand:
    b, shape = node.b, node.array_shape(0)
    axes = _distinct_axes(node)
    squares = b.mul(node[0], b.conj(node[0]) if shape.element_type.is_complex else node[0])
    return b.sqrt(reduce(b, squares, "add", axes, bool(node.attr("keep_dims"))))


@translates("L2Loss")
def l2_loss(node: Node) -> Operand:
    b, shape = node.b, node.array_shape(0)
    total = reduce(b, b.mul(node[0], node[0]), "add", range(shape.rank))
    return b.mul(total, b.constant(0.5, shape.element_type))


@translates("ArgMax", "ArgMin", constants=("dimension",), takes_sizes=along_others("input", "dimension"))
def arg_reduction(node: Node) -> Operand:
    """The first index of the extreme value; NaN does not count as larger or smaller."""
    b, shape = node.b, node.array_shape(0)
    axis = axis_of(node.integers(1)[0], shape.rank, node.op)
    keep_first(node, node[0], axis)
    if not shape.dims[axis]:
        raise ShapeError(f"Reduction axis {axis} is empty in shape {list(shape.dims)}")
    type_, result_type = shape.element_type, node.attr("output_type")
    # Narrow places double the lanes of a vector.
    index_type = ElementType.S32 if shape.dims[axis] < 1 << 31 else result_type
    operand = node[0]
    if type_ is ElementType.PRED:
        type_ = ElementType.S8
        operand = b.convert_element_type(operand, type_)
    op = "max" if node.op == "ArgMax" else "min"
    places = b.broadcast_in_dim(b.iota(Shape(index_type, (shape.dims[axis],)), 0), shape.dims, [axis])
    inner = b.create_sub_builder(f"arg_{op}")
    value, place = inner.parameter(0, Shape(type_), "value"), inner.parameter(1, Shape(index_type), "place")
    other, elsewhere = (
        inner.parameter(2, Shape(type_), "other"),
        inner.parameter(3, Shape(index_type), "elsewhere"),
    )
    beyond = (inner.gt if op == "max" else inner.lt)(other, value)
    take = inner.or_(beyond, inner.and_(inner.eq(value, other), inner.lt(elsewhere, place)))
    step = inner.build(inner.tuple([inner.select(take, other, value), inner.select(take, elsewhere, place)]))
    result = b.reduce([operand, places], [initial(b, op, type_), b.constant(0, index_type)], step, [axis])
    place = b.get_tuple_element(result, 1)
    note(node.context, place, (0, shape.dims[axis] - 1))
    return b.convert_element_type(place, result_type)


@translates("Cumsum", "Cumprod", constants=("axis",), takes_sizes=only(0))
def cumulative(node: Node) -> Operand:
    """A window that ends (or, in reverse, starts) at every element; exclusive leaves the element itself out."""
    b, shape = node.b, node.array_shape(0)
    if not shape.rank:
        return node[0]
    op = "add" if node.op == "Cumsum" else "mul"
    axis = axis_of(node.integers("axis")[0], shape.rank, node.op)
    length, operand = shape.dims[axis], node[0]
    if not shape.elements:
        return operand
    type_ = shape.element_type
    compute_type = ElementType.F32 if type_.is_float and type_.bits < 32 else type_
    if compute_type is not type_:
        operand = b.convert_element_type(operand, compute_type)
    start = initial(b, op, compute_type)
    if node.attr("exclusive"):
        low, high = (-1, 1) if node.attr("reverse") else (1, -1)
        operand = b.pad(
            operand, start, [(low, high, 0) if a == axis else (0, 0, 0) for a in range(shape.rank)]
        )
    ones = [1] * shape.rank
    window = [length if a == axis else 1 for a in range(shape.rank)]
    padding = [
        ((0, length - 1) if node.attr("reverse") else (length - 1, 0)) if a == axis else (0, 0)
        for a in range(shape.rank)
    ]
    result = b.reduce_window_with_general_padding(
        operand, start, reducer(b, op, compute_type), window, ones, padding
    )
    return b.convert_element_type(result, type_) if compute_type is not type_ else result
