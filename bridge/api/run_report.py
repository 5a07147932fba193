"""The report of a whole run as data, as text and as a page: what was compiled, where time went, and what to change.

It says what the counters of the process say at that moment. Nothing is measured for it: the seconds of a call are those
that the cost guard and the launches measure in any case.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ... import __version__
from ...runtime import statistics
from ..clustering.reports import recent_reports
from ..launch import cluster_registry
from ..report_page.page import remedy, render

_MAX_ROWS = 32
_MAX_PAGE_ROWS = 256
_MAX_SHAPES = 8  # of a cluster
_MAX_NAMES = 3  # of reasons with the same remedy
# Ops that hand data over, and those beside which there is nothing to compute: no change would help.
_UNAVOIDABLE = re.compile(r"^(Iterator|Optional)\w*: |has 0 compute ops")


@dataclasses.dataclass(frozen=True)
class ClusterRun:
    """What became of a cluster. `calls` and `tensorflow_calls`: served by its code and by TensorFlow.

    Units: seconds. `compile_seconds` is the sum over `compilations`, with loading from the disk cache.
    `call_seconds` and `tensorflow_seconds` are those of one call, in its code and in TensorFlow; 0: not measured.
    """

    name: str
    ops: int
    compilations: int = 0
    kernels: int = 0
    compile_seconds: float = 0.0
    shapes: tuple[str, ...] = ()
    calls: int = 0
    tensorflow_calls: int = 0
    call_seconds: float = 0.0
    tensorflow_seconds: float = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether a call was measured in compiled code and in TensorFlow."""
        return self.call_seconds > 0 and self.tensorflow_seconds > 0

    @property
    def saved_seconds(self) -> float:
        """What TensorFlow would have needed more for the calls of compiled code, as far as is known."""
        return self.calls * (self.tensorflow_seconds - self.call_seconds)


@dataclasses.dataclass(frozen=True)
class Change:
    """What was seen in a run, and what to do about it."""

    seen: str
    remedy: str


# What the counters show, and what helps. The condition and the text take the counters by name.
_SIGNS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str, str], ...] = (
    (
        lambda s: not s["clusters_compiled"] and not s["served_by_tensorflow"] and not s["fallbacks"],
        "no cluster was compiled",
        "Put the numeric part into a tf.function: ops that run eagerly, one by one, are not compiled.",
    ),
    (
        lambda s: s["served_by_tensorflow"] > s["specialized_calls"],
        "{served_by_tensorflow:,} calls came before there was code, {specialized_calls:,} after that",
        "Nothing in a program that runs longer. Else TFBRIDGE_COMPILE=foreground has calls wait for their code, and "
        "shapes that differ less from call to call need less code.",
    ),
    (
        lambda s: s["recompiles"] > 4 * max(s["clusters_compiled"], 1),
        "{clusters_compiled:,} clusters were compiled {recompiles:,} times more, for other shapes or values",
        "Use fewer shapes: batches of one size, lengths rounded up. Python numbers as arguments of a tf.function "
        "make a graph for each value.",
    ),
)


