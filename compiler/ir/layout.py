"""Layouts of arrays in linear memory: the order of the axes, and padding around them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

import numpy as np

from ..errors import ShapeError
from .element_types import ElementType, element_type_of, float_info, integer_info
from .shape import Dims, Shape


class PaddingValue(enum.Enum):
    """The value of the elements in the padding of a layout."""

    ZERO = "zero"
    ONE = "one"
    LOWEST = "lowest"
    HIGHEST = "highest"

    def of(self, element_type: ElementType) -> np.ndarray:
        """The value as a scalar of an element type.

        Raises: ShapeError  layout_c4: complex numbers have no lowest and no highest.
        """
        if self in (PaddingValue.ZERO, PaddingValue.ONE):
            return np.asarray(int(self is PaddingValue.ONE)).astype(element_type.dtype)
        if element_type.is_complex:
            raise ShapeError(
                f"layout: padding value {self.value} of {element_type.value} does not exist (layout_c4)"
            )
        if element_type is ElementType.PRED:
            return np.asarray(self is PaddingValue.HIGHEST)
        if element_type.is_float:
            limits = float_info(element_type.dtype)
            return np.asarray(limits.max if self is PaddingValue.HIGHEST else limits.min, element_type.dtype)
        bounds = integer_info(element_type.dtype)
        return np.asarray(bounds.max if self is PaddingValue.HIGHEST else bounds.min).astype(
            element_type.dtype
        )


@dataclasses.dataclass(frozen=True)
class Layout:
    """The positions of an array's elements in linear memory.

    `minor_to_major` are the axes from the one that changes fastest to the slowest. `padded_dimensions`, where given,
    are the sizes that the axes are padded to, with `padding_value`.
    Raises: ShapeError  layout_c1: minor_to_major is no order of the axes. layout_c2: another number of padded
        dimensions. layout_c3: a padded dimension is smaller than the array's.
    Source: the preview document, Layout.
    """

    minor_to_major: Dims
    padded_dimensions: Dims | None = None
    padding_value: PaddingValue = PaddingValue.ZERO

    def __post_init__(self) -> None:
        rank = len(self.minor_to_major)
        if sorted(self.minor_to_major) != list(range(rank)):
            raise ShapeError(
                f"layout: minor_to_major {list(self.minor_to_major)} is no order of {rank} axes (layout_c1)"
            )
        if self.padded_dimensions is not None and len(self.padded_dimensions) != rank:
            raise ShapeError(
                f"layout: padded_dimensions {list(self.padded_dimensions)} must have one size for each of "
                f"{rank} axes (layout_c2)"
            )

    @staticmethod
    def of(shape: Shape) -> Layout:
        """The layout of a shape, without padding."""
        return Layout(shape.minor_to_major)

    def padded(self, dims: Dims) -> Dims:
        """The dims of the array with its padding."""
        if len(dims) != len(self.minor_to_major):
            raise ShapeError(
                f"layout: minor_to_major {list(self.minor_to_major)} is no order of {len(dims)} axes "
                "(layout_c1)"
            )
        wide = dims if self.padded_dimensions is None else self.padded_dimensions
        if any(w < d for w, d in zip(wide, dims)):
            raise ShapeError(
                f"layout: padded_dimensions {list(wide)} are smaller than {list(dims)} (layout_c3)"
            )
        return tuple(wide)

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The array as linear memory: a vector of its elements and padding, in their order."""
        wide = np.full(
            self.padded(array.shape), self.padding_value.of(element_type_of(array.dtype)), array.dtype
        )
        wide[tuple(map(slice, array.shape))] = array
        return wide.transpose(self.minor_to_major[::-1]).reshape(-1)

    def unpack(self, memory: np.ndarray, shape: Shape) -> np.ndarray:
        """The array of this shape in linear memory; the padding is not read.

        Raises: ShapeError  layout_c5: the memory has another number of elements, or another type.
        """
        wide = self.padded(shape.dims)
        slowest_first = self.minor_to_major[::-1]
        memory = np.asarray(memory).reshape(-1)
        elements = int(np.prod(wide, dtype=np.int64))
        if memory.dtype != shape.element_type.dtype or memory.size != elements:
            raise ShapeError(
                f"layout: memory of {memory.size} {memory.dtype} is not that of {shape} padded to "
                f"{list(wide)} (layout_c5)"
            )
        array = memory.reshape([wide[a] for a in slowest_first]).transpose(np.argsort(slowest_first))
        return np.ascontiguousarray(array[tuple(map(slice, shape.dims))]).reshape(shape.dims)


def has_layout(shape: Shape) -> bool:
    """Whether the shape, or a part of the tuple, has a layout other than row-major."""
    return any(map(has_layout, shape.tuple_shapes)) if shape.is_tuple else shape.layout is not None


def major_to_minor(shape: Shape) -> tuple[int, ...]:
    """Axis numbers from the slowest to the fastest."""
    return tuple(reversed(shape.minor_to_major))


def physical_shape(shape: Shape) -> Shape:
    """The row-major shape whose array has the bytes of an array of this shape."""
    if shape.is_tuple:
        return Shape.tuple(map(physical_shape, shape.tuple_shapes))
    return (
        shape
        if shape.layout is None
        else Shape(shape.element_type, tuple(shape.dims[a] for a in major_to_minor(shape)))
    )


def leaf_orders(shape: Shape) -> Iterator[tuple[int, ...] | None]:
    """For each array among the leaves its `major_to_minor`, None where that is the default."""
    for leaf in filter(lambda leaf: leaf.is_array, shape.leaves()):
        yield None if leaf.layout is None else major_to_minor(leaf)


def inverse_permutation(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes this one."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))
