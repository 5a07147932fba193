"""A case of the suite: what is called, how it is timed, and what is told of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tfbridge

from ...program import Array, Program
from ..engines import ENGINES

TENSORFLOW = ("tf", "xla", "tfbridge-auto", "tfbridge")  # the engines that run any program
ANY_SHAPE = (*TENSORFLOW, "onnxruntime", "openvino")  # those that serve an inference program of unknown sizes
PAIRED_CALLS = 30  # fewer than make a size hot, which is then specialised
LATER_SECONDS, QUICK_LATER_SECONDS = 5.0, 0.2
"""After so long of the same calls, again and again, they are measured."""


@dataclass(frozen=True)
class Scale:
    """How much is measured. seconds: how long the server serves."""

    threads: int
    seconds: float
    quick: bool = False

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass
class Outcome:
    """What an engine did in a case.

    values: numbers by the title of their column; None where the engine does not tell. call_seconds: of calls (or
    larger steps) that every engine makes in this order. results: numbers made of what the calls returned.
    later_seconds: of the same calls, once the program has run for some seconds.
    """

    values: dict[str, float | None] = field(default_factory=dict)
    call_seconds: list[float] = field(default_factory=list)
    results: list[float] = field(default_factory=list)
    later_seconds: list[float] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Case:
    """One row of a table of the report, for each of the engines that can run it."""

    table: str
    name: str
    measure: Callable[[str, Scale], Outcome]
    engines: tuple[str, ...] = TENSORFLOW
    quick: bool = True


class Callee:
    """A program as an engine runs it."""

    def __init__(self, engine: str, program: Program, threads: int) -> None:
        self._arrays = ENGINES[engine].arrays
        self._program = program  # its variables live as long as the function
        self.function = ENGINES[engine].prepare(program, threads)()

    def inputs(self, values: Iterable[object]) -> tuple[object, ...]:
        """The values as the engine takes them: arrays, or tensors."""
        if self._arrays:
            return tuple(values)
        return tuple(value if isinstance(value, tf.RaggedTensor) else tf.constant(value) for value in values)

    def timed(self, *inputs: object) -> tuple[float, list[Any]]:
        """Seconds until the first result can be read, and the results."""
        start = time.perf_counter()
        results = tf.nest.flatten(self.function(*inputs))
        np.asarray(results[0])
        return time.perf_counter() - start, results


def checksum(results: Sequence[object]) -> float:
    """A number near the checksum of the results, to which every element adds by its place."""
    values = np.concatenate([np.asarray(value, np.float64).ravel() for value in results])
    return float(
        np.linalg.norm(values * (1.0 + 0.5 * np.sin(np.arange(values.size)))) / math.sqrt(values.size)
    )


def beside_specialised(
    generic: Callee, engine: str, program: Program, arrays: Sequence[Array], scale: Scale
) -> tuple[float, float, list[Any]]:
    """Median seconds of calls with these arguments, in turns with those of code for their shapes alone; and results."""
    values = generic.inputs(arrays)
    static = Program(program.function, list(arrays), program.captured, program.updated)
    # What is given to jit is compiled in its first call; the flag leaves that to the background.
    specialised = Callee("tfbridge" if engine == "tfbridge-auto" else engine, static, scale.threads)
    seconds = []
    for _ in range(PAIRED_CALLS):  # results are dropped: the next call's are written where they were
        one, results = generic.timed(*values)
        other, _ = specialised.timed(*specialised.inputs(arrays))
        seconds.append((one, other))
    of_generic, of_specialised = np.median(np.array(seconds[PAIRED_CALLS // 3 :]), 0)
    return float(of_generic), float(of_specialised), results


def last_of_many(run: Callable[[], list[float]], scale: Scale) -> list[float]:
    """What `run` returns the last time, where it runs for some seconds, at least twice."""
    end = time.perf_counter() + (QUICK_LATER_SECONDS if scale.quick else LATER_SECONDS)
    while time.perf_counter() < end:
        run()
    return run()


def sequence(engine: str, program: Program, calls: Iterable[Sequence[Array]], scale: Scale) -> Outcome:
    """The calls, one after another."""
    callee, outcome = Callee(engine, program, scale.threads), Outcome()
    arguments = [callee.inputs(values) for values in calls]
    for inputs in arguments:
        seconds, results = callee.timed(*inputs)
        outcome.call_seconds.append(seconds)
        outcome.results.append(checksum(results))
    outcome.later_seconds = last_of_many(lambda: [callee.timed(*inputs)[0] for inputs in arguments], scale)
    outcome.values = (
        {"first ms": 1e3 * outcome.call_seconds[0]}
        | percentiles(outcome.call_seconds[1:])
        | {"later p50 ms": 1e3 * float(np.median(outcome.later_seconds))}
        | compilations(engine)
    )
    if engine.startswith("tfbridge"):
        outcome.values["clusters"] = len(tfbridge.explain(callee.function, *inputs).clusters)
    return outcome


def percentiles(seconds: Sequence[float], prefix: str = "") -> dict[str, float | None]:
    """The columns p50, p99 and max, in milliseconds."""
    values = 1e3 * np.percentile(seconds, (50, 99, 100))
    return dict(zip((f"{prefix}p50 ms", f"{prefix}p99 ms", f"{prefix}max ms"), map(float, values)))


def compilations(engine: str) -> dict[str, float | None]:
    """What tfbridge has compiled in this process. Of XLA the process that started this one reads it from the log."""
    if not engine.startswith("tfbridge"):
        return {"compilations": None}
    stats = tfbridge.stats()
    return {
        "compilations": stats["compiles"],
        "clusters with code": stats["clusters_compiled"],
        "served by TF": stats["served_by_tensorflow"],
        "background s": stats["background_cpu_seconds"],
    }
