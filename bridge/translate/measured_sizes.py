"""Dims of which the first is computed at run time, from the size of an array whose size depends on data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...compiler.builder import ComputationBuilder, Operand
from ...compiler.errors import UnsupportedError
from ...compiler.ir import Instruction
from ...compiler.ops import Concatenate, GetDimensionSize, Slice
from ...compiler.types import ElementType
from .node import Node


@dataclasses.dataclass(frozen=True)
class Extent:
    """A size that is known at run time, an s32 scalar, and the largest that it can be."""

    value: Operand
    bound: int


def size_of(b: ComputationBuilder, operand: Operand, axis: int) -> int | Extent:
    """The size of an axis."""
    shape = b.get_shape(operand)
    return Extent(b.get_dimension_size(operand, axis), shape.dims[axis]) if axis in shape.dynamic else shape.dims[axis]


def extents(node: Node, which: str) -> list[int | Extent]:
    """The numbers of an input that is a shape or a size, the first of which may be known at run time only.

    Raises: UnsupportedError  another is, or it is no size of an array.
    """
    found = extents_or_none(node, which)
    if found is None:
        raise UnsupportedError(f"{node.op}: {which} must be known when compiling; it is computed at run time")
    return found


def extents_or_none(node: Node, which: str) -> list[int | Extent] | None:
    """As `extents`; None for what that refuses."""
    instruction = node[which].instruction
    found = _elements(node, instruction) if instruction is not None else None
    return None if found is None or any(isinstance(e, Extent) for e in found[1:]) else found


def _elements(node: Node, instruction: Instruction) -> list[int | Extent] | None:
    known = node.translator.constant_value(Operand(node.b, instruction))
    if known is not None:
        return [int(v) for v in known.ravel()]
    op, operands = instruction.op, instruction.operands
    if isinstance(op, GetDimensionSize):
        return [Extent(Operand(node.b, instruction), operands[0].shape.dims[op.dimension])]
    if isinstance(op, Concatenate):
        parts = [_elements(node, o) for o in operands]
        return None if any(p is None for p in parts) else [e for p in parts if p is not None for e in p]
    if isinstance(op, Slice) and operands[0].shape.rank == 1:
        whole = _elements(node, operands[0])
        return None if whole is None else whole[op.start[0]:op.limit[0]:op.strides[0]]
    if instruction.opcode in ("reshape", "convert", "copy"):
        return _elements(node, operands[0])
    if instruction.opcode == "multiply" and not instruction.shape.rank:
        left, right = (_elements(node, o) for o in operands)
        if left is not None and right is not None and isinstance(right[0], int) and isinstance(left[0], Extent):
            b, factor = node.b, right[0]
            return [Extent(b.mul(left[0].value, b.constant(factor, ElementType.S32)), left[0].bound * factor)]
    return None


def bounds(sizes: Sequence[int | Extent]) -> list[int]:
    """The sizes, at their largest."""
    return [s.bound if isinstance(s, Extent) else s for s in sizes]


def with_first(b: ComputationBuilder, operand: Operand, sizes: Sequence[int | Extent]) -> Operand:
    """The operand, which is as large as its bounds, with its first size."""
    return b.set_dimension_size(operand, sizes[0].value, 0) if sizes and isinstance(sizes[0], Extent) else operand
