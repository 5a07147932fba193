"""Rules about conversions between types, and about complex numbers and their parts."""

from __future__ import annotations

import functools

import numpy as np

from ....runtime.code import float_mode
from ...ir.element_types import ElementType, float_info
from ...ir.module import Instruction, make
from ...ops import BitcastConvert, Convert, Opcode, ReducePrecision, is_op, numeric
from .rule import collect, rule

_F64 = ElementType.F64.dtype


@rule(Convert)
def convert_to_same_type(i: Instruction) -> Instruction | None:
    """A conversion to the operand's own type."""
    return i.operands[0] if i.operands[0].shape.element_type is i.shape.element_type else None


@rule(Convert)
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


@rule(BitcastConvert)
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
    if narrow is wide:
        return True
    if wide is ElementType.PRED:
        return False
    if wide.is_complex:
        return holds(wide.real, narrow.real)
    if wide.is_float and narrow.bits <= 8:
        return _holds_each(wide, narrow)
    if narrow is ElementType.PRED:
        return True
    if narrow.is_complex:
        return False
    if wide.is_integer:
        spare = wide.is_signed and narrow.is_unsigned
        return (
            narrow.is_integer and (wide.is_signed or narrow.is_unsigned) and wide.bits - spare >= narrow.bits
        )
    limits = float_info(wide.dtype)
    if narrow.is_integer:
        digits = narrow.bits - narrow.is_signed
        return digits <= limits.nmant + 1 and digits < limits.maxexp
    inside = float_info(narrow.dtype)
    return (
        wide.has_infinity
        and inside.nmant <= limits.nmant
        and inside.maxexp <= limits.maxexp
        and inside.minexp - inside.nmant >= limits.minexp - limits.nmant
    )


@functools.cache
def _holds_each(wide: ElementType, narrow: ElementType) -> bool:
    """As `holds`, by trying each of the at most 256 values; the sign of zero counts, NaNs are alike."""
    values = numeric.from_bit_pattern(np.arange(1 << narrow.bits, dtype=np.uint8), narrow.dtype)
    with (
        float_mode.of_runs()
    ):  # f32 has the lowest number of f8e8m0fnu as a denormal alone, which is zero there
        inside, exact = (numeric.convert(v, _F64) for v in (numeric.convert(values, wide.dtype), values))
    same = (inside == exact) & (np.signbit(inside) == np.signbit(exact))
    return bool(np.all(same | (np.isnan(inside) & np.isnan(exact))))


@rule(Opcode.REAL, Opcode.IMAG)
def part_of_complex(i: Instruction) -> Instruction | None:
    """real(complex(x, y)) -> x; imag(complex(x, y)) -> y."""
    inner = i.operands[0]
    return inner.operands[int(is_op(i, Opcode.IMAG))] if is_op(inner, Opcode.COMPLEX) else None


@rule(Opcode.COMPLEX)
def complex_of_parts(i: Instruction) -> Instruction | None:
    """complex(real(z), imag(z)) -> z."""
    x, y = i.operands
    same = is_op(x, Opcode.REAL) and is_op(y, Opcode.IMAG) and x.operands[0] is y.operands[0]
    return x.operands[0] if same and x.operands[0].shape.element_type is i.shape.element_type else None


@rule(ReducePrecision)
def reduce_precision_to_own(i: Instruction) -> Instruction | None:
    """reduce_precision to at least the bits that the type has -> x."""
    op, kind = i.op, i.shape.element_type
    assert isinstance(op, ReducePrecision)
    limits = float_info(kind.dtype)
    exponent_bits = kind.bits - 1 - limits.nmant
    enough = op.exponent_bits >= exponent_bits and op.mantissa_bits >= limits.nmant
    return i.operands[0] if enough else None


RULES = collect(list(globals().values()))
