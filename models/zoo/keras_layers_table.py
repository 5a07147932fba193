"""Runs the rows of `keras_layers` with TensorFlow, with `jit` and under auto-clustering, and tells what was compiled.

`python -m tfbridge.models.zoo.keras_layers_table > docs/keras_layers.md` makes the document anew.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ... import disable_auto_clustering, enable_auto_clustering, jit, options, reset_stats, stats
from ..program import Array
from .keras_layers import EXCLUDED, ROWS, Row, Step

WAYS = ("jit", "flag")
_HEADER = """<!-- Made by python -m tfbridge.models.zoo.keras_layers_table; a test holds it to what is compiled. -->
# Keras layers

Every layer class of `keras.layers` that computes is run forward and backward with `tfbridge.jit` and under
auto-clustering, and compared with plain TensorFlow: results, gradients and updated variables. The rows are in
`models/zoo/keras_layers.py`."""
_WHOLE = "Compiled as a whole"
_PARTS = "Ops that TensorFlow runs"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One row, run one way. `problem`: how it differs from TensorFlow's run; `left_out`: ops that were not compiled."""

    row: Row
    way: str
    problem: str
    left_out: tuple[str, ...]


def run(row: Row, ways: Sequence[str] = WAYS) -> list[Outcome]:
    """The row's outcome in each way."""
    step = Step(row)
    expected = step.run(step.function)
    return [_run(step, way, expected) for way in ways]


def _run(step: Step, way: str, expected: Sequence[Array]) -> Outcome:
    reset_stats()
    if way == "jit":
        results = step.run(jit(step.function))
    else:
        enable_auto_clustering(min_cluster_size=1)
        try:
            with options(compile="foreground"):
                results = step.run(tf.function(step.function))
        finally:
            disable_auto_clustering()
    return Outcome(
        step.row, way, difference(results, expected, step.row.tolerance), _left_out(stats()["ops_left_out"])
    )


def _left_out(reasons: Iterable[str]) -> tuple[str, ...]:
    """Ops with reasons, without the names of nodes, and without ops that there is nothing to compute of."""
    texts = (
        re.sub(r" (comes from|of) \S+ \((\w+)\)", r" \1 \2", reason)
        for reason in reasons
        if "its cluster has 0 compute ops" not in reason
    )
    return tuple(sorted({re.sub(r" \(node .*", "", reason, flags=re.DOTALL) for reason in texts}))


def difference(results: Sequence[Array], expected: Sequence[Array], tolerance: float) -> str:
    """How arrays differ; empty when they do not."""
    if len(results) != len(expected):
        return f"{len(results)} results, TensorFlow gives {len(expected)}"
    for k, (a, b) in enumerate(zip(results, expected)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k} is {a.dtype}{a.shape}, TensorFlow's {b.dtype}{b.shape}"
        if b.dtype.kind in "OSU":
            if not np.array_equal(a, b):
                return f"result {k}: other texts"
            continue
        wide: Any = np.complex128 if b.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"result {k} differs by {np.nanmax(np.abs(a - b)):.3g}; largest magnitude {np.nanmax(np.abs(b)):.3g}"
    return ""


def document(outcomes: Iterable[Outcome]) -> str:
    """The document of all rows' outcomes."""
    left: dict[str, list[str]] = {}
    for outcome in outcomes:
        left.setdefault(outcome.row.name, []).extend(outcome.left_out)
    whole = [name for name, reasons in left.items() if not reasons]
    lines = [_HEADER, "", f"## {_PARTS}", "", "| row | op: reason |", "|---|---|"]
    for name, reasons in left.items():
        if reasons:
            lines.append(f"| {name} | {'<br>'.join(dict.fromkeys(reasons))} |")
    lines += [
        "",
        f"## {_WHOLE}",
        "",
        f"{len(whole)} of {len(left)} rows:",
        "",
        *(f"* {name}" for name in whole),
    ]
    lines += [
        "",
        "## Not layers of computation",
        "",
        *(f"* {name}: {why}" for name, why in sorted(EXCLUDED.items())),
    ]
    return "\n".join(lines) + "\n"


def read_document(text: str) -> dict[str, tuple[str, ...]]:
    """By row, the ops with reasons that the document says are left to TensorFlow."""
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    rows: dict[str, tuple[str, ...]] = dict.fromkeys(
        re.findall(r"^\* (.+)$", parts[_WHOLE], re.MULTILINE), ()
    )
    for name, reasons in re.findall(r"^\| (.+?) \| (.+) \|$", parts[_PARTS], re.MULTILINE)[1:]:
        rows[name] = tuple(reasons.split("<br>"))
    return rows


def main() -> int:
    """The command; 1 when a row differs from TensorFlow."""
    outcomes = []
    for row in ROWS:
        outcomes += run(row)
        for outcome in outcomes[-len(WAYS) :]:
            if outcome.problem:
                print(f"{row.name}, {outcome.way}: {outcome.problem}", file=sys.stderr)
    print(document(outcomes), end="")
    return int(any(o.problem for o in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
