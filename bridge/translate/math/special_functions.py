"""Special functions: inverse error function, Bessel functions, hyperbolic and inverse functions.

Types below f32 are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.lib import complex_functions
from ....compiler.builder.lib.gamma_functions import digamma, lgamma
from ....compiler.builder.lib.matrices import widened
from ....compiler.builder.lib.special_functions import bessel_i0e, bessel_i1e, erfinv, ndtri, next_after
from ....compiler.ir.element_types import COMPLEXES, ElementType
from ....compiler.ir.shape import Shape
from ..nn.nn import narrowed
from ..node import Node
from ..operands.axes import axis_of
from ..operands.value_ranges import any_of
from ..registry import every_input, translates
from .broadcasting import broadcast

_B = ComputationBuilder
_F32, _F64 = ElementType.F32, ElementType.F64


UNARY: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "Acos": _B.acos,
    "Asin": _B.asin,
    "Atan": _B.atan,
    "Acosh": _B.acosh,
    "Asinh": _B.asinh,
    "Atanh": _B.atanh,
    "Sinh": _B.sinh,
    "Cosh": _B.cosh,
    "Lgamma": lgamma,
    "Digamma": digamma,
    "Ndtri": ndtri,
    "Erfinv": erfinv,
    "Erfc": lambda b, x: b.erfc(x),
    "BesselI0e": bessel_i0e,
    "BesselI1e": bessel_i1e,
    "BesselI0": lambda b, x: bessel_i0e(b, x) * b.exp(b.abs(x)),
    "BesselI1": lambda b, x: bessel_i1e(b, x) * b.exp(b.abs(x)),
}
_REAL = frozenset({ElementType.F16, ElementType.BF16, _F32, _F64})


@translates(
    *(op for op in UNARY if op not in complex_functions.UNARY), takes_sizes=every_input, types={"T": _REAL}
)
@translates(
    *(op for op in UNARY if op in complex_functions.UNARY),
    takes_sizes=every_input,
    types={"T": _REAL | COMPLEXES},
)
def unary(node: Node) -> Operand:
    if node.element_type(0) in COMPLEXES:
        return complex_functions.apply(node.b, node.op, node[0])
    return narrowed(node.b, UNARY[node.op](node.b, widened(node.b, node[0])), node.element_type(0))


@translates("NextAfter", takes_sizes=every_input)
def next_float(node: Node) -> Operand:
    return next_after(node.b, *broadcast(node.b, node[0], node[1]))


@translates("PopulationCount", takes_sizes=every_input)
def population_count(node: Node) -> Operand:
    return node.b.convert_element_type(node.b.population_count(node[0]), ElementType.U8)


@translates("ApproximateEqual")
def approximate_equal(node: Node) -> Operand:
    b = node.b
    distance = b.abs(node[0] - node[1])
    return b.le(distance, b.constant(np.float64(node.attr("tolerance")), b.get_shape(distance).element_type))


def logaddexp(b: ComputationBuilder, x: Operand, y: Operand) -> Operand:
    """log(exp(x) + exp(y)), without overflow."""
    larger = b.max(x, y)
    gap = b.select(b.eq(x, y), b.full_like(x, 0), b.min(x, y) - larger)
    return larger + b.log1p(b.exp(gap))


@translates("CumulativeLogsumexp", constants=("axis",))
def cumulative_logsumexp(node: Node) -> Operand:
    """A window that ends (or, in reverse, starts) at every element; one function is computed for many rows."""
    b, shape = node.b, node.array_shape(0)
    x = widened(b, node[0])
    if not shape.rank:
        return node[0]
    axis = axis_of(node.integers("axis")[0], shape.rank, node.op)
    if not shape.elements:
        return node[0]
    nothing = b.scalar_like(x, -math.inf)
    # What NaN becomes depends on the order of the sums.
    node.bail_out_if(any_of(b, b.ne(x, x), range(shape.rank)), "a value is NaN")
    if node.attr("exclusive"):
        x = b.pad_in_dim(x, nothing, axis, *((-1, 1) if node.attr("reverse") else (1, -1)))
    order = [axis, *(a for a in range(shape.rank) if a != axis)]
    length, ones = shape.dims[axis], [1] * (shape.rank - 1)
    sums = b.create_sub_builder("logaddexp")
    pair = [sums.parameter(k, Shape(b.get_shape(x).element_type), name) for k, name in enumerate("xy")]
    result = b.reduce_window_with_general_padding(
        b.transpose(x, order),
        nothing,
        sums.build(logaddexp(sums, *pair)),
        [length, *ones],
        [1, *ones],
        [(0, length - 1) if node.attr("reverse") else (length - 1, 0), *[(0, 0)] * len(ones)],
    )
    result = b.transpose(result, [order.index(a) for a in range(shape.rank)])
    return narrowed(b, result, shape.element_type)
