"""Calls that give lists to others, or get them, in the graph itself.

A recurrent layer of Keras 2 is a call for its result and one for its gradient, which TensorFlow does not inline. What
the first pushes the second pops: what is known of the lists is known of both together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..tf_internals.types import FunctionDef, GraphDef, NodeDef
from .graph import DT_VARIANT, ENTERS, Graph, GraphNode, Tensor, from_function_def, read_nodes


def with_calls_of_lists_inlined(
    graph_def: GraphDef, preserved: Collection[str]
) -> tuple[GraphDef, set[str]] | None:
    """(the graph with the bodies of such calls, the names of their nodes); None where there is no such call.

    preserved: nodes that stay. So do all calls beside loops in dataflow form: constants of a body would lie outside of
    the loop around the call.

    s = PartitionedCall[f=sum_of](x, y) ... s:0   ->   s/total = AddV2(x, y) ... s/total:0
    """
    bodies: dict[str, FunctionDef] = {f.signature.name: f for f in graph_def.library.function}
    if not any(d.op == "PartitionedCall" for d in graph_def.node) or any(
        d.op in ENTERS for d in graph_def.node
    ):
        return None
    nodes = read_nodes(graph_def)
    calls = {
        name: from_function_def(bodies[node.attrs["f"].func.name])
        for name, node in nodes.items()
        if name not in preserved and _gives_or_gets_lists(node) and node.attrs["f"].func.name in bodies
    }
    if not calls:
        return None
    inlined = type(graph_def)(versions=graph_def.versions, library=graph_def.library)
    added: set[str] = set()
    for name, node in nodes.items():
        if name not in calls:
            _add(inlined, node.definition, name, node.inputs, node.control, calls, nodes)
            continue
        body = calls[name]
        for part in body.nodes.values():
            if part.op == "_Arg":
                continue
            own = f"{name}/{part.name}"
            added.add(own)
            inputs = [_of_body(name, node, body, t) for t in part.inputs]
            waits_for = [f"{name}/{c}" for c in part.control if body.nodes[c].op != "_Arg"]
            made = _add(inlined, part.definition, own, inputs, [*waits_for, *node.control], calls, nodes)
            made.device = made.device or node.device
            made.attr.pop("_class", None)
    return inlined, added


def _gives_or_gets_lists(node: GraphNode) -> bool:
    return node.op == "PartitionedCall" and DT_VARIANT in (
        *node.attrs["Tin"].list.type,
        *node.attrs["Tout"].list.type,
    )


def _of_body(call: str, node: GraphNode, body: Graph, tensor: Tensor) -> Tensor:
    """A tensor of a function's body, in the graph of the call."""
    if tensor.node in body.arguments:
        return node.inputs[body.arguments.index(tensor.node)]
    return Tensor(f"{call}/{tensor.node}", tensor.index)


def _add(
    graph_def: GraphDef,
    definition: NodeDef,
    name: str,
    inputs: list[Tensor],
    control: list[str],
    calls: Mapping[str, Graph],
    nodes: Mapping[str, GraphNode],
) -> NodeDef:
    """A copy of a node; results of calls, and what waits for calls, come from the bodies."""

    def resolved(tensor: Tensor) -> Tensor:
        while tensor.node in calls:
            body = calls[tensor.node]
            tensor = _of_body(tensor.node, nodes[tensor.node], body, body.results[tensor.index])
        return tensor

    def waited_for(other: str) -> list[str]:
        if other not in calls:
            return [other]
        return [resolved(Tensor(other, k)).node for k in range(len(calls[other].results))]

    made = graph_def.node.add()
    made.CopyFrom(definition)
    made.name = name
    data = [f"{t.node}:{t.index}" if t.index else t.node for t in map(resolved, inputs)]
    waits = dict.fromkeys(n for other in control for n in waited_for(other))
    made.input[:] = [*data, *(f"^{n}" for n in waits)]
    return made
