"""Loops that stay in dataflow form: TensorFlow's executor runs them, and clusters lie within an iteration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..graph.graph import DATAFLOW, ENTERS, Graph


@dataclasses.dataclass(frozen=True)
class DataflowLoop:
    """The frame's name, and why the loop was not rebuilt; empty: not known."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"the loop {self.name}" + (f", which is left because: {self.reason}" if self.reason else "")


def dataflow_loops(graph: Graph, not_rebuilt: Mapping[str, str]) -> dict[str, DataflowLoop]:
    """The innermost loop of every node from its Enter to its Exit nodes.

    not_rebuilt: the reasons of `functionalize`, by the name of the LoopCond.
    """
    frames: dict[str, tuple[str, ...]] = {}  # from the outermost to the innermost
    innermost: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for node in graph.nodes.values():
        of_inputs = (frames.get(n, ()) for n in (*(t.node for t in node.inputs), *node.control))
        own = max(of_inputs, key=len, default=())
        if node.op in ENTERS:
            own = (*own, node.attrs["frame_name"].s.decode())
        elif node.op == "LoopCond" and own and node.name in not_rebuilt:
            reasons[own[-1]] = not_rebuilt[node.name]
        if own:
            innermost[node.name] = own[-1]
        frames[node.name] = own[:-1] if node.op in ("Exit", "RefExit") else own
    return {name: DataflowLoop(frame, reasons.get(frame, "")) for name, frame in innermost.items()}


def cause(graph: Graph, name: str, unclustered: Mapping[str, str], loops: Mapping[str, DataflowLoop]) -> str:
    """A node outside clusters, or the loop that it is part of, with the reason; for a message."""
    node, loop = graph.nodes[name], loops.get(name)
    if node.op in DATAFLOW and loop is not None:
        return str(loop)
    return (
        f"{name} ({node.op}), which runs in TensorFlow: {unclustered.get(name, 'it is an end of the graph')}"
    )
