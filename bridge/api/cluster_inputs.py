"""The inputs of the clusters of a graph, as far as the arguments of a call tell them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...compiler.ir.shape import Shape
from ..cluster.cluster import Cluster
from ..cluster.cluster_compiler import compile_cluster
from ..launch import op as launch_op
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type, make_ndarray
from ..tf_internals.types import ConcreteFunction, GraphDef, NodeDef


def input_names(concrete: ConcreteFunction, arguments: Sequence[tf.Tensor]) -> dict[str, str]:
    """The names of the inputs of a concrete function's graph; of variables, their own name."""
    variables = {id(v.handle): v.name.partition(":")[0] for v in concrete.graph.variables}
    return {
        tensor.op.name: variables.get(id(value), tensor.op.name)
        for tensor, value in zip(concrete.inputs, arguments)
    }


def shape_of(argument: tf.Tensor, data_type: int) -> Shape | None:
    """The shape of an argument (of a variable: of its value); None when it is not wholly known."""
    type_ = element_type(data_type)
    dims = (
        tfp.content_shape(argument, tf.as_dtype(data_type))
        if argument.dtype == tf.resource
        else argument.shape
    )
    return Shape(type_, tuple(dims)) if type_ is not None and dims.is_fully_defined() else None


class ClusterInputs:
    """Names, shapes and values of the inputs of the clusters of a graph, for a call with these arguments."""

    def __init__(
        self,
        concrete: ConcreteFunction,
        arguments: Sequence[tf.Tensor],
        original: GraphDef,
        rewritten: GraphDef,
    ) -> None:
        self.call_arguments = {tensor.op.name: value for tensor, value in zip(concrete.inputs, arguments)}
        self.names = input_names(concrete, arguments)
        self.nodes = {node.name: node for node in rewritten.node}
        self.launches = {
            node.attr["cluster"].s.decode(): node for node in rewritten.node if node.op == launch_op.OP
        }
        self.results: dict[str, tuple[Shape | None, ...]] = {}
        self.graph = tf.Graph()
        nodes = {node.name: node for node in original.node}
        for node in original.node:
            self._set_shape(node, nodes)
            node.attr.pop("_class", None)  # it may name a node that graph optimizers took out
        with (
            self.graph.as_default(),
            contextlib.suppress(ValueError, tf.errors.OpError),
        ):  # then no shapes are known
            tf.import_graph_def(original, name="")

    def _set_shape(self, node: NodeDef, nodes: Mapping[str, NodeDef]) -> None:
        """Sets the shape of an argument; a read of a variable becomes a placeholder of the variable's shape."""
        if node.op == "ReadVariableOp":
            dims = self._variable_dims(
                _origin(node.input[0], nodes)[0], nodes, tf.as_dtype(node.attr["dtype"].type)
            )
            if dims.rank is None:
                return
            node.op = "Placeholder"
            del node.input[:]
        elif (
            node.op == "Placeholder"
            and node.name in self.call_arguments
            and self.call_arguments[node.name].dtype != tf.resource
        ):
            dims = self.call_arguments[node.name].shape
        else:
            return
        node.attr["shape"].shape.CopyFrom(dims.as_proto())

    def _variable_dims(self, name: str, nodes: Mapping[str, NodeDef], dtype: tf.DType) -> tf.TensorShape:
        """The shape of a variable's value: of an argument, or of a variable that the graph makes."""
        if name in self.call_arguments:
            return tfp.content_shape(self.call_arguments[name], dtype)
        node = nodes.get(name)
        if node is None or node.op != "VarHandleOp":
            return tf.TensorShape(None)
        return tf.TensorShape(node.attr["shape"].shape)

    def arguments(self, cluster: Cluster) -> tuple[list[str], list[Shape | None], dict[int, np.ndarray]]:
        """Names and shapes of the launch arguments; by position, the values that pick the code, as far as known."""
        inputs = [text for text in self.launches[cluster.key].input if not text.startswith("^")]
        types = [cluster.arguments[k].data_type for k in cluster.launch_arguments]
        shapes = [self._shape(text, type_) for text, type_ in zip(inputs, types)]
        values = {at: self._value(inputs[at]) for at in cluster.launch_constants}
        return (
            [self._name(text) for text in inputs],
            shapes,
            {k: v for k, v in values.items() if v is not None},
        )

    def add_results(
        self, cluster: Cluster, shapes: Sequence[Shape | None], constants: dict[int, np.ndarray]
    ) -> None:
        """Sets the shapes of the results of a cluster, for the clusters that read them."""
        if None not in shapes and constants.keys() == set(cluster.launch_constants):
            executable = compile_cluster(cluster, [s for s in shapes if s is not None], constants)
            if executable is not None:
                types, artifact = [element_type(t) for t in cluster.result_types], executable.artifact
                self.results[self.launches[cluster.key].name] = tuple(
                    None if t is None or k in artifact.sized_results else Shape(t, r.dims)
                    for k, (t, r) in enumerate(zip(types, artifact.results))
                )

    def _source(self, text: str) -> tuple[str, int]:
        """Node and output number behind an input; of a variable or its value, where the variable comes from."""
        name, index = _split(text)
        node = self.nodes[name]
        if node.op == "ReadVariableOp":
            return _origin(node.input[0], self.nodes)
        is_handle = any(node.attr[a].type == _RESOURCE for a in ("T", "dtype") if a in node.attr)
        return _origin(text, self.nodes) if is_handle else (name, index)

    def _name(self, text: str) -> str:
        name, index = self._source(text)
        if self.nodes[name].op == launch_op.OP:
            return f"result {index} of {self.nodes[name].attr['cluster'].s.decode().partition('#')[0]}"
        return self.names.get(name, f"{name}:{index}" if index else name)

    def _shape(self, text: str, data_type: int) -> Shape | None:
        name, index = self._source(text)
        if name in self.results:
            return self.results[name][index]
        if name in self.call_arguments:
            return shape_of(self.call_arguments[name], data_type)
        if self.nodes[name].op == "VarHandleOp":
            dims, type_ = (
                self._variable_dims(name, self.nodes, tf.as_dtype(data_type)),
                element_type(data_type),
            )
            return Shape(type_, tuple(dims)) if type_ is not None and dims.is_fully_defined() else None
        try:
            return shape_of(self.graph.get_tensor_by_name(f"{name}:{index}"), data_type)
        except (KeyError, ValueError):  # a node that clustering made, a rebuilt loop
            return None

    def _value(self, text: str) -> np.ndarray | None:
        name = text.partition(":")[0]
        argument = self.call_arguments.get(name)
        if argument is not None and hasattr(argument, "numpy"):
            return np.asarray(argument.numpy())
        return make_ndarray(self.nodes[name].attr["value"].tensor) if self.nodes[name].op == "Const" else None


_RESOURCE = int(tf.resource.as_datatype_enum)
# Ops whose output is a variable that they take: into and through loops and branches.
_FORWARDING = frozenset({"Identity", "Enter", "Switch", "_SwitchN", "Merge", "Exit", "NextIteration"})


def _split(text: str) -> tuple[str, int]:
    name, _, index = text.partition(":")
    return name, int(index or 0)


def _origin(text: str, nodes: Mapping[str, NodeDef]) -> tuple[str, int]:
    """Node and output number of the source of a handle."""
    name, index = _split(text)
    while name in nodes and nodes[name].op in _FORWARDING:
        name, index = _split(nodes[name].input[0])
    return name, index
