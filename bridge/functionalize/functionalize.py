"""Rebuilds functional loops and branches from the dataflow form to which TensorFlow lowers them before the graph pass.

Before:  x -> Enter -> Merge -> Switch(LoopCond) -> body -> NextIteration -> Merge ...; Switch -> Exit -> y
After:   x -> While(cond, body) -> y
Inner loops and branches come first: a frame's branches, then the loop of that frame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from ..graph.graph import GraphNode, read_nodes
from ..tf_internals.types import GraphDef
from .dataflow_graph import Dataflow, NotUnderstoodError
from .functionalize_cond import rebuild_branches
from .functionalize_while import rebuild_loop


@dataclasses.dataclass
class Functional:
    """A graph with While, If and Case nodes, their functions in its library.

    rebuilt: names of those nodes. reasons: why others were not, by the name of a loop's LoopCond or a
    branch's Merge.
    """

    graph_def: GraphDef
    rebuilt: set[str]
    reasons: dict[str, str]


def functionalize(
    graph_def: GraphDef,
    preserved: Collection[str] = (),
    excluded: Mapping[str, str] | None = None,
    mark: str = "",
    nodes: Mapping[str, GraphNode] | None = None,
) -> Functional:
    """The graph with loops and branches rebuilt; what is not understood stays.

    preserved: nodes whose names must stay. excluded: nodes of an earlier result that must not be rebuilt, with the
    reason. mark: attribute that a rebuilt node gets from the nodes inside. nodes: the graph's, if they have been read.
    """
    if not any(d.op == "Merge" for d in graph_def.node):
        return Functional(graph_def, set(), {})
    flow = Dataflow(dict(nodes or read_nodes(graph_def)), preserved, excluded or {}, mark)
    try:
        _rebuild_frames(flow)
        rebuilt = flow.rebuilt & flow.nodes.keys()
        return Functional(flow.graph_def(graph_def) if rebuilt else graph_def, rebuilt, flow.reasons)
    except NotUnderstoodError as error:
        conditions = {d.name: str(error) for d in graph_def.node if d.op in ("LoopCond", "Merge")}
        return Functional(graph_def, set(), conditions)


def _rebuild_frames(flow: Dataflow) -> None:
    frame_of = flow.frames()
    parents = flow.parents
    members: dict[str, set[str]] = {frame: set() for frame in parents}
    exits: dict[str, list[str]] = {frame: [] for frame in parents}
    for name, frame in frame_of.items():
        members[frame].add(name)
        node = flow.nodes[name]
        if node.op == "Exit":
            exits[frame_of[node.inputs[0].node]].append(name)
    dataflow_exits: dict[str, dict[str, list[str]]] = {frame: {} for frame in parents}
    for frame in sorted(parents, key=lambda f: -_depth(f, parents)):
        rebuild_branches(flow, members[frame], dataflow_exits[frame])
        if not frame:
            continue
        outer = members[parents[frame]]
        entered = [
            t.node for n in members[frame] if flow.nodes[n].op == "Enter" for t in flow.inputs(flow.nodes[n])
        ]
        before = set(flow.nodes)
        try:
            rebuild_loop(flow, frame, members[frame], exits[frame])
        except NotUnderstoodError as error:
            flow.reasons.update({n: str(error) for n in members[frame] if flow.nodes[n].op == "LoopCond"})
            dataflow_exits[parents[frame]].update(dict.fromkeys(exits[frame], entered))
        outer.update(flow.nodes.keys() - before)
        outer.intersection_update(flow.nodes)


def _depth(frame: str, parents: Mapping[str, str]) -> int:
    depth = 0
    while frame:
        frame, depth = parents[frame], depth + 1
    return depth
