"""Ops whose result has a size that depends on data: arrays of the largest size that can be, and the size as a value."""

from __future__ import annotations

from ...compiler.builder import Operand
from ...compiler.errors import ShapeError
from ...compiler.types import ElementType
from .node import Node
from .registry import first_output, translates

_TYPES = frozenset(ElementType) - {ElementType.F16}  # TensorFlow has a kernel of that name that computes nothing


@translates("Where", sizes=first_output, types={"T": _TYPES})
def where(node: Node) -> Operand:
    """The coordinates of the elements that are not zero."""
    b, shape = node.b, node.array_shape(0)
    if not 0 < shape.rank < 9:
        raise ShapeError(f"WhereOp : Unhandled input dimensions: {shape.rank}")
    found = b.nonzero(node[0] if shape.element_type is ElementType.PRED else b.ne(node[0], b.zeros(shape)))
    rows, count = (b.get_tuple_element(found, k) for k in range(2))
    return b.set_dimension_size(rows, count, 0)
