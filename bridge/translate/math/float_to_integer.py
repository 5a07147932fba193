"""Floats as integers, as TensorFlow's code has them where they are out of range, which differs between processors.

TensorFlow converts vectors of elements by other instructions than the few that are left at the end. On x86 those of
vectors saturate to 8 and 16 bits, the others wrap around. On AArch64 all saturate to a wider type, of which the low
bits remain.
"""

from __future__ import annotations

import platform

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape

_E = ElementType
# Elements of a vector that is converted to 8 or 16 bits; others are converted one by one.
_VECTOR_SIZES = {_E.F64: 16, _E.C128: 16, _E.F32: 32, _E.F16: 16, _E.BF16: 8}
# On AArch64: (elements of a vector, the type to which they are saturated), the largest vectors first; those that no
# vector takes go to 32 bits with a sign, or to what they are converted to if that is as wide.
_Vectors = tuple[tuple[int, ElementType], ...]
_AARCH64_FROM_64_BITS: dict[ElementType, _Vectors] = {
    **dict.fromkeys((_E.S8, _E.U8, _E.S16, _E.U16), ((8, _E.S64),)),
    _E.S32: ((4, _E.S64),),
    _E.U32: ((4, _E.U64),),
}
_AARCH64_TO_U8: dict[ElementType, _Vectors] = {
    _E.F32: ((16, _E.S32), (8, _E.U32)),
    _E.C64: ((8, _E.U32),),
    _E.BF16: ((8, _E.U32),),
}


def _vector_size(source: ElementType, target: ElementType) -> int:
    if target is _E.U32:
        return 1 if source is _E.C128 else 8
    return _VECTOR_SIZES.get(source, 1)


def float_to_integer(
    b: ComputationBuilder, x: Operand, target: ElementType, machine: str = platform.machine()
) -> Operand:
    """Floats, or the real parts of complex numbers, as integers, truncated. machine: whose TensorFlow it is."""
    as_there = _on_aarch64 if machine in ("aarch64", "arm64") else _on_x86
    return as_there(b, x, target)


def _aarch64_vectors(source: ElementType, target: ElementType) -> _Vectors:
    if source in (_E.F64, _E.C128):
        return _AARCH64_FROM_64_BITS.get(target, ())
    if target is _E.U8:
        return _AARCH64_TO_U8.get(source, ())
    return ((8, _E.U32),) if target is _E.U16 else ()


def _on_aarch64(b: ComputationBuilder, x: Operand, target: ElementType) -> Operand:
    """Saturated to a wider type, of which the low bits remain; NaN is 0."""
    source = b.get_shape(x).element_type
    x = b.real(x) if source.is_complex else x
    if source not in (_E.F64, _E.C128):
        x = b.convert_element_type(x, _E.F32)

    def low_bits(wide: ElementType) -> Operand:
        return b.convert_element_type(b.convert_element_type(x, wide), target)

    result = low_bits(target if target.bits >= 32 else _E.S32)
    for vector_size, wide in reversed(_aarch64_vectors(source, target)):
        result = _at_end(b, vector_size, low_bits(wide), result)
    return result


def _on_x86(b: ComputationBuilder, x: Operand, target: ElementType) -> Operand:
    """Out of range, and for NaN: of 32 and 64 bits the highest bit alone is set, where the integers have no sign after
    negative numbers wrapped around. Of 8 and 16 bits, and u32 at the end, those of 32 (u32: 64) bits with a sign,
    saturated, or wrapped at the end."""
    source = b.get_shape(x).element_type
    vector_size = _vector_size(source, target)
    x = b.real(x) if source.is_complex else x
    if source not in (_E.F64, _E.C128):
        x = b.convert_element_type(x, _E.F32)
    if target.bits >= 32:
        converted_value = _to_wide(b, x, target)
        if target is not _E.U32:
            return converted_value
        at_end = b.convert_element_type(_to_wide(b, x, _E.S64), target)
        return _at_end(b, vector_size, converted_value, at_end)
    converted_value = _to_wide(b, x, _E.S32)
    low, high = (
        (0, 2**target.bits - 1)
        if target.is_unsigned
        else (-(2 ** (target.bits - 1)), 2 ** (target.bits - 1) - 1)
    )
    saturated = b.clamp(
        b.scalar_like(converted_value, low), converted_value, b.scalar_like(converted_value, high)
    )
    if target is _E.U8 and source in (_E.F64, _E.C128, _E.F16):  # by way of s16
        saturated = b.select(
            b.gt(converted_value, b.scalar_like(converted_value, 2**15 - 1)),
            b.full_like(converted_value, 0),
            saturated,
        )
    return b.convert_element_type(_at_end(b, vector_size, saturated, converted_value), target)


def _at_end(b: ComputationBuilder, vector_size: int, inside: Operand, at_end: Operand) -> Operand:
    """The elements of the first array, but those after the last whole vector from the second."""
    shape = b.get_shape(inside)
    first = shape.elements // vector_size * vector_size
    if shape.is_dynamic or first == shape.elements:
        return inside if vector_size > 1 else at_end
    if not first:
        return at_end
    number = b.reshape(b.iota(Shape(_E.S64, (shape.elements,)), 0), shape.dims)
    return b.select(b.lt(number, b.scalar_like(number, first)), inside, at_end)


def _to_wide(b: ComputationBuilder, x: Operand, target: ElementType) -> Operand:
    """Floats as integers of 32 or 64 bits, as x86 processors do it."""
    if target.is_signed:
        limit, integer = 2.0 ** (target.bits - 1), b.convert_element_type(x, target)
        is_inside = b.lt(b.abs(x), b.scalar_like(x, limit))
    else:
        signed = b.convert_element_type(b.convert_element_type(x, _E.S64), target)
        is_negative = b.lt(x, b.scalar_like(x, 0))
        integer = b.select(is_negative, signed, b.convert_element_type(x, target))
        is_inside = b.and_(
            b.gt(x, b.scalar_like(x, -(2.0 ** (target.bits - 1)))),
            b.lt(x, b.scalar_like(x, 2.0**target.bits)),
        )
    highest_bit = 1 << target.bits - 1
    return b.select(
        is_inside, integer, b.full_like(integer, -highest_bit if target.is_signed else highest_bit)
    )
