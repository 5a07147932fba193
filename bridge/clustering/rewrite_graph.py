"""The graph pass as a page: TensorFlow's graph in, a graph with a launch node in the place of every cluster out.

functionalize -> compile-time constants -> mark for compilation -> encapsulate -> launch nodes
"""

from __future__ import annotations

from collections.abc import Mapping

from ...compiler.errors import InternalError
from ...runtime.threads import forking
from ..analysis.compile_time_constants import stage_cuts
from ..analysis.constant_results import with_constant_results
from ..analysis.dynamic_size_analysis import data_sizes
from ..cluster.strict import fail_if_unclustered
from ..functionalize.functionalize import functionalize
from ..graph.function_library import Functions, with_function_bodies
from ..graph.graph import Graph, from_graph_def, read_nodes, takes_functions
from ..graph.inlining import with_calls_of_lists_inlined
from ..graph.row_lengths import graph_def_with_row_lengths
from ..options.marks import MARK
from ..tf_internals import symbols as tfp
from ..tf_internals.types import GraphDef
from . import grappler_pass, reports
from .clustering_request import ClusteringRequest, clustering_request, mark_rewritten
from .dataflow_loops import DataflowLoop, dataflow_loops
from .encapsulate import encapsulate
from .feeds import read_fed_tensors
from .list_sharing import is_refused_for_sharing, with_lists_of_their_own
from .mark_for_compilation import mark_for_compilation
from .unclusterable import (
    SOURCES,
    unclusterable_nodes,
    without_compile_time_constants,
    without_initialized_variables,
)

_lock = forking.long_lock()


def ensure_registered() -> None:
    """Registers the graph pass with TensorFlow, once."""
    if not grappler_pass.is_registered():
        with _lock:
            tfp.mark_gradients(MARK)
            tfp.optimize_small_graphs()
            grappler_pass.register(rewrite_graph)


def rewrite_graph(graph_def: GraphDef, item: grappler_pass.Item) -> GraphDef | None:
    """The graph with its clusters compiled; None: TensorFlow runs the graph as it is."""
    request = clustering_request(graph_def, item)
    if request is None:
        return None
    rewritten, report = _with_clusters(request)
    read_fed_tensors(rewritten, request.barriers)
    if request.preview is not None:
        request.preview.graphs.append(reports.PreviewedGraph(request.graph_def, rewritten, report))
        return None
    reports.note(report)
    fail_if_unclustered(rewritten, report.unclustered, request.strict_scopes, request.preserved)
    mark_rewritten(rewritten, request.preserved)
    return rewritten


def _with_clusters(request: ClusteringRequest) -> tuple[GraphDef, reports.Report]:
    """(the graph with launch nodes, its report).

    Calls that give each other lists are clustered as their bodies, if all loops in these are compiled.
    """
    graph_def = graph_def_with_row_lengths(with_function_bodies(request.graph_def), request.is_candidate)
    inlined = with_calls_of_lists_inlined(graph_def, request.preserved)
    if inlined is not None:
        rewritten, report = _clustered(inlined[0], request)
        if not any(d.name in inlined[1] and takes_functions(d.op) for d in rewritten.node):
            return rewritten, report
    return _clustered(graph_def, request)


def _clustered(graph_def: GraphDef, request: ClusteringRequest) -> tuple[GraphDef, reports.Report]:
    """(the graph with launch nodes, its report). Loops and branches outside clusters stay in dataflow form.

    A loop or branch is rebuilt before it is known whether it can be part of a cluster. Where it cannot, all is done
    again, and it is not rebuilt. So it is, with copies of lists, where what shares a list with others is in no cluster.
    """
    nodes = read_nodes(graph_def)
    not_rebuilt: dict[str, str] = {}
    may_copy_lists = True
    while True:
        functional = functionalize(graph_def, request.preserved, not_rebuilt, MARK, nodes)
        library = {f.signature.name: f for f in functional.graph_def.library.function}
        functions = Functions(library, request.options.deny_ops, with_constant_results)
        graph = from_graph_def(functional.graph_def)
        loops = dataflow_loops(graph, functional.reasons)
        unclustered, stages = _unclusterable(graph, functions, loops, request)
        assignment = mark_for_compilation(
            graph, functions, unclustered, loops, request.options.min_cluster_size, stages
        )
        if may_copy_lists and is_refused_for_sharing(assignment.unclustered):
            may_copy_lists = False
            copied = with_lists_of_their_own(graph_def)
            if copied is not None:
                graph_def, nodes = copied, read_nodes(copied)
                continue
        outside = functional.rebuilt.difference(*assignment.clusters)
        if not outside:
            encapsulated = encapsulate(functional.graph_def, graph, functions, assignment, request)
            assignment = encapsulated.assignment
            outside = functional.rebuilt.difference(*assignment.clusters)
        if not outside:
            break
        if outside <= not_rebuilt.keys():
            raise InternalError(f"control flow that was left alone is rebuilt: {', '.join(sorted(outside))}")
        not_rebuilt.update((n, assignment.unclustered.get(n, "it is in no cluster")) for n in outside)
    rewritten = type(graph_def)()
    rewritten.CopyFrom(encapsulated.graph_def)
    rewritten.library.CopyFrom(request.graph_def.library)
    dataflow = {name: reason for name, reason in functional.reasons.items() if name in graph.nodes}
    return rewritten, reports.report_of(graph, encapsulated.clusters, assignment.unclustered | dataflow)


def _unclusterable(
    graph: Graph, functions: Functions, loops: dict[str, DataflowLoop], request: ClusteringRequest
) -> tuple[dict[str, str], Mapping[str, int]]:
    """(why nodes cannot be part of any cluster, the stage of every node)."""
    reasons = unclusterable_nodes(graph, functions, request.fetched, request.is_candidate, loops)
    clusterable = [node for node in graph.nodes.values() if node.name not in reasons]
    cuts = stage_cuts(graph, functions, lambda n: n.op in SOURCES or n.name in reasons, clusterable)
    reasons |= without_compile_time_constants(graph, functions, reasons, cuts)
    sizes = data_sizes(graph, functions, reasons, cuts=cuts)
    reasons |= sizes.refused
    reasons |= without_initialized_variables(graph, functions)
    return reasons, sizes.stages
