"""Rounding to a grid of quantized values and back, in floats, with the gradients of the fake ones.

Source: tensorflow/core/kernels/fake_quant_ops_functor.h, quantize_and_dequantize_op.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ...graph.graph import GraphNode
from ..array.scatter_gather import finite_limits
from ..math.reductions import reduce
from ..node import Node
from ..registry import translates

_F32 = ElementType.F32


def _grid(node: Node, low: Operand, high: Operand) -> tuple[Operand, Operand, Operand]:
    """(scale, least value, greatest value) of the grid, moved so that zero is on it."""
    b = node.b
    smallest = b.constant(1.0 if node.attr("narrow_range") else 0.0, _F32)
    greatest = b.constant(float((1 << node.attr("num_bits")) - 1), _F32)
    scale = (high - low) / (greatest - smallest)
    zero_point = smallest - low / scale
    nudged = b.clamp(smallest, b.round(zero_point), greatest)
    return scale, (smallest - nudged) * scale, (greatest - nudged) * scale


def _ranges(node: Node) -> tuple[Operand, Operand]:
    """The given range: scalars, or one per channel; of attributes or inputs."""
    if "Args" in node.op:
        return node.b.constant(node.attr("min"), _F32), node.b.constant(node.attr("max"), _F32)
    return node["min"], node["max"]


def _broadcast(b: ComputationBuilder, value: Operand, dims: Sequence[int]) -> Operand:
    """A scalar everywhere, a vector along the last axis."""
    return b.broadcast_in_dim(value, dims, [len(dims) - 1] if b.get_shape(value).rank else [])


def _unsupported_range(node: GraphNode) -> str | None:
    if "num_bits" in node.attrs and not 2 <= node.attrs["num_bits"].i <= 16:
        return "num_bits is not between 2 and 16, which is TensorFlow's error"
    low, high = (
        node.attrs[name].f if name in node.attrs else default for name, default in (("min", -6), ("max", 6))
    )
    return (
        "min is not smaller than max, which is TensorFlow's error"
        if "Args" in node.op and not low < high
        else None
    )


@translates(
    "FakeQuantWithMinMaxArgs",
    "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxVarsPerChannel",
    unsupported=_unsupported_range,
)
def fake_quant(node: Node) -> Operand:
    b, dims = node.b, node.shape(0)
    low, high = _ranges(node)
    scale, smallest, largest = _grid(node, low, high)
    levels = (1 << node.attr("num_bits")) - (2 if node.attr("narrow_range") else 1)
    inverse, half = b.constant(float(levels), _F32) / (high - low), b.constant(0.5, _F32)
    zero = b.floor(half - smallest * inverse)
    scale, inverse, zero, smallest, largest = (
        _broadcast(b, v, dims) for v in (scale, inverse, zero, smallest, largest)
    )
    shifted = b.max(b.min(node[0], largest), smallest) - smallest
    # As TensorFlow's kernels differ, so do halves between two levels.
    steps = shifted / scale if node.op == "FakeQuantWithMinMaxVars" else shifted * inverse
    result = b.floor(steps - zero + b.full_like(zero, 0.5)) * scale
    empty = b.and_(b.eq(low, b.scalar_like(low, 0)), b.eq(high, b.scalar_like(high, 0)))
    return b.select(_broadcast(b, empty, dims), b.full_like(result, 0), result)


@translates(
    "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    unsupported=_unsupported_range,
)
def fake_quant_gradient(node: Node) -> Operand | tuple[Operand, ...]:
    """The gradient inside the grid is that of the result; outside, it goes to the end of the range that clamps the
    value."""
    b, gradients, x, dims = node.b, node["gradients"], node["inputs"], node.shape("inputs")
    low, high = _ranges(node)
    _, smallest, largest = _grid(node, low, high)
    nothing = b.full_like(gradients, 0)
    smallest, largest = _broadcast(b, smallest, dims), _broadcast(b, largest, dims)
    below, above, inside = b.lt(x, smallest), b.gt(x, largest), b.and_(b.ge(x, smallest), b.le(x, largest))
    if "Args" in node.op:  # an infinite gradient becomes NaN outside
        return gradients * b.select(inside, b.full_like(gradients, 1), nothing)
    empty = b.and_(b.eq(low, b.scalar_like(low, 0)), b.eq(high, b.scalar_like(high, 0)))
    empty = _broadcast(b, empty, dims)
    inside = b.or_(inside, empty)
    below, above = (b.and_(cut, b.not_(empty)) for cut in (below, above))
    passed = b.select(inside, gradients, nothing)
    axes = range(len(dims) - 1 if "PerChannel" in node.op else len(dims))
    return (
        passed,
        *(reduce(b, b.select(cut, gradients, nothing), "add", list(axes)) for cut in (below, above)),
    )


@translates("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(node: Node) -> Operand:
    return _rounded_to_grid(node, node.attr("num_bits"))


@translates("QuantizeAndDequantizeV3", constants=("num_bits",))
def quantize_and_dequantize_input(node: Node) -> Operand:
    if node.b.get_shape(node["num_bits"]).rank:
        raise ShapeError("Invalid shape. The `num_bits` tensor should be a scalar")
    if not node.array_shape(0).rank:
        raise ShapeError(f"Axis requested is larger than input dimensions. Axis: {node.attr('axis')}")
    return _rounded_to_grid(node, node.integers("num_bits")[0])


def _rounded_to_grid(node: Node, bits: int) -> Operand:
    b, shape, signed = node.b, node.array_shape(0), node.attr("signed_input")
    axis = node.attr("axis")
    axis = -1 if axis is None else axis
    if not signed < bits <= (62 if signed else 63):
        raise ShapeError(f"num_bits is out of range: {bits} with signed_input {signed}")
    if not -1 <= axis < shape.rank:
        raise ShapeError(f"Shape must be at least rank {axis + 1} but is rank {shape.rank}")
    x = node[0]
    if node.attr("range_given"):
        low, high = node["input_min"], node["input_max"]
        ordered = b.le(low, high)
        every = range(b.get_shape(low).rank)
        node.bail_out_if(b.not_(reduce(b, ordered, "and_", every)), "input_min is greater than input_max")
    else:
        others = [a for a in range(shape.rank) if a != axis]
        low, high = reduce(b, x, "min", others), reduce(b, x, "max", others)
    expected = () if axis == -1 else (shape.dims[axis],)
    for name, limit in (("input_min", low), ("input_max", high)):
        if b.get_shape(limit).dims != expected:
            raise ShapeError(f"{name} has shape {list(b.get_shape(limit).dims)}, {list(expected)} is wanted")
    smallest = (-(1 << bits - 1) + bool(node.attr("narrow_range"))) if signed else 0
    greatest = (1 << bits - 1) - 1 if signed else (1 << bits) - 1

    def number(value: float) -> Operand:
        return b.scalar_like(x, value)

    unbounded = b.full_like(low, finite_limits(shape.element_type)[1])
    by_low = b.select(b.gt(low * number(smallest), number(0)), number(smallest) / low, unbounded)
    by_high = b.select(b.gt(high * number(greatest), number(0)), number(greatest) / high, unbounded)
    from_low = b.lt(by_low, by_high)
    scale = b.select(from_low, by_low, by_high)
    inverse = b.select(from_low, low / number(smallest or 1), high / number(greatest))
    low, high = (
        b.select(from_low, low, inverse * number(smallest)),
        b.select(from_low, inverse * number(greatest), high),
    )
    along = [axis] if axis != -1 else []
    low, high, scale, inverse = (
        b.broadcast_in_dim(v, shape.dims, along) for v in (low, high, scale, inverse)
    )
    if node.attr("range_given"):
        x = b.clamp(low, x, high)
    x = x * scale
    halves_up = node.attr("round_mode") == "HALF_UP"
    return (b.floor(x + number(0.5)) if halves_up else b.round_nearest_even(x)) * inverse
