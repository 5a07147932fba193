"""The report of `tfbridge.explain` as data, as text and as a page."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from ...runtime.code.artifact import KernelRecord


@dataclasses.dataclass(frozen=True)
class ClusterReport:
    """One cluster: how many TensorFlow ops it replaces, and the code for the shapes asked about.

    `keyed_by_value`: arguments whose values, not only shapes, pick the code. `problem`: why there is no code.
    `runs` and `fallback_runs`: calls so far of compiled code and in TensorFlow, for all shapes. `left`: assumptions of
    compiled code that did not hold for data (the op, and what was wrong), with the number of runs that TensorFlow did.
    `symbolic`: the sizes that code for symbolic sizes serves, and why there is none for others.
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

    `problem`: why nothing is known of it, or of some of it; empty when all is.
    """

    function: str
    clusters: tuple[ClusterReport, ...]
    left_out: tuple[LeftOut, ...]
    problem: str = ""

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

    def html(self) -> str:
        """The report as one page without references to other files."""
        kernels = "".join(
            f"<h2>{html.escape(c.name)}</h2><p>{html.escape('; '.join(_cluster_lines(c, kernels=False)[1:]))}</p>"
            + _table(
                ("kernel", "tasks", "flops", "bytes", "ops"),
                [
                    (k.name, f"{k.tasks:,}", f"{k.flops:,}", f"{k.bytes:,}", ", ".join(k.ops))
                    for k in c.kernels
                ],
            )
            for c in self.clusters
        )
        left_out = _table(
            ("op", "node", "reason", "source"),
            [(o.op, o.name, o.reason, f"{o.file}:{o.line}" if o.file else "") for o in self.left_out],
        )
        return (
            "<!DOCTYPE html><meta charset=utf-8><style>body{font:14px sans-serif;margin:2em}table{border-collapse:"
            "collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}</style>"
            f"<title>{html.escape(self.function)}</title><h1>{html.escape(str(self).splitlines()[0])}</h1>{kernels}"
            + (f"<h2>not compiled, run by TensorFlow</h2>{left_out}" if self.left_out else "")
        )

    _repr_html_ = html


def _cluster_lines(cluster: ClusterReport, kernels: bool = True) -> list[str]:
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
    lines += [f"  run by TensorFlow {count} times: {why}" for why, count in cluster.left]
    lines += [f"  code for symbolic sizes: {what}" for what in cluster.symbolic]
    lines += [f"  waits to be compiled: {what}" for what in cluster.waiting]
    lines += [f"  compiled in the background: {what}" for what in cluster.background]
    if kernels:
        lines += [
            f"    {k.name}: {k.tasks:,} tasks, {k.flops:,} flops, {k.bytes:,} bytes: {', '.join(k.ops)}"
            for k in cluster.kernels
        ]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>" if rows else ""
