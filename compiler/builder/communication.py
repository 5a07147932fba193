"""Builder operations that reach beyond the computation: other devices, queues, channels, functions of the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction
from ..ir.shape import TOKEN, Shape
from ..ops import (
    AfterAll,
    AllGather,
    AllReduce,
    AllToAll,
    Call,
    CollectiveBroadcast,
    CollectivePermute,
    CustomCall,
    Elementwise,
    GetTupleElement,
    Infeed,
    Outfeed,
    Parameter,
    PartitionId,
    Recv,
    RecvDone,
    ReduceScatter,
    ReplicaId,
    Reshape,
    Send,
    SendDone,
    Trace,
    Transpose,
)
from ..ops.custom_call import BAIL_OUT_IF, FAIL_IF, OVERFLOW_IF
from .core import BuilderCore, Operand, operation

ReplicaGroups = Sequence[Sequence[int]]


class CommunicationOperations(BuilderCore):
    """Collectives, tokens, infeed and outfeed, send and receive, custom calls."""

    @operation
    def replica_id(self) -> Operand:
        """The number of the replica that runs this, u32."""
        return self.apply(ReplicaId())

    @operation
    def partition_id(self) -> Operand:
        """The number of the partition that runs this, u32."""
        return self.apply(PartitionId())

    @operation
    def all_gather(
        self,
        operand: Operand,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Operand:
        """The operands (a tuple: each of its arrays) of a group of shard_count devices, concatenated.

        Shapes: along all_gather_dim shard_count times the operand's size.
        """
        operands = self._parts(operand)
        shapes = [_scaled("all-gather", self.shape_of(o), all_gather_dim, shard_count, 1) for o in operands]
        return self.apply(
            AllGather(
                _collated(shapes),
                all_gather_dim,
                channel_id or 0,
                groups_of(replica_groups),
                use_global_device_ids,
            ),
            *operands,
        )

    @operation
    def all_reduce(
        self,
        operand: Operand,
        computation: Computation | None,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Operand:
        """The operands (a tuple: each of its arrays) of a group of devices, combined by the computation.

        Shapes: the result's are the operand's.
        """
        return self.apply(
            AllReduce(
                self.computation(computation),
                channel_id or 0,
                groups_of(replica_groups),
                use_global_device_ids,
            ),
            *self._parts(operand),
        )

    @operation
    def cross_replica_sum(self, operand: Operand, replica_groups: ReplicaGroups = ()) -> Operand:
        """The sum of the operands of a group of replicas.

        Shapes: the result's are the operand's.
        """
        kinds = {o.element_type for o in self.shape_of(operand).leaves()}
        if len(kinds) != 1:
            raise ShapeError(
                f"cross_replica_sum: the operand is {self.shape_of(operand)}, arrays of one element type "
                "are wanted (cross_replica_sum_c1)"
            )
        return self.all_reduce(operand, _sum(kinds.pop()), replica_groups)

    @operation
    def reduce_scatter(
        self,
        operand: Operand,
        computation: Computation | None,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Operand:
        """As all_reduce over shard_count devices, of whose result each keeps its part along scatter_dimension.

        Shapes: along scatter_dimension the operand's size / shard_count.
        """
        operands = self._parts(operand)
        shapes = [
            _scaled("reduce-scatter", self.shape_of(o), scatter_dimension, 1, shard_count) for o in operands
        ]
        return self.apply(
            ReduceScatter(
                _collated(shapes),
                scatter_dimension,
                self.computation(computation),
                channel_id or 0,
                groups_of(replica_groups),
                use_global_device_ids,
            ),
            *operands,
        )

    @operation
    def all_to_all(
        self,
        operand: Operand,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
    ) -> Operand:
        """The operand cut along split_dimension into one block for each of split_count devices; the blocks that arrive
        are concatenated along concat_dimension.

        Shapes: split_dimension / split_count, concat_dimension * split_count; the others are the operand's.
        Raises: ShapeError  all_to_all_c2: a group has not split_count devices; all_to_all_c4: there are no such
            dimensions, or split_count does not divide the one.
        """
        dims, groups = self.shape_of(operand).dims, groups_of(replica_groups)
        if any(len(group) != split_count for group in groups):
            raise ShapeError(
                f"all-to-all: split_count is {split_count}, replica_groups are {groups} (all_to_all_c2)"
            )
        if not (
            0 <= split_dimension < len(dims)
            and 0 <= concat_dimension < len(dims)
            and split_count > 0
            and dims[split_dimension] % split_count == 0
        ):
            raise ShapeError(
                f"all-to-all: {self.shape_of(operand)} cannot be cut into {split_count} along axis "
                f"{split_dimension} and concatenated along axis {concat_dimension} (all_to_all_c4)"
            )
        exchanged = self.apply(AllToAll(channel_id or 0, groups, split_dimension), operand)
        if split_dimension == concat_dimension:
            return exchanged
        at, to = split_dimension, concat_dimension
        cut = self.apply(
            Reshape((*dims[:at], split_count, dims[at] // split_count, *dims[at + 1 :])), exchanged
        )
        rest = [axis for axis in range(len(dims) + 1) if axis != at]
        turned = self.apply(Transpose((*rest[:to], at, *rest[to:])), cut)
        block = [d // split_count if axis == at else d for axis, d in enumerate(dims)]
        block[to] *= split_count
        return self.apply(Reshape(tuple(block)), turned)

    @operation
    def all_to_all_tuple(
        self, operands: Sequence[Operand], replica_groups: ReplicaGroups = (), channel_id: int | None = None
    ) -> Operand:
        """Operand k to the k-th device of the group; a tuple of the arrays that arrive."""
        return self.apply(AllToAll(channel_id or 0, groups_of(replica_groups)), *operands)

    @operation
    def collective_permute(
        self, operand: Operand, source_target_pairs: ReplicaGroups, channel_id: int | None = None
    ) -> Operand:
        """The operand of the source for the target of each pair, zeros for devices that are no target.

        Shapes: the result's are the operand's.
        """
        return self.apply(
            CollectivePermute(groups_of(source_target_pairs), channel_id or 0), *self._parts(operand)
        )

    @operation
    def collective_broadcast(
        self, operand: Operand, replica_groups: ReplicaGroups = (), channel_id: int | None = None
    ) -> Operand:
        """The operand of the group's first device for all of the group."""
        return self.apply(CollectiveBroadcast(channel_id or 0, groups_of(replica_groups)), operand)

    # -- tokens and transfers
    @operation
    def after_all(self, tokens: Sequence[Operand] = ()) -> Operand:
        """A token that comes after all the tokens, and values."""
        return self.apply(AfterAll(), *tokens)

    def create_token(self) -> Operand:
        """A token that comes after nothing."""
        return self.after_all()

    @operation
    def infeed(self, shape: Shape, config: str = "") -> Operand:
        """The next item of the device's infeed queue."""
        return self.apply(GetTupleElement(0), self.infeed_with_token(self.after_all(), shape, config))

    @operation
    def infeed_with_token(self, token: Operand, shape: Shape, config: str = "") -> Operand:
        """(the next item of the device's infeed queue, a token)."""
        return self.apply(Infeed(Shape.tuple([shape, TOKEN]), _quoted(config)), token)

    @operation
    def outfeed(
        self, operand: Operand, shape_with_layout: Shape | None = None, outfeed_config: str = ""
    ) -> Operand:
        """Puts the operand into the device's outfeed queue; returns a token."""
        return self.outfeed_with_token(operand, self.after_all(), shape_with_layout, outfeed_config)

    @operation
    def outfeed_with_token(
        self,
        operand: Operand,
        token: Operand,
        shape_with_layout: Shape | None = None,
        outfeed_config: str = "",
    ) -> Operand:
        """As `outfeed`, after a token."""
        return self.apply(Outfeed(shape_with_layout, _quoted(outfeed_config)), operand, token)

    @operation
    def send(self, operand: Operand, channel_handle: int) -> Operand:
        """Sends the operand to the recv of the same channel in another program of the run; returns a token."""
        return self.send_with_token(operand, self.after_all(), channel_handle)

    @operation
    def send_with_token(self, operand: Operand, token: Operand, channel_handle: int) -> Operand:
        """As `send`, after a token."""
        return self.apply(SendDone(channel_handle), self.apply(Send(channel_handle), operand, token))

    @operation
    def recv(self, shape: Shape, channel_handle: int) -> Operand:
        """The data of this shape that a send of the same channel sends."""
        return self.apply(GetTupleElement(0), self.recv_with_token(self.after_all(), shape, channel_handle))

    @operation
    def recv_with_token(self, token: Operand, shape: Shape, channel_handle: int) -> Operand:
        """(the data, a token)."""
        context = Shape.tuple([shape, Shape(ElementType.U32), TOKEN])
        return self.apply(RecvDone(channel_handle), self.apply(Recv(context, channel_handle), token))

    @operation
    def trace(self, tag: str, operand: Operand) -> Operand:
        """Hands the operand's value to the logger `tfbridge.trace`; returns the empty tuple."""
        return self.apply(Trace(tag), operand)

    # -- functions of the user
    @operation
    def custom_call(
        self,
        target_name: str,
        operands: Sequence[Operand],
        shape: Shape,
        opaque: str = "",
        has_side_effect: bool = False,
        api_version: str = "API_VERSION_ORIGINAL",
    ) -> Operand:
        """The results of the function that is registered under that name.

        Shapes: the result has the shape given.
        """
        return self.apply(
            CustomCall(shape, target_name, has_side_effect, api_version, backend_config=_quoted(opaque)),
            *operands,
        )

    custom_call_op = custom_call

    @operation
    def fail_if(self, predicate: Operand, message: str) -> Operand:
        """Ends the run with the message where the predicate, pred[], holds; returns the empty tuple."""
        return self.apply(
            CustomCall(Shape.tuple([]), FAIL_IF, True, backend_config=_quoted(message)), predicate
        )

    @operation
    def bail_out_if(self, predicate: Operand, message: str) -> Operand:
        """Ends the run where the predicate, pred[], holds, so that other code does the work; returns the empty tuple.

        Its status is `runtime.run_context.ASSUMPTION_FAILED`, its message names the op of the metadata in force.
        """
        return self._assumed(BAIL_OUT_IF, predicate, message)

    @operation
    def overflow_if(self, predicate: Operand, message: str) -> Operand:
        """Ends the run where the predicate, pred[], holds, so that code with larger bounds does the work; returns the
        empty tuple.

        Its status is `runtime.run_context.CAPACITY_OVERFLOW`, its message names the op of the metadata in force.
        """
        return self._assumed(OVERFLOW_IF, predicate, message)

    def _assumed(self, target_name: str, predicate: Operand, message: str) -> Operand:
        op = " ".join(filter(None, (self._metadata.op_type, self._metadata.op_name)))
        text = _quoted(f"{op}: {message}" if op else message)
        return self.apply(CustomCall(Shape.tuple([]), target_name, True, backend_config=text), predicate)

    @operation
    def composite_call(
        self,
        computation: Computation | None,
        operands: Sequence[Operand],
        name: str,
        attributes: str = "",
        version: int = 0,
    ) -> Operand:
        """A call of the computation that the composite operation `name` is decomposed into."""
        op, arguments = Call(self.computation(computation)), tuple(map(self.take, operands))
        spelled_attributes = f"composite.attributes={attributes}," if attributes else ""
        quoted = f'{spelled_attributes}composite.name={_quoted(name)},composite.version="{version}"'
        metadata = dataclasses.replace(
            self._metadata,
            extra=(*self._metadata.extra, ("is_composite", "true"), ("frontend_attributes", f"{{{quoted}}}")),
        )
        return self._append(
            Instruction(
                op, arguments, op.infer([i.shape for i in arguments]), f"call.{self._count}", metadata
            )
        )

    def _parts(self, operand: Operand) -> list[Operand]:
        """The arrays of a tuple; an array as a list of one."""
        shape = self.shape_of(operand)
        if not shape.is_tuple:
            return [operand]
        return [self.apply(GetTupleElement(k), operand) for k in range(len(shape.tuple_shapes))]


