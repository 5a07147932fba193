"""Decides which nodes of a graph are compiled together, and why the others are not.

Every node gets a level: along an edge from a node that is left out to one that is not, it rises. Nodes of one level
never depend on each other through a node that is left out, so the connected ones among them can become one node without
making a cycle. Control edges count like data edges; that keeps reads and writes of variables in TensorFlow's order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ...compiler.progress import Progress
from ..analysis.compile_time_constants import LOOPS, constant_inputs, constant_sources, data_behind
from ..analysis.dynamic_size_analysis import data_sizes
from ..api.options import is_strict
from ..graph.graph import DATAFLOW, Graph, GraphNode, Tensor, input_types, output_types
from ..tf_internals.dtypes import element_type
from ..translate.control.tensor_array import STORES
from ..translate.translator import Functions
from .cluster import attribute_content_type, called_functions, count_ops, node_use, refusal, unsupported

# Free to copy into every cluster that reads them, and no reason to make a cluster.
COPIED = frozenset({"Const"})
TRIVIAL = frozenset(
    {
        "Const",
        "Identity",
        "IdentityN",
        "NoOp",
        "ReadVariableOp",
        "AssignVariableOp",
        "Assert",
        "Shape",
        "Size",
        "Rank",
        "StopGradient",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "VariableShape",
        "VarIsInitializedOp",
    }
)
_ENDS = frozenset(
    {
        "_Arg",
        "_Retval",
        "_DeviceArg",
        "_DeviceRetval",
        "Placeholder",
        "PlaceholderWithDefault",
        "VarHandleOp",
        "TfbridgeLaunch",
    }
)
_SOURCES = _ENDS - {"PlaceholderWithDefault", "TfbridgeLaunch"}  # ends that depend on nothing
_MERGES = frozenset({"Merge", "RefMerge"})
# A value that is made by one of these cannot be known when compiling, even if its inputs are.
_NOT_CONSTANT = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
    }
)


@dataclasses.dataclass
class Plan:
    """The clusters of a graph, each the names of its nodes in the graph's order, and why nodes were left out."""

    clusters: list[list[str]]
    left_out: dict[str, str]

    def __str__(self) -> str:
        lines = [f"cluster {k}: {', '.join(names)}" for k, names in enumerate(self.clusters)]
        return "\n".join([*lines, *(f"left out {name}: {why}" for name, why in self.left_out.items())])


