"""Tensor lists, arrays and stacks do not cross the edge of a cluster: all that makes or reads one is in one cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..graph.graph import DATAFLOW, DT_RESOURCE, DT_VARIANT, LOOPS, Graph, Tensor, output_types
from ..tf_internals.types import GraphDef
from ..translate.control.tensor_array import STORES
from .dataflow_loops import DataflowLoop, cause
from .predecessors import predecessors

_SHARES = "it shares a list with"
_NEW_LISTS = frozenset({"EmptyTensorList", "TensorListFromTensor", "TensorListReserve"})
ListEdge = tuple[str, str]
"""(maker, reader) of a list; the reader is empty for a result of the graph."""


def list_edges(graph: Graph) -> list[ListEdge]:
    """The edges of all tensors that are lists, or handles of arrays and stacks that TensorFlow keeps."""

    def is_list(tensor: Tensor) -> bool:
        node = graph.nodes.get(tensor.node)
        return node is not None and node.op != "_Arg" and output_types(node)[tensor.index] == DT_VARIANT

    handles = _store_handles(graph)
    edges = [
        (t.node, node.name)
        for node in graph.nodes.values()
        for t in node.inputs
        if is_list(t) or t in handles
    ]
    arguments = [
        (t.node, node.name)
        for node in graph.nodes.values()
        for t in node.inputs
        if graph.nodes[t.node].op == "_Arg" and graph.nodes[t.node].attrs["T"].type == DT_VARIANT
    ]
    return edges + arguments + [(t.node, "") for t in graph.results if is_list(t)]


def _store_handles(graph: Graph) -> set[Tensor]:
    """The handles of arrays and stacks that TensorFlow keeps, at their makers and behind loops and identities."""
    handles: set[Tensor] = set()
    for node in graph.nodes.values():
        if node.op in STORES:
            handles.add(Tensor(node.name, 0))
        elif any(t in handles for t in node.inputs) and (
            node.op in DATAFLOW or node.op in LOOPS or node.op == "Identity"
        ):
            handles.update(
                Tensor(node.name, k) for k, type_ in enumerate(output_types(node)) if type_ == DT_RESOURCE
            )
    return handles


def refuse_shared_lists(
    graph: Graph,
    edges: Sequence[ListEdge],
    unclustered: dict[str, str],
    loops: Mapping[str, DataflowLoop],
) -> None:
    """Adds to `unclustered` all makers and readers of lists that one of its nodes, or the caller, makes or reads.

    The reason names the node of `unclustered` with which the list is shared.
    """
    sharing: dict[str, list[str]] = {}
    for maker, reader in edges:
        sharing.setdefault(maker, []).append(reader)
        sharing.setdefault(reader, []).append(maker)
    roots = [name for name in sharing if name in unclustered and not unclustered[name].startswith(_SHARES)]
    roots.sort(key=lambda name: graph.nodes[name].op in DATAFLOW)  # an op says more than the loop around it
    for root in (*roots, ""):
        reason = cause(graph, root, unclustered, loops) if root else "the caller: it is a result of the graph"
        stack = [root]
        while stack:
            names = [name for name in sharing.get(stack.pop(), ()) if name and name not in unclustered]
            unclustered.update(dict.fromkeys(names, f"{_SHARES} {reason}"))
            stack += names


def is_refused_for_sharing(unclustered: Mapping[str, str]) -> bool:
    """Whether a list that is shared is the reason why nodes are in no cluster."""
    return any(why.startswith(_SHARES) for why in unclustered.values())


def with_lists_of_their_own(graph_def: GraphDef) -> GraphDef | None:
    """The graph with a new list for every reader of one; None where no list is shared as it is made.

    Before:  x -> TensorListFromTensor -> two loops
    After:   x -> TensorListFromTensor -> one loop; x -> TensorListFromTensor -> the other

    TensorFlow's optimizers make one op of equal ones: loops over the same array, which know nothing of each other, then
    share its list. Lists are values, so that copies are as good.
    """
    makers = {d.name: d for d in graph_def.node if d.op in _NEW_LISTS}
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    read: set[str] = set()
    copies = 0
    names = {d.name for d in graph_def.node}
    for definition in copy.node[:]:
        for k, text in enumerate(definition.input):
            maker = makers.get(text.removesuffix(":0"))
            if maker is None:
                continue
            if maker.name not in read:
                read.add(maker.name)
                continue
            while (name := f"{maker.name}/tfbridge_list_{copies}") in names:
                copies += 1
            names.add(name)
            copy.node.add().CopyFrom(maker)
            copy.node[-1].name = definition.input[k] = name
    return copy if len(copy.node) > len(graph_def.node) else None


def crossing_lists(edges: Sequence[ListEdge], components: Sequence[Sequence[str]]) -> set[str]:
    """The makers and readers of lists that go from one component to another."""
    number = {name: k for k, members in enumerate(components) for name in members}
    return {n for a, b in edges if a in number and number[a] != number.get(b) for n in (a, b)}


def unclustered_between(graph: Graph, unclustered: Mapping[str, str], names: Collection[str]) -> str:
    """An unclustered node on a path from one of these nodes to another of them; empty for none."""
    first: dict[
        str, str
    ] = {}  # by node behind one of `names`: the first unclustered node on a path to it, or ""
    for node in graph.nodes.values():
        earlier = predecessors(graph, node)
        blocker = next((first[n] for n in earlier if n in first and first[n]), "")
        if node.name in names and blocker:
            return blocker
        if blocker or any(n in first or n in names for n in earlier):
            first[node.name] = blocker or (node.name if node.name in unclustered else "")
    return ""