def groups_of(groups: ReplicaGroups) -> tuple[tuple[int, ...], ...]:
    """Groups as tuples of whole numbers."""
    return tuple(tuple(map(int, group)) for group in groups)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' if text else ""


def _collated(shapes: Sequence[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


def _scaled(opcode: str, shape: Shape, axis: int, factor: int, divisor: int) -> Shape:
    """One axis factor / divisor times as long; an axis that is not there is left to the op's shape rule."""
    if factor < 1 or divisor < 1:
        raise ShapeError(
            f"{opcode}: shard_count is {min(factor, divisor)}, at least 1 is wanted (shard_count_c1)"
        )
    if 0 <= axis < shape.rank and shape.dims[axis] % divisor:
        raise ShapeError(f"{opcode}: axis {axis} of {shape} cannot be cut into {divisor} (reduce_scatter_c3)")
    dims = [d * factor // divisor if a == axis else d for a, d in enumerate(shape.dims)]
    return shape.with_dims(dims)


def _sum(kind: ElementType) -> Computation:
    scalar = Shape(kind)
    parameters = [Instruction(Parameter(n, scalar), (), scalar, f"p.{n}") for n in range(2)]
    op = Elementwise("or" if kind is ElementType.PRED else "add")
    return Computation("sum", Instruction(op, tuple(parameters), scalar, "add"), parameters)
