"""Decides which nodes of a graph are compiled together.

Every node gets a level: along an edge from an unclustered node to one that may be clustered, and along one to a later
stage, it rises. Nodes of one level never depend on each other through an unclustered node or another stage, so the
connected ones among them can become one node without making a cycle. Control edges count like data edges; that keeps
reads and writes of variables in TensorFlow's order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...compiler.progress import Progress
from ..cluster.compute_ops import COPIED, TRIVIAL, count_ops
from ..graph.function_library import Functions
from ..graph.graph import ENTERS, LOOPS, Graph, GraphNode, Tensor
from ..options.marks import is_strict
from .dataflow_loops import DataflowLoop, cause
from .list_sharing import ListEdge, crossing_lists, list_edges, refuse_shared_lists, unclustered_between
from .predecessors import predecessors
from .unclusterable import SOURCES

# A launch costs as much as some TensorFlow ops; in a loop of TensorFlow's it is paid in every iteration.
_MIN_OPS_IN_LOOPS = 8
_MAX_RAISES = 16
_MERGES = frozenset({"Merge", "RefMerge"})
_SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})

Levels = Mapping[str, int]
Condition = frozenset[tuple[str, int]]
Conditions = Mapping[str, Condition]


@dataclasses.dataclass
class ClusterAssignment:
    """The clusters of a graph, each the names of its nodes in the graph's order, and why other nodes are in none."""

    clusters: list[list[str]]
    unclustered: dict[str, str]

    def __str__(self) -> str:
        lines = [f"cluster {k}: {', '.join(names)}" for k, names in enumerate(self.clusters)]
        return "\n".join([*lines, *(f"unclustered {name}: {why}" for name, why in self.unclustered.items())])


def mark_for_compilation(
    graph: Graph,
    functions: Functions,
    unclusterable: Mapping[str, str],
    loops: Mapping[str, DataflowLoop],
    min_cluster_size: int,
    stages: Mapping[str, int],
) -> ClusterAssignment:
    """The clusters of a graph.

    unclusterable: why nodes cannot be compiled. loops: the loops that stay in dataflow form, by node.
    min_cluster_size: clusters of fewer compute ops are not made. stages: of every node, which rise along edges: a
    cluster is of one stage.
    """
    unclustered = dict(unclusterable)
    conditions = _conditions(graph)
    levels, components = _components_with_whole_lists(graph, unclustered, loops, conditions, stages)
    sizes = [count_ops((graph.nodes[name] for name in members), functions, TRIVIAL) for members in components]
    clusters: list[list[str]] = []
    for members in _join_small(graph, components, sizes, min_cluster_size, levels, conditions, loops):
        reason = _too_small(graph, functions, members, min_cluster_size, loops.get(members[0]))
        if not reason:
            clusters.append(members)
        else:
            unclustered.update((name, reason) for name in members if graph.nodes[name].op not in COPIED)
    return ClusterAssignment(clusters, unclustered)


def _components_with_whole_lists(
    graph: Graph,
    unclustered: dict[str, str],
    loops: Mapping[str, DataflowLoop],
    conditions: Conditions,
    stages: Mapping[str, int],
) -> tuple[Levels, list[list[str]]]:
    """(the levels, the components). Makers and readers of lists that would lie in two components become unclustered."""
    edges = list_edges(graph)
    progress = Progress("clustering", len(graph.nodes) + 1)
    while True:
        progress.step()
        refuse_shared_lists(graph, edges, unclustered, loops)
        levels = _levels_with_lists(graph, unclustered, edges, stages)
        components = _components(graph, unclustered, levels, conditions)
        crossing = crossing_lists(edges, components)
        if not crossing:
            return levels, components
        blocker = unclustered_between(graph, unclustered, crossing)
        between = f"; between them runs {cause(graph, blocker, unclustered, loops)}" if blocker else ""
        unclustered.update(dict.fromkeys(crossing, f"a list goes from one cluster to another{between}"))


def _too_small(
    graph: Graph,
    functions: Functions,
    members: Sequence[str],
    min_cluster_size: int,
    loop: DataflowLoop | None,
) -> str:
    """Why these nodes are too few for a cluster; empty if they are enough."""
    nodes = [graph.nodes[name] for name in members]
    size = count_ops(nodes, functions, TRIVIAL)
    runs_per_iteration = loop is not None and not any(n.op in LOOPS or is_strict(n.attrs) for n in nodes)
    minimum = max(min_cluster_size, _MIN_OPS_IN_LOOPS if runs_per_iteration else 1)
    if size >= minimum:
        return ""
    where = " inside a loop" if runs_per_iteration else ""
    why = f"; it is inside {loop}" if loop is not None and loop.reason else ""
    return f"its cluster has {size} compute ops, the minimum{where} is {minimum}{why}"


