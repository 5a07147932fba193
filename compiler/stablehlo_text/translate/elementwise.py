"""Elementwise operations: those of HLO's names, comparisons, conversions."""

from __future__ import annotations

import re

from ...builder.computation_builder import ComputationBuilder, Operand
from ...builder.lib.functions import FUNCTIONS, apply_function
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
_NEGATED = {"EQ": "NE", "NE": "EQ", "GE": "LT", "LT": "GE", "LE": "GT", "GT": "LE"}
_ORDERS = frozenset({"", "FLOAT", "NOTYPE", "SIGNED", "TOTALORDER", "UNSIGNED", "WEAKORDER"})


@translates(*_SAME_NAME.split())
def elementwise(c: Context) -> Results:
    opcode = c.op.name.partition(".")[2].replace("_", "-")
    return c.b.apply(Elementwise(opcode), *c.operands)


@translates(*(name for name in FUNCTIONS if name != "tan"))
def function(c: Context) -> Results:
    """A function that mhlo had; today it is one of chlo."""
    return apply_function(c.b, c.op.name.partition(".")[2], c.operand())


@translates("stochastic_convert")
def stochastic_convert(c: Context) -> Results:
    operand, random = c.all_operands(2)
    return c.b.stochastic_convert(operand, random, c.element_type())


@translates("select")
def select(c: Context) -> Results:
    return c.b.select(c.operand(0), c.operand(1), c.operand(2))


@translates("clamp")
def clamp(c: Context) -> Results:
    return c.b.clamp(c.operand(0), c.operand(1), c.operand(2))


@translates("compare")
def compare(c: Context) -> Results:
    return comparison(c, *c.all_operands(2))


def comparison(c: Context, x: Operand, y: Operand) -> Operand:
    """A comparison in the order that the operation says; of predicates it may say that they are numbers.

    Raises: UnsupportedError  another order, or a direction that there is not.
    """
    words = [*c.op.words, c.op.word("comparison_direction"), c.op.word("compare_type")]
    directions = [w for w in words if w in _NEGATED]
    orders = [w for w in words if w and w not in _NEGATED] or [""]
    if len(directions) != 1 or len(orders) != 1 or orders[0] not in _ORDERS:
        raise UnsupportedError(f"{c.op.name}: a comparison {' '.join(filter(None, words))} is not compiled")
    if orders[0] == "WEAKORDER" and c.b.get_shape(x).element_type.is_float:
        return _weak(c.b, x, y, directions[0])
    return c.b.compare(x, y, directions[0], type=orders[0] if orders[0] in ("FLOAT", "TOTALORDER") else "")


def _weak(b: ComputationBuilder, x: Operand, y: Operand, direction: str) -> Operand:
    """A comparison in which all NaN are equal and the largest; -0 and 0 are equal too."""
    if direction in ("NE", "GE", "LE"):
        return b.not_(_weak(b, x, y, _NEGATED[direction]))
    if direction == "GT":
        return _weak(b, y, x, "LT")
    x_is_nan, y_is_nan = b.ne(x, x), b.ne(y, y)
    if direction == "EQ":
        return b.or_(b.eq(x, y), b.and_(x_is_nan, y_is_nan))
    return b.or_(b.lt(x, y), b.and_(b.not_(x_is_nan), y_is_nan))


@translates("convert")
def convert(c: Context) -> Results:
    """Of complex numbers to others: the real part."""
    is_complex = c.shape().is_array and c.shape().element_type.is_complex
    operand = c.b.real(c.operand()) if is_complex and not c.element_type().is_complex else c.operand()
    return c.b.apply(Convert(c.element_type()), operand)


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
