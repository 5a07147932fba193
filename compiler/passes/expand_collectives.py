"""Collectives in terms of the few that only move bytes: all-gather and all-to-all along axis 0, permute, broadcast.

    s = f32[4] all-reduce(x), to_apply=add    =>    g = f32[2,4] all-gather(reshape(x)), dimensions={0}
                                                    s = add(g[0], g[1])

for two devices. The reduction is then ordinary code, the same on every device and in the order of the group. Large
arrays are cut: each device reduces one part, and the parts are gathered. Groups become groups of device numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ...runtime.devices.device import group_of
from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Call,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    Compare,
    Concatenate,
    Constant,
    Convert,
    DynamicSlice,
    GetTupleElement,
    Map,
    Opcode,
    Pad,
    PartitionId,
    ReduceScatter,
    ReplicaId,
    Reshape,
    Slice,
    Transpose,
    Tuple,
    elementwise,
)
from ..options import Options

WHOLE_BYTES = 32 << 10
"""Up to this size every device gathers all arrays; beyond, each device reduces a part."""

Groups: TypeAlias = tuple[tuple[int, ...], ...]


def expand_collectives(module: Module, options: Options) -> Module:
    """The module with collectives that move whole blocks of bytes alone.

    Raises: ShapeError  groups do not fit the numbers of replicas and partitions.
    """
    return module.rewrite_ops([Collective], lambda instruction: _expand(instruction, options))


def device_groups(op: Collective, options: Options) -> Groups:
    """The groups as device numbers.

    Raises: ShapeError  collective_c1: a device is missing in the groups; collective_c2: a number is too high.
    """
    replicas, partitions = options.num_replicas, options.num_partitions
    groups: dict[tuple[int, ...], None] = {}
    missing = []
    for device in range(replicas * partitions):
        group, _ = group_of(op.participants, *divmod(device, partitions), replicas, partitions)
        groups[group] = None
        if not group:
            missing.append(device)
    counts = {"partitions": partitions, "devices": replicas * partitions}
    count = counts.get(op.participants.of, replicas)
    ids = [
        n
        for g in (op.source_target_pairs if isinstance(op, CollectivePermute) else op.participants.groups)
        for n in g
    ]
    if max(ids, default=0) >= count:
        raise ShapeError(
            f"{op.opcode}: {max(ids)} is among the ids of {op.participants.of}, of which there are {count} "
            "(collective_c2)"
        )
    if missing and not isinstance(op, CollectiveBroadcast):
        raise ShapeError(
            f"{op.opcode}: replica_groups has not each of the {count} {op.participants.of}: "
            f"{sorted(set(range(count)) - set(ids))} missing (collective_c1)"
        )
    return tuple(g for g in groups if g)


def check_sizes(instruction: Instruction, options: Options) -> None:
    """Checks an instruction against the numbers of replicas and partitions.

    Raises: ShapeError  collective_c3: shapes or the number of operands do not fit the size of the groups; as
        `device_groups`.
    """
    op, shapes = instruction.op, [o.shape for o in instruction.operands]
    if not isinstance(op, Collective):
        return
    for size in {len(g) for g in device_groups(op, options)}:
        if isinstance(op, AllGather):
            fits = all(
                part.dims[op.all_gather_dimension] == o.dims[op.all_gather_dimension] * size
                for o, part in zip(shapes, instruction.shape.leaves())
            )
        elif isinstance(op, ReduceScatter):
            fits = all(
                part.dims[op.scatter_dimension] * size == o.dims[op.scatter_dimension]
                for o, part in zip(shapes, instruction.shape.leaves())
            )
        elif isinstance(op, AllToAll):
            fits = (
                len(shapes) == size
                if op.split_dimension == -1
                else not shapes[0].dims[op.split_dimension] % size
            )
        else:
            fits = True
        if not fits:
            raise ShapeError(
                f"{op.opcode}: {', '.join(map(str, shapes))} to {instruction.shape} does not fit groups "
                f"of {size} devices (collective_c3)"
            )


def _expand(instruction: Instruction, options: Options) -> Instruction | None:
    expand = _EXPANSIONS.get(type(instruction.op))
    if expand is None:
        return None
    check_sizes(instruction, options)
    assert isinstance(instruction.op, Collective)
    return expand(instruction, device_groups(instruction.op, options), options.num_partitions)


def _all_gather(i: Instruction, groups: Groups, partitions: int) -> Instruction | None:
    op = i.op
    assert isinstance(op, AllGather)
    axis = op.all_gather_dimension
    if axis == 0:
        return None
    return _collated([_merged(rows, axis) for rows in _gathered(op, i.operands, groups)])


def _all_reduce(i: Instruction, groups: Groups, partitions: int) -> Instruction:
    op = i.op
    assert isinstance(op, AllReduce)
    sizes = {len(group) for group in groups}
    if sizes == {1}:
        return _collated(list(i.operands))
    if len(sizes) > 1:
        return _collated([_of_unequal(op, o, groups, partitions) for o in i.operands])
    small = [o for o in i.operands if o.shape.bytes <= WHOLE_BYTES]
    whole = {o: _folded(op.to_apply, _rows(g)) for o, g in zip(small, _gathered(op, small, groups))}
    return _collated([whole[o] if o in whole else _in_parts(op, o, groups) for o in i.operands])


def _in_parts(op: AllReduce, x: Instruction, groups: Groups) -> Instruction:
    """Each device of the group reduces one part of the elements."""
    size, count = len(groups[0]), x.shape.elements
    part = -(-count // size)
    flat = make(Reshape((count,)), x)
    if part * size != count:
        zero = make(Constant(Literal(np.zeros((), x.shape.element_type.dtype))))
        flat = make(Pad((0,), (part * size - count,), (0,)), flat, zero)
    arrived = _swapped(op, make(Reshape((size, part)), flat), groups)
    (whole,) = _gathered(op, [_folded(op.to_apply, _rows(arrived))], groups)
    return make(
        Reshape(x.shape.dims), make(Slice((0,), (count,), (1,)), make(Reshape((part * size,)), whole))
    )


def _of_unequal(op: AllReduce, x: Instruction, groups: Groups, partitions: int) -> Instruction:
    """Groups of several sizes: every device gathers all arrays and takes the rows of its own group."""
    devices = sorted(d for group in groups for d in group)
    largest = max(map(len, groups))
    table = np.zeros((len(devices), largest + 1), np.int32)
    for group in groups:
        for device in group:
            table[device] = (*group, *[0] * (largest - len(group)), len(group))
    (everything,) = _gathered(op, [x], (tuple(devices),))
    own = make(
        Reshape((largest + 1,)),
        make(
            DynamicSlice((1, largest + 1)), make(Constant(Literal(table))), _own_number(partitions), _whole(0)
        ),
    )

    def entry(k: int) -> Instruction:
        return make(Reshape(()), make(Slice((k,), (k + 1,), (1,)), own))

    def row(k: int) -> Instruction:
        cut = make(DynamicSlice((1, *x.shape.dims)), everything, entry(k), *[_whole(0)] * x.shape.rank)
        return make(Reshape(x.shape.dims), cut)

    result = row(0)
    for k in range(1, largest):
        inside = make(Compare("LT"), _whole(k), entry(largest))
        mask = make(Broadcast(x.shape.dims, ()), inside) if x.shape.dims else inside
        result = elementwise(Opcode.SELECT, mask, _folded(op.to_apply, [result, row(k)]), result)
    return result


def _own_number(partitions: int) -> Instruction:
    """The device's number."""
    first = elementwise(Opcode.MULTIPLY, make(ReplicaId()), make(Constant(Literal(np.uint32(partitions)))))
    return make(Convert(ElementType.S32), elementwise(Opcode.ADD, first, make(PartitionId())))


