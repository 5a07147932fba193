"""Which arguments of a graph must be known when compiling, because a constant input of some op is made from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import tensorflow as tf

from ..functionalize.dataflow_graph import SWITCHES
from ..graph.graph import Graph, GraphNode, Tensor, input_range, op_definition
from ..translate.registry import translations
from ..translate.translator import Functions
from .symbolic_size import SHAPE_OPS, constant_of
from .trip_count import behind_identity, extended, hands_on, is_extending, only_bounds, pushed

LOOPS = frozenset({"While", "StatelessWhile"})
_RESOURCE = 20  # DT_RESOURCE


def constant_inputs(graph: Graph, node: GraphNode, functions: Functions) -> list[int]:
    """Numbers of the inputs of a node of the graph that must be known when compiling."""
    translation = translations().get(node.op)
    numbers: list[int] = []
    if translation is not None:
        more = translation.more_constants
        for name in (*translation.constants, *(more(node, graph) if more is not None else ())):
            numbers.extend(range(*input_range(node.definition, name)))
    if node.op in LOOPS and (longer := extended(body := functions[node.attrs["body"].func.name])):
        for bound in [*only_bounds(functions[node.attrs["cond"].func.name], body), *longer.values()]:
            numbers += bound.variables
    for called, shift in called_with(node, functions):
        numbers.extend(k + shift for k in constant_arguments(functions[called], functions))
    return numbers


def changing_constants(graph: Graph, node: GraphNode, functions: Functions) -> list[int]:
    """Numbers of a loop's variables that its functions need to know when compiling, though they change in the loop."""
    if node.op not in LOOPS:
        return []
    body = functions[node.attrs["body"].func.name]
    called = [functions[name] for name, _ in called_with(node, functions)]
    numbers = [k for function in called for k in constant_arguments(function, functions)]
    return [k for k in numbers if not hands_on(body, k)] + [
        k for k in popped_constants(node, functions) if not _is_alike(graph, node.inputs[k], functions)
    ]


def popped_constants(node: GraphNode, functions: Functions) -> set[int]:
    """Numbers of a loop's variables that are lists, of whose elements its functions need to know the value."""
    popped = set[int]()
    for called, _ in called_with(node, functions):
        inner = functions[called]
        sources = constant_sources(inner, functions)
        popped |= {
            inner.arguments.index(name) for n in sources if (name := _popped_argument(inner, inner.nodes[n]))
        }
    return popped


def _popped_argument(graph: Graph, node: GraphNode) -> str:
    """The argument, a list, of which the node takes the last element; empty if it is no such node."""
    name = behind_identity(graph, node.inputs[0]).node if node.op == "TensorListPopBack" else ""
    return name if name in graph.arguments else ""


def _is_alike(graph: Graph, values: Tensor, functions: Functions) -> bool:
    """Whether all elements of a list were pushed by a loop and are one value, which shapes and constants decide."""
    values = behind_identity(graph, values)
    loop = graph.nodes[values.node]
    if loop.op not in LOOPS:
        return False
    body = functions[loop.attrs["body"].func.name]
    push = body.nodes[behind_identity(body, body.results[values.index]).node]
    first = graph.nodes[behind_identity(graph, loop.inputs[values.index]).node]
    return (
        push.op == "TensorListPushBack"
        and first.op == "EmptyTensorList"
        and (behind_identity(body, push.inputs[0]).node == body.arguments[values.index])
        and (_is_fixed(body, push.inputs[1], graph, loop))
    )


def _is_fixed(
    graph: Graph, tensor: Tensor, outer: Graph | None = None, loop: GraphNode | None = None
) -> bool:
    """Whether shapes and constants decide a value, in the body of a loop of the graph around it or in a graph."""
    stack, seen = [tensor], set[str]()
    while stack:
        name = stack.pop().node
        node = graph.nodes[name]
        if name in seen or node.op == "Const" or node.op in SHAPE_OPS - {"TensorListLength"}:
            continue
        seen.add(name)
        if name in graph.arguments and outer is not None and loop is not None:
            k = graph.arguments.index(name)
            if not hands_on(graph, k) or not _is_fixed(outer, loop.inputs[k]):
                return False
            continue
        definition = op_definition(node.op)
        if not node.inputs or node.op in LOOPS or definition is None or definition.is_stateful:
            return False
        stack += node.inputs
    return True


