"""`bitcast` in HLO text: the same bytes in another shape, whose layouts and tiles say where an element lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..builder.computation_builder import ComputationBuilder, Operand
from ..errors import ShapeError, UnsupportedError
from ..ir.element_types import ElementType
from ..ir.layout import inverse_permutation, major_to_minor
from ..ir.shape import Shape
from ..ops import BitcastConvert, Reshape
from .layouts import COMBINED, Tile


def bitcast(
    b: ComputationBuilder, operand: Operand, shape: Shape, tiles: Sequence[Tile], result_tiles: Sequence[Tile]
) -> Operand:
    """The operand's bytes as an array of this shape; `tiles` are those of the operand's layout.

    Raises: ShapeError  the two take a different number of bytes.
    """
    source = b.get_shape(operand)
    if not tiles and not result_tiles and source.element_type is shape.element_type:
        row_major = b.transpose(operand, major_to_minor(source)) if source.layout is not None else operand
        dims = tuple(shape.dims[a] for a in major_to_minor(shape))
        return _in_layout(b, b.apply(Reshape(dims), row_major), shape)
    vector = physical_order(b, operand, tiles)
    vector = _with_type(b, vector, shape.element_type)
    if b.get_shape(vector).elements != physical_elements(shape, result_tiles):
        raise ShapeError(f"bitcast: {source} and {shape} take a different number of bytes (reshape_c2)")
    return from_physical_order(b, vector, shape, result_tiles)


def _with_type(b: ComputationBuilder, vector: Operand, kind: ElementType) -> Operand:
    """The bytes of a vector as elements of another type."""
    shape = b.get_shape(vector)
    own = shape.element_type
    if own is kind:
        return vector
    if own.bits != kind.bits and (own.is_packed or kind.is_packed):
        raise UnsupportedError(
            f"bitcast of {own.value} to {kind.value}: elements of less than a byte are not packed"
        )
    if own.item_bytes < kind.item_bytes:
        factor = kind.item_bytes // own.item_bytes
        if shape.elements % factor:
            raise ShapeError(f"bitcast: {shape} is no whole number of {kind.value} (reshape_c2)")
        return b.apply(BitcastConvert(kind), b.reshape(vector, (shape.elements // factor, factor)))
    converted = b.apply(BitcastConvert(kind), vector)
    return b.reshape(converted, (b.get_shape(converted).elements,))


def _in_layout(b: ComputationBuilder, row_major: Operand, shape: Shape) -> Operand:
    """An array whose axes stand from the slowest to the fastest of a shape, with the shape's axes."""
    if shape.layout is None:
        return row_major
    return b.transpose(row_major, inverse_permutation(major_to_minor(shape)))


def physical_order(b: ComputationBuilder, operand: Operand, tiles: Sequence[Tile]) -> Operand:
    """The elements in the order in which they lie in memory, as a vector: what pads a tile is zero."""
    shape = b.get_shape(operand)
    value = b.transpose(operand, major_to_minor(shape)) if shape.layout is not None else operand
    for tile in tiles:
        dims = _combined(b.get_shape(value).dims, tile)
        if dims is None:
            continue
        value, sizes = b.reshape(value, dims), [t for t in tile if t != COMBINED]
        first = len(dims) - len(sizes)
        high = [-d % t for d, t in zip(dims[first:], sizes)]
        if any(high):
            padding = [(0, 0, 0)] * first + [(0, h, 0) for h in high]
            value = b.pad(value, b.constant(0, shape.element_type), padding)
        value = b.reshape(value, _split(dims, sizes))
        value = b.transpose(value, _tiles_last(first, len(sizes)))
    return b.reshape(value, (b.get_shape(value).elements,))


def from_physical_order(
    b: ComputationBuilder, vector: Operand, shape: Shape, tiles: Sequence[Tile]
) -> Operand:
    """The array of this shape whose elements lie in memory in the vector's order."""
    dims = tuple(shape.dims[a] for a in major_to_minor(shape))
    steps = []  # of each tile: the dims before and after axes are combined, the tile
    for tile in tiles:
        combined = _combined(dims, tile)
        if combined is not None:
            sizes = [t for t in tile if t != COMBINED]
            steps.append((dims, combined, sizes))
            first = len(combined) - len(sizes)
            split = _split(combined, sizes)
            dims = tuple(split[a] for a in _tiles_last(first, len(sizes)))
    value = b.reshape(vector, dims)
    for before, combined, sizes in reversed(steps):
        first = len(combined) - len(sizes)
        value = b.transpose(value, inverse_permutation(_tiles_last(first, len(sizes))))
        whole = [*combined[:first], *(math.ceil(d / t) * t for d, t in zip(combined[first:], sizes))]
        value = b.slice(b.reshape(value, whole), [0] * len(whole), combined, [1] * len(whole))
        value = b.reshape(value, before)
    return _in_layout(b, value, shape)


def physical_elements(shape: Shape, tiles: Sequence[Tile]) -> int:
    """The number of elements in memory, with what pads the tiles."""
    dims = tuple(shape.dims[a] for a in major_to_minor(shape))
    for tile in tiles:
        combined = _combined(dims, tile)
        if combined is not None:
            sizes = [t for t in tile if t != COMBINED]
            first = len(combined) - len(sizes)
            dims = (*combined[:first], *(-(-d // t) for d, t in zip(combined[first:], sizes)), *sizes)
    return math.prod(dims)


def _combined(dims: Sequence[int], tile: Tile) -> tuple[int, ...] | None:
    """The dims when each axis that a tile has as `*` is one with the next; None: the tile has more axes."""
    if len(tile) > len(dims):
        return None
    combined = list(dims[: len(dims) - len(tile)])
    factor = 1
    for size, part in zip(dims[len(dims) - len(tile) :], tile):
        factor *= size
        if part != COMBINED:
            combined.append(factor)
            factor = 1
    return tuple(combined) if factor == 1 else None


def _split(dims: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The last axes cut in tiles of these sizes: for each the number of tiles, then the tile."""
    first = len(dims) - len(sizes)
    return (*dims[:first], *(n for d, t in zip(dims[first:], sizes) for n in (-(-d // t), t)))


def _tiles_last(first: int, count: int) -> tuple[int, ...]:
    """The order of axes with the numbers of tiles before the tiles."""
    return (*range(first), *(first + 2 * k for k in range(count)), *(first + 2 * k + 1 for k in range(count)))