def _reduce_scatter(i: Instruction, groups: Groups, partitions: int) -> Instruction:
    op = i.op
    assert isinstance(op, ReduceScatter)
    results = []
    for x in i.operands:
        blocks = _split(x, op.scatter_dimension, len(groups[0]))
        results.append(_folded(op.to_apply, _rows(_swapped(op, blocks, groups))))
    return _collated(results)


def _all_to_all(i: Instruction, groups: Groups, partitions: int) -> Instruction | None:
    op = i.op
    assert isinstance(op, AllToAll)
    axis = op.split_dimension
    if axis == 0:
        return None
    if axis > 0:
        return _merged(_swapped(op, _split(i.operands[0], axis, len(groups[0])), groups), axis)
    rows = [make(Reshape((1, *o.shape.dims)), o) for o in i.operands]
    arrived = _swapped(op, make(Concatenate(0), *rows) if len(rows) > 1 else rows[0], groups)
    return make(Tuple(), *_rows(arrived))


_EXPANSIONS: dict[type, Callable[[Instruction, Groups, int], Instruction | None]] = {
    AllGather: _all_gather,
    AllReduce: _all_reduce,
    AllToAll: _all_to_all,
    ReduceScatter: _reduce_scatter,
    CollectivePermute: lambda i, groups, partitions: None,
    CollectiveBroadcast: lambda i, groups, partitions: None,
}


