"""The body of a cluster: its nodes as a graph of their own, with the tensors that cross its edge.

Before:  x -> A -> B -> y, in the graph
After:   _Arg(x) -> A -> B -> _Retval, a graph without x and y
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Sequence

from ..cluster.compute_ops import COPIED
from ..cluster.variable_uses import RESOURCE, attribute_content_type, content_type
from ..graph.function_library import Functions, functions_of_inputs
from ..graph.graph import Graph, GraphNode, Tensor, input_types, output_types
from ..tf_internals.dtypes import element_type
from ..tf_internals.symbols import ANONYMOUS
from ..tf_internals.types import GraphDef, NodeDef
from .predecessors import through_constants


@dataclasses.dataclass
class ClusterBody:
    """The nodes of a cluster as a GraphDef.

    arguments: the tensors from outside, in the order of the _Arg nodes. content_types: DataType of the content of those
    that are variables; 0: not known. control: the nodes outside for which nodes inside wait. results: the tensors that
    are read outside, in the order of the _Retval nodes.
    """

    graph_def: GraphDef
    arguments: dict[Tensor, str] = dataclasses.field(default_factory=dict)  # with the names of the _Arg nodes
    content_types: dict[Tensor, int] = dataclasses.field(default_factory=dict)
    control: dict[str, None] = dataclasses.field(default_factory=dict)
    results: list[Tensor] = dataclasses.field(default_factory=list)

    def add_argument(self, tensor: Tensor, data_type: int) -> str:
        """The name of the _Arg node of a tensor from outside."""
        if tensor not in self.arguments:
            number = len(self.arguments)
            self.arguments[tensor] = f"tfbridge_arg_{number}"
            argument = self.graph_def.node.add(name=self.arguments[tensor], op="_Arg")
            argument.attr["T"].type, argument.attr["index"].i = data_type, number
        return self.arguments[tensor]

    def add_results(self, graph: Graph, tensors: Sequence[Tensor]) -> None:
        """Adds a _Retval node for each tensor. Raises: ValueError  one is no array."""
        for k, tensor in enumerate(tensors):
            data_type = output_types(graph.nodes[tensor.node])[tensor.index]
            if element_type(data_type) is None:
                raise ValueError("a value that is no array leaves the cluster")
            result = self.graph_def.node.add(
                name=f"tfbridge_result_{k}", op="_Retval", input=[f"{tensor.node}:{tensor.index}"]
            )
            result.attr["T"].type, result.attr["index"].i = data_type, k
        self.results += tensors


def cluster_body(
    graph_def: GraphDef, graph: Graph, functions: Functions, names: Sequence[str], fetched: Collection[str]
) -> ClusterBody:
    """The body of a cluster of the nodes `names`. fetched: nodes whose outputs must stay in the graph.

    Raises: ValueError  a result is no array.
    """
    members = dict.fromkeys(names)
    body = ClusterBody(GraphDef(versions=graph_def.versions, library=graph_def.library))
    representatives: dict[Hashable, Tensor] = {}  # of tensors that are the same variable
    constants: set[str] = set()
    for name in names:
        node = graph.nodes[name]
        inputs = []
        for position, (tensor, data_type) in enumerate(zip(node.inputs, input_types(node), strict=True)):
            if tensor.node in members:
                inputs.append(f"{tensor.node}:{tensor.index}")
            elif graph.nodes[tensor.node].op in COPIED:
                inputs.append(tensor.node)
                constants.add(tensor.node)
            else:
                tensor = representatives.setdefault(variable_identity(graph, tensor), tensor)
                inputs.append(body.add_argument(tensor, data_type))
                if data_type == RESOURCE:
                    content = _content_type(graph, node, position, tensor, functions)
                    body.content_types[tensor] = content or body.content_types.get(tensor, 0)
        inputs += [f"^{other}" for other in node.control if other in members]
        body.control.update(dict.fromkeys(n for n in _waits_for(graph, node) if n not in members))
        body.graph_def.node.append(_copy(node, inputs))
    for name in sorted(constants):
        constant = body.graph_def.node.add()
        constant.CopyFrom(graph.nodes[name].definition)
        del constant.input[:]
    body.add_results(graph, _results(graph, members, fetched))
    return body


def _waits_for(graph: Graph, node: GraphNode) -> list[str]:
    """The nodes for which a node waits without reading them, or for which a constant that it reads waits."""
    constants = [t.node for t in node.inputs if graph.nodes[t.node].op in COPIED]
    return through_constants(graph, [*node.control, *constants])


def _copy(node: GraphNode, inputs: Sequence[str]) -> NodeDef:
    copy = NodeDef(name=node.name, op=node.op, input=inputs, device=node.device)
    for key, value in node.attrs.items():
        copy.attr[key].CopyFrom(value)
    return copy


def variable_identity(graph: Graph, tensor: Tensor) -> Hashable:
    """Equal for tensors that are handles of the same variable; else the tensor."""
    node = graph.nodes[tensor.node]
    if node.op != "VarHandleOp":
        return tensor
    container, shared = (node.attrs[a].s if a in node.attrs else b"" for a in ("container", "shared_name"))
    return (container, shared or node.name.encode(), node.device) if shared != ANONYMOUS.encode() else tensor


def _content_type(graph: Graph, node: GraphNode, position: int, handle: Tensor, functions: Functions) -> int:
    """DataType of the variable that a node takes as an input, told by its functions or attributes; 0: not known."""
    for name, shift in functions_of_inputs(node, functions):
        if position >= shift:
            argument = functions[name].arguments[position - shift]
            if content := content_type(functions[name], functions, argument):
                return content
    return attribute_content_type(node) or attribute_content_type(graph.nodes[handle.node])


def _results(graph: Graph, members: Collection[str], fetched: Collection[str]) -> list[Tensor]:
    """Tensors of the cluster that are read outside of it, or must stay in the graph."""
    results: dict[Tensor, None] = {
        Tensor(n, k): None for n in members if n in fetched for k in range(len(output_types(graph.nodes[n])))
    }
    for node in graph.nodes.values():
        if node.name not in members:
            results.update(dict.fromkeys(t for t in node.inputs if t.node in members))
    results.update(dict.fromkeys(t for t in graph.results if t.node in members))
    return list(results)
