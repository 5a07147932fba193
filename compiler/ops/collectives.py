"""Ops in which several devices take part: a device runs one replica and one partition of a program.

Which devices meet follows from replica_groups, channel_id and use_global_device_ids. With neither of the last two the
groups hold replica ids, and the devices of one partition meet. With channel_id they hold, for all-to-all,
collective-permute and collective-broadcast, partition ids of one replica; for the others replica ids, all partitions
of which meet. With channel_id and use_global_device_ids they hold device numbers, replica * partitions + partition.
No groups: all of them in one. Every device runs its collectives in the order of the program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from ...runtime.devices.device import Device, ReplicaGroups, current
from ..errors import ShapeError
from ..ir.element_types import ElementType, element_type_of
from ..ir.module import Computation, Evaluate, Value
from ..ir.shape import Shape
from .op import Op, attribute, collated, require, require_signature
from .reduce import reducer_kind

Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Collective(Op):
    """Base of the ops that take groups."""

    has_side_effect: ClassVar[bool] = True
    of_partitions: ClassVar[bool] = False

    @property
    def channel(self) -> int:
        """The channel; 0: none."""
        result: int = vars(self)["channel_id"]
        return result

    @property
    def participants(self) -> ReplicaGroups:
        """How the groups are read."""
        groups = getattr(self, "replica_groups", ())
        if not self.channel:
            return ReplicaGroups("replicas", groups)
        if getattr(self, "use_global_device_ids", False):
            return ReplicaGroups("devices", groups)
        return ReplicaGroups("partitions" if self.of_partitions else "replicas and partitions", groups)

    def require_groups(self, label: str) -> None:
        """The check that no id is negative or in two groups, and that no group is empty.

        Raises: ShapeError  otherwise.
        """
        ids = [n for group in self.participants.groups for n in group]
        require(
            all(self.participants.groups) and len(set(ids)) == len(ids) and min(ids, default=0) >= 0,
            f"{self.opcode}: replica_groups is {_shown(self.participants.groups)}, groups of distinct ids are wanted",
            label,
        )

    def require_operands(self, operands: Sequence[Shape], label: str) -> None:
        """The check that there are operands, and all are arrays.

        Raises: ShapeError  otherwise.
        """
        require(
            len(operands) > 0 and all(o.is_array for o in operands),
            f"{self.opcode}: operands are {', '.join(map(str, operands)) or 'none'}, arrays are wanted",
            label,
        )

    def signature(self, operands: Sequence[Shape]) -> str:
        """The text on which all participants must agree; a part of another collective has that one's."""
        part_of: str = vars(self).get("part_of", "")
        if part_of:
            return part_of
        to_apply = vars(self).get("to_apply")
        by = f" by {reducer_kind(to_apply) or 'a computation'}" if to_apply is not None else ""
        channel = f", channel {self.channel}" if self.channel else ""
        return f"{self.opcode} of {', '.join(map(str, operands))}{by}{channel}"

    def exchange(
        self,
        name: str,
        parts: Callable[[int, int], Sequence[bytes]],
        operands: Sequence[np.ndarray],
        device: Device,
    ) -> list[bytes]:
        """Sends `parts(group size, own position)`, one to each participant; returns the parts that arrive."""
        shapes = [Shape(element_type_of(o.dtype), o.shape) for o in operands]
        group, position = self.group(device)
        return device.exchange(
            group, name or self.opcode, self.signature(shapes), parts(len(group), position)
        )

    def group(self, device: Device) -> tuple[tuple[int, ...], int]:
        """The devices of a device's group, and its position there.

        Raises: ShapeError  collective_c1: it is in no group; collective_c2: there are fewer devices than in its group.
        """
        group, position = device.group(self.participants)
        devices = device.replicas * device.partitions
        if position < 0:
            raise ShapeError(
                f"{self.opcode}: device {device.number} of {devices} is in no group (collective_c1)"
            )
        if max(group) >= devices:
            raise ShapeError(
                f"{self.opcode}: the group of device {device.number} is {group}, of {devices} devices (collective_c2)"
            )
        return group, position

    def everybodys(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of the whole group."""
        blocks = self.exchange("", lambda size, _: [array.tobytes()] * size, [array], current())
        return [np.frombuffer(part, array.dtype).reshape(array.shape) for part in blocks]


def _shown(groups: Groups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"


def _shards(
    op: Collective, operands: Sequence[Shape], result: Shape, axis: int, grows: bool, label: str
) -> None:
    """The check that one axis of the result is n times the operands' (or they its), n the size of a group."""
    parts = [result] if len(operands) == 1 else list(result.tuple_shapes)
    groups = () if op.participants.of == "replicas and partitions" else op.participants.groups
    message = f"{op.opcode}: operands are {', '.join(map(str, operands))} and the result is {result}; "
    require(len(parts) == len(operands), message + "one result for each is wanted", label)
    counts = set()
    for operand, part in zip(operands, parts):
        small, large = (operand, part) if grows else (part, operand)
        rank = operand.rank
        fits = (
            part.is_array
            and part.element_type is operand.element_type
            and part.rank == rank
            and 0 <= axis < rank
            and all(a == axis or m == n for a, (m, n) in enumerate(zip(small.dims, large.dims)))
        )
        require(fits, message + f"they may differ along axis {axis} alone", label)
        sizes = small.dims[axis], large.dims[axis]
        require(
            sizes[1] % sizes[0] == 0 if sizes[0] else sizes[1] == 0,
            message + f"axis {axis} is no multiple",
            label,
        )
        if sizes[0]:
            counts.add(sizes[1] // sizes[0])
    counts |= {len(group) for group in groups}
    require(
        len(counts) <= 1 and counts != {0},
        message + f"groups of sizes {sorted({len(g) for g in groups})} do not fit",
        label,
    )


@dataclasses.dataclass(frozen=True)
class AllGather(Collective):
    """The operands of the group's devices, concatenated in the order of the group along all_gather_dimension.

    all_gather_c1: one operand at least; all are arrays.
    all_gather_c2: the groups have no negative and no repeated id; none is empty.
    all_gather_c3: a result has its operand's type and dims, but along the dimension (size of a group) times as many.
    Source: operation semantics, AllGather.
    """

    opcode: ClassVar[str] = "all-gather"
    shape: Shape = attribute("result_shape", "")
    all_gather_dimension: int = attribute("dim", "dimensions")
    channel_id: int = attribute("int", "channel_id", default=0)
    replica_groups: Groups = attribute("groups", "replica_groups", default=())
    use_global_device_ids: bool = attribute("bool", "use_global_device_ids", default=False)
    part_of: str = attribute("string", "part_of", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        self.require_operands(operands, "all_gather_c1")
        self.require_groups("all_gather_c2")
        _shards(self, operands, self.shape, self.all_gather_dimension, True, "all_gather_c3")
        return self.shape.without_layout()

    def reference(self, *operands: np.ndarray) -> Value:
        """The arrays of all participants, at every participant."""
        results = [np.concatenate(self.everybodys(o), self.all_gather_dimension) for o in operands]
        return tuple(results) if self.shape.is_tuple else results[0]


@dataclasses.dataclass(frozen=True)
class AllReduce(Collective):
    """The operands of the group's devices, combined element by element with to_apply, in the order of the group.

    all_reduce_c1: one operand at least; all are arrays.
    all_reduce_c2: the groups have no negative and no repeated id; none is empty.
    all_reduce_c3: to_apply is (T, T) -> T for scalars of every operand's type.
    Source: operation semantics, AllReduce, CrossReplicaSum.
    """

    opcode: ClassVar[str] = "all-reduce"
    to_apply: Computation = attribute("computation", "to_apply")
    channel_id: int = attribute("int", "channel_id", default=0)
    replica_groups: Groups = attribute("groups", "replica_groups", default=())
    use_global_device_ids: bool = attribute("bool", "use_global_device_ids", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operands' shapes."""
        self.require_operands(operands, "all_reduce_c1")
        self.require_groups("all_reduce_c2")
        for operand in operands:
            scalar = Shape(operand.element_type)
            require_signature(self.opcode, "to_apply", self.to_apply, [scalar] * 2, scalar, "all_reduce_c3")
        return collated([o.without_layout() for o in operands])

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """One after the other."""
        results = [_folded(self.to_apply, self.everybodys(o), call) for o in operands]
        return tuple(results) if len(results) > 1 else results[0]


@dataclasses.dataclass(frozen=True)
class ReduceScatter(Collective):
    """As all-reduce; of the result, cut along scatter_dimension, a device keeps the part of its position in the group.

    reduce_scatter_c1: one operand at least; all are arrays.
    reduce_scatter_c2: the groups have no negative and no repeated id; none is empty.
    reduce_scatter_c3: an operand has its result's type and dims, but along the dimension (size of a group) times as
        many.
    reduce_scatter_c4: to_apply is (T, T) -> T for scalars of every operand's type.
    Source: operation semantics, ReduceScatter.
    """

    opcode: ClassVar[str] = "reduce-scatter"
    shape: Shape = attribute("result_shape", "")
    scatter_dimension: int = attribute("dim", "dimensions")
    to_apply: Computation = attribute("computation", "to_apply")
    channel_id: int = attribute("int", "channel_id", default=0)
    replica_groups: Groups = attribute("groups", "replica_groups", default=())
    use_global_device_ids: bool = attribute("bool", "use_global_device_ids", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        self.require_operands(operands, "reduce_scatter_c1")
        self.require_groups("reduce_scatter_c2")
        _shards(self, operands, self.shape, self.scatter_dimension, False, "reduce_scatter_c3")
        for operand in operands:
            scalar = Shape(operand.element_type)
            require_signature(
                self.opcode, "to_apply", self.to_apply, [scalar] * 2, scalar, "reduce_scatter_c4"
            )
        return self.shape.without_layout()

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """All-reduce, then one part."""
        group, position = self.group(current())
        results = []
        for operand in operands:
            whole = _folded(self.to_apply, self.everybodys(operand), call)
            results.append(np.split(whole, len(group), self.scatter_dimension)[position])
        return tuple(results) if self.shape.is_tuple else results[0]


def _folded(to_apply: Computation, arrays: Sequence[np.ndarray], call: Evaluate) -> np.ndarray:
    result = arrays[0]
    for other in arrays[1:]:
        result = np.asarray(call(to_apply, result, other))
    return result


@dataclasses.dataclass(frozen=True)
class AllToAll(Collective):
    """Block k of a device's operand goes to position k of the group; the blocks that arrive keep the order of the
    group.

    With split_dimension, one operand is cut along it, and the result concatenated along it. Without (-1), there is one
    operand, and one element of the resulting tuple, for each position of the group.
    all_to_all_c1: one operand at least; all are arrays, without split_dimension of the same shape.
    all_to_all_c2: the groups have no negative and no repeated id, and the same size; without split_dimension that is
        the number of operands.
    all_to_all_c3: with split_dimension there is one operand, and it has that axis, which a group's size divides.
    Source: operation semantics, AllToAll.
    """

    opcode: ClassVar[str] = "all-to-all"
    of_partitions: ClassVar[bool] = True
    channel_id: int = attribute("int", "channel_id", default=0)
    replica_groups: Groups = attribute("groups", "replica_groups", default=())
    split_dimension: int = attribute("dim", "dimensions", default=-1)
    use_global_device_ids: bool = attribute("bool", "use_global_device_ids", default=False)
    part_of: str = attribute("string", "part_of", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operands' shapes."""
        self.require_operands(operands, "all_to_all_c1")
        self.require_groups("all_to_all_c2")
        sizes = {len(group) for group in self.replica_groups}
        if self.split_dimension == -1:
            require(
                all(o.compatible(operands[0]) for o in operands),
                f"all-to-all: operands are {', '.join(map(str, operands))}, equal shapes are wanted",
                "all_to_all_c1",
            )
            require(
                sizes <= {len(operands)},
                f"all-to-all: {len(operands)} operands for replica_groups {_shown(self.replica_groups)}",
                "all_to_all_c2",
            )
            return Shape.tuple(o.without_layout() for o in operands)
        require(
            len(sizes) <= 1,
            f"all-to-all: replica_groups is {_shown(self.replica_groups)}, groups of one size are wanted",
            "all_to_all_c2",
        )
        axis = self.split_dimension
        require(
            len(operands) == 1
            and 0 <= axis < operands[0].rank
            and all(operands[0].dims[axis] % size == 0 for size in sizes),
            f"all-to-all: {', '.join(map(str, operands))} cannot be cut along axis {axis} for groups of "
            f"{sorted(sizes) or 'all'}",
            "all_to_all_c3",
        )
        return operands[0].without_layout()

    def reference(self, *operands: np.ndarray) -> Value:
        """Blocks out, blocks in."""
        size = len(self.group(current())[0])
        is_tuple = self.split_dimension == -1
        blocks = list(operands) if is_tuple else np.split(operands[0], size, self.split_dimension)
        received = self.exchange("", lambda *_: [b.tobytes() for b in blocks], operands, current())
        arrived = [
            np.frombuffer(part, b.dtype).reshape(b.shape) for part, b in zip(received, blocks, strict=True)
        ]
        return tuple(arrived) if is_tuple else np.concatenate(arrived, self.split_dimension)


@dataclasses.dataclass(frozen=True)
class CollectivePermute(Collective):
    """For each pair (source, target) the source's operand to the target; zeros where no pair has the device as target.

    collective_permute_c1: one operand at least; all are arrays.
    collective_permute_c2: no id is negative; none is the source of two pairs, and none the target of two.
    Source: operation semantics, CollectivePermute.
    """

    opcode: ClassVar[str] = "collective-permute"
    of_partitions: ClassVar[bool] = True
    source_target_pairs: Groups = attribute("groups", "source_target_pairs")
    channel_id: int = attribute("int", "channel_id", default=0)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operands' shapes."""
        self.require_operands(operands, "collective_permute_c1")
        pairs = self.source_target_pairs
        fits = all(len(pair) == 2 and min(pair) >= 0 for pair in pairs)
        require(
            fits and all(len({p[side] for p in pairs}) == len(pairs) for side in range(2)),
            f"collective-permute: source_target_pairs is {_shown(pairs)}, pairs with distinct sources and distinct "
            "targets are wanted",
            "collective_permute_c2",
        )
        return collated([o.without_layout() for o in operands])

    def reference(self, *operands: np.ndarray) -> Value:
        """To one, from one."""
        results = []
        for operand in operands:
            device, data = current(), operand.tobytes()
            _, position = device.group(self.participants)
            targets = {target for source, target in self.source_target_pairs if source == position}
            blocks = self.exchange(
                "",
                lambda size, _: [data if k in targets else b"" for k in range(size)],  # noqa: B023
                [operand],
                device,
            )
            sources = [source for source, target in self.source_target_pairs if target == position]
            results.append(
                np.frombuffer(blocks[sources[0]], operand.dtype).reshape(operand.shape)
                if sources
                else np.zeros_like(operand)
            )
        return tuple(results) if len(results) > 1 else results[0]


@dataclasses.dataclass(frozen=True)
class CollectiveBroadcast(Collective):
    """The operand of the group's first device, on all of the group; zeros on devices that are in no group.

    collective_broadcast_c1: one operand, an array.
    collective_broadcast_c2: the groups have no negative and no repeated id; none is empty.
    Source: StableHLO specification, collective_broadcast.
    """

    opcode: ClassVar[str] = "collective-broadcast"
    of_partitions: ClassVar[bool] = True
    channel_id: int = attribute("int", "channel_id", default=0)
    replica_groups: Groups = attribute("groups", "replica_groups", default=())

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        self.require_operands(operands, "collective_broadcast_c1")
        require(
            len(operands) == 1,
            f"collective-broadcast: {len(operands)} operands, 1 is wanted",
            "collective_broadcast_c1",
        )
        self.require_groups("collective_broadcast_c2")
        return operands[0].without_layout()

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """From the first to all."""
        if not current().group(self.participants)[0]:
            return np.zeros_like(operand)
        blocks = self.exchange(
            "", lambda size, place: [b"" if place else operand.tobytes()] * size, [operand], current()
        )
        return np.frombuffer(blocks[0], operand.dtype).reshape(operand.shape)


class _DeviceNumber(Op):
    """A number of the device that runs this."""

    no_operands: ClassVar[str]  # the label of the constraint

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A scalar."""
        require(not operands, f"{self.opcode}: {len(operands)} operands given, 0 wanted", self.no_operands)
        return Shape(ElementType.U32)


@dataclasses.dataclass(frozen=True)
class ReplicaId(_DeviceNumber):
    """The number of the replica that runs this, u32.

    replica_id_c1: no operands.
    Source: operation semantics, ReplicaId.
    """

    opcode: ClassVar[str] = "replica-id"
    no_operands: ClassVar[str] = "replica_id_c1"

    def reference(self) -> np.ndarray:
        """Of this thread's device."""
        return np.asarray(current().replica, np.uint32)


@dataclasses.dataclass(frozen=True)
class PartitionId(_DeviceNumber):
    """The number of the partition that runs this, u32.

    partition_id_c1: no operands.
    Source: StableHLO specification, partition_id.
    """

    opcode: ClassVar[str] = "partition-id"
    no_operands: ClassVar[str] = "partition_id_c1"

    def reference(self) -> np.ndarray:
        """Of this thread's device."""
        return np.asarray(current().partition, np.uint32)
