"""The suite `compile`: how long the first call of long and of wide functions takes, beside XLA.

Chains are elementwise operations, each on the result of the one before; wide functions compute as many results that do
not need one another, of one input or of one each. Every row has a process of its own, in which the engines take turns
with functions that are new each time, without a cache on disk; the fastest of several first calls counts. Tracing, in
which TensorFlow runs the function's Python code, is the same for both engines and measured by itself.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tfbridge
from rich.console import Console
from rich.progress import track
from rich.table import Table

from .output import publish
from .worker import limit_threads

ELEMENTS = 1000
REPETITIONS = 3
LONG_SECONDS = 20.0  # a first call that takes longer is not repeated
ENGINES = ("xla", "tfbridge")
TOLERANCE = 1e-3  # rounding of thousands of operations in a row
Function = Callable[..., Any]


def _sin_and_tanh(operations: int) -> Function:
    def function(x: tf.Tensor) -> tf.Tensor:
        for number in range(operations):
            x = tf.tanh(x) if number % 2 else tf.sin(x)
        return x

    return function


def _arithmetic(operations: int) -> Function:
    def function(x: tf.Tensor) -> tf.Tensor:
        y = x
        for number in range(operations // 2):
            y = tf.maximum(y, x) if number % 2 else y * x
            y = y + x if number % 3 else y - x
        return y

    return function


def _results(operations: int) -> Function:
    return lambda x: [x * float(number) for number in range(operations)]


def _inputs(operations: int) -> Function:
    return lambda xs: [tf.tanh(x) for x in xs]


# fmt: off
FAMILIES: dict[str, tuple[Callable[[int], Function], tuple[int, ...]]] = {
    "chain of sin and tanh": (_sin_and_tanh, (25, 50, 100, 200, 400, 1000, 2000, 4000)),
    "chain of arithmetic": (_arithmetic, (100, 400, 1000, 4000)),
    "results of one input": (_results, (100, 400, 1000, 2000, 4000)),
    "results of one input each": (_inputs, (100, 400, 1000, 2000, 4000)),
}
# fmt: on


@dataclasses.dataclass
class Row:
    """A measured row.

    tracing: the least of all functions. seconds: of the rest of the first call, by engine. error: the largest
    difference between the engines' results, relative to their largest magnitude; NaN where a result is NaN.
    """

    family: str
    operations: int
    tracing: float
    seconds: dict[str, float]
    error: float

    @property
    def ratio(self) -> float:
        """How many times tfbridge is faster than XLA, tracing aside."""
        return self.seconds["xla"] / self.seconds["tfbridge"]


def first_call(
    engine: str, function: Function, argument: tf.Tensor | list[tf.Tensor]
) -> tuple[float, float, list[np.ndarray]]:
    """Seconds of tracing and of the rest of the first call, and the results."""
    compiled = (
        tfbridge.jit(function, strict=True)
        if engine == "tfbridge"
        else tf.function(function, jit_compile=True)
    )
    start = time.perf_counter()
    compiled.get_concrete_function(argument)
    traced = time.perf_counter()
    results = tf.nest.flatten(compiled(argument))
    arrays = [result.numpy() for result in results]
    return traced - start, time.perf_counter() - traced, arrays


def measure(family: str, operations: int, repetitions: int = REPETITIONS) -> Row:
    """One row; the engines take turns."""
    build = FAMILIES[family][0]
    numbers = np.random.default_rng(1).uniform(0.1, 0.9, ELEMENTS).astype(np.float32)
    x = tf.constant(numbers)
    argument = [tf.constant(numbers) for _ in range(operations)] if build is _inputs else x
    for engine in ENGINES:  # what a process does once is done
        first_call(engine, lambda x: tf.exp(x) * 2.0, x)
    tracing, seconds, results = np.inf, dict.fromkeys(ENGINES, np.inf), {}
    for _ in range(repetitions):
        for engine in ENGINES:
            if engine in results and seconds[engine] > LONG_SECONDS:
                continue
            traced, rest, results[engine] = first_call(engine, build(operations), argument)
            tracing, seconds[engine] = min(tracing, traced), min(seconds[engine], rest)
    return Row(family, operations, tracing, seconds, _difference(results["xla"], results["tfbridge"]))


def _difference(expected: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> float:
    return float(
        np.max(
            [
                np.abs(f - w).max() / np.maximum(np.abs(w).max(), 1e-3)
                for f, w in zip(results, expected, strict=True)
            ]
        )
    )


def _in_process(family: str, operations: int, threads: int) -> Row:
    environment = os.environ | {
        "TFBRIDGE_DISK_CACHE": "0",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [
        sys.executable,
        "-m",
        "tfbridge.models.bench.compile_suite",
        family,
        str(operations),
        str(threads),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{family}, {operations} operations: {done.stderr.strip().splitlines()[-1]}")
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main(threads: int, as_json: bool, save: Path | None, quick: bool = False) -> int:
    """Measures all rows, with `quick` those of up to 400 operations, and prints; 1 if results differ."""
    cases = [(family, n) for family, (_, sizes) in FAMILIES.items() for n in sizes if n <= 400 or not quick]
    console = Console(stderr=True)
    rows = [
        _in_process(*case, threads) for case in track(cases, "first calls", console=console, transient=True)
    ]
    report = [dataclasses.asdict(row) | {"ratio": row.ratio} for row in rows]
    publish(report, lambda: _print_table(rows), as_json, save)
    return int(not all(row.error <= TOLERANCE for row in rows))


def _print_table(rows: list[Row]) -> None:
    table = Table(
        "function",
        "operations",
        "tracing s",
        "XLA s",
        "tfbridge s",
        "x XLA",
        "tfbridge\nms per operation",
        title="first calls without a cache, tracing aside",
    )
    family = ""
    for row in rows:
        if family and row.family != family:
            table.add_section()
        ours = row.seconds["tfbridge"]
        table.add_row(
            row.family if row.family != family else "",
            str(row.operations),
            f"{row.tracing:.2f}",
            f"{row.seconds['xla']:.3f}",
            f"{ours:.3f}",
            f"{row.ratio:.2f}",
            f"{1e3 * ours / row.operations:.2f}",
        )
        family = row.family
    table.add_section()
    table.add_row(
        "geometric mean", "", "", "", "", f"{statistics.geometric_mean(row.ratio for row in rows):.2f}", ""
    )
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)


if __name__ == "__main__":
    limit_threads(int(sys.argv[3]))
    print(json.dumps(dataclasses.asdict(measure(sys.argv[1], int(sys.argv[2])))))
