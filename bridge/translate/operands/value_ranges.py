"""What integers can be, as far as a graph shows it, and checks that they are in a range.

A check leaves the run where it does not hold: TensorFlow then runs the nodes and has its own error. What the graph
shows to hold needs none: constants, counters of loops, indices that were checked before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.builder.derived import binary_computation
from ....compiler.errors import ShapeError
from ....compiler.ir.element_types import ElementType
from ....compiler.ir.module import Instruction
from ....compiler.ops import (
    Broadcast,
    Concatenate,
    Convert,
    Copy,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    GetDimensionSize,
    Iota,
    Opcode,
    Pad,
    ReducePrecision,
    Reshape,
    Reverse,
    SetDimensionSize,
    Slice,
    Sort,
    Transpose,
    is_op,
)
from ..context import TranslationContext
from ..node import Node
from ..values import Value
from .dynamic_dims import Extent

Range = tuple[int, int]  # the least and the greatest value; nothing is between (0, -1)

TRUSTED: Range = (0, -1)
"""The range of a value that is a valid index for certain, because it was one when it was stored."""
_MAX_VISITED = 64  # instructions behind a value
_MOVES = (  # of the first operand's elements
    Broadcast,
    Copy,
    DynamicSlice,
    Gather,
    ReducePrecision,
    Reshape,
    Reverse,
    SetDimensionSize,
    Slice,
    Sort,
    Transpose,
)


def range_of(context: TranslationContext, operand: Operand) -> Range:
    """The least and the greatest value that the elements of an array of integers can have."""
    span = noted_range(context, operand)
    return _whole(context.builder.get_shape(operand).element_type) if span == TRUSTED else span


def is_trusted(context: TranslationContext, operand: Operand) -> bool:
    """Whether all elements of an array of integers are valid as the indices that they are used as."""
    return noted_range(context, operand) == TRUSTED


def noted_range(context: TranslationContext, operand: Operand) -> Range:
    """The range of an array of integers, or TRUSTED, which tells nothing of how small or large they are."""
    assert operand.instruction is not None
    budget = [_MAX_VISITED]

    def visit(i: Instruction) -> Range:
        whole = _whole(i.shape.element_type)
        budget[0] -= 1
        span = context.ranges.get(i)
        if span is None and budget[0] > 0 and i.shape.is_array:
            constant = context.constant_value(Operand(context.builder, i))
            span = _span(constant) if constant is not None else _range_of_op(i, visit)
        if span is None or span != TRUSTED and not whole[0] <= span[0] <= span[1] <= whole[1]:
            return whole
        return span

    return visit(operand.instruction)


def _whole(type_: ElementType) -> Range:
    if not type_.is_integer:
        return (0, 1) if type_ is ElementType.PRED else (-1 << 64, 1 << 64)
    info = np.iinfo(type_.dtype) if type_.bits >= 8 else None
    return (int(info.min), int(info.max)) if info else (-8, 15)


def _span(values: np.ndarray) -> Range | None:
    if values.dtype.kind not in "iub":
        return None
    return (int(values.min()), int(values.max())) if values.size else TRUSTED


def _range_of_op(i: Instruction, visit: Callable[[Instruction], Range]) -> Range | None:
    """The range of what an instruction makes of integers; None where nothing is known of it."""
    op, operands = i.op, i.operands
    if isinstance(op, Iota):
        return 0, max(i.shape.dims[op.iota_dimension] - 1, 0)
    if isinstance(op, GetDimensionSize):
        return 0, operands[0].shape.dims[op.dimension]
    if isinstance(op, Slice) and isinstance(operands[0].op, Concatenate) and i.shape.rank == 1:
        return _union([visit(o) for o in _cut(operands[0], op.start[0], op.limit[0])])
    if isinstance(op, _MOVES):
        return visit(operands[0])
    if isinstance(op, Convert):
        return visit(operands[0]) if operands[0].shape.element_type.is_integer else None
    if isinstance(op, Concatenate):
        return _union([visit(o) for o in operands])
    if isinstance(op, (Pad, DynamicUpdateSlice)):
        return _union([visit(o) for o in operands[:2]])
    if is_op(i, Opcode.SELECT):
        return _union([visit(o) for o in operands[1:]])
    rule = next((rule for opcode, rule in _ARITHMETIC.items() if is_op(i, opcode)), None)
    if rule is None:
        return None
    ranges = [visit(o) for o in operands]
    return None if TRUSTED in ranges else rule(*ranges)


def _cut(joined: Instruction, start: int, limit: int) -> Sequence[Instruction]:
    """The vectors that a part of a concatenation lies in."""
    ends = list(itertools.accumulate(o.shape.dims[0] for o in joined.operands))
    return [o for o, end in zip(joined.operands, ends) if end > start and end - o.shape.dims[0] < limit]


def _union(ranges: Sequence[Range]) -> Range:
    full = [r for r in ranges if r != TRUSTED]
    return (min(r[0] for r in full), max(r[1] for r in full)) if full else TRUSTED


def _products(a: Range, b: Range) -> Range:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _remainder(a: Range, b: Range) -> Range | None:
    limit = max(map(abs, b)) - 1
    return None if b[0] <= 0 <= b[1] else (0 if a[0] >= 0 else -limit, 0 if a[1] <= 0 else min(limit, a[1]))


_ARITHMETIC: dict[Opcode, Callable[..., Range | None]] = {
    Opcode.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Opcode.SUBTRACT: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Opcode.NEGATE: lambda a: (-a[1], -a[0]),
    Opcode.MULTIPLY: _products,
    Opcode.REMAINDER: _remainder,
    Opcode.MINIMUM: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Opcode.MAXIMUM: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    Opcode.CLAMP: lambda low, x, high: (min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])),
}


# -- checks


def _extreme(
    b: ComputationBuilder, opcode: Opcode, values: Operand, axes: Sequence[int] | None = None
) -> Operand:
    """The least or the greatest of integers: one pass with a reduction that code has vectors for."""
    type_ = b.get_shape(values).element_type
    first = _whole(type_)[opcode is Opcode.MINIMUM]
    along = range(b.get_shape(values).rank) if axes is None else axes
    return (
        b.reduce(values, b.constant(first, type_), binary_computation(opcode, type_), along)
        if along
        else values
    )


def _unsigned(b: ComputationBuilder, values: Operand) -> Operand:
    """The bits of integers as unsigned ones: those below zero are greater than all others."""
    type_ = b.get_shape(values).element_type
    return b.bitcast_convert_type(values, _UNSIGNED[type_]) if type_ in _UNSIGNED else values


_UNSIGNED = {
    ElementType.S8: ElementType.U8,
    ElementType.S16: ElementType.U16,
    ElementType.S32: ElementType.U32,
    ElementType.S64: ElementType.U64,
}


def check_indices(node: Node, indices: Operand, size: int | Extent, low: int | None = 0) -> None:
    """Leaves the run where an index is not in [0, size); where `low` is None, where it is not below the size.

    Raises: ShapeError  a constant one is not.
    """
    b, shape = node.b, node.b.get_shape(indices)
    if not shape.elements or indices.instruction is None:
        return
    bound = size.bound if isinstance(size, Extent) else size
    span = noted_range(node.context, indices)
    if span == TRUSTED:
        return
    (smallest, largest), is_sized = span, isinstance(size, Extent)
    if largest < bound and (low is None or smallest >= 0) and not is_sized:
        return
    constant = node.context.constant_value(indices)
    if constant is not None and not is_sized and not node.context.is_inner:
        bad = np.argwhere((constant >= bound) | (constant < (smallest if low is None else 0))).tolist()
        if bad:
            place = bad[0]
            raise ShapeError(f"indices{place or ''} = {constant[tuple(place)]} is not in [0, {bound})")
        return  # a size of the arguments, which is compared with the bound before each call
    top = _extreme(b, Opcode.MAXIMUM, indices if low is None else _unsigned(b, indices))
    type_ = b.get_shape(top).element_type
    limit = (
        b.convert_element_type(size.value, type_)
        if isinstance(size, Extent)
        else b.constant(min(bound, _whole(shape.element_type)[1] + 1), type_)
    )
    node.bail_out_if(b.ge(top, limit), f"an index is not in [0, {bound})")
    smallest = smallest if low is None else max(smallest, 0)
    note(node.context, indices, (smallest, bound - 1) if smallest < bound else TRUSTED)


def check_points(node: Node, indices: Operand, dims: Sequence[int]) -> None:
    """Leaves the run where a vector of indices along the last axis names no place among arrays of these dims.

    Raises: ShapeError  a constant one does not; the vectors are longer than there are dims.
    """
    b, shape, i = node.b, node.b.get_shape(indices), indices.instruction
    if shape.dims[-1] > len(dims):
        raise ShapeError(f"index innermost dimension length must be <= params rank; saw: {shape.dims[-1]}")
    if not shape.elements or i is None or (i, tuple(dims)) in node.context.checked_indices:
        return
    if len(set(dims)) == 1:
        check_indices(node, indices, dims[0])
        return
    if not dims or is_trusted(node.context, indices):
        return
    constant = node.context.constant_value(indices)
    if constant is not None and not node.context.is_inner:
        bad = (constant < 0) | (constant >= dims)
        if bad.any():
            raise ShapeError(f"an index of {np.argwhere(bad)[0].tolist()} does not index into {list(dims)}")
        return
    top = _extreme(b, Opcode.MAXIMUM, _unsigned(b, indices), range(shape.rank - 1))
    above = b.ge(b.convert_element_type(top, ElementType.U64), b.constant(dims, ElementType.U64))
    node.bail_out_if(any_of(b, above, [0]), f"an index does not index into {list(dims)}")
    note_points(node.context, indices, dims)


def any_of(b: ComputationBuilder, tests: Operand, axes: Sequence[int]) -> Operand:
    """Whether any element of an array of preds holds along some axes."""
    return b.reduce(tests, b.constant(False), binary_computation("or", ElementType.PRED), axes)


def out_of_range(b: ComputationBuilder, indices: Operand, dims: Sequence[int]) -> Operand:
    """For every index in vectors along the last axis, whether it is not in [0, dim)."""
    unsigned, shape = b.convert_element_type(_unsigned(b, indices), ElementType.U64), b.get_shape(indices)
    return b.ge(unsigned, b.broadcast_in_dim(b.constant(dims, ElementType.U64), shape.dims, [shape.rank - 1]))


def check_divisor(node: Node, divisor: Operand) -> None:
    """Leaves the run where an integer is divided by zero."""
    if divisor.instruction is None:
        return
    b, (low, high) = node.b, range_of(node.context, divisor)
    constant = node.context.constant_value(divisor)
    if low <= 0 <= high and (constant is None or not constant.all()):
        smallest = _extreme(b, Opcode.MINIMUM, _unsigned(b, divisor))
        node.bail_out_if(b.eq(smallest, b.scalar_like(smallest, 0)), "an integer is divided by zero")


def note_floored(node: Node, result: Operand) -> None:
    """Takes notice of what a rounded quotient, or its remainder, can be where the divisor is positive."""
    (smallest, largest), divisor = (range_of(node.context, node[k]) for k in range(2))
    if divisor[0] > 0 and smallest <= largest:
        quotients = [value // d for value in (smallest, largest) for d in divisor]
        span = (0, divisor[1] - 1) if node.op == "FloorMod" else (min(quotients), max(quotients))
        note(node.context, result, span)


def check_not_negative(node: Node, values: Operand) -> None:
    """Leaves the run where an integer is below zero."""
    if values.instruction is not None and range_of(node.context, values)[0] < 0:
        smallest = _extreme(node.b, Opcode.MINIMUM, values)
        node.bail_out_if(node.b.lt(smallest, node.b.scalar_like(smallest, 0)), "a number is negative")


def check_limits(node: Node, low: Operand, high: Operand) -> None:
    """Leaves the run where a scalar is not less than another one."""
    if (
        low.instruction is not None
        and high.instruction is not None
        and range_of(node.context, low)[1] >= range_of(node.context, high)[0]
    ):
        node.bail_out_if(node.b.ge(low, high), "no number is in the range")


def is_integer(value: Value, rank: int | None = None) -> TypeGuard[Operand]:
    """Whether a value is an array of integers, of this rank."""
    if not isinstance(value, Operand):
        return False
    shape = value.builder.get_shape(value)
    return shape.element_type.is_integer and rank in (None, shape.rank)


def note(context: TranslationContext, value: Value, span: Range) -> None:
    """Takes notice of the range of integers."""
    if isinstance(value, Operand) and value.instruction is not None:
        context.ranges[value.instruction] = span


def note_points(context: TranslationContext, indices: Operand, dims: Sequence[int]) -> None:
    """Takes notice that vectors of indices name places in arrays of these dims."""
    if indices.instruction is not None:
        context.checked_indices.add((indices.instruction, tuple(dims)))
