"""The benchmark's results as a table for people and as JSON for machines."""

from __future__ import annotations

import math
import platform
import statistics
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .engines import ENGINES
from .measurement import Measurement
from .roofline import Machine
from .suites import SUITES

MIB = 1 << 20
SUBJECT = "tfbridge"
NATIVE = "tfbridge-native"
NOT_FOR_TRAINING = "does not run training"
SHOWN_KERNELS = 20
Results = dict[str, list[Measurement]]

# The column of the ratio to the fastest engine of a family, where several ran.
FASTEST_OF = {"tensorflow": "better", "inference": "rivals"}
NOTES = """\
x: how many times faster than that engine {subject} is (median over the rounds); "better": than the faster of
TensorFlow and XLA; "rivals": than the fastest engine for inference{native}.
first call: in a fresh process without a cache on disk; warm: of tfbridge in one that finds its code in the cache;
tracing: the part of TensorFlow's in which the function's Python code makes the graph, which every engine begins with.
memory: peak resident memory of the calls, the first one included, above what was resident before it.
error: largest difference of any engine from TensorFlow's results and updated variables, relative to the largest
magnitude. roofline: least time of the compiled code's work on this machine, as a share of the measured time."""


def _subject(row: list[Measurement], rival: str = "") -> Measurement:
    """The engine to compare with: tfbridge (for engines on arrays: on arrays, where measured), else the last."""
    by_engine = {measured.engine: measured for measured in row}
    on_arrays = rival in ENGINES and ENGINES[rival].family == "inference"
    return (by_engine.get(NATIVE) if on_arrays else None) or by_engine.get(SUBJECT) or row[-1]


def ratios(row: list[Measurement]) -> dict[str, float]:
    """How many times tfbridge is faster than each other engine, and than the fastest of each family.

    Each is the median over the rounds, in which the engines ran directly after one another, so that a machine
    that slows down for a while does not count for one of them alone. Engines that failed are left out.
    """
    result: dict[str, float] = {}
    families: dict[str, list[float]] = {}
    for rival in row:
        subject = _subject(row, rival.engine)
        if rival is subject or rival.failure or subject.failure:
            continue
        if pairs := list(zip(rival.round_seconds, subject.round_seconds)):
            ratio = result[rival.engine] = statistics.median(one / other for one, other in pairs)
            families.setdefault(ENGINES[rival.engine].family, []).append(ratio)
    result |= {
        name: min(families[family])
        for family, name in FASTEST_OF.items()
        if len(families.get(family, ())) > 1
    }
    return result


def first_call_ratios(row: list[Measurement]) -> dict[str, float]:
    """The first-call time of XLA over that of tfbridge, without and with a cache on disk, and over that of tracing
    alone: no engine that is given a function of Python can do better than the last."""
    by_engine = {measured.engine: measured for measured in row if not measured.failure}
    if not {"xla", SUBJECT} <= by_engine.keys():
        return {}
    theirs, ours = by_engine["xla"].first_call_seconds, by_engine[SUBJECT]
    values = {"cold": theirs / ours.first_call_seconds, "warm": theirs / ours.warm_first_call_seconds}
    if "tf" in by_engine:
        values["tracing"] = theirs / by_engine["tf"].tracing_seconds
    return {name: value for name, value in values.items() if math.isfinite(value)}


def geometric_mean(values: list[float]) -> float:
    """NaN where there are none."""
    return statistics.geometric_mean(values) if values else math.nan


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: geometric_mean([row[name] for row in rows if name in row]) for name in names}


def _groups(results: Results, suite: str) -> dict[str, list[list[Measurement]]]:
    """The workloads that one mean is over: all, and those of each kind where there are several."""
    kinds: dict[str, list[list[Measurement]]] = {}
    for name, row in results.items():
        kinds.setdefault(SUITES[suite].rows[name].kind, []).append(row)
    return {"all": list(results.values()), **(kinds if len(kinds) > 1 else {})}


def mean_ratios(results: Results, suite: str = "workloads") -> dict[str, dict[str, float]]:
    """Of each group of workloads, the geometric means of their ratios."""
    return {group: _means(list(map(ratios, rows))) for group, rows in _groups(results, suite).items()}


def mean_first_call_ratios(results: Results) -> dict[str, float]:
    """The geometric means of the first-call ratios."""
    return _means(list(map(first_call_ratios, results.values())))


def roofline_share(row: list[Measurement], machine: Machine) -> float:
    """The least time that the work takes on this machine over the measured time; NaN where the work is not known."""
    subject = _subject(row)
    if not subject.kernels or subject.failure:
        return math.nan
    return machine.least_seconds(subject.kernels, subject.footprint_bytes) / subject.seconds


