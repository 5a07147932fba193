"""Of values of which only slices are read, computes no more than those.

    y = f32[8,64,32] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
    z = f32[8,64,32] tanh(y)
    r = f32[8,1,32] slice(z), slice={[0:8], [0:1], [0:32]}

becomes

    s = f32[8,1,128] slice(x), slice={[0:8], [0:1], [0:128]}
    y = f32[8,1,32] dot(s, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
    r = f32[8,1,32] tanh(y)

Of the last layer of a network that returns its first or its last position, little more than the keys and values of
attention is left. An axis is cut where all that is read of it is at most half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ...runtime.sizes import AnySize, estimate
from ..ir.module import Computation, Instruction, Module, make
from ..ops import (
    Broadcast,
    Concatenate,
    Copy,
    Dot,
    Gather,
    Iota,
    Op,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from ..ops.reshape import axis_groups
from ..options import Options

Range = tuple[AnySize, AnySize]  # start and limit along an axis
Box = tuple[Range, ...]
Axes = tuple[int | None, ...]
"""For each axis of an operand the axis of the result that has the same index; None where all of it is read."""

_LARGEST_SHARE = 0.5  # of an axis that is read: to cut less would save little, and cost the alignment of rows


def narrow_to_slices(module: Module, options: Options) -> Module:
    """The module with every value as small as its users allow."""
    return module.map_computations(_narrowed)


def _narrowed(computation: Computation) -> Computation:
    if not any(isinstance(i.op, Slice) and _is_part(i) for i in computation.instructions):
        return computation
    boxes = _boxes(computation)
    if not boxes:
        return computation
    done: dict[Instruction, Instruction] = {}
    for i in computation.instructions:
        if i not in boxes and not any(o in boxes for o in i.operands):
            done[i] = i.with_operands([done[o] for o in i.operands])
            continue
        box = boxes.get(i) or _whole(i)
        operands = [
            _cut(done[o], boxes.get(o) or _whole(o), part)
            for o, part in zip(i.operands, _read(i, box), strict=True)
        ]
        done[i] = _on_parts(i, box, operands)
    return computation.mapped(done)


def _is_part(i: Instruction) -> bool:
    return any(_is_worth_it(n, d) for n, d in zip(i.shape.dims, i.operands[0].shape.dims))


def _is_worth_it(size: AnySize, dim: AnySize) -> bool:
    return 0 < estimate(size) <= _LARGEST_SHARE * estimate(dim)


def _whole(i: Instruction) -> Box:
    return tuple((0, dim) for dim in i.shape.dims)


def _boxes(computation: Computation) -> dict[Instruction, Box]:
    """What is to be computed of each array of which a part is enough: what its users read, all along axes that its op
    cannot cut."""
    read_whole = {computation.root, *computation.parameters, *computation.effects()}
    read: dict[Instruction, list[Box]] = {}
    boxes: dict[Instruction, Box] = {}
    for i in reversed(computation.instructions):
        if i in read and i not in read_whole:
            cuts, whole = _axes_to_cut(i), _whole(i)
            box = tuple(
                _hull([part[axis] for part in read[i]], dim) if axis in cuts else (0, dim)
                for axis, (_, dim) in enumerate(whole)
            )
            if box != whole:
                boxes[i] = box
        if i in boxes or isinstance(i.op, Slice):
            for operand, part in zip(i.operands, _read(i, boxes.get(i) or _whole(i)), strict=True):
                read.setdefault(operand, []).append(part)
        else:
            read_whole.update(i.operands)
    return boxes


def _hull(ranges: Sequence[Range], dim: AnySize) -> Range:
    """The smallest range with all of these, as far as is known; the whole axis where that saves little."""
    starts, limits = {start for start, _ in ranges}, {limit for _, limit in ranges}
    start = starts.pop() if len(starts) == 1 else _extreme(min, starts, 0)
    limit = limits.pop() if len(limits) == 1 else _extreme(max, limits, dim)
    return (start, limit) if _is_worth_it(limit - start, dim) else (0, dim)


def _extreme(choose: Callable[[set[AnySize]], AnySize], sizes: set[AnySize], unknown: AnySize) -> AnySize:
    return choose(sizes) if sizes and all(type(s) is int for s in sizes) else unknown


def _axes_to_cut(i: Instruction) -> frozenset[int]:
    """The axes of a result along which a part can be computed alone."""
    op, axes = i.op, frozenset(range(i.shape.rank))
    if isinstance(op, Concatenate):
        return axes - {op.dimension}
    if isinstance(op, Iota):
        return axes - {op.iota_dimension}
    if isinstance(op, Reverse):
        return axes - {*op.dimensions}
    if isinstance(op, Pad):
        return frozenset(a for a in axes if not (op.low[a] or op.high[a] or op.interior[a]))
    if isinstance(op, Reshape):
        return frozenset(_kept_axes(i).values())
    if isinstance(op, Gather):
        return axes - {*op.offset_dims}
    if isinstance(op, Slice):
        return frozenset(a for a in axes if op.strides[a] == 1)
    if isinstance(op, Dot):  # whole columns: the right operand is mostly weights, which are packed once
        return frozenset(range(i.shape.rank - len(op.rhs_free(i.operands[1].shape.rank))))
    if isinstance(op, Reduce | Broadcast | Transpose | Copy) or op.is_elementwise:
        return axes
    return frozenset()


def _kept_axes(reshape: Instruction) -> dict[int, int]:
    """The axes of a reshape's operand that are axes of the result."""
    groups = axis_groups(reshape.operands[0].shape.dims, reshape.shape.dims)
    return {old[0]: new[0] for old, new in groups if len(old) == len(new) == 1}


