"""Concatenation, packing and splitting."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import ShapeError
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode
from ..math.broadcasting import with_same_size
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_size_rules import along_others, keep_first
from ..registry import every_input, translates


def _joined_rows(node: GraphNode, graph: Graph) -> Collection[int]:
    """All inputs, if it is known whether their rows come one after the other or are put together."""
    axis = symbolic_size.constant_of(graph, node.inputs[-1].node)
    return every_input(node, graph) if axis is not None and axis >= 0 else ()


@translates("ConcatV2", constants=("axis",), takes_sizes=_joined_rows)
def concat(node: Node) -> Operand:
    parts = node.list("values")
    axis = axis_of(node.integers("axis")[0], len(node.b.get_shape(parts[0]).dims), node.op)
    return node.b.concat_in_dim(parts, axis)


@translates("Concat", constants=("concat_dim",))
def concat_first(node: Node) -> Operand:
    parts = node.list("values")
    return node.b.concat_in_dim(parts, node.integers("concat_dim")[0])


@translates("ParallelConcat")
def parallel_concat(node: Node) -> Operand:
    return node.b.concat_in_dim(node.list("values"), 0)


@translates("ConcatOffset", constants=("concat_dim", "shape"))
def concat_offset(node: Node) -> Sequence[Operand]:
    shapes = [list(node.integers(k)) for k in range(1, len(node.inputs))]
    axis, offset, result = axis_of(node.integers(0)[0], len(shapes[0]), node.op), 0, []
    for k, dims in enumerate(shapes):
        result.append(
            node.b.constant(
                np.array([offset if a == axis else 0 for a in range(len(dims))]), node.element_type(k + 1)
            )
        )
        offset += dims[axis]
        dims[axis] = shapes[0][axis]
    if any(dims != shapes[0] for dims in shapes):
        raise ShapeError(f"All dimensions except {axis} must match: {shapes}")
    return tuple(result)


def _packed_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    return every_input(node, graph) if node.attrs["axis"].i else ()


@translates("Pack", takes_sizes=_packed_behind)
def pack(node: Node) -> Operand:
    parts = node.list("values")
    if any(node.b.get_shape(p).is_dynamic for p in parts):
        parts = with_same_size(node.b, [(p, 0) for p in parts])
    dims = list(node.b.get_shape(parts[0]).dims)
    axis = axis_of(node.attr("axis"), len(dims) + 1, node.op)
    dims.insert(axis, 1)
    return node.b.concat_in_dim([node.b.reshape(p, dims) for p in parts], axis)


@translates("Unpack")
def unpack(node: Node) -> Sequence[Operand]:
    dims = list(node.shape(0))
    axis = axis_of(node.attr("axis"), len(dims), node.op)
    if dims[axis] != node.attr("num"):
        raise ShapeError(f"Unpack: axis {axis} of {dims} should have {node.attr('num')} elements")
    rest = dims[:axis] + dims[axis + 1 :]
    return tuple(
        node.b.reshape(node.b.slice_in_dim(node[0], k, k + 1, 1, axis), rest) for k in range(dims[axis])
    )


@translates("Split", constants=("split_dim",), takes_sizes=along_others("value", "split_dim"))
def split(node: Node) -> Sequence[Operand]:
    count, dims = node.attr("num_split"), node.shape("value")
    axis = axis_of(node.integers("split_dim")[0], len(dims), node.op)
    keep_first(node, node["value"], axis)
    if dims[axis] % count:
        raise ShapeError(
            f"Split: {dims[axis]} elements of axis {axis} cannot be split into {count} equal parts"
        )
    return _cut(node, node["value"], [dims[axis] // count] * count, axis)


@translates("SplitV", constants=("size_splits", "split_dim"), takes_sizes=along_others("value", "split_dim"))
def split_v(node: Node) -> Sequence[Operand]:
    dims, sizes = node.shape("value"), list(node.integers("size_splits"))
    if len(sizes) != node.attr("num_split"):
        raise ShapeError(f"SplitV: {len(sizes)} sizes of {node.attr('num_split')} parts")
    axis = axis_of(node.integers("split_dim")[0], len(dims), node.op)
    keep_first(node, node["value"], axis)
    if -1 in sizes:
        sizes[sizes.index(-1)] = dims[axis] - sum(s for s in sizes if s != -1)
    if sum(sizes) != dims[axis]:
        raise ShapeError(f"SplitV: sizes {sizes} do not sum to the {dims[axis]} elements of axis {axis}")
    return _cut(node, node["value"], sizes, axis)


def _cut(node: Node, value: Operand, sizes: Sequence[int], axis: int) -> Sequence[Operand]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(node.b.slice_in_dim(value, ends[k], ends[k + 1], 1, axis) for k in range(len(sizes)))
