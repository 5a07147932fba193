"""Compile-time constants: the inputs of ops that decide shapes or axes, and the arguments from which they come."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import numpy as np
import tensorflow as tf

from ..graph.function_library import Functions, functions_of_inputs
from ..graph.graph import LOOPS, SWITCHES, Graph, GraphNode, Tensor, input_range, op_definition
from ..translate.registry import translations
from .repeat_bounds import repeat_bounds
from .symbolic_size import SHAPE_OPS, constant_of
from .trip_count import (
    extended_lists,
    identity_source,
    is_forwarded,
    sufficient_bounds,
)


def constant_inputs(graph: Graph, node: GraphNode, functions: Functions) -> list[int]:
    """Numbers of the inputs of a node of the graph that must be known when compiling."""
    translation = translations().get(node.op)
    numbers: list[int] = []
    if translation is not None:
        of_graph = translation.more_constants
        for name in (*translation.constants, *(of_graph(node, graph) if of_graph is not None else ())):
            numbers.extend(range(*input_range(node.definition, name)))
    if node.op in LOOPS and (longer := extended_lists(body := functions[node.attrs["body"].func.name])):
        for bound in [*sufficient_bounds(functions[node.attrs["cond"].func.name], body), *longer.values()]:
            numbers += bound.variables
    for called, shift in functions_of_inputs(node, functions):
        numbers.extend(k + shift for k in constant_arguments(functions[called], functions))
    return numbers


def changing_constants(graph: Graph, node: GraphNode, functions: Functions) -> list[int]:
    """Numbers of a loop's variables that its functions need to know when compiling, though they change in the loop."""
    if node.op not in LOOPS:
        return []
    body = functions[node.attrs["body"].func.name]
    called = [functions[name] for name, _ in functions_of_inputs(node, functions)]
    numbers = [k for function in called for k in constant_arguments(function, functions)]
    return [k for k in numbers if not is_forwarded(body, k)] + [
        k for k in popped_constants(node, functions) if not _is_alike(graph, node.inputs[k], functions)
    ]


def popped_constants(node: GraphNode, functions: Functions) -> set[int]:
    """Numbers of a loop's variables that are lists, of whose elements its functions need to know the value."""
    popped = set[int]()
    for called, _ in functions_of_inputs(node, functions):
        inner = functions[called]
        sources = constant_sources(inner, functions)
        popped |= {
            inner.arguments.index(name) for n in sources if (name := _popped_argument(inner, inner.nodes[n]))
        }
    return popped


def _popped_argument(graph: Graph, node: GraphNode) -> str:
    """The list argument whose last element the node takes; empty if the node does not do that."""
    name = identity_source(graph, node.inputs[0]).node if node.op == "TensorListPopBack" else ""
    return name if name in graph.arguments else ""


def _is_alike(graph: Graph, values: Tensor, functions: Functions) -> bool:
    """Whether all elements of a list were pushed by a loop and are one value, which shapes and constants decide."""
    values = identity_source(graph, values)
    loop = graph.nodes[values.node]
    if loop.op not in LOOPS:
        return False
    body = functions[loop.attrs["body"].func.name]
    push = body.nodes[identity_source(body, body.results[values.index]).node]
    first = graph.nodes[identity_source(graph, loop.inputs[values.index]).node]
    return (
        push.op == "TensorListPushBack"
        and first.op == "EmptyTensorList"
        and (identity_source(body, push.inputs[0]).node == body.arguments[values.index])
        and (_is_fixed(body, push.inputs[1], graph, loop))
    )


def _is_fixed(
    graph: Graph, tensor: Tensor, outer: Graph | None = None, loop: GraphNode | None = None
) -> bool:
    """Whether shapes and constants decide a value, in the body of a loop of the graph around it or in a graph."""
    stack, visited = [tensor], set[str]()
    while stack:
        name = stack.pop().node
        node = graph.nodes[name]
        if name in visited or node.op == "Const" or node.op in SHAPE_OPS - {"TensorListLength"}:
            continue
        visited.add(name)
        if name in graph.arguments and outer is not None and loop is not None:
            k = graph.arguments.index(name)
            if not is_forwarded(graph, k) or not _is_fixed(outer, loop.inputs[k]):
                return False
            continue
        definition = op_definition(node.op)
        if not node.inputs or node.op in LOOPS or definition is None or definition.is_stateful:
            return False
        stack += node.inputs
    return True


