"""Constants in the place of ops whose result has a size that depends on data, where constants decide that data.

Before:  indices = Where(MatrixBandPart(ones)); part = GatherV2(x, indices, axis)
After:   indices = Const; part = GatherV2(x, indices, axis)

So it is with masks that are constants. TensorFlow finds the result while the function is compiled, and what reads it
has known sizes.
"""

from __future__ import annotations

import numpy as np

from ..graph.graph import (
    Graph,
    GraphNode,
    Tensor,
    constant_node,
    live_nodes,
    op_definition,
    output_types,
    sort,
    takes_functions,
)
from ..tf_internals import symbols as tfp
from ..tf_internals.types import GraphDef, NodeDef
from ..translate.registry import translations

_MAX_BYTES = 10 << 20  # as TensorFlow's own optimizers keep them


def with_constant_results(graph: Graph) -> Graph:
    """The graph of a function with constants for such ops."""
    constants: dict[str, GraphNode] = {}
    for node in graph.nodes.values():
        translation = translations().get(node.op)
        if translation is not None and (translation.sizes is not None or translation.fixed):
            values = _results(graph, node)
            if values is not None and sum(v.nbytes for v in values) <= _MAX_BYTES:
                constants |= _constants(node, values)
    if not constants:
        return graph
    ends = [*(t.node for t in graph.results), *graph.control_results]
    nodes = live_nodes(graph.nodes | constants, ends)
    return Graph(sort(nodes), graph.arguments, graph.results, graph.control_results, graph.name)


def _results(graph: Graph, node: GraphNode) -> list[np.ndarray] | None:
    """The results of a node; None where more than constants decides them."""
    needed: dict[str, GraphNode] = {}
    stack = [node.name]
    while stack:
        name = stack.pop()
        if name in needed:
            continue
        needed[name] = current = graph.nodes[name]
        definition = op_definition(current.op)
        if (
            current.op == "_Arg"
            or definition is None
            or definition.is_stateful
            or takes_functions(current.op)
        ):
            return None
        stack += [t.node for t in current.inputs]
    graph_def = GraphDef()
    for current in needed.values():
        copy = graph_def.node.add()
        copy.CopyFrom(current.definition)
        copy.input[:] = [f"{t.node}:{t.index}" for t in current.inputs]
    return tfp.constant_results(graph_def, node.name)


def _constants(node: GraphNode, values: list[np.ndarray]) -> dict[str, GraphNode]:
    """The nodes that take the place of one: a constant, or a tuple of them."""
    if len(values) == 1:
        return {node.name: constant_node(node.name, values[0])}
    parts = [constant_node(f"{node.name}/constant_{k}", value) for k, value in enumerate(values)]
    definition = NodeDef(name=node.name, op="IdentityN", input=[part.name for part in parts])
    definition.attr["T"].list.type.extend(output_types(node))
    inputs = [Tensor(part.name, 0) for part in parts]
    return {part.name: part for part in parts} | {
        node.name: GraphNode(node.name, "IdentityN", inputs, [], definition)
    }