@dataclasses.dataclass(frozen=True)
class RunReport:
    """A run of a program up to now. `has_ended`: false in what is written meanwhile, which is what a crash leaves.

    error: the exception that ended the program. `stats`: as `tfbridge.stats()` returns them.
    Units: seconds, of the clock and of the processors, since the report was begun and since the process was.
    """

    program: tuple[str, ...]
    start: float
    has_ended: bool
    error: str
    seconds: float
    cpu_seconds: float
    stats: Mapping[str, Any]
    clusters: tuple[ClusterRun, ...]

    @property
    def not_compiled(self) -> list[tuple[str, int]]:
        """The reasons for which TensorFlow runs ops, and how many, most first."""
        outside: Mapping[str, int] = self.stats["ops_left_out"]
        return sorted(outside.items(), key=lambda item: -item[1])

    @property
    def changes(self) -> tuple[Change, ...]:
        """What to change, what concerns most ops first."""
        reasons: dict[str, list[str]] = {}
        ops: collections.Counter[str] = collections.Counter()
        for reason, count in self.not_compiled:
            if not _UNAVOIDABLE.search(reason) and (help_ := remedy(reason)):
                reasons.setdefault(help_, []).append(reason)
                ops[help_] += count
        signs = [
            Change(text.format(**self.stats), help_) for holds, text, help_ in _SIGNS if holds(self.stats)
        ]
        return (
            *signs,
            *(
                Change(f"{count:,} op{'s' * (count > 1)}: {_some(reasons[help_])}", help_)
                for help_, count in ops.most_common()
            ),
        )

    @property
    def state(self) -> str:
        """How the run ended, as a sentence."""
        if not self.has_ended:
            return f"The run had not ended {self.seconds:.1f} s after its start: it goes on, or it crashed."
        return f"The run ended with {self.error}" if self.error else "The run ended."

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "program": list(self.program),
            "process": os.getpid(),
            "host": platform.node(),
            "versions": {
                "tfbridge": __version__,
                "tensorflow": tf.__version__,
                "python": platform.python_version(),
            },
            "start": _timestamp(self.start),
            "written": _timestamp(self.start + self.seconds),
            "ended": self.has_ended,
            "error": self.error,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "stats": dict(self.stats),
            "clusters": [
                {**dataclasses.asdict(c), "saved_seconds": c.saved_seconds if c.is_measured else None}
                for c in self.clusters
            ],
            "changes": [dataclasses.asdict(change) for change in self.changes],
        }

    def __str__(self) -> str:
        stats = self.stats
        lines = [
            f"tfbridge: {stats['clusters_compiled']} clusters of {stats['ops_compiled']} ops compiled, "
            f"{stats['recompiles']} compiled again for other shapes or values, {stats['fallbacks']} not compiled",
            f"{stats['disk_hits']} loaded from the disk cache; {stats['compile_seconds']:.2f} s of compilation",
            f"{stats['background_compiles']} compiled in the background, {stats['background_cpu_seconds']:.2f} s of "
            f"CPU time; {stats['served_by_tensorflow']} calls served by TensorFlow before there was code",
            f"{sum(stats['ops_left_out'].values())} ops not compiled, run by TensorFlow",
        ]
        if self.clusters:
            lines += ["", *_aligned((_HEAD, *map(_row, self.clusters)))]
        if self.not_compiled:
            rows = [(f"{count:,}", reason) for reason, count in self.not_compiled]
            lines += ["", *_aligned([("ops", "not compiled because"), *rows])]
        if self.changes:
            lines += ["", "what to change"]
            lines += [line for c in self.changes[:_MAX_ROWS] for line in (f"  {c.seen}", f"    {c.remedy}")]
        return "\n".join(lines)

    def html(self) -> str:
        """The report as one page without references to other files."""
        stats, shown = self.stats, self.clusters[:_MAX_PAGE_ROWS]
        facts = [
            ("ops compiled", f"{stats['ops_compiled']:,}"),
            ("clusters", f"{stats['clusters_compiled']:,}"),
            ("ops not compiled", f"{sum(stats['ops_left_out'].values()):,}"),
            ("calls of compiled code", f"{stats['specialized_calls']:,}"),
            ("calls before there was code", f"{stats['served_by_tensorflow']:,}"),
            ("seconds of the run", f"{self.seconds:.1f}"),
        ]
        tables = [
            ("What to change", ("seen", "what to do"), [(c.seen, c.remedy) for c in self.changes]),
            ("Where time went", ("", "seconds", "seconds in TensorFlow"), self._times()),
            (f"Clusters{_of(len(shown), len(self.clusters))}", _HEAD, list(map(_row, shown))),
            (
                "Not compiled, run by TensorFlow",
                ("ops", "why"),
                [(f"{count:,}", reason) for reason, count in self.not_compiled[:_MAX_PAGE_ROWS]],
            ),
        ]
        is_bad = not self.has_ended or bool(self.error)
        return render(
            " ".join(self.program) or "python",
            facts,
            problem=self.state if is_bad else "",
            lines=[
                f"Started {_timestamp(self.start)} on {platform.node()}, process {os.getpid()}; tfbridge "
                f"{__version__}, TensorFlow {tf.__version__}, Python {platform.python_version()}",
                *([] if is_bad else [self.state]),
            ],
            sections=[],
            tables=[table for table in tables if table[2]],
        )

    def _times(self) -> list[tuple[str, str, str]]:
        """Rows: what took seconds, of compiled code and of TensorFlow for the same."""
        measured = [c for c in self.clusters if c.is_measured and c.calls]
        calls, every = sum(c.calls for c in measured), self.stats["specialized_calls"]
        return [
            ("the run, since TensorFlow was imported", f"{self.seconds:.2f}", ""),
            ("processors, since the process began", f"{self.cpu_seconds:.2f}", ""),
            ("compiling", f"{self.stats['compile_seconds']:.2f}", ""),
            (
                "compiling in the background, of a processor",
                f"{self.stats['background_cpu_seconds']:.2f}",
                "",
            ),
            (
                f"calls of compiled code, estimated for {calls:,} of {every:,}: of clusters that were timed in "
                "compiled code and in TensorFlow",
                f"{sum(c.calls * c.call_seconds for c in measured):.3f}",
                f"{sum(c.calls * c.tensorflow_seconds for c in measured):.3f}",
            ),
        ]


