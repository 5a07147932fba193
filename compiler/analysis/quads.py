"""Quads: four neighbouring elements of 8 bits taken as one of 32, where a sum runs over them in both operands."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.sizes import Size
from ..ir.element_types import ElementType

QUAD = 4  # elements
_BYTES = (ElementType.S8, ElementType.U8)


SMALL = 64
"""Bytes of B up to this size are small: 16 bits hold the sum of two products with unsigned bytes."""


def quad_type(a: ElementType, b: ElementType, result: ElementType, has_small_rhs: bool = False) -> str:
    """The name of the type in which quads of two operands are multiplied, such as `u8s8`, and `u8s7` where the bytes of
    B are small; "" where they are not multiplied so."""
    if not {a, b} <= set(_BYTES) or result is not ElementType.S32:
        return ""
    is_small = has_small_rhs and (a, b) == (ElementType.U8, ElementType.S8)
    return a.value + ("s7" if is_small else b.value)


def signs_of(quads: str) -> tuple[bool, bool]:
    """Whether the bytes of A are signed, and those of B."""
    return quads[0] == "s", quads[2] == "s"


def swapped(quads: str) -> str:
    """The type of B's quads times A's."""
    return quads[2:] + quads[:2]


def are_whole_quads(strides: Iterable[int]) -> bool:
    """Whether sizes and strides, in elements, are whole quads."""
    return all(not isinstance(stride, Size) and stride % QUAD == 0 for stride in strides)