def as_json(results: Results, suite: str, machine: Machine) -> dict[str, object]:
    """Plain dictionaries; a number that was not measured is null."""
    workloads = {}
    for name, row in results.items():
        row_of_table = SUITES[suite].rows[name]
        workloads[name] = {
            "kind": row_of_table.kind,
            "tolerance": row_of_table.tolerance,
            "engines": {measured.engine: _engine_json(measured) for measured in row},
            "ratios": ratios(row),
            "first_call_ratios": first_call_ratios(row),
            "roofline": _finite(roofline_share(row, machine)),
        }
    return {
        "suite": suite,
        "machine": {**about(machine.threads), **asdict(machine)},
        "workloads": workloads,
        "mean_ratios": mean_ratios(results, suite),
        "mean_first_call_ratios": mean_first_call_ratios(results),
    }


def _engine_json(measured: Measurement) -> dict[str, object]:
    kernels = sorted(measured.kernels, key=lambda kernel: -kernel.seconds)
    values = asdict(measured) | {
        "seconds": measured.seconds,
        "flops": sum(k.flops for k in kernels),
        "bytes": sum(k.bytes for k in kernels),
        "kernels": [kernel._asdict() for kernel in kernels[:SHOWN_KERNELS]],
    }
    return {key: _finite(value) for key, value in values.items()}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_table(results: Results, suite: str, machine: Machine) -> RenderableType:
    """The table, and below it the machine, what the columns mean and the reason of each failure."""
    engines = [measured.engine for measured in next(iter(results.values()))]
    subject = _subject(next(iter(results.values()))).engine
    means = mean_ratios(results, suite)
    table = Table(title=f"milliseconds per call, and how many times faster {subject} is")
    table.add_column("workload", no_wrap=True)
    for engine in engines:
        table.add_column(f"{engine}\nms", justify="right")
    for name in means["all"]:
        table.add_column(f"x\n{name}", justify="right", style="bold")
    for title in ("first call s of each\n\\[tracing] (warm)", "memory MiB\nof each", "error", "roofline"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in results.items():
        row_ratios = ratios(row)
        table.add_row(
            name,
            *(_time(measured) for measured in row),
            *(f"{row_ratios[mean]:.2f}" if mean in row_ratios else "-" for mean in means["all"]),
            " ".join(_first_call(measured) for measured in row),
            " ".join(_number(measured.all_calls_bytes / MIB or math.nan, 0, measured) for measured in row),
            _errors(SUITES[suite].rows[name].tolerance, row),
            _percent(roofline_share(row, machine)),
        )
    if len(results) > 1:
        first = ", ".join(
            f"x XLA {name} {value:.2f}" for name, value in mean_first_call_ratios(results).items()
        )
        table.add_section()
        for group, values in means.items():
            table.add_row(
                f"mean of {group}",
                *("" for _ in engines),
                *(f"{values[name]:.2f}" if name in values else "-" for name in means["all"]),
                first if group == "all" else "",
                "",
                "",
                "",
            )
    native = f", which {NATIVE} is compared with" if NATIVE in engines else ""
    notes = [
        Text(", ".join(f"{key} {value}" for key, value in about(machine.threads).items())),
        Text(
            f"measured peaks: {machine.flops_per_second / 1e9:.0f} Gflop/s; copies "
            + ", ".join(f"{speed / 1e9:.0f} GB/s in {size >> 10} KiB" for size, speed in machine.bandwidth)
        ),
        Text(NOTES.format(subject=subject, native=native)),
    ]
    notes += [
        Text(f"{name}, {measured.engine}: {measured.failure}", style="red")
        for name, row in results.items()
        for measured in row
        if measured.failure and measured.failure != NOT_FOR_TRAINING
    ]
    return Group(table, *notes)


def _time(measured: Measurement) -> str:
    if not measured.failure:
        return milliseconds(measured.seconds)
    return "-" if measured.failure == NOT_FOR_TRAINING else "failed"


def _first_call(measured: Measurement) -> str:
    tracing, warm = measured.tracing_seconds, measured.warm_first_call_seconds
    return (
        _number(measured.first_call_seconds, 2, measured)
        + (f" [{tracing:.2f}]" if math.isfinite(tracing) else "")
        + (f" ({warm:.2f})" if math.isfinite(warm) else "")
    )


def _number(value: float, digits: int, measured: Measurement) -> str:
    return "-" if measured.failure or math.isnan(value) else f"{value:.{digits}f}"


def _percent(value: float) -> str:
    return f"{value:.0%}" if math.isfinite(value) else "-"


def milliseconds(seconds: float) -> str:
    """Three digits that count."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "-"


def about(threads: int) -> dict[str, object]:
    """Where the figures come from."""
    return {
        "cpu": _cpu_name(),
        "threads": threads,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("tensorflow", "keras", "llvmlite", "tfbridge")},
    }


def _errors(tolerance: float, row: list[Measurement]) -> Text:
    """The largest error, red where it is above the tolerance."""
    errors = [measured.error for measured in row if not math.isnan(measured.error)]
    if not errors:
        return Text("-")
    return Text(f"{max(errors):.0e}", style="red" if max(errors) > tolerance else "")


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
