"""Elementwise operations: those of HLO's names, comparisons, conversions."""

from __future__ import annotations

import re

from ...errors import ShapeError, UnsupportedError
from ...ops import Convert, Elementwise, ReducePrecision
from ..translation import Context, Results, translates

_SAME_NAME = (
    "abs add and atan2 cbrt ceil complex cosine count_leading_zeros divide exponential exponential_minus_one floor "
    "imag is_finite log log_plus_one logistic maximum minimum multiply negate not or popcnt power real remainder "
    "round_nearest_afz round_nearest_even rsqrt shift_left shift_right_arithmetic shift_right_logical sign sine sqrt "
    "subtract tan tanh xor"
)
_FORMAT = re.compile(r"e(\d{1,2})m(\d{1,2})")


@translates(*_SAME_NAME.split())
def elementwise(c: Context) -> Results:
    opcode = c.op.name.partition(".")[2].replace("_", "-")
    return c.b.apply(Elementwise(opcode), *c.operands)


@translates("select")
def select(c: Context) -> Results:
    return c.b.select(c.operand(0), c.operand(1), c.operand(2))


@translates("clamp")
def clamp(c: Context) -> Results:
    return c.b.clamp(c.operand(0), c.operand(1), c.operand(2))


@translates("compare")
def compare(c: Context) -> Results:
    words = [*c.op.words, c.op.word("comparison_direction"), c.op.word("compare_type")]
    direction = next((w for w in words if w in ("EQ", "NE", "GE", "GT", "LE", "LT")), "")
    kind = next((w for w in words if w in ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")), "")
    if kind in ("SIGNED", "UNSIGNED"):  # of predicates too
        kind = ""
    return c.b.compare(c.operand(0), c.operand(1), direction, type=kind)


@translates("convert")
def convert(c: Context) -> Results:
    return c.b.apply(Convert(c.element_type()), c.operand())


@translates("bitcast_convert")
def bitcast_convert(c: Context) -> Results:
    return c.b.bitcast_convert_type(c.operand(), c.element_type())


@translates("reduce_precision")
def reduce_precision(c: Context) -> Results:
    if match := _FORMAT.fullmatch(c.op.word("format")):
        return c.b.apply(ReducePrecision(int(match[1]), int(match[2])), c.operand())
    return c.b.apply(
        ReducePrecision(c.op.integer("exponent_bits"), c.op.integer("mantissa_bits")), c.operand()
    )


@translates("map")
def elementwise_map(c: Context) -> Results:
    return c.b.map(c.operands, c.computation(), c.op.integers("dimensions"))


@translates("uniform_quantize", "uniform_dequantize")
def quantize(c: Context) -> Results:
    raise UnsupportedError(f"{c.op.name} is not compiled: types with scales are not")


@translates("get_dimension_size")
def get_dimension_size(c: Context) -> Results:
    axis = c.op.integer("dim" if c.op.has("dim") else "dimension")
    if not 0 <= axis < c.shape().rank:
        raise ShapeError(f"{c.op.name}: axis {axis} of {c.shape()} does not exist")
    return c.b.get_dimension_size(c.operand(), axis)


@translates("set_dimension_size")
def set_dimension_size(c: Context) -> Results:
    return c.b.set_dimension_size(
        c.operand(0), c.operand(1), c.op.integer("dim" if c.op.has("dim") else "dimension")
    )
