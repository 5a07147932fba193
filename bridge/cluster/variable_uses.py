"""What the nodes of a graph do with a variable: read it, write it, and the type of its content."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from ..graph.function_library import Functions, called_functions
from ..graph.graph import Graph, GraphNode

READS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)
_BRANCHING = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})  # their first input is no argument
# Their variable is a generator's state; an attribute `dtype` is that of their result.
_GENERATORS = frozenset(
    {
        "RngSkip",
        "RngReadAndSkip",
        "StatefulUniform",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniformInt",
        "StatefulUniformFullInt",
    }
)
RESOURCE = int(tf.resource.as_datatype_enum)


def _users(graph: Graph) -> dict[str, list[tuple[GraphNode, int]]]:
    """For every argument the nodes that take it or a copy of it, in order, each with the number of that input."""
    uses: dict[str, list[tuple[GraphNode, int]]] = {argument: [] for argument in graph.arguments}
    copy_of = {argument: argument for argument in graph.arguments}
    for node in graph.nodes.values():
        if node.op == "Identity" and node.inputs[0].node in copy_of:
            copy_of[node.name] = copy_of[node.inputs[0].node]
            continue
        for position, tensor in enumerate(node.inputs):
            if tensor.node in copy_of:
                uses[copy_of[tensor.node]].append((node, position))
    return uses


def first_uses(graph: Graph, functions: Functions) -> dict[str, tuple[bool, bool]]:
    """(read before it is written, written) for every argument that is a variable."""
    return {
        argument: _use(users, functions)
        for argument, users in _users(graph).items()
        if graph.nodes[argument].attrs["T"].type == RESOURCE
    }


def _use(uses: Iterable[tuple[GraphNode, int]], functions: Functions) -> tuple[bool, bool]:
    """(read before it is written, written) of a variable argument. Calls and loops count as they are found inside."""
    read_first, written = False, False
    for node, position in uses:
        inner_read, inner_written = node_use(node, position, functions)
        read_first |= inner_read and not written
        written |= inner_written
    return read_first, written


def content_type(graph: Graph, functions: Functions, argument: str) -> int:
    """DataType of the content of a variable argument, told by the nodes that use it; 0 when none does."""
    same = [argument]  # and its copies, as they are met
    for name in same:
        for node in graph.nodes.values():
            for position, tensor in enumerate(node.inputs):
                if tensor.node != name:
                    continue
                called = [f for f in called_functions(node) if f in functions.definitions]
                shift = 1 if node.op in _BRANCHING else 0
                content = 0
                if called and position >= shift:
                    each = (
                        content_type(functions[f], functions, functions[f].arguments[position - shift])
                        for f in called
                    )
                    content = next(filter(None, each), 0)
                elif node.op == "Identity":
                    same.append(node.name)
                else:
                    content = attribute_content_type(node)
                if content and content != RESOURCE:
                    return content
    return 0


def attribute_content_type(node: GraphNode) -> int:
    """DataType of the content of the variable that a node uses or is, told by its attributes; 0 when they do not."""
    if node.op in _GENERATORS:
        return int(tf.int64.as_datatype_enum)
    types = [
        int(node.attrs[name].type)
        for name in ("dtype", "T")
        if name in node.attrs and node.attrs[name].WhichOneof("value") == "type"
    ]
    if "_handle_dtypes" in node.attrs:
        types += node.attrs["_handle_dtypes"].list.type
    return next((type_ for type_ in types if type_ != RESOURCE), 0)


def node_use(node: GraphNode, position: int, functions: Functions) -> tuple[bool, bool]:
    """(read before it is written, written): what a node does with a variable that it takes as that input."""
    called = called_functions(node)
    if called:
        shift = 1 if node.op in _BRANCHING else 0
        uses = [
            _use(_users(functions[f])[functions[f].arguments[position - shift]], functions)
            for f in called
            if position >= shift
        ]
        # A branch that is not taken leaves the variable as it was, so its value is needed; and functions get the
        # value of a variable that none of them uses.
        written = any(w for _, w in uses)
        return any(r for r, _ in uses) or len(called) > 1 or not written, written
    if node.op in READS:
        return True, False
    if node.op == "AssignVariableOp":
        return False, True
    return True, True
