"""The keys of a cluster's code: shapes of its arguments, and values of its compile-time constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...compiler.ir.shape import Shape

Key = tuple[tuple[Shape, ...], tuple[tuple[int, bytes], ...]]
"""Shapes of the launch arguments; (launch position, bytes) of compile-time constants."""
Place = tuple[int, int]
"""Where a size stands in a key: a launch argument and its axis; below 0, -1 - the number of an element of its value."""
_MAX_ELEMENTS = 8  # of a constant whose elements are sizes; larger ones are data


def code_key(shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> Key:
    """The key of code. `constants`: values by launch position."""
    return tuple(shapes), tuple((k, v.tobytes()) for k, v in sorted(constants.items()))


def integers(shape: Shape, value: bytes) -> tuple[int, ...]:
    """The elements of a constant of a key."""
    return tuple(np.frombuffer(value, shape.element_type.dtype).tolist())


def holds_sizes(shape: Shape) -> bool:
    """Whether the elements of a constant may be sizes."""
    return shape.element_type.is_integer and shape.elements <= _MAX_ELEMENTS
