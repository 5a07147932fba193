"""Rules about values: arithmetic, logic, comparison."""

from __future__ import annotations

import math
from dataclasses import replace

from ....runtime.sizes import estimate
from ...ir.element_types import ElementType, float_info
from ...ir.module import Instruction, make
from ...ir.shape import Shape
from ...ops import Broadcast, Compare, Convert, Opcode, elementwise, is_op
from .rule import collect, full, is_inexact, is_splat, rule, splat

_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


@rule(Opcode.MULTIPLY)
def multiply_by_one(i: Instruction) -> Instruction | None:
    """x * 1 -> x."""
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], 1)), None)


@rule(Opcode.DIVIDE)
def divide_by_one(i: Instruction) -> Instruction | None:
    """x / 1 -> x."""
    return i.operands[0] if is_splat(i.operands[1], 1) else None


@rule(Opcode.ADD)
def add_neutral(i: Instruction) -> Instruction | None:
    """x + 0 -> x; of floats the neutral element is -0.0."""
    zero = -0.0 if i.shape.element_type.is_float else 0.0
    if i.shape.element_type.is_complex:
        return None
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], zero)), None)


@rule(Opcode.ADD, fast_math=True)
def add_positive_zero(i: Instruction) -> Instruction | None:
    """x + 0.0 -> x; not for -0.0."""
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], 0.0)), None)


@rule(Opcode.SUBTRACT)
def subtract_zero(i: Instruction) -> Instruction | None:
    """x - 0 -> x."""
    return i.operands[0] if not i.shape.element_type.is_complex and is_splat(i.operands[1], 0.0) else None


@rule(Opcode.SUBTRACT)
def subtract_itself(i: Instruction) -> Instruction | None:
    """x - x -> 0 of integers."""
    return full(i.shape, 0) if i.operands[0] is i.operands[1] and not is_inexact(i) else None


@rule(Opcode.SUBTRACT)
def subtract_from_negative_zero(i: Instruction) -> Instruction | None:
    """-0.0 - x -> -x; 0 - x -> -x of integers."""
    zero = -0.0 if i.shape.element_type.is_float else 0.0
    if i.shape.element_type.is_complex or not is_splat(i.operands[0], zero):
        return None
    return elementwise(Opcode.NEGATE, i.operands[1])


@rule(Opcode.MULTIPLY)
def multiply_by_zero(i: Instruction) -> Instruction | None:
    """x * 0 -> 0 of integers."""
    if is_inexact(i):
        return None
    return next((i.operands[n] for n in (0, 1) if is_splat(i.operands[n], 0)), None)


@rule(Opcode.MULTIPLY)
def multiply_by_minus_one(i: Instruction) -> Instruction | None:
    """x * -1 -> -x of floats and signed integers."""
    if not (i.shape.element_type.is_float or i.shape.element_type.is_signed):
        return None
    return next(
        (elementwise(Opcode.NEGATE, i.operands[1 - n]) for n in (0, 1) if is_splat(i.operands[n], -1)), None
    )


@rule(Opcode.DIVIDE)
def divide_by_power_of_two(i: Instruction) -> Instruction | None:
    """x / c -> x * (1 / c) of floats where 1 / c is exact and normal."""
    value = splat(i.operands[1])
    if value is None or not i.shape.element_type.is_float:
        return None
    number = float(value)
    if not math.isfinite(number) or number == 0 or abs(math.frexp(number)[0]) != 0.5:
        return None
    limits = float_info(i.shape.element_type.dtype)
    if not float(limits.smallest_normal) <= abs(1 / number) <= float(limits.max):
        return None
    return elementwise(Opcode.MULTIPLY, i.operands[0], full(i.shape, 1 / number))


@rule(Opcode.DIVIDE, fast_math=True)
def divide_by_constant(i: Instruction) -> Instruction | None:
    """x / c -> x * (1 / c)."""
    value = splat(i.operands[1])
    if value is None or not i.shape.element_type.is_float or not 1e-30 < abs(float(value)) < 1e30:
        return None
    return elementwise(Opcode.MULTIPLY, i.operands[0], full(i.shape, 1 / float(value)))


def _is_negated(i: Instruction) -> bool:
    """-x for which there is such a number: not of powers of two, whose negations are NaN."""
    return is_op(i, Opcode.NEGATE) and i.shape.element_type.has_negatives


@rule(Opcode.NEGATE, Opcode.NOT)
def twice(i: Instruction) -> Instruction | None:
    """-(-x) -> x; not not x -> x."""
    inner = i.operands[0]
    return inner.operands[0] if inner.op == i.op and i.shape.element_type.has_negatives else None


