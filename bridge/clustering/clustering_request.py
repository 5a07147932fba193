"""What the graph pass is to do with a graph: the nodes that may be compiled, the options, the nodes that must stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from ..cluster.strict import strict_scopes
from ..graph.function_library import lacks_results
from ..graph.graph import GraphNode
from ..launch.op import OP
from ..options.auto_clustering import process
from ..options.jit_options import JitOptions, current, merged
from ..options.marks import SCOPE, function_options, is_in_scope, marks_of
from ..tf_internals.types import ConcreteFunction, GraphDef
from . import grappler_pass, reports
from .feeds import cut_at_feeds

_MIN_OPS_OF_MARKED = 2  # compute ops: a launch in the place of one op of a function saves nothing
_REWRITTEN = "_tfbridge_seen"  # attribute of the nodes of a graph that the pass returned


@dataclasses.dataclass(frozen=True)
class ClusteringRequest:
    """A graph to cluster.

    preserved: nodes whose names must stay. fetched: those of them whose outputs must stay, too. barriers: by barrier at
    a feed, the tensor that it reads. is_for_all_nodes: not only the nodes of a `jit_scope`. strict_scopes: name
    prefixes of the nodes of strict functions. preview: set if the graph is not to be changed.
    """

    graph_def: GraphDef
    preserved: Collection[str]
    fetched: Collection[str]
    barriers: Mapping[str, str]
    options: JitOptions
    is_for_all_nodes: bool
    strict_scopes: tuple[str, ...]
    preview: reports.Preview | None

    def is_candidate(self, node: GraphNode) -> bool:
        """Whether a node is to be compiled, if it can be."""
        return self.is_for_all_nodes or is_in_scope(node.attrs)


def clustering_request(graph_def: GraphDef, item: grappler_pass.Item) -> ClusteringRequest | None:
    """The request for a graph that TensorFlow optimizes; None: the graph is not to be changed."""
    marks = marks_of(graph_def.node)
    of_functions = function_options(marks)
    is_for_all_nodes = process.is_on or bool(of_functions)
    if not is_for_all_nodes and not marks:
        return None
    if any(_REWRITTEN in node.attr or node.op == OP for node in graph_def.node):
        return None
    if not marks and grappler_pass.is_data_function(graph_def, item) or lacks_results(graph_def):
        return None
    scopes = strict_scopes(graph_def)
    minimum = process.min_cluster_size
    if marks:
        minimum = 1 if SCOPE in marks or scopes else _MIN_OPS_OF_MARKED
    options = current(merged(of_functions), {"min_cluster_size": minimum})
    preview = reports.current_preview()
    # A function returns its _Retval nodes; the others that are preserved in it, as reads and writes of variables are,
    # only have to run. In a session's graph all preserved nodes must keep their outputs.
    fetched = preview.fetched if preview else frozenset(n.name for n in graph_def.node if n.op == "_Retval")
    barriers: dict[str, str] = {}
    if not preview and not fetched.issuperset(item.fetches):
        fetched = item.nodes_to_preserve
        graph_def, barriers = cut_at_feeds(graph_def, item.nodes_to_preserve, item.fetches)
    return ClusteringRequest(
        graph_def, item.nodes_to_preserve, fetched, barriers, options, is_for_all_nodes, scopes, preview
    )


def options_of_function(concrete: ConcreteFunction) -> JitOptions | None:
    """The options of a concrete function that is compiled as a whole; None: TensorFlow or XLA runs it."""
    definition = concrete.function_def
    # To ask a definition for an attribute that it lacks would add it.
    if not process.is_on or "_XlaMustCompile" in definition.attr and definition.attr["_XlaMustCompile"].b:
        return None
    of_functions = function_options(marks_of(definition.node_def))
    minimum = 1 if of_functions else process.min_cluster_size
    return current(merged(of_functions), {"min_cluster_size": minimum})


def mark_rewritten(graph_def: GraphDef, preserved: Collection[str]) -> None:
    """Marks the nodes of a rewritten graph: TensorFlow hands every graph to the pass twice."""
    for node in graph_def.node:
        if node.op not in reports.NOT_REPORTED or node.name in preserved:
            node.attr[_REWRITTEN].b = True
