"""Axes as nodes give them: negative numbers, and sizes for the spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.errors import ShapeError


def spatial_entries(values: Sequence[int], spatial: Sequence[int], name: str) -> tuple[int, ...]:
    """The entries for some axes of an attribute of images that has one for every axis: strides, sizes of windows.

    Raises: ShapeError  it has not, one is not positive, or one of the two other axes is not 1.
    """
    others = [v for axis, v in enumerate(values) if axis not in spatial]
    if len(values) != len(spatial) + 2 or min(values) <= 0 or others != [1, 1]:
        raise ShapeError(
            f"{name} {list(values)} should be positive for every axis, and 1 for batch and features"
        )
    return tuple(values[axis] for axis in spatial)


def axis_of(axis: int, rank: int, op: str) -> int:
    """An axis number, counted from the end when negative, as one from 0.

    Raises: ShapeError  out of range.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"{op}: axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis
