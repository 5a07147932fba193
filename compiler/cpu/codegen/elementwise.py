"""Code for every elementwise opcode of HLO on elements in register form: one table per kind of operand.

Results are rounded to their type after each operation. Nothing traps: an integer quotient by zero is -1 (all
bits set), the remainder the dividend; INT_MIN / -1 is INT_MIN. maximum, minimum and clamp hand NaNs on.

Source: XLA operation semantics, element-wise sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ....runtime.llvm.ir_builder import Function, Value
from ....runtime.llvm.lane_control import function_of
from ....runtime.llvm.vector_value import VectorValue
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from . import complex_math, vector_math
from .memory_types import (
    Element,
    bitcast,
    convert,
    is_pair,
    low_bits,
    own_bits,
    parts,
    round_mantissa,
    round_to,
    select_element,
    single,
    wrap,
)
from .table_lookup import look_up

_E = ElementType


def apply(
    f: Function,
    opcode: str,
    attributes: Mapping[str, object],
    operand_types: Sequence[ElementType],
    result_type: ElementType,
    operands: Sequence[Element],
) -> Element:
    """Writes one elementwise operation; returns its result in register form.

    Attributes: compare has direction and type, reduce-precision exponent_bits and mantissa_bits.
    Raises: UnsupportedError  the operation is not defined for the operand type.
    """
    source = operand_types[0]
    rule = _rule_of(opcode, source)
    if rule is None:
        raise _unsupported(opcode, source)
    return rule(_Operation(f, attributes, source, result_type, operands))


def supports(opcode: str, operand_type: ElementType) -> bool:
    """Whether `apply` has code for the opcode on operands of this type."""
    return _rule_of(opcode, operand_type) is not None


class _Operation(NamedTuple):
    """One elementwise operation to write: what `apply` gets; `source` is the first operand's type."""

    f: Function
    attributes: Mapping[str, object]
    source: ElementType
    result_type: ElementType
    operands: Sequence[Element]

    def vectors(self) -> list[VectorValue]:
        """The operands, of a type that is not complex."""
        f = self.f
        return [VectorValue.of(f, single(x)) for x in self.operands]


_Rule = Callable[[_Operation], Element]


def _rule_of(opcode: str, t: ElementType) -> _Rule | None:
    """The code of an opcode on operands of a type."""
    return _ANY_TYPE.get(opcode) or _rules_of(t).get(opcode)


def _rules_of(t: ElementType) -> Mapping[str, _Rule]:
    """The opcodes that are defined for a type, beside _ANY_TYPE."""
    if t.is_complex:
        return _COMPLEX_RULES
    if t.is_float:
        return _FLOAT_RULES
    if t is _E.PRED:
        return _PRED_RULES
    return _SIGNED_RULES if t.is_signed else _UNSIGNED_RULES


def _unsupported(opcode: str, t: ElementType) -> UnsupportedError:
    types = "complex elements" if t.is_complex else f"elements of type {t!r}"
    return UnsupportedError(f"{opcode}: not defined for {types}")


# -- rules from functions of values


def _exact(function: Callable[..., VectorValue]) -> _Rule:
    """A rule whose results need no rounding: the type holds them as they are."""

    def rule(o: _Operation) -> Element:
        result = function(*o.vectors())
        return round_to(o.f, o.result_type, result) if o.result_type.lacks_signs else result

    return rule


def _rounded(function: Callable[..., VectorValue]) -> _Rule:
    """A rule of floats, whose results are rounded to their type."""
    return lambda o: round_to(o.f, o.result_type, function(*o.vectors()))


def _wrapped(function: Callable[..., VectorValue]) -> _Rule:
    """A rule of integers, whose functions take their type as well."""
    return lambda o: wrap(o.f, o.source, function(o.source, *o.vectors()))


def _of_complex(function: Callable[..., complex_math.Complex | VectorValue]) -> _Rule:
    """A rule of complex numbers."""

    def rule(o: _Operation) -> Element:
        pairs = (complex_math.Complex(*(VectorValue.of(o.f, part) for part in parts(x))) for x in o.operands)
        result = function(*pairs)
        return result if isinstance(result, VectorValue) else (result.real, result.imaginary)

    return rule


# -- rules of several types


def _select(o: _Operation) -> Element:
    condition, yes, no = o.operands
    return select_element(o.f, single(condition), yes, no)


def _clamp(o: _Operation) -> Element:
    low, x, high = o.operands
    t = o.source
    bounded_below = apply(o.f, "maximum", {}, [t, t], t, [low, x])
    return apply(o.f, "minimum", {}, [t, t], t, [bounded_below, high])