def decide(
    graph: Graph,
    functions: Functions,
    *,
    minimum: int,
    fetched: Collection[str] = (),
    wanted: Callable[[GraphNode], bool] | None = None,
    unrebuilt: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a graph.

    minimum: clusters of fewer compute ops are not made. fetched: nodes whose outputs must be found in the graph.
    wanted: whether a node may be compiled at all (None: all may). unrebuilt: why loops and branches are not one node,
    by the names of their LoopCond and Merge nodes.
    """
    loops = _loops(graph, unrebuilt or {})
    left_out = _left_out(graph, functions, fetched, wanted, loops)
    conditions = _conditions(graph)
    lists = _lists(graph)
    progress = Progress("clustering", len(graph.nodes) + 1)
    while True:
        progress.step()
        _leave_out_lists(graph, lists, left_out, loops)
        levels = _levels_with_lists(graph, left_out, lists)
        components = _components(graph, left_out, levels, conditions)
        crossing = _lists_between(lists, components)
        if not crossing:
            break
        between = _between(graph, left_out, crossing)
        cause = f"; between them runs {_cause(graph, between, left_out, loops)}" if between else ""
        left_out.update(dict.fromkeys(crossing, f"a list goes from one cluster to another{cause}"))
    clusters: list[list[str]] = []
    sizes = [count_ops((graph.nodes[name] for name in members), functions, TRIVIAL) for members in components]
    together = _with_small(graph, components, sizes, minimum, levels, conditions, loops)
    for members in together:
        size = count_ops((graph.nodes[name] for name in members), functions, TRIVIAL)
        loop = loops.get(members[0])
        is_step = loop is not None and not any(
            graph.nodes[name].op in LOOPS or is_strict(graph.nodes[name].attrs) for name in members
        )
        least = max(minimum, _LEAST_IN_LOOPS if is_step else 1)
        if size >= least:
            clusters.append(members)
        else:
            reason = f"its cluster has {size} compute ops, the minimum{' inside a loop' if is_step else ''} is {least}"
            reason += f"; it is inside {loop}" if loop is not None and loop.reason else ""
            left_out.update((name, reason) for name in members if graph.nodes[name].op not in COPIED)
    return Plan(clusters, left_out)


@dataclasses.dataclass(frozen=True)
class _Loop:
    """A loop that stayed in dataflow form, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"the loop {self.name}" + (f", which is left because: {self.reason}" if self.reason else "")


def _loops(graph: Graph, unrebuilt: Mapping[str, str]) -> dict[str, _Loop]:
    """The innermost loop around every node between the Enter and the Exit nodes of one, those included."""
    frames: dict[str, tuple[str, ...]] = {}
    innermost: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for node in graph.nodes.values():
        given = (frames.get(n, ()) for n in (*(t.node for t in node.inputs), *node.control))
        around = max(given, key=len, default=())
        if node.op in ("Enter", "RefEnter"):
            around = (*around, node.attrs["frame_name"].s.decode())
        elif node.op == "LoopCond" and around and node.name in unrebuilt:
            reasons[around[-1]] = unrebuilt[node.name]
        if around:
            innermost[node.name] = around[-1]
        frames[node.name] = around[:-1] if node.op in ("Exit", "RefExit") else around
    return {name: _Loop(frame, reasons.get(frame, "")) for name, frame in innermost.items()}


def _cause(graph: Graph, name: str, left_out: Mapping[str, str], loops: Mapping[str, _Loop]) -> str:
    """A node that is left out, or the loop it belongs to, with the reason."""
    node, loop = graph.nodes[name], loops.get(name)
    if node.op in DATAFLOW and loop is not None:
        return str(loop)
    return f"{name} ({node.op}), which runs in TensorFlow: {left_out.get(name, 'it is an end of the graph')}"


# A launch costs as much as some TensorFlow ops; in a loop that stayed TensorFlow's it is paid in every iteration.
_LEAST_IN_LOOPS = 8


def _with_small(
    graph: Graph,
    components: Sequence[list[str]],
    sizes: Sequence[int],
    minimum: int,
    levels: Mapping[str, int],
    conditions: Mapping[str, frozenset[tuple[str, int]]],
    loops: Mapping[str, _Loop],
) -> list[list[str]]:
    """The components, those that are too small joined with the largest that runs at the same time, or with each other.

    They do not depend on each other: one launch does the work of all.
    """
    alike: dict[object, list[int]] = {}
    for number, (name, *_) in enumerate(components):
        if name not in loops:
            alike.setdefault((levels[name], conditions[name], graph.nodes[name].device), []).append(number)
    into: dict[int, int] = {}
    for numbers in alike.values():
        largest = max(numbers, key=lambda k: sizes[k])
        into.update((k, largest) for k in numbers if k != largest and 0 < sizes[k] < minimum)
    joined = {k: list(members) for k, members in enumerate(components) if k not in into}
    for k, largest in into.items():
        joined[largest] += components[k]
    order = {name: number for number, name in enumerate(graph.nodes)} if into else {}
    return [sorted(members, key=order.__getitem__) if into else members for members in joined.values()]


def _left_out(
    graph: Graph,
    functions: Functions,
    fetched: Collection[str],
    wanted: Callable[[GraphNode], bool] | None,
    loops: Mapping[str, _Loop],
) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for node in graph.nodes.values():
        reason = _reason(graph, node, functions, fetched, wanted)
        if node.op in DATAFLOW and node.name in loops:
            reason = f"control flow of {loops[node.name]}"
        if reason is not None:
            reasons[node.name] = reason
    for node in graph.nodes.values():
        if node.name not in reasons and constant_inputs(graph, node, functions):
            sources = constant_sources(graph, functions, [node])
            bad = next((s for s in sources if s not in reasons and graph.nodes[s].op in _NOT_CONSTANT), None)
            if bad is not None:
                reasons[node.name] = (
                    f"an input that must be known when compiling comes from {bad} ({graph.nodes[bad].op})"
                )
            elif data := data_behind(graph, functions, node):
                reasons[node.name] = (
                    f"an input that must be known when compiling depends on the elements of {data}"
                )
    reasons.update(data_sizes(graph, functions, reasons).refused)
    reasons.update(_asking(graph, functions))
    return reasons


def _asking(graph: Graph, functions: Functions) -> dict[str, str]:
    """Why nodes that ask whether a variable has a value, or write one that is asked about, are not compiled.

    A launch gives a variable its first value only where that has an object, which one that a graph names may lack.
    """
    reasons: dict[str, str] = {}
    for node in [n for n in graph.nodes.values() if n.op == "VarIsInitializedOp"]:
        handle = graph.nodes[node.inputs[0].node]
        if not attribute_content_type(handle):
            reasons[node.name] = "nothing tells the type of its variable"
        if handle.op == "VarHandleOp":
            writers = [
                n
                for n in graph.nodes.values()
                for k, t in enumerate(n.inputs)
                if t.node == handle.name and node_use(n, k, functions)[1]
            ]
            both = [node, *(n for n in writers if called_functions(n))] if writers else []
            reasons.update({n.name: "a variable that may not exist yet is written, or is not" for n in both})
    return reasons


def _reason(
    graph: Graph,
    node: GraphNode,
    functions: Functions,
    fetched: Collection[str],
    wanted: Callable[[GraphNode], bool] | None,
) -> str | None:
    """Why a node by itself cannot be part of a cluster."""
    if node.op in _ENDS or node.op in DATAFLOW:
        return "an end of the graph" if node.op in _ENDS else "control flow that could not be rebuilt"
    if (
        node.name in fetched
        and len(types := output_types(node)) > 1
        and any(element_type(t) is None for t in types)
    ):
        return "it is fetched, and has outputs that are no arrays"
    if wanted is not None and not wanted(node):
        return "it is not in a scope that is to be compiled"
    if node.device and "CPU" not in node.device.upper():
        return f"it is placed on {node.device}"
    reason = refusal(node, functions, graph)
    if reason is not None:
        return reason
    for name in called_functions(node):
        if name in functions.definitions and (problems := unsupported(functions[name], functions)):
            return f"{problems[0][0].name} ({problems[0][0].op}) within it: {problems[0][1]}"
    for types, what in ((input_types(node), "input"), (output_types(node), "output")):
        for type_ in types:
            handle = type_ == _RESOURCE and (what == "input" or node.op in LOOPS or node.op in STORES)
            if type_ == _STRING and _is_text(graph, node):
                continue
            if element_type(type_) is None and not handle and type_ != _VARIANT:
                return f"an {what} is no array"
    return None


_STRING, _RESOURCE, _VARIANT = 7, 20, 21  # DT_STRING, DT_RESOURCE, DT_VARIANT


def _is_text(graph: Graph, node: GraphNode) -> bool:
    """Whether the node is a constant of strings, or all strings that it takes are constants, for messages within it."""
    if node.op in COPIED:
        return True
    sources = [
        graph.nodes.get(tensor.node)
        for tensor, type_ in zip(node.inputs, input_types(node))
        if type_ == _STRING
    ]
    return _STRING not in output_types(node) and all(s is not None and s.op in COPIED for s in sources)


def _lists(graph: Graph) -> list[tuple[str, str]]:
    """(maker, reader) of every tensor that is a list, or the handle of an array or a stack that TensorFlow keeps; the
    reader is empty for a result of the graph."""

    def is_list(tensor: Tensor) -> bool:
        node = graph.nodes.get(tensor.node)
        return node is not None and node.op != "_Arg" and output_types(node)[tensor.index] == _VARIANT

    stores = _stores(graph)
    edges = [
        (t.node, node.name) for node in graph.nodes.values() for t in node.inputs if is_list(t) or t in stores
    ]
    arguments = [
        (t.node, node.name)
        for node in graph.nodes.values()
        for t in node.inputs
        if graph.nodes[t.node].op == "_Arg" and graph.nodes[t.node].attrs["T"].type == _VARIANT
    ]
    return edges + arguments + [(t.node, "") for t in graph.results if is_list(t)]


def _stores(graph: Graph) -> set[Tensor]:
    """The handles of arrays and stacks that TensorFlow keeps, as they come out of their makers and go through loops."""
    found: set[Tensor] = set()
    for node in graph.nodes.values():
        if node.op in STORES:
            found.add(Tensor(node.name, 0))
        elif any(t in found for t in node.inputs) and (
            node.op in DATAFLOW or node.op in LOOPS or node.op == "Identity"
        ):
            found.update(
                Tensor(node.name, k) for k, type_ in enumerate(output_types(node)) if type_ == _RESOURCE
            )
    return found


def _leave_out_lists(
    graph: Graph, edges: Sequence[tuple[str, str]], left_out: dict[str, str], loops: Mapping[str, _Loop]
) -> None:
    """Leaves out what makes or reads a list that a node outside of all clusters reads or makes; the reason names the
    first such node, from which it spreads."""
    sharing: dict[str, list[str]] = {}
    for a, b in edges:
        sharing.setdefault(a, []).append(b)
        sharing.setdefault(b, []).append(a)
    firsts = [name for name in sharing if name in left_out and not left_out[name].startswith(_SHARES)]
    firsts.sort(key=lambda name: graph.nodes[name].op in DATAFLOW)  # an op tells more than the loop around it
    for first in (*firsts, ""):
        stack = [first]
        what = _cause(graph, first, left_out, loops) if first else "the caller: it is a result of the graph"
        while stack:
            found = [name for name in sharing.get(stack.pop(), ()) if name and name not in left_out]
            left_out.update(dict.fromkeys(found, f"{_SHARES} {what}"))
            stack += found


_SHARES = "it shares a list with"


def _between(graph: Graph, left_out: Mapping[str, str], names: Collection[str]) -> str:
    """A node that is left out and depends on one of these, and on which another of them depends; empty for none."""
    behind: dict[str, str] = {}  # the first node that is left out, of those that depend on one of the names
    for node in graph.nodes.values():
        found = next((behind[n] for n in before(graph, node) if n in behind and behind[n]), "")
        is_behind = found or any(n in behind or n in names for n in before(graph, node))
        if node.name in names and found:
            return found
        if is_behind:
            behind[node.name] = found or (node.name if node.name in left_out else "")
    return ""


def _lists_between(edges: Sequence[tuple[str, str]], components: Sequence[Sequence[str]]) -> set[str]:
    """Nodes that make or read a list that goes from one component to another."""
    number = {name: k for k, members in enumerate(components) for name in members}
    return {n for a, b in edges if a in number and number[a] != number.get(b) for n in (a, b)}


def before(graph: Graph, node: GraphNode) -> set[str]:
    """The nodes that a node reads or waits for, and what the constants among them wait for."""
    names = {*(t.node for t in node.inputs), *node.control} & graph.nodes.keys()
    return names.union(behind_constants(graph, names))


def behind_constants(graph: Graph, names: Iterable[str]) -> list[str]:
    """The nodes for which these wait: constants, which a cluster copies, wait for what their control inputs do."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    stack = [name for name in names if name in graph.nodes]
    while stack:
        name = stack.pop()
        if graph.nodes[name].op not in COPIED:
            found[name] = None
        elif name not in seen:
            seen.add(name)
            stack.extend(c for c in graph.nodes[name].control if c in graph.nodes)
    return list(found)


def _levels_with_lists(
    graph: Graph, left_out: Mapping[str, str], lists: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """The levels, those of lists' makers raised to their readers': nothing needs a list's maker to run early.

    Where a reader depends on the maker through a node that is left out too, its level rises each time; that ends.
    """
    floors: dict[str, int] = {}
    for _ in range(_MOST_RAISES):
        levels = _levels(graph, left_out, floors)
        low = [
            (a, levels[b])
            for a, b in lists
            if b in levels and a not in left_out and b not in left_out and levels[a] < levels[b]
        ]
        if not low:
            return levels
        for name, level in low:
            floors[name] = max(level, floors.get(name, 0))
    return _levels(graph, left_out, {})


_MOST_RAISES = 16


def _levels(graph: Graph, left_out: Mapping[str, str], floors: Mapping[str, int]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for node in graph.nodes.values():
        level = floors.get(node.name, 0)
        for name in before(graph, node):
            if name in levels:
                other = graph.nodes[name]
                rises = (
                    node.name not in left_out
                    and other.op not in COPIED
                    and (name in left_out and other.op not in _SOURCES or other.device != node.device)
                )
                level = max(level, levels[name] + rises)
        levels[node.name] = level
    return levels


def _conditions(graph: Graph) -> dict[str, frozenset[tuple[str, int]]]:
    """For every node the branches of Switch nodes on which it depends: nodes that differ in them may not mix, for one
    may be dead when the other is not."""
    found: dict[str, frozenset[tuple[str, int]]] = {}
    for node in graph.nodes.values():
        if node.op in _MERGES:
            found[node.name] = frozenset({(node.name, -1)})
            continue
        own: frozenset[tuple[str, int]] = frozenset()
        for tensor in node.inputs:
            own |= found.get(tensor.node, frozenset())
            if tensor.node in graph.nodes and graph.nodes[tensor.node].op in (
                "Switch",
                "RefSwitch",
                "_SwitchN",
            ):
                own |= {(tensor.node, tensor.index)}
        for name in node.control:
            own |= found.get(name, frozenset())
        found[node.name] = own
    return found


def _components(
    graph: Graph,
    left_out: Mapping[str, str],
    levels: Mapping[str, int],
    conditions: Mapping[str, frozenset[tuple[str, int]]],
) -> list[list[str]]:
    """Nodes that may be compiled, joined where an edge connects two of the same level and conditions."""
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in graph.nodes.values():
        if node.name in left_out or node.op in COPIED:
            continue
        parent[node.name] = node.name
        for other in before(graph, node):
            if (
                other in parent
                and levels[other] == levels[node.name]
                and conditions[other] == conditions[node.name]
                and node.device == graph.nodes[other].device
            ):
                parent[find(other)] = find(node.name)
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(find(name), []).append(name)
    return list(members.values())