# -- pieces


def _whole(value: int) -> Instruction:
    return make(Constant(Literal(np.int32(value))))


def _collated(results: Sequence[Instruction]) -> Instruction:
    return results[0] if len(results) == 1 else make(Tuple(), *results)


def _gathered(op: Collective, arrays: Sequence[Instruction], groups: Groups) -> list[Instruction]:
    """[devices of the group, ...] of each array, in one exchange."""
    if not arrays:
        return []
    size = len(groups[0])
    rows = [make(Reshape((1, *a.shape.dims)), a) for a in arrays]
    shapes = [r.shape.with_dims((size, *r.shape.dims[1:])) for r in rows]
    shape = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
    part_of = op.signature([a.shape for a in arrays])
    gathered = make(AllGather(shape, 0, op.channel or 1, groups, True, part_of), *rows, name=op.opcode)
    return [gathered] if len(rows) == 1 else [make(GetTupleElement(k), gathered) for k in range(len(rows))]


def _swapped(op: Collective, blocks: Instruction, groups: Groups) -> Instruction:
    """Sends blocks[k] to position k of the group; the blocks that arrive, in the order of the group."""
    part_of = op.signature([blocks.shape])
    return make(AllToAll(op.channel or 1, groups, 0, True, part_of), blocks, name=op.opcode)


def _rows(x: Instruction) -> list[Instruction]:
    """x[0], x[1], ..."""
    dims = x.shape.dims
    return [
        make(
            Reshape(dims[1:]),
            make(Slice((k, *[0] * (len(dims) - 1)), (k + 1, *dims[1:]), (1,) * len(dims)), x),
        )
        for k in range(dims[0])
    ]


def _folded(to_apply: Computation, values: Sequence[Instruction]) -> Instruction:
    """The values combined element by element, from the first to the last."""
    result = values[0]
    for value in values[1:]:
        rank = value.shape.rank
        result = make(Map(tuple(range(rank)), to_apply) if rank else Call(to_apply), result, value)
    return result


def _split(x: Instruction, axis: int, size: int) -> Instruction:
    """[size, ...]: the axis cut into as many blocks."""
    dims = x.shape.dims
    cut = make(Reshape((*dims[:axis], size, dims[axis] // size, *dims[axis + 1 :])), x)
    return cut if axis == 0 else make(Transpose((axis, *(a for a in range(len(dims) + 1) if a != axis))), cut)


def _merged(x: Instruction, axis: int) -> Instruction:
    """The opposite of `_split`."""
    size, *dims = x.shape.dims
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(dims) + 1))
    transposed = make(Transpose(order), x) if axis else x
    return make(Reshape((*dims[:axis], size * dims[axis], *dims[axis + 1 :])), transposed)
