"""Operations of the dialect chlo: functions that HLO has not, and binary operations that broadcast."""

from __future__ import annotations

import math

from ...builder.computation_builder import Operand
from ...builder.lib.functions import FUNCTIONS, apply_function
from ...builder.lib.special_functions import next_after
from ...builder.lib.zeta import accuracy, polygamma, zeta
from ...errors import ShapeError, UnsupportedError
from ...ir.element_types import ElementType
from ...ops import Elementwise
from ..operations import integers
from ..translation import Context, Results, translates
from .arrays import axes, broadcast_to, numbers
from .arrays import constant as constant_of
from .contractions import preferred
from .elementwise import comparison

_F32, _F64 = ElementType.F32, ElementType.F64


def _name(c: Context) -> str:
    return c.op.name.partition(".")[2]


@translates(*(f"chlo.{name}" for name in FUNCTIONS))
def unary(c: Context) -> Results:
    return apply_function(c.b, _name(c), c.operand())


@translates("chlo.square")
def square(c: Context) -> Results:
    return c.b.square(c.operand())


@translates("chlo.conj")
def conj(c: Context) -> Results:
    return c.b.conj(c.operand())


@translates("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
def is_inf(c: Context) -> Results:
    return {"is_inf": c.b.is_inf, "is_pos_inf": c.b.is_pos_inf, "is_neg_inf": c.b.is_neg_inf}[_name(c)](
        c.operand()
    )


@translates("chlo.next_after", "chlo.broadcast_next_after")
def next_float(c: Context) -> Results:
    if c.shape().element_type not in (ElementType.F16, ElementType.BF16, _F32, _F64):
        raise UnsupportedError(f"{c.op.name} of {c.shape()} is not compiled: floats of 16 bits and more are")
    return next_after(c.b, *_same_dims(c, 2))


@translates("chlo.zeta", "chlo.polygamma", "chlo.broadcast_zeta", "chlo.broadcast_polygamma")
def series(c: Context) -> Results:
    b, kind = c.b, c.shape().element_type
    x, y = (b.convert_element_type(o, _F64) for o in _same_dims(c, 2))
    value = zeta(b, x, y, accuracy(kind)) if _name(c).endswith("zeta") else polygamma(b, x, y, kind)
    return b.convert_element_type(value, kind)


@translates("chlo.mulhi")
def high_product(c: Context) -> Results:
    return c.b.apply(Elementwise("mulhi"), *c.all_operands(2))


@translates("chlo.scan")
def scan(c: Context) -> Results:
    sizes = c.op.integers("operandSegmentSizes")
    if len(sizes) != 2 or min(sizes) < 0 or sum(sizes) != len(c.operands):
        raise ShapeError(f"{c.op.name}: {len(c.operands)} operands, operandSegmentSizes is {list(sizes)}")
    inputs, initial = c.operands[: sizes[0]], c.operands[sizes[0] :]
    axis, is_reverse = c.op.integer("dimension"), c.op.boolean("is_reverse")
    return c.parts(c.b.scan(inputs, initial, c.computation(), axis, is_reverse))


@translates("chlo.ragged_dot")
def ragged_dot(c: Context) -> Results:
    n = numbers(c, "ragged_dot_dimension_numbers")
    pairs = [
        (axes(n, f"lhs_{name}_dimensions"), axes(n, f"rhs_{name}_dimensions"))
        for name in ("contracting", "batching")
    ]
    ragged = integers(n.fields.get("lhs_ragged_dimensions"), f"{c.op.name}: lhs_ragged_dimensions")
    if len(ragged) != 1:
        raise ShapeError(f"{c.op.name}: lhs_ragged_dimensions is {list(ragged)}, one is wanted")
    lhs, rhs, sizes = c.all_operands(3)
    groups = axes(n, "rhs_group_dimensions")
    return c.b.ragged_dot(lhs, rhs, sizes, pairs[0], pairs[1], ragged[0], groups, preferred(c))


@translates("chlo.top_k", "topk")
def top_k(c: Context) -> Results:
    return c.parts(c.b.top_k(c.operand(), c.op.integer("k"), c.op.boolean("largest", True)))


@translates("chlo.constant")
def constant(c: Context) -> Results:
    return constant_of(c.b, c.op)


@translates("chlo.constant_like")
def constant_like(c: Context) -> Results:
    kind = c.shape().element_type
    number = c.op.number("value")
    if not kind.is_float and not kind.is_complex:
        number = int(number) if math.isfinite(number) else 0
    return c.b.broadcast(c.b.constant(number, kind), c.result().dims)


_BROADCASTING = {
    "broadcast_add": "add",
    "broadcast_and": "and",
    "broadcast_atan2": "atan2",
    "broadcast_complex": "complex",
    "broadcast_divide": "divide",
    "broadcast_maximum": "maximum",
    "broadcast_minimum": "minimum",
    "broadcast_multiply": "multiply",
    "broadcast_or": "or",
    "broadcast_power": "power",
    "broadcast_remainder": "remainder",
    "broadcast_shift_left": "shift-left",
    "broadcast_shift_right_arithmetic": "shift-right-arithmetic",
    "broadcast_shift_right_logical": "shift-right-logical",
    "broadcast_subtract": "subtract",
    "broadcast_xor": "xor",
}


@translates(*(f"chlo.{name}" for name in _BROADCASTING))
def broadcasting(c: Context) -> Results:
    return c.b.apply(Elementwise(_BROADCASTING[_name(c)]), *_same_dims(c, 2))


@translates("chlo.broadcast_compare")
def broadcast_compare(c: Context) -> Results:
    return comparison(c, *_same_dims(c, 2))


@translates("chlo.broadcast_select")
def broadcast_select(c: Context) -> Results:
    pred, x, y = _same_dims(c, 3)
    return c.b.select(pred, x, y)


def _same_dims(c: Context, count: int) -> list[Operand]:
    """So many operands with the dims of the largest: the last axes of one of lower rank, or those that are said."""
    operands = c.all_operands(count)
    shapes = [c.b.get_shape(o) for o in operands]
    rank = max(s.rank for s in shapes)
    axes_in_text = c.op.integers("broadcast_dimensions") if c.op.has("broadcast_dimensions") else None
    places = [
        axes_in_text if axes_in_text is not None and s.rank < rank else tuple(range(rank - s.rank, rank))
        for s in shapes
    ]
    dims = [1] * rank
    for shape, place in zip(shapes, places):
        if len(place) != shape.rank or any(not 0 <= a < rank for a in place):
            raise ShapeError(f"{c.op.name}: broadcast_dimensions is {list(place)}, operand is {shape}")
        for size, axis in zip(shape.dims, place):
            dims[axis] = size if dims[axis] == 1 else dims[axis]
    return [
        o if s.dims == tuple(dims) else broadcast_to(c, o, tuple(dims), place)
        for o, s, place in zip(operands, shapes, places)
    ]