def _read(i: Instruction, box: Box) -> list[Box]:
    """What of each operand is read for a part of an array."""
    if isinstance(i.op, Slice):
        return [_read_by_slice(i.op, box)]
    whole = _whole(i)
    return [
        tuple(
            (0, dim) if axis is None or box[axis] == whole[axis] else box[axis]
            for axis, dim in zip(axes, o.shape.dims, strict=True)
        )
        for o, axes in zip(i.operands, _operand_axes(i), strict=True)
    ]


def _read_by_slice(op: Slice, box: Box) -> Box:
    return tuple(
        (start + first, start + last) if stride == 1 else (start, limit)
        for (first, last), start, limit, stride in zip(box, op.start, op.limit, op.strides)
    )


def _operand_axes(i: Instruction) -> list[Axes]:
    """The axes of each operand of an op that can be cut."""
    op, ranks = i.op, [o.shape.rank for o in i.operands]
    same = tuple(range(i.shape.rank))
    if isinstance(op, Broadcast):
        dims = i.operands[0].shape.dims
        return [tuple(a if d == i.shape.dims[a] else None for d, a in zip(dims, op.dimensions))]
    if isinstance(op, Transpose):
        return [tuple(op.dimensions.index(a) for a in same)]
    if isinstance(op, Reshape):
        kept = _kept_axes(i)
        return [tuple(kept.get(a) for a in range(ranks[0]))]
    if isinstance(op, Reduce):
        rest = iter(same)
        axes = tuple(None if a in op.dimensions else next(rest) for a in range(ranks[0]))
        return [axes if rank else () for rank in ranks]
    if isinstance(op, Dot):
        left, right = op.lhs_free(ranks[0]), op.rhs_free(ranks[1])
        first = len(op.lhs_batch)
        of_left = dict(zip((*op.lhs_batch, *left), same))
        of_right = dict(zip(op.rhs_batch, same)) | dict(zip(right, same[first + len(left) :]))
        return [tuple(of.get(a) for a in range(rank)) for of, rank in zip((of_left, of_right), ranks)]
    if isinstance(op, Gather):
        batch = [a for a in range(ranks[1]) if a != op.index_vector_dim]
        of_indices = dict(zip(batch, (a for a in same if a not in op.offset_dims)))
        pairs = zip(op.operand_batching_dims, op.start_indices_batching_dims)
        of_operand = {a: of_indices[b] for a, b in pairs}
        return [tuple(of.get(a) for a in range(rank)) for of, rank in zip((of_operand, of_indices), ranks)]
    return [same if rank else () for rank in ranks]


def _cut(value: Instruction, box: Box, part: Box) -> Instruction:
    """A part of a value of which `value` is a box."""
    if part == box:
        return value
    starts = tuple(start - first for (start, _), (first, _) in zip(part, box))
    limits = tuple(limit - first for (_, limit), (first, _) in zip(part, box))
    return make(Slice(starts, limits, (1,) * len(box)), value)


def _on_parts(i: Instruction, box: Box, operands: Sequence[Instruction]) -> Instruction:
    """The instruction for a part of its result, on the parts of operands that this takes."""
    if isinstance(i.op, Slice):
        (x,) = operands
        strides = i.op.strides
        if all(stride == 1 for stride in strides):
            return x
        return make(Slice((0,) * len(box), x.shape.dims, strides), x, name=i.name, metadata=i.metadata)
    return make(_resized(i.op, box), *operands, name=i.name, metadata=i.metadata)


def _resized(op: Op, box: Box) -> Op:
    dims = tuple(limit - start for start, limit in box)
    if isinstance(op, Broadcast | Reshape):
        return dataclasses.replace(op, result_dims=dims)
    if isinstance(op, Iota):
        return dataclasses.replace(op, shape=op.shape.with_dims(dims))
    return op