def _join_small(
    graph: Graph,
    components: Sequence[list[str]],
    sizes: Sequence[int],
    min_cluster_size: int,
    levels: Levels,
    conditions: Conditions,
    loops: Mapping[str, DataflowLoop],
) -> list[list[str]]:
    """The components; those that are too small are joined with the largest of the same level, conditions and device.

    They do not depend on each other: one launch does the work of all.
    """
    groups: dict[object, list[int]] = {}
    for number, (name, *_) in enumerate(components):
        if name not in loops:
            groups.setdefault((levels[name], conditions[name], graph.nodes[name].device), []).append(number)
    largest_of: dict[int, int] = {}
    for numbers in groups.values():
        largest = max(numbers, key=lambda k: sizes[k])
        largest_of.update((k, largest) for k in numbers if k != largest and 0 < sizes[k] < min_cluster_size)
    joined = {k: list(members) for k, members in enumerate(components) if k not in largest_of}
    for k, largest in largest_of.items():
        joined[largest] += components[k]
    if not largest_of:
        return list(joined.values())
    order = {name: number for number, name in enumerate(graph.nodes)}
    return [sorted(members, key=order.__getitem__) for members in joined.values()]


def _levels_with_lists(
    graph: Graph, unclustered: Mapping[str, str], edges: Sequence[ListEdge], stages: Mapping[str, int]
) -> dict[str, int]:
    """The levels, those of lists' makers raised to their readers': nothing needs a list's maker to run early.

    Where a reader depends on the maker through an unclustered node too, its level rises each time; that ends.
    """
    floors: dict[str, int] = {}
    for _ in range(_MAX_RAISES):
        levels = _levels(graph, unclustered, floors, stages)
        low = [
            (a, levels[b])
            for a, b in edges
            if b in levels and a not in unclustered and b not in unclustered and levels[a] < levels[b]
        ]
        if not low:
            return levels
        for name, level in low:
            floors[name] = max(level, floors.get(name, 0))
    return _levels(graph, unclustered, {}, stages)


def _levels(
    graph: Graph, unclustered: Mapping[str, str], floors: Mapping[str, int], stages: Mapping[str, int]
) -> dict[str, int]:
    """The level of every node. floors: levels that nodes have at least."""
    levels: dict[str, int] = {}
    for node in graph.nodes.values():
        level = floors.get(node.name, 0)
        for name in predecessors(graph, node):
            if name in levels:
                other = graph.nodes[name]
                rises = (
                    node.name not in unclustered
                    and other.op not in COPIED
                    and (
                        name in unclustered
                        and other.op not in SOURCES
                        or other.device != node.device
                        or stages[name] < stages[node.name]
                        and other.op not in SOURCES
                    )
                )
                level = max(level, levels[name] + rises)
        levels[node.name] = level
    return levels


def _conditions(graph: Graph) -> Conditions:
    """For every node what has to hold for it to run: predicates that Switch nodes read, each with the branch, and the
    loops that it is in.

    Nodes that differ in them may not be in one cluster: one may be dead when the other is not.
    """
    conditions: dict[str, Condition] = {}

    def of(tensor: Tensor) -> Condition:
        node, own = graph.nodes.get(tensor.node), conditions.get(tensor.node, frozenset())
        if node is None or node.op not in _SWITCHES:
            return own
        predicate = node.inputs[1]
        return own | {(f"{predicate.node}:{predicate.index}", tensor.index)}

    for node in graph.nodes.values():
        if node.op in _MERGES:
            conditions[node.name] = _condition_of_merge(graph, node, [of(tensor) for tensor in node.inputs])
        else:
            of_inputs = (*map(of, node.inputs), *(conditions.get(name, frozenset()) for name in node.control))
            conditions[node.name] = frozenset().union(*of_inputs)
    return conditions


def _condition_of_merge(graph: Graph, node: GraphNode, of_inputs: Sequence[Condition]) -> Condition:
    """What has to hold for a Merge: at a loop's head that the loop runs, behind a conditional what both branches need
    besides the predicate. Of others nothing is known."""
    first = graph.nodes.get(node.inputs[0].node)
    if first is not None and first.op in ENTERS:
        return of_inputs[0] | {(f"loop {first.attrs['frame_name'].s.decode()}", -1)}
    if len(of_inputs) == 2:
        differing = sorted(of_inputs[0] ^ of_inputs[1])
        if [branch for _, branch in differing] == [0, 1] and len(
            {predicate for predicate, _ in differing}
        ) == 1:
            return of_inputs[0] & of_inputs[1]
    return frozenset({(node.name, -1)})


def _pivots(graph: Graph) -> set[str]:
    """The nodes that start a branch or a turn of a loop: others wait for them.

    They stay copies of what a Switch gives: with launches in their place, TensorFlow's optimizers of constants and
    dependencies made graphs that it refuses, for they have `inputs from different frames`.
    """
    awaited = {name for node in graph.nodes.values() for name in node.control}
    return {
        node.name
        for node in graph.nodes.values()
        if node.op == "Identity"
        and node.name in awaited
        and (source := graph.nodes.get(node.inputs[0].node)) is not None
        and source.op in _SWITCHES
    }


def _components(
    graph: Graph, unclustered: Mapping[str, str], levels: Levels, conditions: Conditions
) -> list[list[str]]:
    """Nodes that may be compiled, joined where an edge connects two of the same level, conditions and device."""
    pivots = _pivots(graph)
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in graph.nodes.values():
        if node.name in unclustered or node.op in COPIED or node.name in pivots:
            continue
        parent[node.name] = node.name
        for other in predecessors(graph, node):
            if (
                other in parent
                and levels[other] == levels[node.name]
                and conditions[other] == conditions[node.name]
                and node.device == graph.nodes[other].device
            ):
                parent[root(other)] = root(node.name)
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(root(name), []).append(name)
    return list(members.values())
