"""Dense arrays of ragged ones, with the length of the longest row as a number of the graph.

Before:  RaggedTensorToTensor(-1, values, default, splits)
After:   RaggedTensorToTensor([-1, max(0, max(splits[1:] - splits[:-1])), *shape(values)[1:]], values, default, splits)

TensorFlow's kernel finds the longest row itself. Code that is compiled for symbolic sizes takes it as a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from ..tf_internals.dtypes import proto_array
from ..tf_internals.types import GraphDef, NodeDef
from .graph import Graph, GraphNode, Tensor, read_nodes, sort

_OP, _FIRST_SIZE = "RaggedTensorToTensor", "FIRST_DIM_SIZE"


def with_row_lengths(graph: Graph) -> Graph:
    """The graph of a function, in which such nodes have sizes."""
    added = _added(graph.nodes.values(), lambda node: True)
    if not added:
        return graph
    nodes = {**graph.nodes, **read_nodes(GraphDef(node=added))}
    return Graph(sort(nodes), graph.arguments, graph.results, graph.control_results, graph.name)


def graph_def_with_row_lengths(graph_def: GraphDef, is_candidate: Callable[[GraphNode], bool]) -> GraphDef:
    """As `with_row_lengths`, where those nodes are candidates."""
    if not any(node.op == _OP for node in graph_def.node):
        return graph_def
    added = {d.name: d for d in _added(read_nodes(graph_def).values(), is_candidate)}
    if not added:
        return graph_def
    result = GraphDef(versions=graph_def.versions, library=graph_def.library)
    result.node.extend(added.pop(d.name, d) for d in graph_def.node)
    result.node.extend(added.values())
    return result


def _added(nodes: Iterable[GraphNode], is_candidate: Callable[[GraphNode], bool]) -> list[NodeDef]:
    """The nodes that are new, or in the place of one of their name."""
    by_name = {node.name: node for node in nodes}
    definitions: list[NodeDef] = []
    for node in by_name.values():
        if node.op == _OP and is_candidate(node):
            shape = by_name.get(node.inputs[0].node)
            if shape is not None and shape.op == "Const":
                definitions += _with_sizes(node, proto_array(shape.attrs["value"].tensor))
    return definitions


def _with_sizes(node: GraphNode, asked: np.ndarray) -> list[NodeDef]:
    kinds = [kind.decode() for kind in node.attrs["row_partition_types"].list.s]
    is_by_number = bool(kinds) and kinds[0] == _FIRST_SIZE
    depth, first = len(kinds) - is_by_number, 3 + is_by_number
    sizes = [-1] * (depth + 1) if not asked.ndim else asked.tolist()
    is_open = -1 in sizes[1 : depth + 1] or is_by_number and sizes[:1] == [-1]
    if not depth or len(sizes) <= depth or not is_open or not asked.ndim and asked != -1:
        return []
    made = _Made(node)
    rows = (
        made.to_shape(_text(node.inputs[3])) if is_by_number and sizes[0] == -1 else made.constant(sizes[0])
    )
    parts = [rows]
    for k, size in enumerate(sizes[1 : depth + 1]):
        tensor = node.inputs[first + k]
        if size != -1:
            parts.append(made.constant(size))
        elif kinds[first - 3 + k] == "VALUE_ROWIDS":
            parts.append(made.longest_by_numbers(tensor))
        else:
            parts.append(made.longest_row(tensor))
    parts = [made.node("Pack", parts, N=len(parts), T=made.type)]
    if asked.ndim:
        parts += [made.constant(sizes[depth + 1 :])] if sizes[depth + 1 :] else []
    else:
        dims = made.node("Shape", [_text(node.inputs[1])], T=node.attrs["T"].type, out_type=made.type)
        parts.append(made.slice(dims, 1, 0, made.type))
    shape = parts[0]
    if len(parts) > 1:
        zero = made.constant(0, tf.int32)
        shape = made.node("ConcatV2", [*parts, zero], N=len(parts), T=made.type, Tidx=tf.int32)
    changed = NodeDef(name=node.name, op=node.op, device=node.device)
    for key, value in node.attrs.items():
        changed.attr[key].CopyFrom(value)
    changed.input.extend([shape, *map(_text, node.inputs[1:]), *(f"^{name}" for name in node.control)])
    return [*made.definitions, changed]


def _text(tensor: Tensor) -> str:
    return f"{tensor.node}:{tensor.index}"


class _Made:
    """Nodes beside a node of a graph, of its marks."""

    def __init__(self, node: GraphNode) -> None:
        self.beside = node
        self.type = tf.as_dtype(node.attrs["Tshape"].type)
        self.index_type = tf.as_dtype(node.attrs["Tindex"].type)
        self.definitions: list[NodeDef] = []

    def node(self, op: str, inputs: Sequence[str], **attrs: object) -> str:
        """The result of a new node."""
        definition = NodeDef(
            name=f"{self.beside.name}/row_lengths_{len(self.definitions)}",
            op=op,
            input=inputs,
            device=self.beside.device,
        )
        for key, value in self.beside.attrs.items():
            if key.startswith("_"):
                definition.attr[key].CopyFrom(value)
        for key, attr in attrs.items():
            if isinstance(attr, np.ndarray):
                definition.attr[key].tensor.CopyFrom(tf.make_tensor_proto(attr))
            elif isinstance(attr, bool):
                definition.attr[key].b = attr
            elif isinstance(attr, tf.DType):
                definition.attr[key].type = attr.as_datatype_enum
            else:
                is_type = key.startswith("T") and key not in ("N",)
                setattr(definition.attr[key], "type" if is_type else "i", attr)
        self.definitions.append(definition)
        return f"{definition.name}:0"

    def constant(self, value: object, type_: tf.DType | None = None) -> str:
        """A constant, of the shape's type."""
        dtype = type_ or self.type
        return self.node("Const", [], value=np.asarray(value, dtype.as_numpy_dtype), dtype=dtype)

    def slice(self, vector: str, begin: int, end: int, type_: object) -> str:
        """vector[begin:end]; an end of 0 is the vector's."""
        ends = [self.constant([number], tf.int32) for number in (begin, end, 1)]
        return self.node(
            "StridedSlice",
            [vector, *ends],
            T=type_,
            Index=tf.int32,
            end_mask=int(not end),
            begin_mask=0,
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=0,
        )

    def vector(self, partition: Tensor) -> str:
        """A partition, which TensorFlow's kernel reads as a vector whatever its dims are."""
        return self.node(
            "Reshape", [_text(partition), self.constant([-1])], T=self.index_type, Tshape=self.type
        )

    def to_shape(self, number: str) -> str:
        """A number of the partitions' type as one of the shape's."""
        type_ = self.index_type
        if type_ == self.type:
            return number
        return self.node("Cast", [number], SrcT=type_, DstT=self.type, Truncate=False)

    def longest_row(self, splits: Tensor) -> str:
        """How many values the longest row has, which has these splits; 0 where there are no rows."""
        type_, axis = self.index_type, self.constant(0, tf.int32)
        vector = self.vector(splits)
        ends = [self.slice(vector, begin, end, type_) for begin, end in ((1, 0), (0, -1))]
        lengths = self.node("Sub", ends, T=type_)
        longest = self.node("Max", [lengths, axis], T=type_, Tidx=tf.int32, keep_dims=False)
        return self.to_shape(self.node("Maximum", [longest, self.constant(0, type_)], T=type_))

    def longest_by_numbers(self, numbers: Tensor) -> str:
        """As `longest_row`, where every value has the number of its row: the longest run of one number, as TensorFlow
        takes it where numbers do not ascend."""
        type_, axis = self.index_type, self.constant(0, tf.int32)
        vector = self.vector(numbers)
        ends = [self.slice(vector, begin, end, type_) for begin, end in ((1, 0), (0, -1))]
        differ = self.node("NotEqual", ends, T=type_)
        steps = self.node("Cast", [differ], SrcT=tf.bool, DstT=type_, Truncate=False)
        steps = self.node("ConcatV2", [self.constant([0], type_), steps, axis], N=2, T=type_, Tidx=tf.int32)
        runs = self.node("Cumsum", [steps, axis], T=type_, Tidx=tf.int32, exclusive=False, reverse=False)
        ones = self.node("OnesLike", [runs], T=type_)
        count = self.node("Size", [runs], T=type_, out_type=type_)
        sums = self.node(
            "UnsortedSegmentSum", [ones, runs, count], T=type_, Tindices=type_, Tnumsegments=type_
        )
        size = self.node("Size", [_text(numbers)], T=type_, out_type=type_)
        longest = self.node("Max", [sums, axis], T=type_, Tidx=tf.int32, keep_dims=False)
        return self.to_shape(self.node("Minimum", [longest, size], T=type_))
