"""What became of each graph: its clusters, and why other nodes run in TensorFlow; kept for `explain` and logged."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import logging
from collections.abc import Collection, Mapping

from ...runtime import statistics
from ..cluster.cluster import Cluster
from ..graph.graph import DATAFLOW, Graph
from ..launch.op import OP
from ..tf_internals import symbols as tfp
from ..tf_internals.types import ConcreteFunction, GraphDef

_MAX_REPORTS = 256
NOT_REPORTED = frozenset(
    {
        "_Arg",
        "_Retval",
        "_DeviceArg",
        "_DeviceRetval",
        "Placeholder",
        "NoOp",
        "Const",
        "Identity",
        "VarHandleOp",
        "ReadVariableOp",
        "AssignVariableOp",
        OP,
    }
) | DATAFLOW - {"LoopCond"}
"""Ops outside clusters that reports leave out: they compute nothing, or belong to a loop that its LoopCond names."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of one graph: its clusters; by node, (op, reason) of those outside clusters."""

    clusters: tuple[Cluster, ...]
    unclustered: dict[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class PreviewedGraph:
    """What the graph pass would make of a graph."""

    original: GraphDef
    rewritten: GraphDef
    report: Report


@dataclasses.dataclass
class Preview:
    """A run of the graph pass that changes no graph. `fetched`: the nodes whose results the function returns."""

    fetched: frozenset[str]
    graphs: list[PreviewedGraph] = dataclasses.field(default_factory=list)


_log = logging.getLogger("tfbridge.clusters")
_reports: collections.deque[Report] = collections.deque(maxlen=_MAX_REPORTS)
_preview: contextvars.ContextVar[Preview | None] = contextvars.ContextVar("tfbridge_preview", default=None)


def recent_reports(earlier: Collection[Report] = ()) -> tuple[Report, ...]:
    """The reports of the last graphs, oldest first, without those that are in `earlier`. Old ones are dropped."""
    earlier_ids = set(map(id, earlier))
    # A copy in one step: other threads add reports.
    return tuple(report for report in tuple(_reports) if id(report) not in earlier_ids)


def report_of(graph: Graph, clusters: Collection[Cluster], reasons: Mapping[str, str]) -> Report:
    """The report of a graph. `reasons`: why nodes are in no cluster."""
    ops = {name: graph.nodes[name].op for name in reasons}
    return Report(
        tuple(clusters),
        {name: (ops[name], r) for name, r in reasons.items() if ops[name] not in NOT_REPORTED},
    )


def note(report: Report) -> None:
    """Counts, logs and keeps a report."""
    for op, reason in report.unclustered.values():
        statistics.count_unclustered(f"{op}: {reason}")
    _reports.append(report)
    if report.clusters or report.unclustered:
        _log.info(
            "%s; %d ops not compiled%s",
            ", ".join(f"cluster {c.name} of {c.op_count} ops" for c in report.clusters) or "no cluster",
            len(report.unclustered),
            "".join(f"\n  {n} ({op}): {r}" for n, (op, r) in report.unclustered.items()),
        )


def current_preview() -> Preview | None:
    """The preview during which the graph pass runs; None: the graph is one that TensorFlow is going to run."""
    return _preview.get()


def preview(concrete: ConcreteFunction) -> PreviewedGraph | None:
    """What the registered graph pass makes of a concrete function's graph; None when it does not change the graph."""
    run = Preview(frozenset(tensor.op.name for tensor in concrete.outputs))
    token = _preview.set(run)
    try:
        tfp.optimize_graph(concrete)
    finally:
        _preview.reset(token)
    return run.graphs[0] if run.graphs else None
