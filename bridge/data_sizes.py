"""Which tensors of a graph have a size that depends on data, and which nodes may take them.

An array of such a size is one of the largest size that can be, with its size as a value: `Shape` and `Size` of it are
computed at run time. What is made from them may decide the first size of another array, if the op says so (`sized_by`);
whatever else must be known when compiling may not come from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .constness import constant_inputs, has_known_length
from .extents import SHAPE_OPS, constant_of
from .graph import Graph, GraphNode, Tensor, input_range, output_types
from .translate.registry import translations
from .translate.translator import Functions


def data_sizes(graph: Graph, functions: Functions,
               left_out: Collection[str]) -> tuple[dict[str, str], set[Tensor]]:
    """(the nodes that take no array of a size that depends on data but are given one, with that as the reason; the
    tensors of such sizes), where nodes are not left out for other reasons: TensorFlow gives arrays as they are."""
    refused: dict[str, str] = {}
    sized: set[Tensor] = set()
    measuring: set[str] = set()
    for node in graph.nodes.values():
        translation = None if node.name in left_out else translations().get(node.op)
        given = [k for k, t in enumerate(node.inputs) if t in sized]
        takes = translation.takes_sizes if translation is not None else None
        if translation is not None and (not given or takes is not None and set(given) <= set(takes(node, graph))):
            measured = _measured_inputs(graph, node, functions, measuring) if measuring else []
            if any(not _may_size(graph, node, k, measuring) for k in measured):
                refused[node.name] = "a shape that depends on data decides its result, not its first size alone"
                continue
            sizes, drops = translation.sizes, translation.drops_sizes
            numbers: Collection[int] = sizes(node) if sizes is not None else ()
            if given:
                numbers = () if drops is not None and drops(node, graph) else range(len(output_types(node)))
            if measured:
                numbers = range(len(output_types(node)))
            if given and node.op in SHAPE_OPS:
                numbers = ()
                measuring.add(node.name)
            if node.op == "TensorListStack" and not has_known_length(graph, node.inputs[0], functions):
                numbers = (0,)
            sized.update(Tensor(node.name, k) for k in numbers)
        elif given and node.name not in left_out:
            source = node.inputs[given[0]].node
            refused[node.name] = f"the size of an input depends on data, of {source} ({graph.nodes[source].op})"
    return refused, sized


def _measured_inputs(graph: Graph, node: GraphNode, functions: Functions, measuring: Collection[str]) -> list[int]:
    """Numbers of the inputs that decide a shape, or may do, and are made from sizes that depend on data."""
    translation = translations()[node.op]
    numbers = set(constant_inputs(graph, node, functions))
    if translation.more_constants is not None:
        numbers.update(range(node.op != "Range", len(node.inputs)))
    return [k for k in sorted(numbers) if k < len(node.inputs) and _sources(graph, [node.inputs[k]]) & set(measuring)]


def _sources(graph: Graph, tensors: Iterable[Tensor]) -> set[str]:
    """The nodes from which tensors are made, back to those that read a shape."""
    found: set[str] = set()
    stack = [t.node for t in tensors]
    while stack:
        name = stack.pop()
        if name in found or name not in graph.nodes:
            continue
        found.add(name)
        if graph.nodes[name].op not in SHAPE_OPS:
            stack.extend(t.node for t in graph.nodes[name].inputs)
    return found


def _may_size(graph: Graph, node: GraphNode, number: int, measuring: Collection[str]) -> bool:
    """Whether an input is one by which the op lets a size that depends on data decide its result's first size."""
    names = [name for name in translations()[node.op].sized_by if number == input_range(node.definition, name)[0]]
    return bool(names) and _is_first_alone(graph, node.inputs[number], measuring)


def _is_first_alone(graph: Graph, tensor: Tensor, measuring: Collection[str]) -> bool:
    """Whether a scalar or a vector is a size that depends on data, with sizes behind it that do not."""
    node = graph.nodes[tensor.node]

    def are_fixed(tensors: Iterable[Tensor]) -> bool:
        return not _sources(graph, tensors) & set(measuring)

    match node.op:
        case op if op in SHAPE_OPS:
            return True
        case "Identity" | "ExpandDims" | "Cast":
            return _is_first_alone(graph, node.inputs[0], measuring)
        case "Reshape":  # of one number to a vector of it
            source = graph.nodes[node.inputs[0].node]
            return source.op == "Size" and are_fixed(node.inputs[1:])
        case "StridedSlice":
            return graph.nodes[node.inputs[0].node].op == "Shape" and all(
                constant_of(graph, t.node) is not None for t in node.inputs[1:])
        case "ConcatV2":
            axis = constant_of(graph, node.inputs[-1].node)
            return axis is not None and not axis.any() and _is_first_alone(graph, node.inputs[0], measuring) \
                and are_fixed(node.inputs[1:])
        case "Pack":
            return not node.attrs["axis"].i and _is_first_alone(graph, node.inputs[0], measuring) \
                and are_fixed(node.inputs[1:])
    return False
