"""Operations in which several devices take part."""

from __future__ import annotations

from ...builder.computation_builder import Operand
from ...errors import UnsupportedError
from ...ir.shape import Shape
from ...ops import AllGather, AllReduce, CollectiveBroadcast, CollectivePermute, ReduceScatter
from ..attributes import Attribute, Dense
from ..operations import rows
from ..translation import Context, Results, translates
from .arrays import promoted
from .control import channel

Groups = tuple[tuple[int, ...], ...]


def _groups(c: Context, name: str = "replica_groups") -> Groups:
    """The rows of a matrix among the attributes."""
    return groups_in(c, c.op.attributes.get(name), name)


def groups_in(c: Context, value: Attribute, name: str = "replica_groups") -> Groups:
    """The rows of a matrix; -1 stands where a row is shorter."""
    if value is None or (isinstance(value, Dense) and not value.shape.elements):
        return ()
    if not isinstance(value, Dense | list):
        raise UnsupportedError(f"{c.op.name}: {name} by axes of a mesh are not compiled")
    return tuple(tuple(n for n in row if n >= 0) for row in rows(value, f"{c.op.name}: {name}"))


def _global(c: Context) -> bool:
    """Whether groups hold numbers of devices: an attribute that may have no value."""
    return c.op.has("use_global_device_ids") and c.op.attributes["use_global_device_ids"] is not False


def _result(c: Context) -> Shape:
    return c.op.types[0] if len(c.op.types) == 1 else Shape.tuple(c.op.types)


@translates("all_gather")
def all_gather(c: Context) -> Results:
    op = AllGather(_result(c), c.op.integer("all_gather_dim"), channel(c), _groups(c), _global(c))
    return c.parts(c.b.apply(op, *c.operands))


@translates("all_reduce")
def all_reduce(c: Context) -> Results:
    op = AllReduce(c.computation(), channel(c), _groups(c), _global(c))
    return c.parts(c.b.apply(op, *_promoted(c)))


def _promoted(c: Context) -> list[Operand]:
    """The operands in the type that the computation takes."""
    return promoted(c, c.operands, c.computation().parameter_shapes[:1] * len(c.operands))


@translates("reduce_scatter")
def reduce_scatter(c: Context) -> Results:
    axis = c.op.integer("scatter_dimension")
    op = ReduceScatter(_result(c), axis, c.computation(), channel(c), _groups(c), _global(c))
    return c.parts(c.b.apply(op, *_promoted(c)))


@translates("all_to_all")
def all_to_all(c: Context) -> Results:
    split, concat, count = (c.op.integer(n) for n in ("split_dimension", "concat_dimension", "split_count"))
    return [c.b.all_to_all(o, split, concat, count, _groups(c), channel(c)) for o in c.operands]


@translates("collective_permute")
def collective_permute(c: Context) -> Results:
    op = CollectivePermute(_groups(c, "source_target_pairs"), channel(c))
    return c.parts(c.b.apply(op, *c.operands))


@translates("collective_broadcast")
def collective_broadcast(c: Context) -> Results:
    return c.b.apply(CollectiveBroadcast(channel(c), _groups(c)), c.operand())


@translates("replica_id")
def replica_id(c: Context) -> Results:
    return c.b.replica_id()


@translates("partition_id")
def partition_id(c: Context) -> Results:
    return c.b.partition_id()


@translates("cross-replica-sum")
def cross_replica_sum(c: Context) -> Results:
    results: list[Operand] = [c.b.cross_replica_sum(o, _groups(c)) for o in c.operands]
    return results
