"""Gathers of rows, along an axis and of points."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ....compiler.builder.computation_builder import ComputationBuilder, Operand
from ....compiler.errors import ShapeError, UnsupportedError
from ....compiler.ir.shape import Shape
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode
from ..node import Node
from ..operands.axes import axis_of
from ..operands.dynamic_dims import size_of
from ..operands.value_ranges import any_of, check_indices, check_points, out_of_range
from ..registry import translates


def _gathered_with_size(node: GraphNode, graph: Graph) -> Collection[int]:
    """Indices and rows, if the picked rows lie along the first axis; of GatherNd the indices."""
    if node.op == "GatherV2":
        axis = symbolic_size.constant_of(graph, node.inputs[2].node)
        if axis is None or axis.any() or node.attrs["batch_dims"].i:
            return ()
    return (1,) if node.op == "GatherNd" else (0, 1)


def _picked(node: GraphNode, graph: Graph, sized: Collection[int]) -> bool:
    """Whether as many rows are picked whatever the data: of a number of rows that depends on it."""
    return 1 not in sized


@translates("GatherV2", constants=("axis",), takes_sizes=_gathered_with_size, drops_sizes=_picked)
def gather_v2(node: Node) -> Operand:
    axis = axis_of(node.integers("axis")[0], len(node.shape(0)), node.op)
    check_indices(node, node["indices"], size_of(node.b, node["params"], axis))
    return gather_axis(node, node["params"], node["indices"], axis, node.attr("batch_dims") or 0)


@translates("Gather", takes_sizes=_gathered_with_size, drops_sizes=_picked)
def gather(node: Node) -> Operand:
    check_indices(node, node["indices"], size_of(node.b, node["params"], 0))
    return gather_axis(node, node["params"], node["indices"], 0, 0)


def gather_axis(node: Node, params: Operand, indices: Operand, axis: int, batch_dims: int) -> Operand:
    """params[batch..., outer..., indices[batch..., :], inner...]."""
    b = node.b
    dims, index_dims = b.get_shape(params).dims, b.get_shape(indices).dims
    batch = batch_dims + len(index_dims) if batch_dims < 0 else batch_dims
    if not dims[axis]:
        return _gathered_from_nothing(b, params, (*dims[:axis], *index_dims[batch:], *dims[axis + 1 :]))
    sizes = [1 if a == axis or a < batch else d for a, d in enumerate(dims)]
    _leave_where_few(b, params, indices, math.prod(sizes))
    new = len(index_dims) - batch
    offset = [*range(batch, axis), *range(axis + new, len(dims) - 1 + new)]
    return b.gather(
        params,
        indices,
        offset_dims=offset,
        collapsed_slice_dims=[axis],
        start_index_map=[axis],
        index_vector_dim=len(index_dims),
        slice_sizes=sizes,
        operand_batching_dims=list(range(batch)),
        start_indices_batching_dims=list(range(batch)),
    )


def _leave_where_few(b: ComputationBuilder, params: Operand, indices: Operand, elements: int) -> None:
    """Leaves the run where few of many slices, each of so many elements, are wanted: as many are gathered as can be."""
    shape = b.get_shape(indices)
    if (
        0 not in shape.dynamic
        or shape.dims[0] * elements * b.get_shape(params).element_type.item_bytes < _MANY_BYTES
    ):
        return
    few = b.lt(b.get_dimension_size(indices, 0), b.size(shape.dims[0] // _FEW))
    b.bail_out_if(few, "few slices of many are gathered, which TensorFlow does sooner")


_MANY_BYTES = 8 << 20


_FEW = 8  # one of so many


def _gathered_from_nothing(b: ComputationBuilder, params: Operand, dims: Sequence[int]) -> Operand:
    if math.prod(dims):
        raise ShapeError(f"indices are not in [0, 0): {b.get_shape(params)} has no elements")
    return b.zeros(Shape(b.get_shape(params).element_type, tuple(dims)))


@translates("GatherNd", takes_sizes=_gathered_with_size)
def gather_nd(node: Node) -> Operand:
    """With the policy to ignore them, indices out of range give zeros."""
    b, params, indices = node.b, node["params"], node["indices"]
    depth = node.shape("indices")[-1]
    if node.attr("bad_indices_policy") != "IGNORE":
        check_points(node, indices, node.shape("params")[:depth])
        return gather_points(b, params, indices)
    if not depth or not node.array_shape("params").elements:
        raise UnsupportedError("GatherNd: what is gathered from has no elements")
    taken = gather_points(b, params, indices)
    bad = any_of(b, out_of_range(b, indices, node.shape("params")[:depth]), [len(node.shape("indices")) - 1])
    outer = range(len(node.shape("indices")) - 1)
    return b.select(b.broadcast_in_dim(bad, b.get_shape(taken).dims, outer), b.full_like(taken, 0), taken)


def gather_points(b: ComputationBuilder, params: Operand, indices: Operand) -> Operand:
    """params[indices[..., :]], slices of the axes that an index vector does not name.

    Raises: ShapeError  there are indices into an array without elements.
    """
    dims, index_dims = b.get_shape(params).dims, b.get_shape(indices).dims
    depth, outer = index_dims[-1], len(index_dims) - 1
    if 0 in dims:
        if math.prod(index_dims[:-1]):
            raise ShapeError(f"Requested more than 0 entries, but params is empty: {list(dims)}")
        return b.zeros(Shape(b.get_shape(params).element_type, (*index_dims[:-1], *dims[depth:])))
    _leave_where_few(b, params, indices, math.prod(dims[depth:]))
    return b.gather(
        params,
        indices,
        offset_dims=list(range(outer, outer + len(dims) - depth)),
        collapsed_slice_dims=list(range(depth)),
        start_index_map=list(range(depth)),
        index_vector_dim=outer,
        slice_sizes=[1] * depth + list(dims[depth:]),
    )
