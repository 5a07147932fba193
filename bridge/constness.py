"""Which arguments of a graph must be known when compiling, because a constant input of some op is made from them."""

from __future__ import annotations

from collections.abc import Iterable

from .graph import Graph, GraphNode, Tensor, input_range
from .translate.registry import translations
from .translate.translator import Functions

# Their results follow from the shapes of their inputs, which are always known.
_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "TensorListLength", "TensorListElementShape"})


def constant_inputs(node: GraphNode, functions: Functions) -> list[int]:
    """Numbers of a node's inputs that must be known when compiling."""
    translation = translations().get(node.op)
    numbers: list[int] = []
    if translation is not None:
        for name in translation.constants:
            numbers.extend(range(*input_range(node.definition, name)))
    if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
        called = node.attrs["f"].func.name
    elif node.op in functions.definitions:
        called = node.op
    else:
        return numbers
    return numbers + constant_arguments(functions[called], functions) if called in functions.definitions else numbers


def constant_arguments(graph: Graph, functions: Functions) -> list[int]:
    """Numbers of a graph's arguments whose values must be known when compiling, in order."""
    return sorted(graph.arguments.index(name) for name in constant_sources(graph, functions)
                  if name in set(graph.arguments))


def constant_sources(graph: Graph, functions: Functions, users: Iterable[GraphNode] | None = None) -> set[str]:
    """Names of all nodes from which a constant input of the users (default: all nodes) is made."""
    wanted: set[str] = set()
    stack: list[Tensor] = [node.inputs[k] for node in (graph.nodes.values() if users is None else users)
                           for k in constant_inputs(node, functions) if k < len(node.inputs)]
    while stack:
        tensor = stack.pop()
        node = graph.nodes.get(tensor.node)
        if node is None or tensor.node in wanted:
            continue
        wanted.add(tensor.node)
        if node.op not in _SHAPE_OPS:
            stack.extend(node.inputs)
    return wanted
