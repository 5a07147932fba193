"""Boxes drawn into images."""

from __future__ import annotations

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.shape import Shape
from ..array.gather import gather_axis
from ..math.reductions import reduce
from ..node import Node
from ..registry import translates

_F32, _S32 = ElementType.F32, ElementType.S32
_COLOURS = [
    [1, 1, 0, 1],
    [0, 0, 1, 1],
    [1, 0, 0, 1],
    [0, 1, 0, 1],
    [0.5, 0, 0.5, 1],
    [0.5, 0.5, 0, 1],
    [0.5, 0, 0, 1],
    [0, 0, 0.5, 1],
    [0, 1, 1, 1],
    [1, 0, 1, 1],
]


@translates("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def draw_bounding_boxes(node: Node) -> Operand:
    """Every pixel has the colour of the last box on whose border it lies; colours repeat."""
    b, (batch, height, width, depth) = node.b, node.shape("images")
    if len(node.shape("boxes")) != 3 or node.shape("boxes")[::2] != (batch, 4) or depth not in (1, 3, 4):
        raise ShapeError(
            f"boxes must be [{batch}, n, 4] for {batch} images of 1, 3 or 4 channels, got "
            f"{list(node.shape('boxes'))} and {depth} channels"
        )
    count = node.shape("boxes")[1]
    dims = (batch, height, width, count)
    boxes = b.convert_element_type(node["boxes"], _F32)
    row, column = (b.iota(Shape(_S32, dims), axis) for axis in (1, 2))

    def edge(number: int, size: int) -> Operand:
        at = b.reshape(b.slice_in_dim(boxes, number, number + 1, 1, 2), (batch, count)) * b.constant(
            size - 1, _F32
        )
        return b.broadcast_in_dim(b.convert_element_type(at, _S32), dims, [0, 3])

    top, left, bottom, right = edge(0, height), edge(1, width), edge(2, height), edge(3, width)
    is_inside = b.and_(
        b.and_(b.ge(row, top), b.le(row, bottom)), b.and_(b.ge(column, left), b.le(column, right))
    )
    is_edge = b.or_(b.or_(b.eq(row, top), b.eq(row, bottom)), b.or_(b.eq(column, left), b.eq(column, right)))
    number = b.select(b.and_(is_inside, is_edge), b.iota(Shape(_S32, dims), 3), b.full_like(row, -1))
    last = reduce(b, number, "max", [3])
    colours = b.constant(
        np.array(_COLOURS, np.float32)[:, :depth] if depth > 1 else np.ones((10, 1), np.float32)
    )
    if node.op.endswith("V2"):
        shape = node.array_shape("colors")
        if shape.rank != 2 or shape.dims[1] < depth:
            raise ShapeError(f"colors of shape {list(shape.dims)} for images of {depth} channels")
        if shape.elements:
            colours = b.slice_in_dim(node["colors"], 0, depth, 1, 1)
    which = b.rem(b.max(last, b.full_like(last, 0)), b.full_like(last, b.get_shape(colours).dims[0]))
    drawn = b.convert_element_type(gather_axis(node, colours, which, 0, 0), node.element_type("images"))
    is_drawn = b.broadcast_in_dim(b.ge(last, b.full_like(last, 0)), node.shape("images"), [0, 1, 2])
    return b.select(is_drawn, drawn, node["images"]) if count else node["images"]
