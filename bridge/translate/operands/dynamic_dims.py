"""Dims whose first is computed at run time, from the size of an array whose size depends on data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import UnsupportedError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Instruction
from ....compiler.ir.shape import Shape
from ....compiler.ops import Concatenate, Convert, Copy, GetDimensionSize, Opcode, Reshape, Slice, is_op
from ....runtime.sizes import as_size
from ..node import Node

_MAX_STEPS = 16  # from a size back to the array that has it


@dataclasses.dataclass(frozen=True)
class Extent:
    """A size that is known at run time, an s32 scalar, and the largest that it can be."""

    value: Operand
    bound: int


def size_of(b: ComputationBuilder, operand: Operand, axis: int) -> int | Extent:
    """The size of an axis."""
    shape = b.get_shape(operand)
    return (
        Extent(b.get_dimension_size(operand, axis), shape.dims[axis])
        if axis in shape.dynamic
        else shape.dims[axis]
    )


def extents(node: Node, which: str) -> list[int | Extent]:
    """The numbers of an input that is a shape or a size; the first may be known at run time only.

    Raises: UnsupportedError  another is, or it is no size of an array.
    """
    sizes = extents_or_none(node, which)
    if sizes is None:
        raise UnsupportedError(f"{node.op}: {which} must be known when compiling; it is computed at run time")
    return sizes


def extents_or_none(node: Node, which: str) -> list[int | Extent] | None:
    """As `extents`; None for what that refuses."""
    instruction = node[which].instruction
    sizes = _elements(node, instruction) if instruction is not None else None
    return None if sizes is None or any(isinstance(e, Extent) for e in sizes[1:]) else sizes


def _elements(node: Node, instruction: Instruction, steps: int = _MAX_STEPS) -> list[int | Extent] | None:
    """The elements of a vector or a scalar, made by so many instructions at most; None where one is no size."""
    if not steps:
        return None
    constant = node.context.constant_value(Operand(node.b, instruction))
    if constant is not None:
        return [as_size(v) for v in constant.ravel()]
    op, operands = instruction.op, instruction.operands
    span = node.context.ranges.get(instruction)
    if span is not None and 0 <= span[0] <= span[1] <= _MAX_BOUND and instruction.shape.elements == 1:
        value = node.b.reshape(Operand(node.b, instruction), ())  # given to a loop or a branch
        return [Extent(node.b.convert_element_type(value, ElementType.S32), span[1])]
    if isinstance(op, GetDimensionSize):
        return [Extent(Operand(node.b, instruction), operands[0].shape.dims[op.dimension])]
    if isinstance(op, Concatenate):
        parts = [_elements(node, o, steps - 1) for o in operands]
        return None if any(p is None for p in parts) else [e for p in parts if p is not None for e in p]
    if isinstance(op, Slice) and operands[0].shape.rank == 1:
        whole = _elements(node, operands[0], steps - 1)
        return None if whole is None else whole[op.start[0] : op.limit[0] : op.strides[0]]
    if isinstance(op, (Reshape, Copy)) or isinstance(op, Convert) and _holds_sizes(instruction):
        return _elements(node, operands[0], steps - 1)
    if is_op(instruction, Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY) and not instruction.shape.rank:
        return _with_a_number(node, instruction, steps)
    return None


def _holds_sizes(instruction: Instruction) -> bool:
    type_ = instruction.shape.element_type
    return type_.is_integer and type_.bits >= 32


def _with_a_number(node: Node, instruction: Instruction, steps: int) -> list[int | Extent] | None:
    """The sum, difference or product of a size and a number that is known; None for others."""
    b, (left, right) = node.b, instruction.operands
    number = node.context.constant_value(Operand(b, right))
    if number is None and not is_op(instruction, Opcode.SUBTRACT):
        left, number = right, node.context.constant_value(Operand(b, left))
    sizes = _elements(node, left, steps - 1) if number is not None and _holds_sizes(instruction) else None
    if number is None or sizes is None or not isinstance(sizes[0], Extent):
        return None
    size, factor = sizes[0], as_size(number.item())
    if is_op(instruction, Opcode.MULTIPLY):
        return [Extent(b.mul(size.value, b.constant(factor, ElementType.S32)), size.bound * factor)]
    more = factor if is_op(instruction, Opcode.ADD) else -factor
    total = b.add(size.value, b.constant(more, ElementType.S32))
    if more < 0:
        node.bail_out_if(b.lt(total, b.constant(0, ElementType.S32)), "a size is negative")
    return [Extent(total, max(size.bound + more, 0))]


_MAX_BOUND = 1 << 24


def bounds(sizes: Sequence[int | Extent]) -> list[int]:
    """The sizes, at their largest."""
    return [s.bound if isinstance(s, Extent) else s for s in sizes]


def filled_like(b: ComputationBuilder, operand: Operand, number: int) -> Operand:
    """An array of one number, as large as another array."""
    shape = b.get_shape(operand)
    filled = b.broadcast(b.constant(number, shape.element_type), shape.dims)
    return with_first(b, filled, [size_of(b, operand, 0)]) if shape.is_dynamic else filled


def with_first(b: ComputationBuilder, operand: Operand, sizes: Sequence[int | Extent]) -> Operand:
    """The operand, which is as large as its bounds, with its first size."""
    return (
        b.set_dimension_size(operand, sizes[0].value, 0)
        if sizes and isinstance(sizes[0], Extent)
        else operand
    )


def room_of(b: ComputationBuilder, operand: Operand) -> Operand:
    """An array with as many rows as the bound of the operand's size. Those behind its last row are anything."""
    bound, *inner = b.get_shape(operand).dims
    return b.gather(
        operand,
        b.iota(Shape(ElementType.S32, (bound, 1)), 0),
        index_vector_dim=1,
        offset_dims=range(1, 1 + len(inner)),
        collapsed_slice_dims=[0],
        start_index_map=[0],
        slice_sizes=[1, *inner],
    )
