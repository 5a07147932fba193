"""How long tensor lists and stacks get: whether their length is known when compiling, and what makes them longer."""

from __future__ import annotations

from collections.abc import Collection

from ..graph.function_library import Functions, functions_of_inputs
from ..graph.graph import DT_RESOURCE, LOOPS, Graph, GraphNode, Tensor
from .trip_count import appended_lists, extended_lists, identity_source, is_extending, sufficient_bounds


def has_fixed_length(graph: Graph, tensor: Tensor, functions: Functions) -> bool:
    """Whether the length of a list that is made longer by writing follows from what is known when compiling."""
    while True:  # from the list to its maker
        node = graph.nodes[tensor.node]
        if node.op in LOOPS:
            condition, body = (functions[node.attrs[name].func.name] for name in ("cond", "body"))
            argument = Tensor(body.arguments[tensor.index], 0)
            if is_extended(body, argument, functions, _LENGTHS) and not (
                tensor.index in extended_lists(body) and sufficient_bounds(condition, body)
            ):
                return False
            tensor = node.inputs[tensor.index]
        elif node.op in _HAND_ON:
            sets_length = (
                node.op == "TensorListResize" or node.op == "TensorListSetItem" and is_extending(node)
            )
            if sets_length and graph.nodes[identity_source(graph, node.inputs[1]).node].op != "Const":
                return False
            tensor = node.inputs[0]
        else:
            branches = [name for name, shift in functions_of_inputs(node, functions) if shift]
            return not any(
                is_extended(functions[name], Tensor(argument, 0), functions, _LENGTHS)
                for name in branches
                for argument in functions[name].arguments
            )


_LENGTHS = frozenset({"TensorListPushBack", "TensorListPopBack", "TensorListResize"})
_HAND_ON = _LENGTHS | {"Identity", "TensorListSetItem"}


def is_extended(graph: Graph, tensor: Tensor, functions: Functions, ops: Collection[str] = ()) -> bool:
    """Whether a list is written in a graph so that it may get longer, or source to one of these ops."""
    users: dict[Tensor, list[tuple[GraphNode, int]]] = {}
    for node in graph.nodes.values():
        for position, source in enumerate(node.inputs):
            users.setdefault(identity_source(graph, source), []).append((node, position))
    stack, visited = [tensor], {tensor}  # the list, and the lists that writing makes of it
    while stack:
        for node, position in users.get(stack.pop(), ()):
            if is_extending(node) or node.op in ops:
                return True
            if any(
                is_extended(
                    functions[name], Tensor(functions[name].arguments[position - shift], 0), functions, ops
                )
                for name, shift in functions_of_inputs(node, functions)
                if position >= shift
            ):
                return True
            if node.op == "TensorListSetItem" and (written := Tensor(node.name, 0)) not in visited:
                visited.add(written)
                stack.append(written)
    return False


def appends_to_outer_stack(node: GraphNode, functions: Functions) -> bool:
    """Whether a loop within a loop appends to a stack from outside of both. The product of their bounds is not used."""
    if node.op not in LOOPS:
        return False
    body = functions[node.attrs["body"].func.name]
    for inner in body.nodes.values():
        if inner.op in LOOPS:
            within = functions[inner.attrs["body"].func.name]
            if any(
                within.nodes[within.arguments[k]].attrs["T"].type == DT_RESOURCE
                and inner.inputs[k].node in body.arguments
                for k in appended_lists(within)
            ):
                return True
    return False
