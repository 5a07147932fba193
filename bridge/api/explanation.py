"""The report of `tfbridge.explain` as data, as text and as a page."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from ...compiler.client.platforms import native
from ...compiler.errors import UnsupportedError
from ...runtime.code.artifact import KernelRecord, Temporary
from ...runtime.profiler import Event, write_chrome_trace
from ..report_page.groups import OpGroup
from ..report_page.page import (
    KernelSection,
    amount,
    cluster_colours,
    graph_drawing,
    kernel_section,
    remedy,
    render,
)


@dataclasses.dataclass(frozen=True)
class ClusterReport:
    """One cluster: how many TensorFlow ops it replaces, and the code for the shapes asked about.

    `keyed_by_value`: arguments whose values, not only shapes, pick the code. `problem`: why there is no code.
    `runs` and `fallback_runs`: calls so far of compiled code and in TensorFlow, for all shapes. `left`: assumptions of
    compiled code that did not hold for data (the op, and what was wrong), with the number of runs that TensorFlow did.
    `symbolic`: the sizes that code for symbolic sizes serves, and why there is none for others.
    `temporaries`: where buffers lie in the arena, and between which kernels. `sources`: places in the program by op.
    `waiting`: what is to be compiled in the background, and why. `background`: what was, and what was new about it.
    Units: temp_bytes and object_bytes are bytes; seconds is what making the code ready took.
    """

    name: str
    ops: int
    variables: int
    arguments: tuple[str, ...]
    keyed_by_value: tuple[str, ...]
    problem: str = ""
    kernels: tuple[KernelRecord, ...] = ()
    temp_bytes: int = 0
    object_bytes: int = 0
    seconds: float = 0.0
    runs: int = 0
    fallback_runs: int = 0
    left: tuple[tuple[str, int], ...] = ()
    symbolic: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    temporaries: tuple[Temporary, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes of memory traffic of a call."""
        return sum(kernel.bytes for kernel in self.kernels)


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An op that runs in TensorFlow, and where the program makes it (an empty file: not known)."""

    name: str
    op: str
    reason: str
    file: str = ""
    line: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """What becomes of a function; `str()` of it is for people, `html()` is a page.

    `problem`: why nothing is known of it, or of some of it; empty when all is. `graph`: its ops in groups, for the
    page. `measurement`: runs the only cluster's code with counters, and gives what a call took by kernel; None where
    that cannot be done.
    """

    function: str
    clusters: tuple[ClusterReport, ...]
    left_out: tuple[LeftOut, ...]
    problem: str = ""
    graph: tuple[OpGroup, ...] = ()
    measurement: Callable[[], Sequence[Event]] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    @property
    def is_whole(self) -> bool:
        """Whether all of the function is one cluster with code."""
        problem = self.problem or next((c.problem for c in self.clusters if c.problem), "")
        return len(self.clusters) == 1 and not self.left_out and not problem

    def __str__(self) -> str:
        compiled = sum(c.ops for c in self.clusters if not c.problem)
        every = sum(c.ops for c in self.clusters) + len(self.left_out)
        many = "1 cluster" if len(self.clusters) == 1 else f"{len(self.clusters)} clusters"
        lines = [f"{self.function}: {compiled} of {every} ops compiled, in {many}"]
        if self.problem:
            lines[0] = f"{self.function}: {self.problem}"
        for cluster in self.clusters:
            lines += ["", *_cluster_lines(cluster)]
        if self.left_out:
            lines += ["", "not compiled, run by TensorFlow:"]
        for op in self.left_out:
            lines.append(f"  {op.op} {op.name}: {op.reason}")
            if op.file:
                lines.append(f"    at {op.file}:{op.line}")
        return "\n".join(lines)

    def html(self, measure: bool = False) -> str:
        """The report as one page without references to other files.

        Times are the least that the machine allows or, with `measure`, those of a few runs of code with counters, where
        the function is one cluster and was explained for arrays; variables keep their values.
        """
        compiled = [c for c in self.clusters if not c.problem]
        every = sum(c.ops for c in self.clusters) + len(self.left_out)
        facts = [
            ("ops compiled", f"{sum(c.ops for c in compiled):,} of {every:,}"),
            ("clusters", f"{len(compiled):,}"),
        ]
        events = self.measurement() if measure and self.measurement else None
        return render(
            self.function,
            facts,
            problem=self.problem,
            drawing=graph_drawing(self.graph),
            colours=cluster_colours(c.name for c in self.clusters),
            sections=[_section(c, events) for c in self.clusters],
            left_out=[_left_out_row(op) for op in self.left_out],
        )

    def show(self, measure: bool = True) -> str:
        """Opens the page in the browser; returns the path of its file. `measure`: as in `html`."""
        text = self.html(measure)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="replace", prefix="tfbridge-report-", suffix=".html", delete=False
        ) as file:
            file.write(text)
        webbrowser.open(Path(file.name).as_uri())
        return file.name

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the kernels of a call, one after the other, as a trace for Perfetto (ui.perfetto.dev) or Chrome's
        `about:tracing`: each by the name of its op, with the mean time over a few runs, launches, and rates.

        Raises: UnsupportedError  the function is not one cluster, or was not explained for arrays.
        """
        if self.measurement is None:
            reason = self.problem or "a trace is of a function that is one cluster, explained for arrays"
            raise UnsupportedError(f"{self.function}: {reason}")
        write_chrome_trace(self.measurement(), path, self.function)

    _repr_html_ = html


