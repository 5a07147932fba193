"""Feeds cut the graph: what a session is fed takes the place of a tensor, and nothing downstream may compute it anew.

TensorFlow puts the fed values in after the graph passes, on the edges that leave the fed node. So a node that is never
compiled or folded stands between it and its readers:

    y = add(a, b); z = exp(y)    ->    y = add(a, b); y/fed_0 = placeholder_with_default(y); z = exp(y/fed_0)

What computes `y` may then become part of a cluster, as long as a node `y` remains and the barrier reads that one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..graph.graph import GraphNode, Tensor, output_types, read_nodes
from ..tf_internals.types import GraphDef

BARRIER = "PlaceholderWithDefault"
_NEVER_COMPILED = frozenset({"Placeholder", BARRIER})
_FIRST_REFERENCE_TYPE = 100  # DT_FLOAT_REF: a node that yields a reference is never compiled


def cut_at_feeds(
    graph_def: GraphDef, preserved: Collection[str], fetches: Iterable[str]
) -> tuple[GraphDef, dict[str, str]]:
    """(a session's graph with a barrier behind every tensor that may be fed, by barrier the tensor that it reads).

    TensorFlow names the nodes that are fed or fetched together (`preserved`), and the tensors that are fetched. No
    tensor is both.
    """
    nodes = read_nodes(graph_def)
    types = _fed_tensors(nodes, preserved, set(fetches))
    barriers: dict[Tensor, str] = {}
    result = type(graph_def)()
    result.CopyFrom(graph_def)
    for definition in list(result.node):
        for position, tensor in enumerate(nodes[definition.name].inputs):
            if tensor not in types:
                continue
            if tensor not in barriers:
                barriers[tensor] = _unused_name(f"{tensor.node}/fed_{tensor.index}", nodes)
                barrier = result.node.add(
                    name=barriers[tensor],
                    op=BARRIER,
                    input=[f"{tensor.node}:{tensor.index}"],
                    device=nodes[tensor.node].device,
                )
                barrier.attr["dtype"].type = types[tensor]
                barrier.attr["shape"].shape.unknown_rank = True
            definition.input[position] = barriers[tensor]
    return result, {name: f"{tensor.node}:{tensor.index}" for tensor, name in barriers.items()}


def read_fed_tensors(graph_def: GraphDef, barriers: Mapping[str, str]) -> None:
    """Lets the barriers of a rewritten graph read the tensors that are fed, not the launches that compute them."""
    for definition in graph_def.node:
        if definition.name in barriers:
            definition.input[:] = [barriers[definition.name]]


def _fed_tensors(
    nodes: Mapping[str, GraphNode], preserved: Collection[str], fetches: Collection[str]
) -> dict[Tensor, int]:
    """The tensors that may be fed, with their DataTypes."""
    return {
        Tensor(name, k): type_
        for name in preserved
        if name in nodes and nodes[name].op not in _NEVER_COMPILED
        for k, type_ in enumerate(output_types(nodes[name]))
        if f"{name}:{k}" not in fetches and type_ < _FIRST_REFERENCE_TYPE
    }


def _unused_name(name: str, nodes: Collection[str]) -> str:
    while name in nodes:
        name += "_"
    return name
