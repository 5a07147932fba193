"""Rules about values: arithmetic, logic, comparison, conversion."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes

from ...ir.element_types import ElementType
from ...ir.module import Instruction, make
from ...ops import BitcastConvert, Broadcast, Compare, Convert
from .rule import apply, collect, full, is_inexact, is_splat, rule, splat

_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


@rule("multiply")
def multiply_by_one(i: Instruction) -> Instruction | None:
    """x * 1 -> x."""
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], 1)), None)


@rule("divide")
def divide_by_one(i: Instruction) -> Instruction | None:
    """x / 1 -> x."""
    return i.operands[0] if is_splat(i.operands[1], 1) else None


@rule("add")
def add_neutral(i: Instruction) -> Instruction | None:
    """x + 0 -> x; of floats the neutral element is -0.0."""
    zero = -0.0 if i.shape.element_type.is_float else 0.0
    if i.shape.element_type.is_complex:
        return None
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], zero)), None)


@rule("add", fast_math=True)
def add_positive_zero(i: Instruction) -> Instruction | None:
    """x + 0.0 -> x; not for -0.0."""
    return next((i.operands[1 - n] for n in (0, 1) if is_splat(i.operands[n], 0.0)), None)


@rule("subtract")
def subtract_zero(i: Instruction) -> Instruction | None:
    """x - 0 -> x."""
    return i.operands[0] if not i.shape.element_type.is_complex and is_splat(i.operands[1], 0.0) else None


@rule("subtract")
def subtract_itself(i: Instruction) -> Instruction | None:
    """x - x -> 0 of integers."""
    return full(i.shape, 0) if i.operands[0] is i.operands[1] and not is_inexact(i) else None


@rule("subtract")
def subtract_from_negative_zero(i: Instruction) -> Instruction | None:
    """-0.0 - x -> -x; 0 - x -> -x of integers."""
    zero = -0.0 if i.shape.element_type.is_float else 0.0
    if i.shape.element_type.is_complex or not is_splat(i.operands[0], zero):
        return None
    return apply("negate", i.operands[1])


@rule("multiply")
def multiply_by_zero(i: Instruction) -> Instruction | None:
    """x * 0 -> 0 of integers."""
    if is_inexact(i):
        return None
    return next((i.operands[n] for n in (0, 1) if is_splat(i.operands[n], 0)), None)


@rule("multiply")
def multiply_by_minus_one(i: Instruction) -> Instruction | None:
    """x * -1 -> -x of floats and signed integers."""
    if not (i.shape.element_type.is_float or i.shape.element_type.is_signed):
        return None
    return next((apply("negate", i.operands[1 - n]) for n in (0, 1) if is_splat(i.operands[n], -1)), None)


@rule("divide")
def divide_by_power_of_two(i: Instruction) -> Instruction | None:
    """x / c -> x * (1 / c) of floats where 1 / c is exact and normal."""
    value = splat(i.operands[1])
    if value is None or not i.shape.element_type.is_float:
        return None
    number = float(value)
    if not math.isfinite(number) or number == 0 or abs(math.frexp(number)[0]) != 0.5:
        return None
    limits = ml_dtypes.finfo(i.shape.element_type.dtype)
    if not float(limits.smallest_normal) <= abs(1 / number) <= float(limits.max):
        return None
    return apply("multiply", i.operands[0], full(i.shape, 1 / number))


@rule("divide", fast_math=True)
def divide_by_constant(i: Instruction) -> Instruction | None:
    """x / c -> x * (1 / c)."""
    value = splat(i.operands[1])
    if value is None or not i.shape.element_type.is_float or not 1e-30 < abs(float(value)) < 1e30:
        return None
    return apply("multiply", i.operands[0], full(i.shape, 1 / float(value)))


@rule("negate", "not")
def twice(i: Instruction) -> Instruction | None:
    """-(-x) -> x; not not x -> x."""
    inner = i.operands[0]
    return inner.operands[0] if inner.op == i.op else None


@rule("abs", "ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign")
def idempotent(i: Instruction) -> Instruction | None:
    """f(f(x)) -> f(x)."""
    return i.operands[0] if i.operands[0].op == i.op and not i.shape.element_type.is_complex else None


@rule("abs")
def abs_of_negate(i: Instruction) -> Instruction | None:
    """|-x| -> |x|."""
    inner = i.operands[0]
    return apply("abs", inner.operands[0]) if inner.opcode == "negate" else None


@rule("add")
def add_negated(i: Instruction) -> Instruction | None:
    """x + -y -> x - y."""
    x, y = i.operands
    if y.opcode == "negate":
        return apply("subtract", x, y.operands[0])
    return apply("subtract", y, x.operands[0]) if x.opcode == "negate" else None


@rule("subtract")
def subtract_negated(i: Instruction) -> Instruction | None:
    """x - -y -> x + y."""
    x, y = i.operands
    return apply("add", x, y.operands[0]) if y.opcode == "negate" else None


@rule("multiply", "divide")
def both_negated(i: Instruction) -> Instruction | None:
    """-x * -y -> x * y of floats."""
    x, y = i.operands
    if x.opcode == y.opcode == "negate" and i.shape.element_type.is_float:
        return make(i.op, x.operands[0], y.operands[0])
    return None


@rule("maximum", "minimum", "and", "or")
def of_itself(i: Instruction) -> Instruction | None:
    """max(x, x) -> x."""
    return i.operands[0] if i.operands[0] is i.operands[1] else None


@rule("and", "or")
def logic_with_constant(i: Instruction) -> Instruction | None:
    """x and true -> x; x and false -> false; x or false -> x; x or true -> true."""
    if i.shape.element_type is not ElementType.PRED:
        return None
    for n in (0, 1):
        value = splat(i.operands[n])
        if value is not None:
            return i.operands[1 - n] if bool(value) == (i.opcode == "and") else i.operands[n]
    return None


@rule("not")
def not_of_compare(i: Instruction) -> Instruction | None:
    """not (x < y) -> x >= y, where there is no NaN that makes both false; not (x == y) -> x != y always."""
    inner = i.operands[0]
    if not isinstance(inner.op, Compare):
        return None
    ordered = not is_inexact(inner.operands[0]) or inner.op.type == "TOTALORDER"
    if not ordered and inner.op.direction not in ("EQ", "NE"):
        return None
    return make(replace(inner.op, direction=_OPPOSITE[inner.op.direction]), *inner.operands)


@rule("compare")
def compare_with_itself(i: Instruction) -> Instruction | None:
    """x == x -> true, x < x -> false, of integers."""
    op = i.op
    assert isinstance(op, Compare)
    if i.operands[0] is not i.operands[1] or is_inexact(i.operands[0]):
        return None
    return full(i.shape, op.direction in ("EQ", "GE", "LE"))


@rule("compare")
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


@rule("select")
def select_decided(i: Instruction) -> Instruction | None:
    """select(true, x, y) -> x; select(p, x, x) -> x."""
    pred, on_true, on_false = i.operands
    if on_true is on_false:
        return on_true
    value = splat(pred)
    return None if value is None else on_true if bool(value) else on_false


@rule("select")
def select_of_not(i: Instruction) -> Instruction | None:
    """select(not p, x, y) -> select(p, y, x)."""
    pred, on_true, on_false = i.operands
    return make(i.op, pred.operands[0], on_false, on_true) if pred.opcode == "not" else None


@rule("select")
def select_of_truths(i: Instruction) -> Instruction | None:
    """select(p, true, false) -> p."""
    pred, on_true, on_false = i.operands
    if i.shape.element_type is not ElementType.PRED or pred.shape.dims != i.shape.dims:
        return None
    yes, no = splat(on_true), splat(on_false)
    return pred if yes is not None and no is not None and bool(yes) and not bool(no) else None


@rule("power")
def power_of_constant(i: Instruction) -> Instruction | None:
    """x ** 0 -> 1; x ** 1 -> x; x ** 2 -> x * x; x ** 3 -> x * x * x; x ** -1 -> 1 / x of floats."""
    x, exponent = i.operands
    value = splat(exponent)
    if value is None or value.dtype.kind == "c":
        return None
    number = float(value)
    if number in (0, 1):
        return x if number else full(i.shape, 1)
    if number in (2, 3):  # the square of what has a cube other than 0 is no denormal: one rounding more
        square = apply("multiply", x, x)
        return square if number == 2 else apply("multiply", square, x)
    return apply("divide", full(i.shape, 1), x) if number == -1 and is_inexact(i) else None


@rule("power", fast_math=True)
def power_of_half(i: Instruction) -> Instruction | None:
    """x ** 0.5 -> sqrt(x); x ** -0.5 -> rsqrt(x). Not for -inf and -0.0."""
    x, exponent = i.operands
    if not i.shape.element_type.is_float:
        return None
    for value, opcode in ((0.5, "sqrt"), (-0.5, "rsqrt")):
        if is_splat(exponent, value):
            return apply(opcode, x)
    return None


@rule("log", fast_math=True)
def log_of_exponential(i: Instruction) -> Instruction | None:
    """log(exp(x)) -> x."""
    inner = i.operands[0]
    return inner.operands[0] if inner.opcode == "exponential" and i.shape.element_type.is_float else None


@rule("divide", fast_math=True)
def divide_by_sqrt(i: Instruction) -> Instruction | None:
    """x / sqrt(y) -> x * rsqrt(y)."""
    x, y = i.operands
    return apply("multiply", x, apply("rsqrt", y.operands[0])) if y.opcode == "sqrt" else None


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


@rule("add", "multiply", "and", "or", "xor", "maximum", "minimum")
def constants_together(i: Instruction) -> Instruction | None:
    """(x + a) + b -> x + (a + b) with constants a and b, where order does not matter."""
    exact = not is_inexact(i) or i.opcode in ("maximum", "minimum")
    return _constants_together(i) if exact else None


@rule("add", "multiply", fast_math=True)
def float_constants_together(i: Instruction) -> Instruction | None:
    """(x + a) + b -> x + (a + b) with constants a and b, of floats."""
    return _constants_together(i)


@rule("convert")
def convert_to_same_type(i: Instruction) -> Instruction | None:
    """A conversion to the operand's own type."""
    return i.operands[0] if i.operands[0].shape.element_type is i.shape.element_type else None


