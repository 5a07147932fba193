"""Replaces every cluster of a graph by a launch node.

Before:  x -> A -> B -> C -> y, A and B in a cluster
After:   x -> launch -> C -> y; the launch node names the cluster, whose body is A -> B
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from ...compiler.errors import CompilerError, UnsupportedError
from ..cluster.cluster import Cluster
from ..cluster.cluster_builder import build_cluster
from ..cluster.cluster_compiler import earlier_failure
from ..cluster.compute_ops import COPIED
from ..graph.function_library import Functions
from ..graph.graph import Graph, Tensor, from_graph_def
from ..launch import fallback
from ..tf_internals.types import GraphDef, NodeDef
from .cluster_body import ClusterBody, cluster_body
from .clustering_request import ClusteringRequest
from .launch_nodes import Replacement, replacement
from .mark_for_compilation import ClusterAssignment


@dataclasses.dataclass
class Encapsulated:
    """A graph with launch nodes, their clusters, and the assignment without clusters that stay in the graph."""

    graph_def: GraphDef
    clusters: list[Cluster]
    assignment: ClusterAssignment


def encapsulate(
    graph_def: GraphDef,
    graph: Graph,
    functions: Functions,
    assignment: ClusterAssignment,
    request: ClusteringRequest,
) -> Encapsulated:
    """The graph with a launch node in the place of every cluster.

    A cluster that turns out not to be one function of arrays (a list crosses its edge, say), or one like which never
    compiled in another graph, stays in the graph.
    """
    clusters: list[Cluster] = []
    replaced: list[list[str]] = []
    unclustered = dict(assignment.unclustered)
    replacements: dict[str, Replacement] = {}  # by node of a cluster
    for names in assignment.clusters:
        try:
            body = cluster_body(graph_def, graph, functions, names, request.fetched)
            cluster = _cluster(body, functions, names, request)
            nodes = replacement(graph, functions, names, cluster, body, request.preserved, request.fetched)
        except (CompilerError, ValueError, TypeError) as error:
            reason = f"its cluster could not be taken out of the graph: {error}"
            unclustered.update(dict.fromkeys(names, reason))
            continue
        clusters.append(cluster)
        replaced.append(names)
        replacements.update(dict.fromkeys(names, nodes))
    result = _replace(graph_def, replacements, request.preserved) if clusters else graph_def
    return Encapsulated(result, clusters, ClusterAssignment(replaced, unclustered))


def _cluster(
    body: ClusterBody, functions: Functions, names: Sequence[str], request: ClusteringRequest
) -> Cluster:
    """The cluster of a body. Raises: UnsupportedError  it cannot be compiled, or one like it never compiled."""
    prefix = names[0].replace("/", "_")
    arguments = list(body.arguments)
    cluster = build_cluster(
        f"{prefix}.{len(names)}",
        from_graph_def(body.graph_def),
        functions,
        fallback.of_graph(body.graph_def),
        request.options,
        None,
        {arguments.index(tensor): content for tensor, content in body.content_types.items()},
    )
    if (failure := earlier_failure(cluster)) and not cluster.is_strict:
        raise UnsupportedError(failure)
    for argument, tensor in zip(cluster.arguments, arguments):
        argument.name = tensor.node  # for messages
    return cluster


def _replace(
    graph_def: GraphDef, replacements: Mapping[str, Replacement], preserved: Collection[str]
) -> GraphDef:
    """The graph with replacements in the place of the nodes, and without constants that only those read."""
    nodes = [_reconnected(n, replacements) for n in graph_def.node if n.name not in replacements]
    for one in {id(r): r for r in replacements.values()}.values():
        nodes += [_reconnected(n, replacements) for n in one.nodes]
    read = {_node_of(i) for node in nodes for i in node.input}
    was_read = {_node_of(i) for node in graph_def.node for i in node.input}

    def is_needed(node: NodeDef) -> bool:
        is_unread = node.name not in read and node.name in was_read
        return node.op not in COPIED or not is_unread or node.name in preserved

    result = GraphDef(versions=graph_def.versions, library=graph_def.library)
    result.node.extend(filter(is_needed, nodes))
    return result


def _reconnected(definition: NodeDef, replacements: Mapping[str, Replacement]) -> NodeDef:
    """A node whose inputs come from the replacements where they came from clusters."""
    if not any(_node_of(i) in replacements for i in definition.input):
        return definition
    data: list[str] = []
    control: dict[str, None] = {}
    for text in definition.input:
        nodes = replacements.get(_node_of(text))
        if nodes is None:
            (control.setdefault(text) if text.startswith("^") else data.append(text))
        elif text.startswith("^"):
            control.update(dict.fromkeys(f"^{end}" for end in nodes.ends))
        else:
            name, _, index = text.partition(":")
            tensor = Tensor(name, int(index or 0))
            data.append(nodes.tensors[tensor])
            control.update(dict.fromkeys(nodes.waits.get(tensor, ())))
    reconnected = NodeDef()
    reconnected.CopyFrom(definition)
    reconnected.input[:] = [*data, *control]
    return reconnected


def _node_of(text: str) -> str:
    return text.lstrip("^").partition(":")[0]
