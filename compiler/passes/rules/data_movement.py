"""Rules about data movement: broadcast, reshape, transpose, slice, pad, concatenate, gather, ..."""

from __future__ import annotations

import numpy as np

from ....runtime.sizes import is_symbolic, smaller, surely_less
from ...ir.literal import Literal
from ...ir.module import Instruction, make
from ...ops import (
    Broadcast,
    Compare,
    Concatenate,
    Constant,
    Convert,
    Convolution,
    Copy,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Iota,
    Opcode,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from .rule import collect, full, reshaped, rule


@rule(Copy)
def copy(i: Instruction) -> Instruction | None:
    """copy(x) -> x, where the layout is the same."""
    return i.operands[0] if i.operands[0].shape == i.shape else None


@rule(Constant)
def constant_of_one_value(i: Instruction) -> Instruction | None:
    """An array whose elements are all the same bits -> that scalar, broadcast."""
    op = i.op
    assert isinstance(op, Constant)
    if not i.shape.is_array or i.shape.elements < 2:
        return None
    flat = op.literal.array.reshape(-1).view(f"V{i.shape.element_type.item_bytes}")
    if flat[0] != flat[-1] or (flat != flat[0]).any():
        return None
    return full(i.shape, op.literal.array.reshape(-1)[0])


@rule(Broadcast, Reshape, Transpose, Reverse, Slice, Pad)
def no_change(i: Instruction) -> Instruction | None:
    """A broadcast, reshape, transpose, reverse, slice or pad that leaves every element where it is."""
    op, x = i.op, i.operands[0]
    if x.shape.dims != i.shape.dims:
        return None
    axes = tuple(range(x.shape.rank))
    if isinstance(op, (Broadcast, Transpose)) and op.dimensions != axes:
        return None
    if isinstance(op, Reverse) and any(x.shape.dims[a] > 1 for a in op.dimensions):
        return None
    if isinstance(op, Pad) and (any(op.low) or any(op.high)):
        return None
    return x


@rule(Reshape)
def reshape_of_reshape(i: Instruction) -> Instruction | None:
    """reshape(reshape(x)) -> reshape(x)."""
    inner = i.operands[0]
    return make(i.op, inner.operands[0]) if isinstance(inner.op, Reshape) else None


@rule(Reshape)
def reshape_of_scalar_broadcast(i: Instruction) -> Instruction | None:
    """reshape(broadcast(scalar)) -> broadcast(scalar)."""
    inner = i.operands[0]
    if not isinstance(inner.op, Broadcast) or inner.operands[0].shape.dims:
        return None
    return make(Broadcast(i.shape.dims, ()), inner.operands[0]) if i.shape.dims else inner.operands[0]


@rule(Reshape, Broadcast)
def of_scalar_like(i: Instruction) -> Instruction | None:
    """broadcast(reshape(x)) of one element -> broadcast of the scalar reshape(x)."""
    op, x = i.op, i.operands[0]
    if not isinstance(op, Broadcast) or not x.shape.dims or x.shape.elements != 1:
        return None
    return make(Broadcast(i.shape.dims, ()), reshaped(x, ()))


@rule(Broadcast)
def broadcast_of_broadcast(i: Instruction) -> Instruction | None:
    """broadcast(broadcast(x)) -> broadcast(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Broadcast)
    if not isinstance(inner.op, Broadcast):
        return None
    axes = tuple(op.dimensions[a] for a in inner.op.dimensions)
    return make(Broadcast(op.result_dims, axes), inner.operands[0])


@rule(Broadcast)
def broadcast_of_widened(i: Instruction) -> Instruction | None:
    """broadcast(reshape(x)), where the reshape only adds axes of size 1 -> broadcast(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Broadcast)
    if not isinstance(inner.op, Reshape):
        return None
    source, wide, axes = inner.operands[0], inner.shape.dims, []
    at = 0
    for axis, size in enumerate(wide):
        if at < source.shape.rank and source.shape.dims[at] == size:
            axes.append(op.dimensions[axis])
            at += 1
        elif size != 1:
            return None
    return (
        make(Broadcast(op.result_dims, tuple(axes)), source) if at == source.shape.rank < len(wide) else None
    )


@rule(Transpose)
def transpose_of_transpose(i: Instruction) -> Instruction | None:
    """transpose(transpose(x)) -> transpose(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Transpose)
    if not isinstance(inner.op, Transpose):
        return None
    return make(Transpose(tuple(inner.op.dimensions[a] for a in op.dimensions)), inner.operands[0])


@rule(Transpose)
def transpose_of_broadcast(i: Instruction) -> Instruction | None:
    """transpose(broadcast(x)) -> broadcast(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Transpose)
    if not isinstance(inner.op, Broadcast):
        return None
    axes = tuple(op.dimensions.index(a) for a in inner.op.dimensions)
    return make(Broadcast(i.shape.dims, axes), inner.operands[0])


@rule(Transpose)
def transpose_of_degenerate(i: Instruction) -> Instruction | None:
    """A transpose that moves only axes of size 1 -> reshape."""
    op, x = i.op, i.operands[0]
    assert isinstance(op, Transpose)
    moved = [a for a in op.dimensions if x.shape.dims[a] != 1]
    return make(Reshape(i.shape.dims), x) if moved == sorted(moved) and x.shape.dims != i.shape.dims else None


@rule(Reverse)
def reverse_of_reverse(i: Instruction) -> Instruction | None:
    """reverse(reverse(x)) along the same axes -> x."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Reverse)
    if isinstance(inner.op, Reverse) and set(inner.op.dimensions) == set(op.dimensions):
        return inner.operands[0]
    return None


@rule(Slice)
def slice_of_slice(i: Instruction) -> Instruction | None:
    """slice(slice(x)) -> slice(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Slice)
    if not isinstance(inner.op, Slice):
        return None
    first = inner.op
    start = tuple(a + b * s for a, b, s in zip(first.start, op.start, first.strides))
    strides = tuple(s * t for s, t in zip(first.strides, op.strides))
    last = [b + (n - 1) * s + 1 if n else b for b, n, s in zip(start, i.shape.dims, strides)]
    limit = tuple(min(end, size) for end, size in zip(last, inner.operands[0].shape.dims))
    start = tuple(min(a, b) for a, b in zip(start, limit))
    return make(Slice(start, limit, strides), inner.operands[0])


@rule(Slice)
def slice_of_broadcast(i: Instruction) -> Instruction | None:
    """slice(broadcast(x)) -> broadcast(slice(x))."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Slice)
    if not isinstance(inner.op, Broadcast):
        return None
    axes, x = inner.op.dimensions, inner.operands[0]
    part = Slice(*(tuple(field[a] for a in axes) for field in (op.start, op.limit, op.strides)))
    return make(Broadcast(i.shape.dims, axes), make(part, x) if axes else x)


@rule(Slice)
def slice_of_pad(i: Instruction) -> Instruction | None:
    """slice(pad(x)) inside x -> slice(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Slice)
    if not isinstance(inner.op, Pad) or any(inner.op.interior) or not i.shape.elements:
        return None
    x, low = inner.operands[0], inner.op.low
    start, limit = (tuple(v - b for v, b in zip(field, low)) for field in (op.start, op.limit))
    ends = zip(start, limit, x.shape.dims)
    if not all(surely_less(-1, first) and surely_less(last, size + 1) for first, last, size in ends):
        return None
    return make(Slice(start, limit, op.strides), x)


@rule(Slice)
def slice_of_concatenate(i: Instruction) -> Instruction | None:
    """slice(concatenate(x, y)) inside x -> slice(x)."""
    op, inner = i.op, i.operands[0]
    assert isinstance(op, Slice)
    if not isinstance(inner.op, Concatenate):
        return None
    axis, begin = inner.op.dimension, 0
    for x in inner.operands:
        size = x.shape.dims[axis]
        if begin <= op.start[axis] and op.limit[axis] <= begin + size:
            start, limit = list(op.start), list(op.limit)
            start[axis], limit[axis] = start[axis] - begin, limit[axis] - begin
            return make(Slice(tuple(start), tuple(limit), op.strides), x)
        begin += size
    return None


@rule(Pad)
def pad_that_cuts(i: Instruction) -> Instruction | None:
    """A pad with negative padding only -> slice."""
    op, x = i.op, i.operands[0]
    assert isinstance(op, Pad)
    if (
        any(op.interior)
        or not all(surely_less(v, 1) for v in (*op.low, *op.high))
        or not i.shape.elements
        or x.shape == i.shape
    ):
        return None
    start = tuple(-v for v in op.low)
    limit = tuple(size + v for size, v in zip(x.shape.dims, op.high))
    return make(Slice(start, limit, (1,) * x.shape.rank), x)


@rule(Concatenate)
def concatenate_parts(i: Instruction) -> Instruction | None:
    """concatenate(x) -> x; operands without elements are removed; a concatenate among the operands is
    flattened."""
    op = i.op
    assert isinstance(op, Concatenate)
    parts: list[Instruction] = []
    for x in i.operands:
        parts += x.operands if x.op == op else [x]
    parts = [x for x in parts if x.shape.dims[op.dimension]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return None if parts == list(i.operands) else make(op, *parts)


@rule(Concatenate)
def concatenate_of_slices(i: Instruction) -> Instruction | None:
    """concatenate(x[a:b], x[b:c]) -> x[a:c]."""
    op = i.op
    assert isinstance(op, Concatenate)
    for n in range(len(i.operands) - 1):
        first, second = i.operands[n], i.operands[n + 1]
        if (
            not isinstance(first.op, Slice)
            or not isinstance(second.op, Slice)
            or first.operands[0] is not second.operands[0]
            or {*first.op.strides, *second.op.strides} != {1}
        ):
            continue
        start, limit = list(second.op.start), list(first.op.limit)
        start[op.dimension], limit[op.dimension] = first.op.start[op.dimension], second.op.limit[op.dimension]
        if (
            first.op.limit[op.dimension] != second.op.start[op.dimension]
            or tuple(start) != first.op.start
            or tuple(limit) != second.op.limit
        ):
            continue
        whole = make(Slice(tuple(start), tuple(limit), first.op.strides), first.operands[0])
        return make(op, *i.operands[:n], whole, *i.operands[n + 2 :])
    return None


@rule(Iota)
def iota_of_one(i: Instruction) -> Instruction | None:
    """iota along an axis of size 1 -> zeros."""
    op = i.op
    assert isinstance(op, Iota)
    return full(i.shape, 0) if i.shape.dims[op.iota_dimension] == 1 else None


@rule(DynamicSlice)
def dynamic_slice_at_constant(i: Instruction) -> Instruction | None:
    """A dynamic slice of everything -> x; one at constant starts -> slice at the clamped starts."""
    x, starts = i.operands[0], i.operands[1:]
    if x.shape.dims == i.shape.dims:
        return x
    numbers = [int(s.op.literal.array) for s in starts if isinstance(s.op, Constant)]
    if len(numbers) < len(starts):
        return None
    begin = tuple(
        smaller(max(start, 0), size - part) for start, size, part in zip(numbers, x.shape.dims, i.shape.dims)
    )
    return make(Slice(begin, tuple(b + n for b, n in zip(begin, i.shape.dims)), (1,) * len(begin)), x)


@rule(DynamicUpdateSlice)
def dynamic_update_of_all(i: Instruction) -> Instruction | None:
    """An update of everything -> the update; of nothing -> x."""
    x, update = i.operands[:2]
    if update.shape.dims == x.shape.dims:
        return update
    return None if update.shape.elements else x


@rule(Gather)
def gather_of_one(i: Instruction) -> Instruction | None:
    """A gather of a single slice -> dynamic slice."""
    op = i.op
    assert isinstance(op, Gather)
    x, indices = i.operands
    batch = [size for a, size in enumerate(i.shape.dims) if a not in op.offset_dims]
    if (
        op.operand_batching_dims
        or any(size != 1 for size in batch)
        or list(op.offset_dims) != sorted(op.offset_dims)
    ):
        return None
    zero = make(Constant(Literal(0, indices.shape.element_type)))
    flat = reshaped(indices, (indices.shape.elements,))
    starts = [zero] * x.shape.rank
    for position, axis in enumerate(op.start_index_map):
        starts[axis] = reshaped(make(Slice((position,), (position + 1,), (1,)), flat), ())
    return reshaped(make(DynamicSlice(op.slice_sizes), x, *starts), i.shape.dims)


_MAY_BE_EMPTY = (
    Opcode.ADD,
    Opcode.SUBTRACT,
    Opcode.MULTIPLY,
    Opcode.DIVIDE,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.SELECT,
    Compare,
    Convert,
    Opcode.NEGATE,
    Opcode.EXPONENTIAL,
    Opcode.TANH,
    Broadcast,
    Reshape,
    Transpose,
    Slice,
    Pad,
    Concatenate,
    Gather,
    DynamicSlice,
    Dot,
    Convolution,
    Reduce,
    Reverse,
    Opcode.AND,
    Opcode.OR,
    Opcode.NOT,
    Iota,
)


@rule(*_MAY_BE_EMPTY)
def empty(i: Instruction) -> Instruction | None:
    """An array without elements -> a constant."""
    if 0 not in i.shape.dims:
        return None
    if is_symbolic(i.shape.dims):
        return full(i.shape, 0) if i.operands and i.operands[0].shape.dims else None
    return make(Constant(Literal(np.empty(i.shape.dims, i.shape.element_type.dtype))))


RULES = collect(list(globals().values()))
