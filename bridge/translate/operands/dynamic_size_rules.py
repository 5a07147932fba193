"""Which inputs of a node may have a first axis of a size that depends on data: it stays the result's, or goes away."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import UnsupportedError
from ...analysis import symbolic_size
from ...graph.graph import Graph, GraphNode, input_range
from ..node import Node

Rule = Callable[[GraphNode, Graph], Collection[int]]


def only(*numbers: int) -> Rule:
    """These inputs, whatever the node."""
    return lambda node, graph: numbers


def along_others(operand: str, axis: str) -> Rule:
    """An input, where a constant names an axis behind the first (-1: `keep_first` says when it is the first)."""

    def rule(node: GraphNode, graph: Graph) -> Collection[int]:
        value = symbolic_size.constant_of(graph, node.inputs[input_range(node.definition, axis)[0]].node)
        is_behind = value is not None and value.size == 1 and (value.item() > 0 or value.item() == -1)
        return range(*input_range(node.definition, operand)) if is_behind else ()

    return rule


def keep_first(node: Node, operand: Operand, axis: int) -> None:
    """Raises: UnsupportedError  the axis that an op works along has a size that depends on data."""
    if axis in node.b.get_shape(operand).dynamic:
        raise UnsupportedError(f"{node.op}: axis {axis} has a size that depends on data")


def sliced_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    """The input of a StridedSlice that takes all of the first axis."""
    attrs = node.attrs
    strides = symbolic_size.constant_of(graph, node.inputs[3].node)
    if (
        strides is not None
        and attrs["ellipsis_mask"].i | attrs["new_axis_mask"].i == (1 << strides.size) - 1
        and attrs["ellipsis_mask"].i == 1
    ):
        return (0,)  # x[..., new]
    if attrs["new_axis_mask"].i & 1 or attrs["shrink_axis_mask"].i & 1:
        return ()
    whole = attrs["begin_mask"].i & attrs["end_mask"].i & 1 and strides is not None and strides[:1] == 1
    return (0,) if whole else ()


def padded_behind(node: GraphNode, graph: Graph) -> Collection[int]:
    """The input of a Pad that adds nothing along the first axis."""
    paddings = symbolic_size.constant_of(graph, node.inputs[1].node)
    return (0,) if paddings is not None and paddings.size and not paddings[0].any() else ()
