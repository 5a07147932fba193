"""Why a node cannot be part of any cluster: its op, types, device, and inputs that are not known when compiling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..analysis.compile_time_constants import constant_inputs, constant_sources
from ..analysis.repeat_bounds import repeat_bounds
from ..cluster.compute_ops import COPIED
from ..cluster.refusal import refusal, unsupported
from ..cluster.variable_uses import attribute_content_type, node_use
from ..graph.function_library import Functions, called_functions
from ..graph.graph import (
    DATAFLOW,
    DT_RESOURCE,
    DT_STRING,
    DT_VARIANT,
    LOOPS,
    Graph,
    GraphNode,
    input_types,
    output_types,
)
from ..launch.op import OP
from ..tf_internals.dtypes import element_type
from ..translate.control.tensor_array import STORES
from .dataflow_loops import DataflowLoop

SOURCES = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder", "VarHandleOp"})
"""Ends of a graph; those among them with outputs depend on nothing."""
_ENDS = SOURCES | {"PlaceholderWithDefault", OP}
# The result of one of these is not known when compiling, even if its inputs are.
_NOT_CONSTANT = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
    }
)


def unclusterable_nodes(
    graph: Graph,
    functions: Functions,
    fetched: Collection[str],
    is_candidate: Callable[[GraphNode], bool],
    loops: Mapping[str, DataflowLoop],
) -> dict[str, str]:
    """Why nodes by themselves cannot be part of a cluster. fetched: nodes whose outputs must stay in the graph."""
    reasons: dict[str, str] = {}
    for node in graph.nodes.values():
        reason = _reason(graph, node, functions, fetched, is_candidate)
        if node.op in DATAFLOW and node.name in loops:
            reason = f"control flow of {loops[node.name]}"
        if reason is not None:
            reasons[node.name] = reason
    return reasons


def without_compile_time_constants(
    graph: Graph, functions: Functions, unclusterable: Mapping[str, str], cuts: Collection[str]
) -> dict[str, str]:
    """Why further nodes are not clusterable: an input that must be a compile-time constant is none.

    A source in `unclusterable` is no obstacle: its value is an argument of the cluster, known when a run compiles it.
    cuts: the `stage_cuts` of the graph, whose values are arguments as well.
    """
    reasons: dict[str, str] = {}
    bounds = repeat_bounds(graph, unclusterable)
    known = unclusterable.keys() | set(cuts)
    for node in graph.nodes.values():
        if node.name in unclusterable or not constant_inputs(graph, node, functions):
            continue
        for source in constant_sources(graph, functions, [node], known, bounds):
            op = graph.nodes[source].op
            if op in _NOT_CONSTANT and source not in known and source not in reasons:
                reasons[node.name] = f"an input that must be known when compiling comes from {source} ({op})"
                break
    return reasons


def without_initialized_variables(graph: Graph, functions: Functions) -> dict[str, str]:
    """Why nodes are not clusterable that ask whether a variable has a value, or that write such a variable.

    A launch gives a variable its first value only where the variable's object exists. A variable that is named in the
    graph may have none.
    """
    reasons: dict[str, str] = {}
    for node in [n for n in graph.nodes.values() if n.op == "VarIsInitializedOp"]:
        handle = graph.nodes[node.inputs[0].node]
        if not attribute_content_type(handle):
            reasons[node.name] = "nothing tells the type of its variable"
        if handle.op == "VarHandleOp":
            writers = [
                n
                for n in graph.nodes.values()
                for k, t in enumerate(n.inputs)
                if t.node == handle.name and node_use(n, k, functions)[1]
            ]
            both = [node, *(n for n in writers if called_functions(n))] if writers else []
            reasons.update({n.name: "a variable that may not exist yet is written, or is not" for n in both})
    return reasons


def _reason(
    graph: Graph,
    node: GraphNode,
    functions: Functions,
    fetched: Collection[str],
    is_candidate: Callable[[GraphNode], bool],
) -> str | None:
    """Why a node by itself cannot be part of a cluster."""
    if node.op in _ENDS or node.op in DATAFLOW:
        return "an end of the graph" if node.op in _ENDS else "control flow that could not be rebuilt"
    if node.name in fetched:
        types = output_types(node)
        if len(types) > 1 and any(element_type(t) is None for t in types):
            return "it is fetched, and has outputs that are no arrays"
    if not is_candidate(node):
        return "it is not in a scope that is to be compiled"
    if node.device and "CPU" not in node.device.upper():
        return f"it is placed on {node.device}"
    reason = refusal(node, functions, graph)
    if reason is not None:
        return reason
    for name in called_functions(node):
        if name in functions.definitions and (problems := unsupported(functions[name], functions)):
            return f"{problems[0][0].name} ({problems[0][0].op}) within it: {problems[0][1]}"
    return _type_reason(graph, node)


def _type_reason(graph: Graph, node: GraphNode) -> str | None:
    """Why the types of a node's inputs and outputs cannot be compiled."""
    for types, role in ((input_types(node), "input"), (output_types(node), "output")):
        may_be_handle = role == "input" or node.op in LOOPS or node.op in STORES
        for type_ in types:
            if type_ == DT_STRING and _is_constant_text(graph, node):
                continue
            if type_ == DT_VARIANT or type_ == DT_RESOURCE and may_be_handle:
                continue
            if element_type(type_) is None:
                return f"an {role} is no array"
    return None


def _is_constant_text(graph: Graph, node: GraphNode) -> bool:
    """Whether the node is a constant of strings, or all strings that it takes are constants, for messages within it."""
    if node.op in COPIED:
        return True
    sources = [
        graph.nodes.get(tensor.node)
        for tensor, type_ in zip(node.inputs, input_types(node))
        if type_ == DT_STRING
    ]
    return DT_STRING not in output_types(node) and all(s is not None and s.op in COPIED for s in sources)
