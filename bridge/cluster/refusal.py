"""Why a node cannot be compiled, as far as the node and its inputs tell."""

from __future__ import annotations

from ..analysis.compile_time_constants import changing_constants
from ..analysis.dynamic_size_analysis import data_sizes
from ..analysis.list_lengths import appends_to_outer_stack, has_fixed_length
from ..graph.function_library import Functions, called_functions
from ..graph.graph import DT_STRING, Graph, GraphNode, input_range, input_types, output_types
from ..launch import resource_variables
from ..tf_internals.dtypes import element_type
from ..translate.host_ops import HOST_OPS
from ..translate.registry import translations

_OF_TEXT = frozenset({"Const", "HostConst", "Assert", "Identity", "IdentityN"})  # what messages pass through
_WHOLE_LISTS = frozenset({"TensorListConcat", "TensorListConcatV2", "TensorListConcatLists"})


def unsupported(
    graph: Graph, functions: Functions, visited: set[str] | None = None
) -> list[tuple[GraphNode, str]]:
    """The nodes, called functions' included, that cannot be compiled, each with the reason."""
    visited = visited if visited is not None else set()
    problems = []
    for node in graph.nodes.values():
        reason = refusal(node, functions, graph)
        if reason is not None:
            problems.append((node, reason))
            continue
        for name in [*called_functions(node), *([node.op] if node.op in functions.definitions else [])]:
            if name not in visited and name in functions.definitions:
                visited.add(name)
                problems.extend(unsupported(functions[name], functions, visited))
    sizes = data_sizes(graph, functions, {node.name for node, _ in problems})
    return problems + [(graph.nodes[name], reason) for name, reason in sizes.refused.items()]


def refusal(node: GraphNode, functions: Functions, graph: Graph) -> str | None:
    """Why a node of the graph is not to be compiled; None when it can be."""
    if node.op == "_Arg":
        return None
    if functions.denied:
        joined = [name.decode() for name in node.attrs["op_names"].list.s] if "op_names" in node.attrs else []
        if any(op in functions.denied for op in (node.op, *joined)):  # graph optimizers join some ops to one
            return "the option deny_ops names it"
    translation = translations().get(node.op)
    if translation is None:
        return (
            None
            if node.op in functions.definitions
            else HOST_OPS.get(node.op, "there is no translation of this op")
        )
    called = called_functions(node)
    if DT_STRING in (*input_types(node), *output_types(node)) and not (called or node.op in _OF_TEXT):
        return "it computes with strings"
    if not all(name in functions.definitions for name in called):
        return "the body of a function that it calls is not known"
    if changing_constants(graph, node, functions):
        return "its body needs to know, when compiling, a value that changes in the loop"
    if appends_to_outer_stack(node, functions):
        return "a loop within the loop appends to a stack from outside of both, of which no bound is known"
    if node.op in _WHOLE_LISTS and not has_fixed_length(graph, node.inputs[0], functions):
        return "the length of the list depends on data"
    if node.op == "VarIsInitializedOp" and not resource_variables.available():
        return "this TensorFlow's variables are read before compiled code runs"
    for name in translation.fixed:
        source = graph.nodes.get(node.inputs[input_range(node.definition, name)[0]].node)
        if source is None or source.op != "Const":
            return f"{name} decides its result's shape and is no constant"
    for attr, allowed in translation.types.items():
        type_ = element_type(node.attrs[attr].type)
        if type_ not in allowed:
            name = "a type that is no array's" if type_ is None else type_.value
            return f"{attr} is {name}; it is compiled for {', '.join(sorted(t.value for t in allowed))}"
    return translation.unsupported(node) if translation.unsupported is not None else None