def has_known_length(graph: Graph, tensor: Tensor, functions: Functions) -> bool:
    """Whether the length of a list that is made longer by writing follows from what is known when compiling."""
    while True:  # back to where the list is made
        node = graph.nodes[tensor.node]
        if node.op in LOOPS:
            condition, body = (functions[node.attrs[name].func.name] for name in ("cond", "body"))
            argument = Tensor(body.arguments[tensor.index], 0)
            if is_extended(body, argument, functions, _LENGTHS) and not (
                tensor.index in extended(body) and only_bounds(condition, body)
            ):
                return False
            tensor = node.inputs[tensor.index]
        elif node.op in _HAND_ON:
            sets_length = (
                node.op == "TensorListResize" or node.op == "TensorListSetItem" and is_extending(node)
            )
            if sets_length and graph.nodes[behind_identity(graph, node.inputs[1]).node].op != "Const":
                return False
            tensor = node.inputs[0]
        else:
            branches = [name for name, shift in called_with(node, functions) if shift]
            return not any(
                is_extended(functions[name], Tensor(argument, 0), functions, _LENGTHS)
                for name in branches
                for argument in functions[name].arguments
            )


_LENGTHS = frozenset({"TensorListPushBack", "TensorListPopBack", "TensorListResize"})
_HAND_ON = _LENGTHS | {"Identity", "TensorListSetItem"}


def is_extended(graph: Graph, tensor: Tensor, functions: Functions, ops: Collection[str] = ()) -> bool:
    """Whether a list is written in a graph so that it may get longer, or given to one of these ops."""
    users: dict[Tensor, list[tuple[GraphNode, int]]] = {}
    for node in graph.nodes.values():
        for position, given in enumerate(node.inputs):
            users.setdefault(behind_identity(graph, given), []).append((node, position))
    stack, seen = [tensor], {tensor}  # the list, and the lists that writing makes of it
    while stack:
        for node, position in users.get(stack.pop(), ()):
            if is_extending(node) or node.op in ops:
                return True
            if any(
                is_extended(
                    functions[name], Tensor(functions[name].arguments[position - shift], 0), functions, ops
                )
                for name, shift in called_with(node, functions)
                if position >= shift
            ):
                return True
            if node.op == "TensorListSetItem" and (written := Tensor(node.name, 0)) not in seen:
                seen.add(written)
                stack.append(written)
    return False


def pushes_further(node: GraphNode, functions: Functions) -> bool:
    """Whether a loop within a loop appends to a stack from outside of both: of their bounds, no product is made."""
    if node.op not in LOOPS:
        return False
    body = functions[node.attrs["body"].func.name]
    for inner in body.nodes.values():
        if inner.op in LOOPS:
            within = functions[inner.attrs["body"].func.name]
            if any(
                within.nodes[within.arguments[k]].attrs["T"].type == _RESOURCE
                and inner.inputs[k].node in body.arguments
                for k in pushed(within)
            ):
                return True
    return False


def called_with(node: GraphNode, functions: Functions) -> list[tuple[str, int]]:
    """The library functions to which a node hands its inputs on, each with the number of its first such input."""
    if node.op in functions.definitions:
        return [(node.op, 0)]
    attrs = node.attrs
    if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
        found = [(attrs["f"].func.name, 0)]
    elif node.op in LOOPS:
        found = [(attrs["cond"].func.name, 0), (attrs["body"].func.name, 0)]
    elif node.op == "SymbolicGradient":
        found = [(functions.gradient(attrs["f"].func.name), 0)]
    elif node.op in ("If", "StatelessIf"):
        found = [(attrs["then_branch"].func.name, 1), (attrs["else_branch"].func.name, 1)]
    elif node.op in ("Case", "StatelessCase"):
        found = [(f.name, 1) for f in attrs["branches"].list.func]
    else:
        return []
    return [(name, shift) for name, shift in found if name in functions.definitions]


