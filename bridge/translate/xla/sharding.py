"""Ops that divide arrays among devices, or join and combine them: on one device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import UnsupportedError
from ..control.control_flow import if_, while_
from ..control.variables import assign, value_of
from ..node import Node
from ..registry import translates


def _parts(
    b: ComputationBuilder, x: Operand, counts: Sequence[int], paddings: Sequence[int]
) -> list[Operand]:
    """The blocks of an array cut into counts[k] along axis k, after padding its ends with zeros; in row-major order."""
    dims = b.get_shape(x).dims
    x = b.pad(x, b.scalar_like(x, 0), [(0, more, 0) for more in paddings])
    sizes = [(d + more) // count for d, more, count in zip(dims, paddings, counts)]
    if any((d + more) % count for d, more, count in zip(dims, paddings, counts)):
        raise UnsupportedError(
            f"{list(dims)} with paddings {list(paddings)} is not cut evenly into {list(counts)}"
        )
    return [
        b.slice(x, [p * s for p, s in zip(place, sizes)], [(p + 1) * s for p, s in zip(place, sizes)])
        for place in itertools.product(*map(range, counts))
    ]


def _joined(
    b: ComputationBuilder, parts: Sequence[Operand], counts: Sequence[int], paddings: Sequence[int]
) -> Operand:
    """The inverse of _parts."""
    parts = list(parts)
    for axis in reversed(range(len(counts))):
        parts = [
            b.concat_in_dim(parts[k : k + counts[axis]], axis) for k in range(0, len(parts), counts[axis])
        ]
    dims = b.get_shape(parts[0]).dims
    return b.slice(parts[0], [0] * len(dims), [d - more for d, more in zip(dims, paddings)])


def _plan(node: Node, attr: str) -> tuple[list[int], list[int]]:
    counts = node.attr(attr) or []
    return counts, node.attr("paddings") or [0] * len(counts)


@translates("XlaSplitND")
def split_nd(node: Node) -> Sequence[Operand]:
    return _parts(node.b, node[0], *_plan(node, "num_splits"))


@translates("XlaConcatND")
def concat_nd(node: Node) -> Operand:
    return _joined(node.b, node.list("inputs"), *_plan(node, "num_concats"))


@translates("ReadVariableXlaSplitND", stateful=True)
def read_split(node: Node) -> Sequence[Operand]:
    return _parts(node.b, value_of(node, 0), *_plan(node, "num_splits"))


@translates("AssignVariableXlaConcatND", stateful=True)
def assign_concat(node: Node) -> None:
    assign(node.variable(0), _joined(node.b, node.list("inputs"), *_plan(node, "num_concats")))


@translates("XlaSpmdFullToShardShape", "XlaSpmdShardToFullShape")
def spmd(node: Node) -> Operand:
    """The one device's shard is the whole."""
    if node.op == "XlaSpmdShardToFullShape" and tuple(node.attr("full_shape") or ()) != node.shape(0):
        raise UnsupportedError(
            f"{node.op}: the shard is {list(node.shape(0))} and the whole "
            f"{node.attr('full_shape')}; a cluster runs on one device"
        )
    return node[0]


@translates("XlaAllReduce", "XlaReduceScatter", constants=("group_assignment",))
def combined(node: Node) -> Operand:
    """What groups of one device combine is each one's own."""
    groups = node.constant("group_assignment")
    if groups.ndim != 2 or groups.shape[1] > 1 or np.any(groups != 0):
        raise UnsupportedError(
            f"{node.op}: groups {groups.tolist()} of more than one device; a cluster runs on one"
        )
    return node[0]


@translates("XlaSetBound")
def set_bound(node: Node) -> Operand:
    """Arrays have the sizes that they have: no bound is needed."""
    return node[0]


@translates("XlaRemoveDynamicDimensionSize")
def remove_dynamic_size(node: Node) -> Operand:
    return node[0]


translates("XlaIf", stateful=True)(if_)
translates("XlaWhile", stateful=True)(while_)
