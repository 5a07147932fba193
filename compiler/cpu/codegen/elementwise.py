"""Code for every elementwise opcode of HLO on elements in register form: one table per kind of operand.

Results are rounded to their type after each operation. Nothing traps: an integer quotient by zero is -1 (all
bits set), the remainder the dividend; INT_MIN / -1 is INT_MIN. maximum, minimum and clamp hand NaNs on.

Source: XLA operation semantics, element-wise sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....runtime.llvm.ir_builder import Function, Value
from ....runtime.llvm.vector_value import Lanes
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from . import complex_math, vector_math
from .memory_types import (
    NARROW,
    Element,
    bitcast,
    convert,
    is_pair,
    parts,
    round_mantissa,
    round_to,
    select_element,
    single,
    wrap,
)

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
    match opcode:
        case "copy":
            return operands[0]
        case "select":
            return _select(f, operands)
        case "clamp":
            low, x, high = operands
            most = apply(f, "maximum", {}, [source, source], source, [low, x])
            return apply(f, "minimum", {}, [source, source], source, [most, high])
        case "convert":
            return convert(f, operands[0], source, result_type)
        case "bitcast-convert":
            return bitcast(f, operands[0], source, result_type)
        case "compare":
            return _compare(f, attributes, source, operands)
        case "reduce-precision":
            return _reduce_precision(f, attributes, source, operands[0])
        case "complex":
            return single(operands[0]), single(operands[1])
        case "real" | "imag" if not source.is_complex:
            return operands[0] if opcode == "real" else Lanes(f, single(operands[0])).number(0).value
    if source.is_complex:
        return _apply_complex(f, opcode, operands)
    arguments = [Lanes(f, single(x)) for x in operands]
    if source.is_float:
        rule = FLOAT.get(opcode)
        if rule is not None:
            found = rule(*arguments).value
            return found if result_type is _E.PRED or opcode in _EXACT else round_to(f, result_type, found)
    elif source is _E.PRED:
        rule = PRED.get(opcode)
        if rule is not None:
            return rule(*arguments).value
    else:
        rule = (SIGNED if source.is_signed else UNSIGNED).get(opcode) or INTEGER.get(opcode)
        if rule is not None:
            return wrap(f, source, rule(source, *arguments).value)
    raise _unsupported(opcode, source)


def supports(opcode: str, operand_type: ElementType) -> bool:
    """Whether `apply` has code for the opcode on operands of this type."""
    if opcode in _ANY_TYPE:
        return True
    if operand_type.is_complex:
        return opcode in COMPLEX
    if operand_type.is_float:
        return opcode in FLOAT or opcode in _REAL_FLOAT
    if operand_type is _E.PRED:
        return opcode in PRED or opcode == "clamp"
    own = SIGNED if operand_type.is_signed else UNSIGNED
    return opcode in own or opcode in INTEGER or opcode == "clamp"


_ANY_TYPE = frozenset({"copy", "select", "convert", "bitcast-convert", "compare"})
_REAL_FLOAT = frozenset({"clamp", "reduce-precision", "complex", "real", "imag"})
# Results that the operand's type holds as they are: no rounding afterwards.
_EXACT = frozenset(
    {
        "abs",
        "negate",
        "sign",
        "ceil",
        "floor",
        "round-nearest-afz",
        "round-nearest-even",
        "maximum",
        "minimum",
    }
)


def _unsupported(opcode: str, t: ElementType) -> UnsupportedError:
    return UnsupportedError(f"{opcode}: not defined for elements of type {t!r}")


def _select(f: Function, operands: Sequence[Element]) -> Element:
    condition, yes, no = operands
    return select_element(f, single(condition), yes, no)


# -- floats


def _sign(x: Lanes) -> Lanes:
    return (abs(x) > 0.0).choose(x.number(1.0).copysign(x), x * 0.0)  # NaN and zeros are themselves


def _round_away(x: Lanes) -> Lanes:
    size = abs(x)
    near = size.trunc()
    return (size - near >= 0.5).choose(near + 1.0, near).copysign(x)


def _native_maximum(x: Lanes) -> bool:
    target = x.f.module.target
    return target is not None and target.architecture in ("aarch64", "arm64")


def _maximum(x: Lanes, y: Lanes) -> Lanes:
    if _native_maximum(x):
        return x.call("maximum", y)
    if x.is_constant or y.is_constant:
        bound, free = (x, y) if x.is_constant else (y, x)
        return _bounded(free, bound, free < bound)
    return x.is_nan().choose(x, (x > y).choose(x, y))


def _minimum(x: Lanes, y: Lanes) -> Lanes:
    if _native_maximum(x):
        return x.call("minimum", y)
    if x.is_constant or y.is_constant:
        bound, free = (x, y) if x.is_constant else (y, x)
        return _bounded(free, bound, free > bound)
    return x.is_nan().choose(x, (x < y).choose(x, y))


def _bounded(free: Lanes, bound: Lanes, outside: Lanes) -> Lanes:
    """One instruction on x86: a NaN in `free` fails the comparison and stays; a NaN bound is the result."""
    if _constant_is_nan(bound):
        return bound
    return outside.choose(bound, free)


def _constant_is_nan(x: Lanes) -> bool:
    text = x.value.text
    if "0x" not in text:
        return False
    bits = int(text[text.index("0x") :].rstrip(")"), 16)
    return bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000


def _is_finite(x: Lanes) -> Lanes:
    return abs(x) < float("inf")


FLOAT: dict[str, Callable[..., Lanes]] = {
    "abs": lambda x: abs(x),
    "negate": lambda x: -x,
    "sign": _sign,
    "ceil": Lanes.ceil,
    "floor": Lanes.floor,
    "round-nearest-afz": _round_away,
    "round-nearest-even": Lanes.rint,
    "sqrt": Lanes.sqrt,
    "is-finite": _is_finite,
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "maximum": _maximum,
    "minimum": _minimum,
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
    "tan": vector_math.tan,
    "sine": vector_math.sine,
    "cosine": vector_math.cosine,
    "erf": vector_math.erf,
    "erfc": vector_math.erfc,
}


# -- pred

PRED: dict[str, Callable[..., Lanes]] = {
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


def _divide_signed(t: ElementType, x: Lanes, y: Lanes) -> Lanes:
    # A divisor of 1 stands in for 0 and -1, whose quotients are known.
    plain = (y + 1).below(2)
    quotient = x.operation("sdiv", plain.choose(y.number(1), y))
    return plain.choose(y.equals(0).choose(y, -x) - _as_integer(y.equals(0), y), quotient)


def _as_integer(condition: Lanes, like: Lanes) -> Lanes:
    return condition.choose(like.number(1), like.number(0))


def _remainder_signed(t: ElementType, x: Lanes, y: Lanes) -> Lanes:
    plain = (y + 1).below(2)
    rest = x.operation("srem", plain.choose(y.number(1), y))
    return y.equals(0).choose(x, rest)


def _divide_unsigned(t: ElementType, x: Lanes, y: Lanes) -> Lanes:
    zero = y.equals(0)
    return zero.choose(y.number(-1), x.operation("udiv", zero.choose(y.number(1), y)))


def _remainder_unsigned(t: ElementType, x: Lanes, y: Lanes) -> Lanes:
    zero = y.equals(0)
    return zero.choose(x, x.operation("urem", zero.choose(y.number(1), y)))


def _shift(opcode: str) -> Callable[[ElementType, Lanes, Lanes], Lanes]:
    def rule(t: ElementType, x: Lanes, y: Lanes) -> Lanes:
        # Shift amounts are unsigned: a negative one is too large as well.
        if t is _E.S4 and opcode == "lshr":
            x = x & 15
        if opcode == "ashr":
            if t is _E.U4:
                x = (x << 4) >> 4
            return x.operation(opcode, y.below(t.bits).choose(y, y.number(t.bits - 1)))
        inside = y.below(t.bits)
        return inside.choose(x.operation(opcode, inside.choose(y, y.number(0))), x.number(0))

    return rule


def _power(t: ElementType, base: Lanes, exponent: Lanes) -> Lanes:
    """Square and multiply; a negative exponent gives 1 for 1, 1 or -1 for -1, else 0."""
    f, one = base.f, base.number(1)

    def step(_: Value, carried: list[Value]) -> list[Value]:
        total, square, left = (Lanes(f, c) for c in carried)
        total = (left & 1).differs(0).choose(total * square, total)
        return [total.value, (square * square).value, left.shift_right(1).value]

    total = Lanes(f, f.loop(0, t.bits, 1, step, [one.value, base.value, exponent.value])[0])
    if not t.is_signed:
        return total
    sign = (exponent & 1).differs(0).choose(base, one)
    inverse = base.equals(1).choose(one, base.equals(-1).choose(sign, base.number(0)))
    return (exponent < 0).choose(inverse, total)


def _sign_of_integer(t: ElementType, x: Lanes) -> Lanes:
    negative = (x < 0).choose(x.number(-1), x.number(0)) if t.is_signed else x.number(0)
    positive = (x > 0) if t.is_signed else x.differs(0)
    return positive.choose(x.number(1), negative)


def _count_ones(t: ElementType, x: Lanes) -> Lanes:
    return (x & 15 if t.bits == 4 else x).call("ctpop")


def _leading_zeros(t: ElementType, x: Lanes) -> Lanes:
    if t.bits == 4:
        return _leading_zeros(_E.U8, x & 15) - 4
    return Lanes(x.f, x.f.intrinsic("ctlz", x.type, [x.value, Value("i1", "false")]))


INTEGER: dict[str, Callable[..., Lanes]] = {
    "negate": lambda t, x: -x,
    "sign": _sign_of_integer,
    "not": lambda t, x: ~x,
    "popcnt": _count_ones,
    "count-leading-zeros": _leading_zeros,
    "add": lambda t, x, y: x + y,
    "subtract": lambda t, x, y: x - y,
    "multiply": lambda t, x, y: x * y,
    "power": _power,
    "and": lambda t, x, y: x & y,
    "or": lambda t, x, y: x | y,
    "xor": lambda t, x, y: x ^ y,
    "shift-left": _shift("shl"),
    "shift-right-arithmetic": _shift("ashr"),
    "shift-right-logical": _shift("lshr"),
}
SIGNED: dict[str, Callable[..., Lanes]] = {
    "abs": lambda t, x: abs(x),
    "divide": _divide_signed,
    "remainder": _remainder_signed,
    "maximum": lambda t, x, y: x.call("smax", y),
    "minimum": lambda t, x, y: x.call("smin", y),
}
UNSIGNED: dict[str, Callable[..., Lanes]] = {
    "abs": lambda t, x: x,
    "divide": _divide_unsigned,
    "remainder": _remainder_unsigned,
    "maximum": lambda t, x, y: x.call("umax", y),
    "minimum": lambda t, x, y: x.call("umin", y),
}


# -- comparison

_FLOAT_PREDICATE = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}


def _compare(
    f: Function, attributes: Mapping[str, object], source: ElementType, operands: Sequence[Element]
) -> Value:
    direction = str(attributes["direction"])
    if is_pair(operands[0]):
        if direction not in ("EQ", "NE"):
            raise UnsupportedError(f"compare: direction {direction} is not defined for {source!r}")
        predicate = f"fcmp {_FLOAT_PREDICATE[direction]}"
        real, imaginary = (Lanes(f, f.compare(predicate, a, b)) for a, b in zip(*map(parts, operands)))
        return (real & imaginary if direction == "EQ" else real | imaginary).value
    x, y = map(single, operands)
    if source.is_float and attributes.get("type") == "TOTALORDER":
        x, y = (_total_order(Lanes(f, v)).value for v in (x, y))
        return f.compare(f"icmp {_integer_predicate(direction, True)}", x, y)
    if source.is_float:
        return f.compare(f"fcmp {_FLOAT_PREDICATE[direction]}", x, y)
    return f.compare(f"icmp {_integer_predicate(direction, source.is_signed)}", x, y)


def _integer_predicate(direction: str, signed: bool) -> str:
    lower = direction.lower()
    return lower if lower in ("eq", "ne") else ("s" if signed else "u") + lower


def _total_order(x: Lanes) -> Lanes:
    """Integers in the order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN."""
    bits = x.as_bits()
    return bits ^ (bits >> (x.bits - 1)).shift_right(1)


# -- reduce-precision


def _reduce_precision(
    f: Function, attributes: Mapping[str, object], t: ElementType, operand: Element
) -> Value:
    """Rounds to a float format with the given bits, whose numbers below the normal ones are zero."""
    if not t.is_float:
        raise _unsupported("reduce-precision", t)
    exponent_bits, mantissa_bits = (int(str(attributes[name])) for name in ("exponent_bits", "mantissa_bits"))
    x = Lanes(f, single(operand))
    own_exponent, own_mantissa = NARROW[t][:2] if t in NARROW else {_E.F32: (8, 23), _E.F64: (11, 52)}[t]
    found = x
    if mantissa_bits < own_mantissa:
        found = round_mantissa(x, mantissa_bits)
        if (
            t is _E.F16
        ):  # numbers that are subnormal in the type are normal in the register: they lose absolute bits
            unit = x.number(1.5 * 2.0 ** (23 - 14 - mantissa_bits))
            found = (abs(x) < 2.0**-14).choose(((x + unit) - unit).copysign(x), found)
    if exponent_bits < own_exponent:
        bias = (1 << (exponent_bits - 1)) - 1
        size = abs(found)
        size = (size >= 2.0 ** (bias + 1)).choose(size.number(float("inf")), size)
        found = (size < 2.0 ** (1 - bias)).choose(size.number(0.0), size).copysign(x)
    return round_to(f, t, x.is_nan().choose(x, found).value)


# -- complex


def _apply_complex(f: Function, opcode: str, operands: Sequence[Element]) -> Element:
    rule = COMPLEX.get(opcode)
    if rule is None:
        raise UnsupportedError(f"{opcode}: not defined for complex elements")
    found = rule(*(complex_math.Complex(*(Lanes(f, part) for part in parts(x))) for x in operands))
    return found.value if isinstance(found, Lanes) else (found.real.value, found.imaginary.value)


COMPLEX = complex_math.RULES