def handed_on(node: GraphNode, functions: Functions) -> dict[int, int]:
    """The results of a loop or a branch that are an input as it came, each with the number of that input."""
    if node.op in LOOPS and (name := node.attrs["body"].func.name) in functions.definitions:
        body = functions[name]
        return {k: k for k in range(len(body.results)) if hands_on(body, k)}
    branches = [functions[name] for name, shift in called_with(node, functions) if shift]
    found: dict[int, int] = {}
    for k in range(len(branches[0].results) if branches else 0):
        sources = {
            b.arguments.index(source.node) if source.node in b.arguments else None
            for b in branches
            for source in [behind_identity(b, b.results[k])]
        }
        if len(sources) == 1 and (number := sources.pop()) is not None:
            found[k] = number + 1
    return found


def constant_arguments(graph: Graph, functions: Functions) -> list[int]:
    """Numbers of a graph's arguments whose values must be known when compiling, in order."""
    sources = constant_sources(graph, functions)
    return [k for k, name in enumerate(graph.arguments) if name in sources]


def _is_like_a_list(graph: Graph, node: GraphNode, number: int) -> bool:
    """Whether a list gets the length or the element shape that the loop before, whose gradient this is, kept of a list.

    It is added to a list of that length.
    """
    maker = graph.nodes.get(node.inputs[number].node)
    return node.op == "TensorListReserve" and maker is not None and maker.op == "TensorListPopBack"


def constant_sources(
    graph: Graph, functions: Functions, users: Iterable[GraphNode] | None = None
) -> set[str]:
    """Names of all nodes from which a constant input of the users (default: all nodes) is made."""
    wanted: set[str] = set()
    stack: list[Tensor] = [
        node.inputs[k]
        for node in (graph.nodes.values() if users is None else users)
        for k in constant_inputs(graph, node, functions)
        if k < len(node.inputs) and not _is_like_a_list(graph, node, k)
    ]
    while stack:
        tensor = stack.pop()
        node = graph.nodes.get(tensor.node)
        if node is None or tensor.node in wanted:
            continue
        number = handed_on(node, functions).get(tensor.index)
        if number is not None:
            stack.append(node.inputs[number])
            continue
        wanted.add(tensor.node)
        if node.op in SWITCHES:  # what decides between branches is no part of the value
            stack.append(node.inputs[0])
        elif node.op not in SHAPE_OPS and not _is_clamped(graph, node) and not _popped_argument(graph, node):
            stack.extend(node.inputs)
    return wanted


def data_behind(graph: Graph, functions: Functions, node: GraphNode) -> str:
    """The argument whose elements are reduced to what a constant input of the node is made from; empty for none.

    Such an argument is data, and seldom twice the same: the lengths of sentences, whose largest is the size of a mask.
    """
    stack = [
        (node.inputs[k], False)
        for k in constant_inputs(graph, node, functions)
        if k < len(node.inputs) and not _is_like_a_list(graph, node, k)
    ]
    seen: set[tuple[str, bool]] = set()
    while stack:
        tensor, is_reduced = stack.pop()
        source = graph.nodes.get(tensor.node)
        if source is None or (tensor.node, is_reduced) in seen:
            continue
        seen.add((tensor.node, is_reduced))
        number = handed_on(source, functions).get(tensor.index)
        if number is not None:
            stack.append((source.inputs[number], is_reduced))
            continue
        if source.op in ("_Arg", "Placeholder") and is_reduced:
            return source.name
        if (
            source.op not in SHAPE_OPS
            and not _is_clamped(graph, source)
            and not _popped_argument(graph, source)
        ):
            stack += [(t, is_reduced or source.op in _REDUCTIONS) for t in source.inputs]
    return ""


_REDUCTIONS = frozenset({"Max", "Min", "Sum", "Mean"})


def _is_clamped(graph: Graph, node: GraphNode) -> bool:
    """Whether two constant limits leave an integer no room: min(limit, max(no less, anything)), or the reverse."""
    inside = {"Minimum": "Maximum", "Maximum": "Minimum"}.get(node.op)
    if inside is None or not tf.as_dtype(node.attrs["T"].type).is_integer:
        return False
    beyond = np.greater_equal if inside == "Maximum" else np.less_equal
    for limit, clamped in (node.inputs, node.inputs[::-1]):
        value, within = constant_of(graph, limit.node), graph.nodes.get(clamped.node)
        if value is not None and within is not None and within.op == inside:
            others = [constant_of(graph, t.node) for t in within.inputs]
            if any(o is not None and not o.shape and beyond(o, value).all() for o in others):
                return True
    return False
