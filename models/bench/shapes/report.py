"""The outcomes as tables for people and as JSON for machines."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..report import about
from .case import Outcome, Scale
from .cases import CASES

Results = dict[str, dict[str, Outcome]]  # by case and engine
REFERENCE = "tf"
TOLERANCE = 1e-3  # of the checksums of results; steps of training add up rounding
RATIOS = ("of TF p50", "of TF p99", "of TF max")
LATER_RATIO = "later of TF p50"
COLUMN_WIDTH = 15
MUST_RUN = ("tf", "tfbridge-auto", "tfbridge")
NOTES = """\
of TF: the time of a call over that of the same call in plain TensorFlow; below 1 is faster. later: the same calls once
the program has run for five seconds. compilations: of tfbridge from its counters, of XLA from its log. error: largest
difference of the results' checksums from TensorFlow's."""


def ratios(outcome: Outcome, reference: Outcome | None) -> dict[str, float]:
    """How long the calls took, relative to the same calls in TensorFlow."""
    if reference is None or not outcome.call_seconds or not reference.call_seconds:
        return {}
    values = np.divide(outcome.call_seconds, reference.call_seconds)
    compared = dict(zip(RATIOS, map(float, np.percentile(values, (50, 99, 100)))))
    if outcome.later_seconds:
        compared[LATER_RATIO] = float(np.median(np.divide(outcome.later_seconds, reference.later_seconds)))
    return compared


def error(outcome: Outcome, reference: Outcome | None) -> float:
    """The largest difference from TensorFlow's results, relative to the largest of them; NaN where one is missing."""
    if reference is None or reference.failure or outcome.failure:
        return math.nan
    if len(outcome.results) != len(reference.results):
        return math.inf
    difference = np.subtract(outcome.results, reference.results)
    value = float(np.abs(difference).max() / max(np.abs(reference.results).max(), 1e-3))
    return math.inf if math.isnan(value) else value


def is_wrong(results: Results) -> bool:
    """Whether an engine that must run a case did not, or any result differs."""
    return any(
        outcome.failure and engine in MUST_RUN or error(outcome, outcomes.get(REFERENCE)) > TOLERANCE
        for outcomes in results.values()
        for engine, outcome in outcomes.items()
    )


def as_json(results: Results, scale: Scale) -> dict[str, object]:
    """Plain dictionaries; a number that was not measured is null."""
    return {
        "suite": "shapes",
        "machine": about(scale.threads),
        "quick": scale.quick,
        "seconds": scale.seconds,
        "cases": {
            name: {
                engine: asdict(outcome)
                | {"ratios": ratios(outcome, outcomes.get(REFERENCE))}
                | {"error": _finite(error(outcome, outcomes.get(REFERENCE)))}
                for engine, outcome in outcomes.items()
            }
            for name, outcomes in results.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def print_tables(results: Results, scale: Scale) -> None:
    """A table of each kind of case, and the reasons of failures."""
    console = Console()
    for table in dict.fromkeys(CASES[name].table for name in results):
        rows = _table(table, {n: row for n, row in results.items() if CASES[n].table == table})
        console.width = max(console.width, COLUMN_WIDTH * len(rows.columns))
        console.print(rows)
    console.print(Text(", ".join(f"{key} {value}" for key, value in about(scale.threads).items())))
    console.print(Text(NOTES))
    for name, outcomes in results.items():
        for engine, outcome in outcomes.items():
            if outcome.failure:
                console.print(Text(f"{name}, {engine}: {outcome.failure}", style="red"))


def _table(title: str, results: Results) -> Table:
    outcomes = [outcome for row in results.values() for outcome in row.values()]
    columns = list(dict.fromkeys(column for outcome in outcomes for column in outcome.values))
    compared = list(RATIOS) if any(outcome.call_seconds for outcome in outcomes) else []
    compared += [LATER_RATIO] if any(outcome.later_seconds for outcome in outcomes) else []
    table = Table(title=title)
    for column in ("case", "engine"):
        table.add_column(column, no_wrap=True)
    for column in (*columns, *compared, "error"):
        table.add_column(column, justify="right")
    for name, row in results.items():
        for number, (engine, outcome) in enumerate(row.items()):
            values = outcome.values | ratios(outcome, row.get(REFERENCE))
            difference = error(outcome, row.get(REFERENCE))
            table.add_row(
                "" if number else name.rpartition("/")[2],
                engine,
                *(_number(values.get(column)) for column in (*columns, *compared)),
                "failed"
                if outcome.failure
                else Text(_number(difference), "red" if difference > TOLERANCE else ""),
            )
        table.add_section()
    return table


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or math.isinf(value) or value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    if abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
