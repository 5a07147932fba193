"""Quads: four neighbouring elements of 8 bits taken as one of 32, where a sum runs over them in both operands."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.sizes import Size
from ..ir.element_types import ElementType

QUAD = 4  # elements
_BYTES = (ElementType.S8, ElementType.U8)


def quad_type(a: ElementType, b: ElementType, result: ElementType) -> str:
    """The name of the type in which quads of two operands are multiplied, such as `u8s8`; "" where they are not."""
    return a.value + b.value if {a, b} <= set(_BYTES) and result is ElementType.S32 else ""


def signs_of(quads: str) -> tuple[bool, bool]:
    """Whether the bytes of A are signed, and those of B."""
    return quads.startswith("s"), quads.endswith("s8")


def swapped(quads: str) -> str:
    """The type of B's quads times A's."""
    return quads[2:] + quads[:2]


def are_whole_quads(strides: Iterable[int]) -> bool:
    """Whether sizes and strides, in elements, are whole quads."""
    return all(not isinstance(stride, Size) and stride % QUAD == 0 for stride in strides)