@rule("convert")
def convert_of_convert(i: Instruction) -> Instruction | None:
    """convert(convert(x)) -> convert(x) where the first conversion loses nothing. Integers that do not fit wrap, floats
    saturate: an integer that comes by way of a float must fit."""
    inner = i.operands[0]
    if not isinstance(inner.op, Convert):
        return None
    source = inner.operands[0]
    old, between, new = (v.shape.element_type for v in (source, inner, i))
    wraps = old.is_integer and not between.is_integer and new.is_integer and not holds(new, old)
    return make(i.op, source) if holds(between, old) and not wraps else None


@rule("bitcast-convert")
def bitcast_of_bitcast(i: Instruction) -> Instruction | None:
    """bitcast(bitcast(x)) -> bitcast(x), or x. Code may keep the type in between wider, which loses bits of NaNs."""
    inner = i.operands[0]
    if not isinstance(inner.op, BitcastConvert):
        return None
    source = inner.operands[0]
    old, between, new = (v.shape.element_type for v in (source, inner, i))
    if len({old.bits, between.bits, new.bits}) == 3:
        return None
    return source if old is new else make(i.op, source)


def holds(wide: ElementType, narrow: ElementType) -> bool:
    """Whether every value of one type is a value of the other."""
    if narrow is wide or narrow is ElementType.PRED:
        return True
    if wide is ElementType.PRED:
        return False
    if wide.is_complex:
        return holds(wide.real, narrow.real)
    if narrow.is_complex:
        return False
    if wide.is_integer:
        spare = wide.is_signed and narrow.is_unsigned
        return (
            narrow.is_integer and (wide.is_signed or narrow.is_unsigned) and wide.bits - spare >= narrow.bits
        )
    limits = ml_dtypes.finfo(wide.dtype)
    if narrow.is_integer:
        digits = narrow.bits - narrow.is_signed
        return digits <= limits.nmant + 1 and digits < limits.maxexp
    inside = ml_dtypes.finfo(narrow.dtype)
    infinite = narrow is ElementType.F8E4M3FN or wide is not ElementType.F8E4M3FN
    return (
        infinite
        and inside.nmant <= limits.nmant
        and inside.maxexp <= limits.maxexp
        and inside.minexp - inside.nmant >= limits.minexp - limits.nmant
    )


