"""Literals: constant values with their shape."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from ..errors import ShapeError
from .element_types import ElementType, element_type_of, integer_info
from .shape import Shape


class Literal:
    """A constant array, or a tuple of literals. Immutable; equal when shape and bytes are equal.

    >>> import numpy as np
    >>> from tfbridge.compiler import ElementType, Literal
    >>> Literal(np.float32([1, 2]))
    Literal(f32[2], [1.0, 2.0])
    >>> Literal([1, 2], ElementType.S8).shape
    s8[2]

    `array` is C-contiguous and read-only, with the element type's own NumPy dtype; bits of a byte that the type does
    not use are zero.
    Raises: ShapeError  a Python integer that the element type does not hold.
    """

    __slots__ = ("_hash", "array", "parts", "shape")

    def __init__(self, value: object, element_type: ElementType | None = None) -> None:
        """Raises: ShapeError  a Python integer that the element type does not hold."""
        try:
            array = _as_array(value, element_type)
        except OverflowError as error:
            raise ShapeError(f"constant: {error}") from None
        if array.flags.writeable or not array.flags.c_contiguous:
            array = np.array(array, order="C", copy=True)
            if 1 < (bits := element_type_of(array.dtype).bits) < 8:
                array.view(np.uint8)[...] &= (1 << bits) - 1
            array.flags.writeable = False
        self.array: np.ndarray = array
        self.parts: tuple[Literal, ...] = ()
        self.shape = Shape(element_type_of(array.dtype), array.shape)
        self._hash: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (Literal.tuple, (self.parts,)) if self.shape.is_tuple else (Literal, (self.array,))

    @classmethod
    def tuple(cls, parts: Iterable[Literal]) -> Literal:
        """The tuple of these literals."""
        literal = cls.__new__(cls)
        literal.parts = tuple(parts)
        literal.array = np.empty(0, np.uint8)
        literal.shape = Shape.tuple(p.shape for p in literal.parts)
        literal._hash = None
        return literal

    def leaves(self) -> Iterator[Literal]:
        """The literals of a tuple's arrays, or this one."""
        if self.shape.is_tuple:
            for part in self.parts:
                yield from part.leaves()
        else:
            yield self

    def digest(self) -> bytes:
        """16 bytes that name shape and value."""
        h = hashlib.blake2b(str(self.shape).encode(), digest_size=16)
        for part in self.parts:
            h.update(part.digest())
        h.update(self.array.tobytes())
        return h.digest()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self.shape == other.shape
            and self.parts == other.parts
            and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.digest())
        return self._hash

    def __repr__(self) -> str:
        return f"Literal({self.shape}, {self.parts or self.array.tolist()!r:.60})"


def _as_array(value: object, element_type: ElementType | None) -> np.ndarray:
    """NumPy refuses Python integers that a type does not hold; those of ml_dtypes would wrap."""
    if element_type is None:
        return np.asarray(value)
    if not element_type.is_small_integer or isinstance(value, np.ndarray | np.generic):
        return np.asarray(value, element_type.dtype)
    array, bounds = np.asarray(value, np.int8), integer_info(element_type.dtype)
    outside = array[(array < int(bounds.min)) | (array > int(bounds.max))]
    if outside.size:
        raise OverflowError(f"Python integer {outside[0]} out of bounds for {element_type.value}")
    return array.astype(element_type.dtype)