# -- floats


def _sign(x: VectorValue) -> VectorValue:
    return (abs(x) > 0.0).choose(x.number(1.0).copysign(x), x * 0.0)  # NaN and zeros are themselves


def _round_away(x: VectorValue) -> VectorValue:
    size = abs(x)
    whole = size.trunc()
    return (size - whole >= 0.5).choose(whole + 1.0, whole).copysign(x)


def _native_maximum(x: VectorValue) -> bool:
    target = x.f.module.target
    return target is not None and target.architecture in ("aarch64", "arm64")


def _maximum(x: VectorValue, y: VectorValue) -> VectorValue:
    if _native_maximum(x):
        return x.call("maximum", y)
    if x.is_constant or y.is_constant:
        bound, free = (x, y) if x.is_constant else (y, x)
        return _bounded(free, bound, free < bound)
    return x.is_nan().choose(x, (x > y).choose(x, y))


def _minimum(x: VectorValue, y: VectorValue) -> VectorValue:
    if _native_maximum(x):
        return x.call("minimum", y)
    if x.is_constant or y.is_constant:
        bound, free = (x, y) if x.is_constant else (y, x)
        return _bounded(free, bound, free > bound)
    return x.is_nan().choose(x, (x < y).choose(x, y))


def _bounded(free: VectorValue, bound: VectorValue, outside: VectorValue) -> VectorValue:
    """One instruction on x86: a NaN in `free` fails the comparison and stays; a NaN bound is the result."""
    if _constant_is_nan(bound):
        return bound
    return outside.choose(bound, free)


def _constant_is_nan(x: VectorValue) -> bool:
    _, _, number = x.text.partition("0x")
    if not number:
        return False
    bits = int(number[:16], 16)  # of a vector's first lane
    return bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000


def _is_finite(x: VectorValue) -> VectorValue:
    return abs(x) < float("inf")


EXACT_FLOAT: dict[str, Callable[..., VectorValue]] = {
    "abs": lambda x: abs(x),
    "negate": lambda x: -x,
    "sign": _sign,
    "ceil": VectorValue.ceil,
    "floor": VectorValue.floor,
    "round-nearest-afz": _round_away,
    "round-nearest-even": VectorValue.rint,
    "is-finite": _is_finite,
    "maximum": _maximum,
    "minimum": _minimum,
}
ROUNDED_FLOAT: dict[str, Callable[..., VectorValue]] = {
    "sqrt": VectorValue.sqrt,
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "remainder": vector_math.remainder,
    "power": vector_math.power,
    "atan2": vector_math.atan2,
    "rsqrt": vector_math.rsqrt,
    "cbrt": vector_math.cbrt,
    "exponential": vector_math.exp,
    "exponential-minus-one": vector_math.expm1,
    "log": vector_math.log,
    "log-plus-one": vector_math.log1p,
    "logistic": vector_math.logistic,
    "tanh": vector_math.tanh,
    "sinh": vector_math.sinh,
    "tan": vector_math.tan,
    "sine": vector_math.sine,
    "cosine": vector_math.cosine,
    "erf": vector_math.erf,
    "erfc": vector_math.erfc,
}


# -- pred

PRED: dict[str, Callable[..., VectorValue]] = {
    "not": lambda x: ~x,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "add": lambda x, y: x | y,
    "multiply": lambda x, y: x & y,
    "maximum": lambda x, y: x | y,
    "minimum": lambda x, y: x & y,
}


# -- integers


