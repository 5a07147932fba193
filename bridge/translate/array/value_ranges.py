"""What integers can be, as far as a graph shows it, and checks that they are in a range.

A check leaves the run where it does not hold: TensorFlow then runs the nodes and has its own error. What the graph
shows to hold needs none: constants, counters of loops, what was checked before.
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
from ....compiler.ops import Concatenate, GetDimensionSize, Iota, Slice
from ..node import Node
from ..translator import Translator
from ..values import Value
from .dynamic_dims import Extent

Range = tuple[int, int]  # the least and the greatest value; nothing is between (0, -1)

TRUSTED: Range = (0, -1)
"""The range of what is an index for certain: it was one when it was stored."""
_MOST_VISITED = 64  # instructions behind a value
_MOVES = frozenset(
    {
        "reshape",
        "broadcast",
        "transpose",
        "slice",
        "dynamic-slice",
        "reverse",
        "copy",
        "gather",
        "sort",
        "set-dimension-size",
        "reduce-precision",
    }
)  # of the first operand's elements
_JOINS = frozenset({"concatenate", "pad", "dynamic-update-slice", "select"})


def range_of(translator: Translator, operand: Operand) -> Range:
    """The least and the greatest value that the elements of an array of integers can have."""
    assert operand.instruction is not None
    left = [_MOST_VISITED]

    def visit(i: Instruction) -> Range:
        whole = _whole(i.shape.element_type)
        left[0] -= 1
        found = translator.ranges.get(i)
        if found is None and left[0] > 0 and i.shape.is_array:
            known = translator.constant_value(Operand(translator.builder, i))
            found = _span(known) if known is not None else _made(i, visit)
        if found is None or found != TRUSTED and not whole[0] <= found[0] <= found[1] <= whole[1]:
            return whole
        return found

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


def _made(i: Instruction, visit: Callable[[Instruction], Range]) -> Range | None:
    """The range of what an instruction makes of integers; None where nothing is known of it."""
    op, operands = i.op, i.operands
    if isinstance(op, Iota):
        return 0, max(i.shape.dims[op.iota_dimension] - 1, 0)
    if isinstance(op, GetDimensionSize):
        return 0, operands[0].shape.dims[op.dimension]
    if isinstance(op, Slice) and isinstance(operands[0].op, Concatenate) and i.shape.rank == 1:
        return _union([visit(o) for o in _cut(operands[0], op.start[0], op.limit[0])])
    if i.opcode in _MOVES:
        return visit(operands[0])
    if i.opcode == "convert":
        return visit(operands[0]) if operands[0].shape.element_type.is_integer else None
    if i.opcode in _JOINS:
        parts = (
            operands[:2]
            if i.opcode in ("pad", "dynamic-update-slice")
            else operands[1:]
            if i.opcode == "select"
            else operands
        )
        return _union([visit(o) for o in parts])
    if i.opcode not in _ARITHMETIC:
        return None
    ranges = [visit(o) for o in operands]
    return None if TRUSTED in ranges else _ARITHMETIC[i.opcode](*ranges)


def _cut(joined: Instruction, start: int, limit: int) -> Sequence[Instruction]:
    """The vectors that a part of a concatenation lies in."""
    ends = list(itertools.accumulate(o.shape.dims[0] for o in joined.operands))
    return [o for o, end in zip(joined.operands, ends) if end > start and end - o.shape.dims[0] < limit]


def _union(ranges: Sequence[Range]) -> Range:
    full = [r for r in ranges if r != TRUSTED]
    return (min(r[0] for r in full), max(r[1] for r in full)) if full else TRUSTED


def _products(a: Range, b: Range) -> Range:
    found = [x * y for x in a for y in b]
    return min(found), max(found)


def _remainder(a: Range, b: Range) -> Range | None:
    most = max(map(abs, b)) - 1
    return None if b[0] <= 0 <= b[1] else (0 if a[0] >= 0 else -most, 0 if a[1] <= 0 else min(most, a[1]))


_ARITHMETIC: dict[str, Callable[..., Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "negate": lambda a: (-a[1], -a[0]),
    "multiply": _products,
    "remainder": _remainder,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "clamp": lambda low, x, high: (min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])),
}


# -- checks


def _extreme(
    b: ComputationBuilder, opcode: str, values: Operand, axes: Sequence[int] | None = None
) -> Operand:
    """The least or the greatest of integers: one pass with a reduction that code has vectors for."""
    type_ = b.get_shape(values).element_type
    first = _whole(type_)[opcode == "minimum"]
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
    least, most = range_of(node.translator, indices)
    is_sized = isinstance(size, Extent) and (least, most) != TRUSTED
    if most < bound and (low is None or least >= 0) and not is_sized:
        return
    known = node.translator.constant_value(indices)
    if known is not None and not is_sized and not node.translator.is_inner:
        place = np.argwhere((known >= bound) | (known < (least if low is None else 0)))[0].tolist()
        raise ShapeError(f"indices{place or ''} = {known[tuple(place)]} is not in [0, {bound})")
    top = _extreme(b, "maximum", indices if low is None else _unsigned(b, indices))
    type_ = b.get_shape(top).element_type
    limit = (
        b.convert_element_type(size.value, type_)
        if isinstance(size, Extent)
        else b.constant(min(bound, _whole(shape.element_type)[1] + 1), type_)
    )
    node.leave_where(b.ge(top, limit), f"an index is not in [0, {bound})")
    least = least if low is None else max(least, 0)
    note(node.translator, indices, (least, bound - 1) if least < bound else TRUSTED)


def check_points(node: Node, indices: Operand, dims: Sequence[int]) -> None:
    """Leaves the run where a vector of indices along the last axis names no place among arrays of these dims.

    Raises: ShapeError  a constant one does not.
    """
    b, shape, i = node.b, node.b.get_shape(indices), indices.instruction
    if not shape.elements or i is None or (i, tuple(dims)) in node.translator.points:
        return
    if len(set(dims)) == 1:
        check_indices(node, indices, dims[0])
        return
    if not dims or range_of(node.translator, indices) == TRUSTED:
        return
    known = node.translator.constant_value(indices)
    if known is not None and not node.translator.is_inner:
        bad = (known < 0) | (known >= dims)
        if bad.any():
            raise ShapeError(f"an index of {np.argwhere(bad)[0].tolist()} does not index into {list(dims)}")
        return
    top = _extreme(b, "maximum", _unsigned(b, indices), range(shape.rank - 1))
    above = b.ge(b.convert_element_type(top, ElementType.U64), b.constant(np.array(dims, np.uint64)))
    node.leave_where(any_of(b, above, [0]), f"an index does not index into {list(dims)}")
    note_points(node.translator, indices, dims)


def any_of(b: ComputationBuilder, tests: Operand, axes: Sequence[int]) -> Operand:
    """Whether any element of an array of preds holds along some axes."""
    return b.reduce(tests, b.constant(False), binary_computation("or", ElementType.PRED), axes)


def out_of_range(b: ComputationBuilder, indices: Operand, dims: Sequence[int]) -> Operand:
    """For every index in vectors along the last axis, whether it is not in [0, dim)."""
    wide, shape = b.convert_element_type(_unsigned(b, indices), ElementType.U64), b.get_shape(indices)
    return b.ge(wide, b.broadcast_in_dim(b.constant(np.array(dims, np.uint64)), shape.dims, [shape.rank - 1]))


def check_divisor(node: Node, divisor: Operand) -> None:
    """Leaves the run where an integer is divided by zero."""
    if divisor.instruction is None:
        return
    b, (least, most) = node.b, range_of(node.translator, divisor)
    known = node.translator.constant_value(divisor)
    if least <= 0 <= most and (known is None or not known.all()):
        smallest = _extreme(b, "minimum", _unsigned(b, divisor))
        node.leave_where(b.eq(smallest, b.scalar_like(smallest, 0)), "an integer is divided by zero")


def note_floored(node: Node, result: Operand) -> None:
    """Takes notice of what a rounded quotient, or its remainder, can be where the divisor is positive."""
    (least, most), divisor = (range_of(node.translator, node[k]) for k in range(2))
    if divisor[0] > 0 and least <= most:
        quotients = [value // d for value in (least, most) for d in divisor]
        found = (0, divisor[1] - 1) if node.op == "FloorMod" else (min(quotients), max(quotients))
        note(node.translator, result, found)


def check_not_negative(node: Node, values: Operand) -> None:
    """Leaves the run where an integer is below zero."""
    if values.instruction is not None and range_of(node.translator, values)[0] < 0:
        least = _extreme(node.b, "minimum", values)
        node.leave_where(node.b.lt(least, node.b.scalar_like(least, 0)), "a number is negative")


def check_limits(node: Node, low: Operand, high: Operand) -> None:
    """Leaves the run where a scalar is not less than another one."""
    if (
        low.instruction is not None
        and high.instruction is not None
        and range_of(node.translator, low)[1] >= range_of(node.translator, high)[0]
    ):
        node.leave_where(node.b.ge(low, high), "no number is in the range")


def is_integer(value: Value, rank: int | None = None) -> TypeGuard[Operand]:
    """Whether a value is an array of integers, of this rank."""
    if not isinstance(value, Operand):
        return False
    shape = value.builder.get_shape(value)
    return shape.element_type.is_integer and rank in (None, shape.rank)


def note(translator: Translator, value: Value, found: Range) -> None:
    """Takes notice of the range of integers."""
    if isinstance(value, Operand) and value.instruction is not None:
        translator.ranges[value.instruction] = found


def note_points(translator: Translator, indices: Operand, dims: Sequence[int]) -> None:
    """Takes notice that vectors of indices name places in arrays of these dims."""
    if indices.instruction is not None:
        translator.points.add((indices.instruction, tuple(dims)))