@rule(Opcode.ABS, Opcode.CEIL, Opcode.FLOOR, Opcode.ROUND_NEAREST_AFZ, Opcode.ROUND_NEAREST_EVEN, Opcode.SIGN)
def idempotent(i: Instruction) -> Instruction | None:
    """f(f(x)) -> f(x)."""
    return i.operands[0] if i.operands[0].op == i.op and not i.shape.element_type.is_complex else None


@rule(Opcode.ABS)
def abs_of_negate(i: Instruction) -> Instruction | None:
    """|-x| -> |x|, but of unsigned integers, which are their own absolute value."""
    inner = i.operands[0]
    if i.shape.element_type.is_unsigned or not _is_negated(inner):
        return None
    return elementwise(Opcode.ABS, inner.operands[0])


@rule(Opcode.ADD)
def add_negated(i: Instruction) -> Instruction | None:
    """x + -y -> x - y."""
    x, y = i.operands
    if _is_negated(y):
        return elementwise(Opcode.SUBTRACT, x, y.operands[0])
    return elementwise(Opcode.SUBTRACT, y, x.operands[0]) if _is_negated(x) else None


@rule(Opcode.SUBTRACT)
def subtract_negated(i: Instruction) -> Instruction | None:
    """x - -y -> x + y."""
    x, y = i.operands
    return elementwise(Opcode.ADD, x, y.operands[0]) if _is_negated(y) else None


@rule(Opcode.MULTIPLY, Opcode.DIVIDE)
def both_negated(i: Instruction) -> Instruction | None:
    """-x * -y -> x * y of floats."""
    x, y = i.operands
    if _is_negated(x) and _is_negated(y) and i.shape.element_type.is_float:
        return make(i.op, x.operands[0], y.operands[0])
    return None


@rule(Opcode.MAXIMUM, Opcode.MINIMUM, Opcode.AND, Opcode.OR)
def of_itself(i: Instruction) -> Instruction | None:
    """max(x, x) -> x."""
    return i.operands[0] if i.operands[0] is i.operands[1] else None


@rule(Opcode.AND, Opcode.OR)
def logic_with_constant(i: Instruction) -> Instruction | None:
    """x and true -> x; x and false -> false; x or false -> x; x or true -> true."""
    if i.shape.element_type is not ElementType.PRED:
        return None
    for n in (0, 1):
        value = splat(i.operands[n])
        if value is not None:
            return i.operands[1 - n] if bool(value) == is_op(i, Opcode.AND) else i.operands[n]
    return None


@rule(Opcode.NOT)
def not_of_compare(i: Instruction) -> Instruction | None:
    """not (x < y) -> x >= y, where there is no NaN that makes both false; not (x == y) -> x != y always."""
    inner = i.operands[0]
    if not isinstance(inner.op, Compare):
        return None
    ordered = not is_inexact(inner.operands[0]) or inner.op.type == "TOTALORDER"
    if not ordered and inner.op.direction not in ("EQ", "NE"):
        return None
    return make(replace(inner.op, direction=_OPPOSITE[inner.op.direction]), *inner.operands)


@rule(Compare)
def compare_with_itself(i: Instruction) -> Instruction | None:
    """x == x -> true, x < x -> false, of integers."""
    op = i.op
    assert isinstance(op, Compare)
    if i.operands[0] is not i.operands[1] or is_inexact(i.operands[0]):
        return None
    return full(i.shape, op.direction in ("EQ", "GE", "LE"))


@rule(Compare)
def compare_unsigned_with_zero(i: Instruction) -> Instruction | None:
    """x < 0 -> false, x >= 0 -> true, of unsigned integers."""
    op = i.op
    assert isinstance(op, Compare)
    if (
        i.operands[0].shape.element_type.is_unsigned
        and op.direction in ("LT", "GE")
        and is_splat(i.operands[1], 0)
    ):
        return full(i.shape, op.direction == "GE")
    return None


@rule(Opcode.SELECT)
def select_decided(i: Instruction) -> Instruction | None:
    """select(true, x, y) -> x; select(p, x, x) -> x."""
    pred, on_true, on_false = i.operands
    if on_true is on_false:
        return on_true
    value = splat(pred)
    return None if value is None else on_true if bool(value) else on_false


@rule(Opcode.SELECT)
def select_of_not(i: Instruction) -> Instruction | None:
    """select(not p, x, y) -> select(p, y, x)."""
    pred, on_true, on_false = i.operands
    return make(i.op, pred.operands[0], on_false, on_true) if is_op(pred, Opcode.NOT) else None