@rule("real", "imag")
def part_of_complex(i: Instruction) -> Instruction | None:
    """real(complex(x, y)) -> x; imag(complex(x, y)) -> y."""
    inner = i.operands[0]
    return inner.operands[int(i.opcode == "imag")] if inner.opcode == "complex" else None


@rule("complex")
def complex_of_parts(i: Instruction) -> Instruction | None:
    """complex(real(z), imag(z)) -> z."""
    x, y = i.operands
    same = x.opcode == "real" and y.opcode == "imag" and x.operands[0] is y.operands[0]
    return x.operands[0] if same and x.operands[0].shape.element_type is i.shape.element_type else None


@rule("reduce-precision")
def reduce_precision_to_own(i: Instruction) -> Instruction | None:
    """reduce_precision to at least the bits that the type has -> x."""
    kind = i.shape.element_type
    limits = ml_dtypes.finfo(kind.dtype)
    exponent_bits = kind.bits - 1 - limits.nmant
    enough = i.op.exponent_bits >= exponent_bits and i.op.mantissa_bits >= limits.nmant  # type: ignore[attr-defined]
    return i.operands[0] if enough else None


_ELEMENTWISE = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "power",
    "maximum",
    "minimum",
    "and",
    "or",
    "xor",
    "compare",
    "convert",
    "negate",
    "abs",
    "sign",
    "not",
    "sqrt",
    "rsqrt",
    "exponential",
    "log",
    "tanh",
    "logistic",
    "floor",
    "ceil",
    "sine",
    "cosine",
    "exponential-minus-one",
    "log-plus-one",
    "atan2",
)


@rule(*_ELEMENTWISE)
def elementwise_of_broadcasts(i: Instruction) -> Instruction | None:
    """f(broadcast(x), broadcast(y)) -> broadcast(f(x, y)), where both are broadcast alike."""
    first = i.operands[0]
    if not isinstance(first.op, Broadcast) or first.operands[0].shape.elements >= i.shape.elements:
        return None
    if any(o.op != first.op or o.operands[0].shape.dims != first.operands[0].shape.dims for o in i.operands):
        return None
    return make(first.op, make(i.op, *(o.operands[0] for o in i.operands)))


RULES = collect(list(globals().values()))