def _divide_signed(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    # A divisor of 1 stands in for 0 and -1, whose quotients are known.
    plain = (y + 1).below(2)
    quotient = x.operation("sdiv", plain.choose(y.number(1), y))
    return plain.choose(y.equals(0).choose(y, -x) - _as_integer(y.equals(0), y), quotient)


def _as_integer(condition: VectorValue, like: VectorValue) -> VectorValue:
    return condition.choose(like.number(1), like.number(0))


def _remainder_signed(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    plain = (y + 1).below(2)
    rest = x.operation("srem", plain.choose(y.number(1), y))
    return y.equals(0).choose(x, rest)


def _divide_unsigned(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    zero = y.equals(0)
    return zero.choose(y.number(-1), x.operation("udiv", zero.choose(y.number(1), y)))


def _remainder_unsigned(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    zero = y.equals(0)
    return zero.choose(x, x.operation("urem", zero.choose(y.number(1), y)))


def _shift(instruction: str, t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    """`shl` or `lshr`. Shift amounts are unsigned: a negative one is too large as well."""
    inside = y.below(t.bits)
    return inside.choose(x.operation(instruction, inside.choose(y, y.number(0))), x.number(0))


def _shift_right_arithmetic(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    if t.is_small_integer and t.is_unsigned:
        x = (x << 8 - t.bits) >> 8 - t.bits
    return x.operation("ashr", y.below(t.bits).choose(y, y.number(t.bits - 1)))


def _multiply_high(t: ElementType, x: VectorValue, y: VectorValue) -> VectorValue:
    """The upper half of the product: in twice the bits, or, of 64 bits, by halves, as Knuth's algorithm M."""
    extend = "sext" if t.is_signed else "zext"
    if t.bits < 64:
        double = f"i{2 * x.bits}"
        product = x.cast(extend, double) * y.cast(extend, double)
        return product.shift_right(t.bits).cast("trunc", x.element)
    low = (1 << 32) - 1
    x_low, x_high, y_low, y_high = x & low, x.shift_right(32), y & low, y.shift_right(32)
    middle = x_high * y_low + (x_low * y_low).shift_right(32)
    other = x_low * y_high + (middle & low)
    high = x_high * y_high + middle.shift_right(32) + other.shift_right(32)
    if t.is_signed:
        high = high - (x >> 63 & y) - (y >> 63 & x)
    return high


def _power(t: ElementType, base: VectorValue, exponent: VectorValue) -> VectorValue:
    """Square and multiply; a negative exponent gives 1 for 1, 1 or -1 for -1, else 0."""
    one = base.number(1)
    with function_of(base.f).loop(0, t.bits, total=one, square=base, bits=exponent) as loop:
        loop.total = (loop.bits & 1).differs(0).choose(loop.total * loop.square, loop.total)
        loop.square = loop.square * loop.square
        loop.bits = loop.bits.shift_right(1)
    total: VectorValue = loop.total
    if not t.is_signed:
        return total
    sign = (exponent & 1).differs(0).choose(base, one)
    inverse = base.equals(1).choose(one, base.equals(-1).choose(sign, base.number(0)))
    return (exponent < 0).choose(inverse, total)


def _sign_of_integer(t: ElementType, x: VectorValue) -> VectorValue:
    negative = (x < 0).choose(x.number(-1), x.number(0)) if t.is_signed else x.number(0)
    positive = (x > 0) if t.is_signed else x.differs(0)
    return positive.choose(x.number(1), negative)


def _count_ones(t: ElementType, x: VectorValue) -> VectorValue:
    return low_bits(t, x).call("ctpop")


def _leading_zeros(t: ElementType, x: VectorValue) -> VectorValue:
    if t.is_small_integer:
        return _leading_zeros(_E.U8, low_bits(t, x)) - (8 - t.bits)
    return x.write(x.f.intrinsic_text("ctlz", x.type, [x, Value("i1", "false")]))


INTEGER: dict[str, Callable[..., VectorValue]] = {
    "negate": lambda t, x: -x,
    "sign": _sign_of_integer,
    "not": lambda t, x: ~x,
    "popcnt": _count_ones,
    "count-leading-zeros": _leading_zeros,
    "add": lambda t, x, y: x + y,
    "subtract": lambda t, x, y: x - y,
    "multiply": lambda t, x, y: x * y,
    "mulhi": _multiply_high,
    "power": _power,
    "and": lambda t, x, y: x & y,
    "or": lambda t, x, y: x | y,
    "xor": lambda t, x, y: x ^ y,
    "shift-left": lambda t, x, y: _shift("shl", t, x, y),
    "shift-right-arithmetic": _shift_right_arithmetic,
    "shift-right-logical": lambda t, x, y: _shift("lshr", t, low_bits(t, x), y),
}
SIGNED: dict[str, Callable[..., VectorValue]] = {
    "abs": lambda t, x: abs(x),
    "divide": _divide_signed,
    "remainder": _remainder_signed,
    "maximum": lambda t, x, y: x.call("smax", y),
    "minimum": lambda t, x, y: x.call("smin", y),
}
UNSIGNED: dict[str, Callable[..., VectorValue]] = {
    "abs": lambda t, x: x,
    "divide": _divide_unsigned,
    "remainder": _remainder_unsigned,
    "maximum": lambda t, x, y: x.call("umax", y),
    "minimum": lambda t, x, y: x.call("umin", y),
}


# -- comparison

_FLOAT_PREDICATE = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}


def _compare(o: _Operation) -> VectorValue:
    source, operands = o.source, o.operands
    direction = str(o.attributes["direction"])
    if is_pair(operands[0]):
        if direction not in ("EQ", "NE"):
            raise UnsupportedError(f"compare: direction {direction} is not defined for {source!r}")
        predicate = f"fcmp {_FLOAT_PREDICATE[direction]}"
        real, imaginary = (
            VectorValue.of(o.f, a).compare(predicate, b) for a, b in zip(*map(parts, operands))
        )
        return real & imaginary if direction == "EQ" else real | imaginary
    x, y = o.vectors()
    if source.is_float and o.attributes.get("type") == "TOTALORDER":
        return _total_order(x).compare(f"icmp {_integer_predicate(direction, True)}", _total_order(y))
    if source.is_float:
        return x.compare(f"fcmp {_FLOAT_PREDICATE[direction]}", y)
    return x.compare(f"icmp {_integer_predicate(direction, source.is_signed)}", y)


def _integer_predicate(direction: str, signed: bool) -> str:
    lower = direction.lower()
    return lower if lower in ("eq", "ne") else ("s" if signed else "u") + lower


def _total_order(x: VectorValue) -> VectorValue:
    """Integers in the order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN."""
    bits = x.as_bits()
    return bits ^ (bits >> (x.bits - 1)).shift_right(1)


# -- reduce-precision


def _reduce_precision(o: _Operation) -> Value:
    """Rounds to a float format with the given bits, whose numbers below the normal ones are zero."""
    t, (x,) = o.source, o.vectors()
    exponent_bits, mantissa_bits = (
        int(str(o.attributes[name])) for name in ("exponent_bits", "mantissa_bits")
    )
    own_exponent, own_mantissa = own_bits(t)
    result = x
    if mantissa_bits < own_mantissa:
        result = round_mantissa(x, mantissa_bits)
        if (
            t is _E.F16
        ):  # numbers that are subnormal in the type are normal in the register: they lose absolute bits
            unit = x.number(1.5 * 2.0 ** (23 - 14 - mantissa_bits))
            result = (abs(x) < 2.0**-14).choose(((x + unit) - unit).copysign(x), result)
    if exponent_bits < own_exponent:
        bias = (1 << (exponent_bits - 1)) - 1
        size = abs(result)
        size = (size >= 2.0 ** (bias + 1)).choose(size.number(float("inf")), size)
        result = (size < 2.0 ** (1 - bias)).choose(size.number(0.0), size).copysign(x)
    return round_to(o.f, t, x.is_nan().choose(x, result))


# -- tables


def _table_lookup(o: _Operation) -> VectorValue:
    (x,) = o.vectors()
    table = o.attributes["table"]
    assert isinstance(table, tuple)
    return look_up(x, table)


# -- rules by the type of the operands


def _integer_rules(rules: Mapping[str, Callable[..., VectorValue]]) -> dict[str, _Rule]:
    """Rules of integers of one signedness."""
    return {opcode: _wrapped(function) for opcode, function in {**INTEGER, **rules}.items()} | {
        "clamp": _clamp
    }


_ANY_TYPE: dict[str, _Rule] = {
    "copy": lambda o: o.operands[0],
    "select": _select,
    "convert": lambda o: convert(o.f, o.operands[0], o.source, o.result_type),
    "bitcast-convert": lambda o: bitcast(o.f, o.operands[0], o.source, o.result_type),
    "compare": _compare,
    "table-lookup": _table_lookup,
}
_FLOAT_RULES: dict[str, _Rule] = {
    **{opcode: _exact(function) for opcode, function in EXACT_FLOAT.items()},
    **{opcode: _rounded(function) for opcode, function in ROUNDED_FLOAT.items()},
    "clamp": _clamp,
    "reduce-precision": _reduce_precision,
    "complex": lambda o: (single(o.operands[0]), single(o.operands[1])),
    "real": lambda o: o.operands[0],
    "imag": _exact(lambda x: x.number(0)),
}
_PRED_RULES: dict[str, _Rule] = {
    **{opcode: _exact(function) for opcode, function in PRED.items()},
    "clamp": _clamp,
}
_SIGNED_RULES, _UNSIGNED_RULES = _integer_rules(SIGNED), _integer_rules(UNSIGNED)
_COMPLEX_RULES: dict[str, _Rule] = {
    **{opcode: _of_complex(function) for opcode, function in complex_math.RULES.items()},
    "clamp": _clamp,
}