def _section(cluster: ClusterReport, events: Sequence[Event] | None) -> KernelSection:
    facts = [("ops", f"{cluster.ops:,}"), ("variables", f"{cluster.variables:,}")]
    if not cluster.problem:
        facts += [
            ("kernels", f"{len(cluster.kernels):,}"),
            ("operations of a call", amount(cluster.flops, "flop")),
            ("memory traffic", amount(cluster.bytes, "B")),
            ("temporary memory", amount(cluster.temp_bytes, "B")),
            ("code", amount(cluster.object_bytes, "B")),
            ("compiled in", amount(cluster.seconds, "s")),
        ]
    facts.append(("runs compiled, in TensorFlow", f"{cluster.runs:,}, {cluster.fallback_runs:,}"))
    is_same = events is not None and [e.kernel for e in events] == list(cluster.kernels)
    times = [e.ns / 1e9 for e in events] if events is not None and is_same else None
    notes = [line.strip() for line in _note_lines(cluster)]
    if cluster.keyed_by_value:
        notes.insert(0, f"sizes or axes follow from the value of {', '.join(cluster.keyed_by_value)}")
    return kernel_section(
        f"Cluster {cluster.name}",
        cluster.kernels,
        cluster.temporaries,
        cluster.temp_bytes,
        native().peak_rates(),
        times,
        facts,
        [cluster.problem, *notes] if cluster.problem else notes,
        cluster.arguments,
        dict(cluster.sources),
    )


def _left_out_row(op: LeftOut) -> dict[str, str]:
    source = f"{op.file}:{op.line}" if op.file else ""
    return {"op": op.op, "name": op.name, "reason": op.reason, "remedy": remedy(op.reason), "source": source}


def _cluster_lines(cluster: ClusterReport) -> list[str]:
    lines = [
        f"cluster {cluster.name}",
        f"  {cluster.ops} ops, {cluster.variables} variables; takes {', '.join(cluster.arguments) or 'nothing'}",
    ]
    if cluster.keyed_by_value:
        lines.append(f"  sizes or axes follow from the value of {', '.join(cluster.keyed_by_value)}")
    if cluster.problem:
        lines.append(f"  {cluster.problem}")
    else:
        lines.append(
            f"  {len(cluster.kernels)} kernels, {cluster.flops:,} flops, {cluster.bytes:,} bytes moved, "
            f"{cluster.temp_bytes:,} bytes temporary, {cluster.object_bytes:,} bytes of code; "
            f"compiled in {cluster.seconds:.3f} s"
        )
    lines.append(f"  runs so far: {cluster.runs} compiled, {cluster.fallback_runs} in TensorFlow")
    lines += _note_lines(cluster)
    lines += [
        f"    {k.name}: {k.tasks:,} tasks, {k.flops:,} flops, {k.bytes:,} bytes: {', '.join(k.ops)}"
        for k in cluster.kernels
    ]
    return lines


def _note_lines(cluster: ClusterReport) -> list[str]:
    """What runs in TensorFlow and why, and what is there or waits for other shapes."""
    return [
        *(f"  run by TensorFlow {count} times: {why}" for why, count in cluster.left),
        *(f"  code for symbolic sizes: {what}" for what in cluster.symbolic),
        *(f"  waits to be compiled: {what}" for what in cluster.waiting),
        *(f"  compiled in the background: {what}" for what in cluster.background),
    ]
