"""Shapes: element type, dims and layout of an array, or the shapes of a tuple's parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ...runtime.sizes import AnySize, Assumptions, Size, estimate
from ..errors import ShapeError
from ..limits import DEFAULT_LIMITS, Limits
from .element_types import ElementType

Dims: TypeAlias = tuple[int, ...]  # of sizes; inside the class `tuple` is a method
Shapes: TypeAlias = "tuple[Shape, ...]"

_TUPLE, _TOKEN = ElementType.TUPLE, ElementType.TOKEN  # a member of an enum is slow to look up


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """An array's element type, dims and layout; or a tuple of shapes; or a token.

    >>> from tfbridge.compiler import ElementType, Shape, array
    >>> image = Shape(ElementType.F32, (8, 32, 32, 3))
    >>> image, image.elements, image.bytes
    (f32[8,32,32,3], 24576, 98304)
    >>> Shape.tuple([image, array("s32")])
    (f32[8,32,32,3], s32[])

    `layout` is minor_to_major (axis numbers, fastest first); None means row-major, the default. `dynamic` are the axes
    whose size is known at run time only; `dims` then has its bound. Both take part in equality; `compatible` compares
    without them. `tuple_shapes` is set for tuples only.
    """

    element_type: ElementType
    dims: Dims = ()
    layout: Dims | None = None
    tuple_shapes: Shapes = ()
    dynamic: Dims = ()

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout == tuple(range(len(self.dims) - 1, -1, -1)):
            object.__setattr__(self, "layout", None)

    @staticmethod
    def tuple(shapes: Iterable[Shape]) -> Shape:
        """The shape of a tuple with these parts."""
        return Shape(ElementType.TUPLE, tuple_shapes=tuple(shapes))

    @property
    def is_tuple(self) -> bool:
        """A tuple."""
        return self.element_type is _TUPLE

    @property
    def is_array(self) -> bool:
        """An array (neither tuple nor token)."""
        return self.element_type is not _TUPLE and self.element_type is not _TOKEN

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.dims)

    @property
    def is_scalar(self) -> bool:
        """An array of rank 0."""
        return not self.dims and self.is_array

    @property
    def elements(self) -> int:
        """Number of elements of an array."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the array in memory (a tuple: of all its leaves; a token: 0)."""
        if self.is_array:
            return math.prod(self.dims) * self.element_type.item_bytes
        return sum(s.bytes for s in self.tuple_shapes)

    @property
    def minor_to_major(self) -> Dims:
        """Axis numbers from the fastest-varying to the slowest."""
        return self.layout if self.layout is not None else tuple(range(self.rank - 1, -1, -1))

    @property
    def strides(self) -> Dims:
        """Strides in elements, one per axis, of the dense array with this layout."""
        dims = self.dims
        strides, step = [0] * len(dims), 1
        for axis in range(len(dims) - 1, -1, -1) if self.layout is None else self.layout:
            strides[axis] = step
            step *= dims[axis]
        return tuple(strides)

    def leaves(self) -> Iterator[Shape]:
        """The array and token shapes of a tuple, depth first; the shape itself otherwise."""
        if self.is_tuple:
            for part in self.tuple_shapes:
                yield from part.leaves()
        else:
            yield self

    @property
    def is_dynamic(self) -> bool:
        """Whether the size of an axis, of a tuple's part too, is known at run time only."""
        return bool(self.dynamic) or any(s.is_dynamic for s in self.tuple_shapes)

    def compatible(self, other: Shape) -> bool:
        """Equal, layouts and sizes known at run time only aside."""
        if self is other:
            return True
        return (
            self.element_type is other.element_type
            and self.dims == other.dims
            and len(self.tuple_shapes) == len(other.tuple_shapes)
            and all(map(Shape.compatible, self.tuple_shapes, other.tuple_shapes))
        )

    def static(self) -> Shape:
        """The same shape with the default layout, every size its bound."""
        if self.is_tuple:
            return Shape.tuple(s.static() for s in self.tuple_shapes)
        return self if self.layout is None and not self.dynamic else Shape(self.element_type, self.dims)

    def without_layout(self) -> Shape:
        """The same shape with the default layout everywhere."""
        if self.is_tuple:
            return Shape.tuple(s.without_layout() for s in self.tuple_shapes)
        return self if self.layout is None else Shape(self.element_type, self.dims, dynamic=self.dynamic)

    def with_dynamic(self, axes: Iterable[int]) -> Shape:
        """The same array shape with these axes' sizes known at run time only."""
        return dataclasses.replace(self, dynamic=tuple(sorted(set(axes))))

    def with_dims(self, dims: Iterable[int]) -> Shape:
        """The same element type with other dims and the default layout."""
        return Shape(self.element_type, tuple(dims))

    def with_type(self, element_type: ElementType) -> Shape:
        """The same dims and layout with another element type."""
        return Shape(element_type, self.dims, self.layout, dynamic=self.dynamic)

    def __str__(self) -> str:
        """HLO text, the layout only where it is not the default: `f32[2,<=3]`, `(f32[], s32[4]{0})`."""
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.tuple_shapes)) + ")"
        if self.element_type is ElementType.TOKEN:
            return "token[]"
        layout = "" if self.layout is None else "{" + ",".join(map(str, self.layout)) + "}"
        dims = ",".join(map(str, self.dims))
        if self.dynamic:
            dims = ",".join(f"<={d}" if axis in self.dynamic else str(d) for axis, d in enumerate(self.dims))
        return f"{self.element_type.value}[{dims}]{layout}"

    __repr__ = __str__


