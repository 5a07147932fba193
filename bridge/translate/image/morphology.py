"""Dilation of images: the greatest of the sums of neighbours and a filter; and its gradients.

Source: tensorflow/core/kernels/dilation_ops.cc
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import FLOATS, INTEGERS, ElementType
from ..array.scatter_gather import finite_limits
from ..math.reductions import initial, reduce
from ..node import Node
from ..operands.axes import spatial_entries
from ..registry import translates

_S32 = ElementType.S32
_SIGNED = frozenset(
    t for t in FLOATS | INTEGERS if t.is_float or t.is_signed
)  # others have no value below all sums


def _plan(node: Node) -> tuple[list[tuple[int, int]], Sequence[int], Sequence[int], list[int]]:
    """(padding, strides, rates, output sizes) of height and width."""
    strides, rates = (spatial_entries(node.attr(k), (1, 2), k) for k in ("strides", "rates"))
    padding, sizes = [], []
    for size, taps, stride, rate in zip(node.shape("input")[1:3], node.shape("filter")[:2], strides, rates):
        reach = (taps - 1) * rate + 1
        same = node.attr("padding") == "SAME"
        count = -(-size // stride) if same else (size - reach) // stride + 1
        total = max(0, (count - 1) * stride + reach - size) if same else 0
        padding.append((total // 2, total - total // 2))
        sizes.append(max(count, 0))
    return padding, strides, rates, sizes


def _dilated(node: Node) -> tuple[Operand, Operand]:
    """(the greatest sums, the number of the first tap that gives each)."""
    b, (batch, _, _, depth) = node.b, node.shape("input")
    padding, strides, rates, sizes = _plan(node)
    type_ = node.element_type("input")
    lowest = initial(b, "max", type_)
    padded = b.pad(node["input"], lowest, [(0, 0), *padding, (0, 0)])
    dims = (batch, *sizes, depth)
    start = lowest if not type_.is_float else b.constant(finite_limits(type_)[0], type_)
    best, first = b.broadcast(start, dims), b.broadcast(b.constant(0, _S32), dims)
    for number, place in enumerate(itertools.product(*map(range, node.shape("filter")[:2]))):
        begin = [p * r for p, r in zip(place, rates)]
        end = [s + (c - 1) * t + 1 if c else s for s, c, t in zip(begin, sizes, strides)]
        taken = b.slice(padded, [0, *begin, 0], [batch, *end, depth], [1, *strides, 1])
        added = b.reshape(b.slice(node["filter"], [*place, 0], [p + 1 for p in place] + [depth]), (depth,))
        value = taken + b.broadcast_in_dim(added, dims, [3])
        if not type_.is_float:  # what lies outside has no sum
            value = b.select(b.eq(taken, b.broadcast(lowest, dims)), taken, value)
        above = b.gt(value, best)
        best, first = b.select(above, value, best), b.select(above, b.full_like(first, number), first)
    return best, first


@translates("Dilation2D", types={"T": _SIGNED})
def dilation(node: Node) -> Operand:
    return _dilated(node)[0]


def _by_tap(node: Node) -> Sequence[Operand]:
    """The gradients of the results that every tap gave, zeros elsewhere."""
    b, (_, first) = node.b, _dilated(node)
    gradients = node["out_backprop"]
    count = node.shape("filter")[0] * node.shape("filter")[1]
    return [
        b.select(b.eq(first, b.full_like(first, k)), gradients, b.full_like(gradients, 0))
        for k in range(count)
    ]


@translates("Dilation2DBackpropInput", types={"T": _SIGNED})
def dilation_grad_input(node: Node) -> Operand:
    b, dims = node.b, node.shape("input")
    padding, strides, rates, sizes = _plan(node)
    total = b.broadcast(b.scalar_like(node["input"], 0), dims)
    if 0 in node.shape("filter"):  # TensorFlow adds the gradients where windows begin
        raise UnsupportedError(f"{node.op}: the filter has no elements")
    places = itertools.product(*map(range, node.shape("filter")[:2]))
    for place, gradients in zip(places, _by_tap(node)):
        low = [p * r - pad[0] for p, r, pad in zip(place, rates, padding)]
        high = [d - start - ((c - 1) * t + 1) for d, start, c, t in zip(dims[1:3], low, sizes, strides)]
        config = [(0, 0, 0), *((a, z, t - 1) for a, z, t in zip(low, high, strides)), (0, 0, 0)]
        total = total + b.pad(gradients, b.scalar_like(gradients, 0), config)
    return total


@translates("Dilation2DBackpropFilter", types={"T": _SIGNED})
def dilation_grad_filter(node: Node) -> Operand:
    b = node.b
    sums = [reduce(b, gradients, "add", [0, 1, 2]) for gradients in _by_tap(node)]
    joined = b.concat_in_dim([b.reshape(s, (1, node.shape("filter")[2])) for s in sums], 0)
    return b.reshape(joined, node.shape("filter"))