def run_report(start: float, has_ended: bool = True, error: str = "") -> RunReport:
    """The report of this process up to now. `start`: when it was begun, by `time.time()`."""
    times = os.times()
    return RunReport(
        tuple(sys.argv),
        start,
        has_ended,
        error,
        time.time() - start,
        times.user + times.system,
        statistics.stats(),
        tuple(sorted(_clusters(), key=lambda c: (-c.calls * c.call_seconds, -c.compile_seconds))),
    )


def _clusters() -> Iterable[ClusterRun]:
    """The clusters that were compiled, and those of the last graphs that have no code."""
    records: dict[str, list[statistics.ClusterRecord]] = {}
    for record in statistics.clusters():
        records.setdefault(record.key, []).append(record)
    clusters = {key: (of[-1].name, of[-1].ops) for key, of in records.items()}
    for report in recent_reports():
        clusters |= {c.key: (c.name, c.op_count) for c in report.clusters if c.key not in clusters}
    times = statistics.call_times()
    for key, (name, ops) in clusters.items():
        of, timed = records.get(key, []), times.get(key, statistics.CallTimes())
        try:
            counters = cluster_registry.counters(key)
        except KeyError:  # only explained, or dropped long ago
            counters = cluster_registry.Counters()
        yield ClusterRun(
            name,
            ops,
            len(of),
            max((record.kernels for record in of), default=0),
            sum(record.seconds for record in of),
            tuple(dict.fromkeys(record.shapes or "no arguments" for record in of))[-_MAX_SHAPES:],
            counters.runs,
            counters.fallback_runs,
            timed.compiled_seconds / max(timed.compiled, 1),
            timed.tensorflow_seconds / max(timed.tensorflow, 1),
        )


_HEAD = (
    "cluster",
    "ops",
    "kernels",
    "compilations",
    "seconds",
    "calls",
    "in TensorFlow",
    "ms of a call",
    "ms in TensorFlow",
    "shapes",
)


def _row(c: ClusterRun) -> tuple[str, ...]:
    return (
        c.name,
        f"{c.ops:,}",
        f"{c.kernels:,}",
        f"{c.compilations:,}",
        f"{c.compile_seconds:.3f}",
        f"{c.calls:,}",
        f"{c.tensorflow_calls:,}",
        *(f"{1e3 * seconds:.3f}" if seconds else "" for seconds in (c.call_seconds, c.tensorflow_seconds)),
        "; ".join(c.shapes),
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more reasons" if more > 0 else "")


def _of(shown: int, every: int) -> str:
    return f": the first {shown:,} of {every:,}" if shown < every else ""


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """A head and the first rows, in columns."""
    shown = rows[: _MAX_ROWS + 1]
    widths = [max(map(len, column)) for column in zip(*shown)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more"