TOKEN = Shape(ElementType.TOKEN)


def assumptions_of(shapes: Iterable[Shape]) -> Assumptions | None:
    """Those of the symbols in shapes; None: they have no symbols."""
    sizes: Iterator[AnySize] = (d for shape in shapes for leaf in shape.leaves() for d in leaf.dims)
    return next((d.assumptions for d in sizes if isinstance(d, Size)), None)


def array(element_type: ElementType | str, *dims: int) -> Shape:
    """Short form of `Shape` for an array with the default layout.

    >>> from tfbridge.compiler import array
    >>> array("f32", 2, 3), array("s32")
    (f32[2,3], s32[])

    Raises: ValueError  no element type has that name.
    """
    return Shape(ElementType(element_type), dims)


_MAX_BYTES = 2**63 - 1


def check_size(shape: Shape, limits: Limits = DEFAULT_LIMITS) -> None:
    """The check that an array of this shape, or the tuple's arrays, can exist.

    Raises: ShapeError  shape_c1: a negative dim. shape_c2: more bytes than an address can count. LimitError  rank,
        array_bytes, tuple_leaves, nesting.
    """
    if shape.tuple_shapes:
        _check_tuple(shape, limits)
        return
    elements = 1
    for d in map(estimate, shape.dims):  # every instruction that is built comes here
        if d < 0:
            raise ShapeError(f"shape: {shape} has a negative size (shape_c1)")
        elements *= d or 1
    if len(shape.dims) > limits.rank:
        limits.check("rank", len(shape.dims), "axes of an array")
    if elements > limits.array_bytes // 16:
        size = elements * shape.element_type.item_bytes
        if size > _MAX_BYTES:
            raise ShapeError(f"shape: {shape} has more than {_MAX_BYTES} bytes (shape_c2)")
        limits.check("array_bytes", size, f"bytes of {shape}")


def _check_tuple(shape: Shape, limits: Limits) -> None:
    """The check of a tuple; it looks at no more parts than the limits let a tuple have."""
    leaves = size = 0
    stack = [(shape, 0)]
    while stack:
        part, depth = stack.pop()
        if not part.tuple_shapes:
            check_size(part, limits)
            leaves, size = leaves + 1, size + estimate(part.bytes)
            continue
        limits.check("nesting", depth + 1, "tuples in a tuple, one inside the other, or more")
        limits.check(
            "tuple_leaves", leaves + len(stack) + len(part.tuple_shapes), "arrays in a tuple, or more"
        )
        stack += [(inner, depth + 1) for inner in part.tuple_shapes]
    limits.check("array_bytes", size, "bytes of a tuple")