@rule(Opcode.SELECT)
def select_of_truths(i: Instruction) -> Instruction | None:
    """select(p, true, false) -> p."""
    pred, on_true, on_false = i.operands
    if i.shape.element_type is not ElementType.PRED or pred.shape.dims != i.shape.dims:
        return None
    yes, no = splat(on_true), splat(on_false)
    return pred if yes is not None and no is not None and bool(yes) and not bool(no) else None


@rule(Opcode.POWER)
def power_of_constant(i: Instruction) -> Instruction | None:
    """x ** 0 -> 1; x ** 1 -> x; x ** 2 -> x * x; x ** 3 -> x * x * x; x ** -1 -> 1 / x of floats."""
    x, exponent = i.operands
    value = splat(exponent)
    if value is None or value.dtype.kind == "c":
        return None
    number = float(value)
    if number in (0, 1):
        return x if number else full(i.shape, 1)
    if number in (2, 3):  # where the cube is not 0, the square is no denormal: one more rounding
        square = elementwise(Opcode.MULTIPLY, x, x)
        return square if number == 2 else elementwise(Opcode.MULTIPLY, square, x)
    return elementwise(Opcode.DIVIDE, full(i.shape, 1), x) if number == -1 and is_inexact(i) else None


@rule(Opcode.POWER, fast_math=True)
def power_of_half(i: Instruction) -> Instruction | None:
    """x ** 0.5 -> sqrt(x); x ** -0.5 -> rsqrt(x). Not for -inf and -0.0."""
    x, exponent = i.operands
    if not i.shape.element_type.is_float:
        return None
    for value, opcode in ((0.5, Opcode.SQRT), (-0.5, Opcode.RSQRT)):
        if is_splat(exponent, value):
            return elementwise(opcode, x)
    return None


@rule(Opcode.LOG, fast_math=True)
def log_of_exponential(i: Instruction) -> Instruction | None:
    """log(exp(x)) -> x."""
    inner = i.operands[0]
    return inner.operands[0] if is_op(inner, Opcode.EXPONENTIAL) and i.shape.element_type.is_float else None


@rule(Opcode.DIVIDE, fast_math=True)
def divide_by_sqrt(i: Instruction) -> Instruction | None:
    """x / sqrt(y) -> x * rsqrt(y)."""
    x, y = i.operands
    return (
        elementwise(Opcode.MULTIPLY, x, elementwise(Opcode.RSQRT, y.operands[0]))
        if is_op(y, Opcode.SQRT)
        else None
    )


def _constants_together(i: Instruction) -> Instruction | None:
    """(x + a) + b -> x + (a + b) with constants a and b."""
    for n in (0, 1):
        inner, constant = i.operands[n], i.operands[1 - n]
        if inner.op != i.op or splat(constant) is None:
            continue
        for m in (0, 1):
            if splat(inner.operands[m]) is not None and splat(inner.operands[1 - m]) is None:
                return make(i.op, inner.operands[1 - m], make(i.op, inner.operands[m], constant))
    return None


@rule(Opcode.ADD, Opcode.MULTIPLY, Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.MAXIMUM, Opcode.MINIMUM)
def constants_together(i: Instruction) -> Instruction | None:
    """(x + a) + b -> x + (a + b) with constants a and b, where order does not matter."""
    exact = not is_inexact(i) or is_op(i, Opcode.MAXIMUM, Opcode.MINIMUM)
    return _constants_together(i) if exact else None


@rule(Opcode.ADD, Opcode.MULTIPLY, fast_math=True)
def float_constants_together(i: Instruction) -> Instruction | None:
    """(x + a) + b -> x + (a + b) with constants a and b, of floats."""
    return _constants_together(i)


def _is_smaller(a: Shape, b: Shape) -> bool:
    return estimate(a.elements) < estimate(b.elements)


@rule(*Opcode, Compare, Convert)
def elementwise_of_broadcasts(i: Instruction) -> Instruction | None:
    """f(broadcast(x), broadcast(y)) -> broadcast(f(x, y)), where both are broadcast alike."""
    first = i.operands[0]
    if not isinstance(first.op, Broadcast) or not _is_smaller(first.operands[0].shape, i.shape):
        return None
    if any(o.op != first.op or o.operands[0].shape.dims != first.operands[0].shape.dims for o in i.operands):
        return None
    return make(first.op, make(i.op, *(o.operands[0] for o in i.operands)))


RULES = collect(list(globals().values()))