def forwarded_inputs(node: GraphNode, functions: Functions) -> dict[int, int]:
    """The results of a loop or a branch that are one of its inputs, each with the number of that input."""
    if node.op in LOOPS and (name := node.attrs["body"].func.name) in functions.definitions:
        body = functions[name]
        return {k: k for k in range(len(body.results)) if is_forwarded(body, k)}
    branches = [functions[name] for name, shift in functions_of_inputs(node, functions) if shift]
    inputs: dict[int, int] = {}
    for k in range(len(branches[0].results) if branches else 0):
        sources = {
            b.arguments.index(source.node) if source.node in b.arguments else None
            for b in branches
            for source in [identity_source(b, b.results[k])]
        }
        if len(sources) == 1 and (number := sources.pop()) is not None:
            inputs[k] = number + 1
    return inputs


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
    graph: Graph,
    functions: Functions,
    users: Iterable[GraphNode] | None = None,
    known: Container[str] = (),
    bounds: Container[str] | None = None,
) -> set[str]:
    """The nodes from which constant inputs of the users (default: all nodes) are computed, up to those `known`.

    bounds: `repeat_bounds` of the graph, where the caller has them.
    """
    bounds = repeat_bounds(graph) if bounds is None else bounds
    names: set[str] = set()
    stack: list[Tensor] = [
        node.inputs[k]
        for node in (graph.nodes.values() if users is None else users)
        for k in constant_inputs(graph, node, functions)
        if k < len(node.inputs) and not _is_like_a_list(graph, node, k)
    ]
    while stack:
        tensor = stack.pop()
        node = graph.nodes.get(tensor.node)
        if node is None or tensor.node in names:
            continue
        number = forwarded_inputs(node, functions).get(tensor.index)
        if number is not None:
            stack.append(node.inputs[number])
            continue
        names.add(tensor.node)
        if tensor.node in known:
            continue
        if node.op in SWITCHES:  # what decides between branches is no part of the value
            stack.append(node.inputs[0])
        elif (
            node.op not in SHAPE_OPS
            and node.name not in bounds
            and not _is_clamped(graph, node)
            and not _popped_argument(graph, node)
        ):
            stack.extend(node.inputs[1:] if tensor in _of_shapes(node) else node.inputs)
    return names


def _of_shapes(node: GraphNode) -> tuple[Tensor, ...]:
    """The results that follow from all inputs but the first."""
    return (Tensor(node.name, 1),) if node.op == "SparseReshape" else ()


def deciding_reductions(
    graph: Graph,
    functions: Functions,
    node: GraphNode,
    is_source: Callable[[GraphNode], bool],
    bounds: Container[str],
) -> dict[str, str]:
    """The reductions of data from which constant inputs of the node are computed, each with the source of its data.

    Such a value is seldom the same twice: the maximum of the lengths of sentences, which is the size of a mask.
    bounds: `repeat_bounds` of the graph, which are known.
    """
    stack = [
        (node.inputs[k], "")
        for k in constant_inputs(graph, node, functions)
        if k < len(node.inputs) and not _is_like_a_list(graph, node, k)
    ]
    names: dict[str, str] = {}
    visited: set[tuple[str, str]] = set()
    while stack:
        tensor, reduction = stack.pop()
        source = graph.nodes.get(tensor.node)
        if source is None or (tensor.node, reduction) in visited:
            continue
        visited.add((tensor.node, reduction))
        number = forwarded_inputs(source, functions).get(tensor.index)
        if number is not None:
            stack.append((source.inputs[number], reduction))
            continue
        if is_source(source):
            if reduction:
                names.setdefault(reduction, source.name)
            continue
        if (
            source.op not in SHAPE_OPS
            and source.name not in bounds
            and not _is_clamped(graph, source)
            and not _popped_argument(graph, source)
        ):
            first = reduction or (source.name if source.op in _REDUCTIONS else "")
            stack += [(t, first) for t in source.inputs]
    return names


_REDUCTIONS = frozenset({"Max", "Min", "Sum", "Mean", "Prod"})


def stage_cuts(
    graph: Graph,
    functions: Functions,
    is_source: Callable[[GraphNode], bool],
    clusterable: Iterable[GraphNode],
) -> set[str]:
    """The nodes behind which a graph is cut into stages: the reductions of data by which constant inputs are computed.

    One number, which may be a size, is an argument of the next stage in the place of the data.
    clusterable: the nodes whose constant inputs count.
    """
    users = [node for node in clusterable if constant_inputs(graph, node, functions)]
    others = {node.name for node in graph.nodes.values()} - {node.name for node in clusterable}
    bounds = repeat_bounds(graph, others)
    cuts: set[str] = set()
    for node in users:
        cuts |= deciding_reductions(graph, functions, node, is_source, bounds).keys()
    return cuts


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
