"""The benchmark's results as a table for people and as JSON for machines."""

from __future__ import annotations

import math
import platform
import statistics
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .measurement import Measurement
from .workloads import WORKLOADS

MIB = 1 << 20
BETTER = "better"  # the column of the ratio to the fastest rival
Results = dict[str, list[Measurement]]


def ratios(row: list[Measurement]) -> dict[str, float]:
    """How many times the last engine is faster than each other, and than the fastest of them.

    Each is the median over the rounds, in which the engines ran directly after one another, so that a machine
    that slows down for a while does not count for one of them alone. Engines that failed are left out.
    """
    *rivals, subject = row
    found = {}
    for rival in rivals:
        pairs = list(zip(rival.round_seconds, subject.round_seconds))
        if pairs and not (rival.failure or subject.failure):
            found[rival.engine] = statistics.median(one / other for one, other in pairs)
    if len(found) > 1:
        found[BETTER] = min(found.values())
    return found


def geometric_mean(values: list[float]) -> float:
    """NaN where there are none."""
    return statistics.geometric_mean(values) if values else math.nan


def mean_ratios(results: Results) -> dict[str, float]:
    """The geometric mean over the workloads of each of their ratios."""
    rows = [ratios(row) for row in results.values()]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: geometric_mean([row[name] for row in rows if name in row]) for name in names}


def mean_first_call_ratios(results: Results) -> dict[str, float]:
    """The geometric mean of each rival's first-call time over the last engine's."""
    found: dict[str, list[float]] = {}
    for *rivals, subject in results.values():
        for rival in rivals:
            if not (rival.failure or subject.failure):
                ratio = rival.first_call_seconds / subject.first_call_seconds
                found.setdefault(rival.engine, []).append(ratio)
    return {name: geometric_mean(values) for name, values in found.items()}


def as_json(results: Results, threads: int) -> dict[str, Any]:
    """Plain dictionaries; a number that was not measured is null."""
    workloads = {}
    for name, row in results.items():
        engines = {}
        for measured in row:
            values = asdict(measured) | {"seconds": measured.seconds}
            if WORKLOADS[name].flops and measured.round_seconds:
                values["gflops_per_second"] = WORKLOADS[name].flops / measured.seconds / 1e9
            engines[measured.engine] = {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in values.items()}
        workloads[name] = {"kind": WORKLOADS[name].kind, "tolerance": WORKLOADS[name].tolerance,
                           "engines": engines, "ratios": ratios(row)}
    return {"machine": machine(threads), "workloads": workloads, "mean_ratios": mean_ratios(results),
            "mean_first_call_ratios": mean_first_call_ratios(results)}


def as_table(results: Results, threads: int) -> RenderableType:
    """The table, and below it the machine, what the columns mean and the reason of each failure."""
    engines = [measured.engine for measured in next(iter(results.values()))]
    means = mean_ratios(results)
    table = Table(title="milliseconds per call, and how many times faster " + engines[-1] + " is")
    table.add_column("workload")
    for engine in engines:
        table.add_column(f"{engine} ms", justify="right")
    for name in means:
        table.add_column(f"x {name}", justify="right", style="bold")
    joined = "/".join(engines)
    table.add_column(f"first call s\n{joined}", justify="right")
    table.add_column(f"memory MiB\n{joined}", justify="right")
    table.add_column("error", justify="right")
    for name, row in results.items():
        found = ratios(row)
        table.add_row(
            name,
            *("failed" if measured.failure else milliseconds(measured.seconds) for measured in row),
            *(f"{found[mean]:.2f}" if mean in found else "-" for mean in means),
            " ".join(f"{measured.first_call_seconds:.2f}" for measured in row),
            " ".join(f"{measured.peak_bytes / MIB:.0f}" for measured in row),
            _errors(name, row))
    if len(results) > 1 and means:
        first = "  ".join(f"x {name} {value:.2f}" for name, value in mean_first_call_ratios(results).items())
        table.add_section()
        table.add_row("geometric mean", *("" for _ in engines), *(f"{value:.2f}" for value in means.values()),
                      first, "", "")
    notes = [Text(", ".join(f"{key} {value}" for key, value in machine(threads).items())),
             Text("error: largest difference from TensorFlow's results and updated variables, relative "
                  "to the largest magnitude.\n"
                  "memory: peak of resident memory in later calls, above that before the first call.")]
    notes += [Text(f"{name}, {measured.engine}: {measured.failure}", style="red")
              for name, row in results.items() for measured in row if measured.failure]
    return Group(table, *notes)


def milliseconds(seconds: float) -> str:
    """Three digits that count."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "-"


def machine(threads: int) -> dict[str, Any]:
    """Where the figures come from."""
    return {"cpu": _cpu_name(), "threads": threads, "python": platform.python_version(),
            **{name: _version(name) for name in ("tensorflow", "keras", "llvmlite", "tfbridge")}}


def _errors(name: str, row: list[Measurement]) -> Text:
    """The largest error, red where it is above the workload's tolerance."""
    found = [measured.error for measured in row if not math.isnan(measured.error)]
    if not found:
        return Text("-")
    return Text(f"{max(found):.0e}", style="red" if max(found) > WORKLOADS[name].tolerance else "")


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
