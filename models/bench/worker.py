"""One engine in a process of its own: commands and answers are lines of JSON.

    python -m tfbridge.models.bench.worker ENGINE SUITE full|small THREADS

`{"command": "open", "workload": NAME}` takes the place of the workload before.
`{"command": "first", "reference": FILE}` makes the first call and, when code is there, two more; TensorFlow's own
engine tells how much of the first call was tracing, and writes its results to FILE; the others compare theirs with it.
`{"command": "round", "seconds": S}` measures. `{"command": "profile"}` tells what the compiled code is made of,
`{"command": "peak"}` the peak of memory. While it waits for a command the process sleeps; it ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

STEPS = 3  # calls before results are compared: variables have been updated more than once
WARM_UP_SECONDS = 0.3
PROFILED_RUNS = 10


def limit_threads(threads: int) -> None:
    """Binds the process to the first `threads` of its CPUs, so that no engine's thread pool can use more."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


class Session:
    """An engine on a workload, then perhaps on others. Methods without underscore are commands."""

    def __init__(self, engine: str, suite: str, size: str, threads: int) -> None:
        from .engines import ENGINES
        from .suites import SUITES

        self._engine_name, self._engine = engine, ENGINES[engine]
        self._rows = SUITES[suite].rows
        self._size, self._threads = size, threads

    def open(self, workload: str) -> dict[str, Any]:
        """Does what comes before the first call: the program is built and, by some engines, converted."""
        from .measurement import ResidentMemory

        row = self._rows[workload]
        self._program = row.build_small() if self._size == "small" else row.build()
        self._start = self._engine.prepare(self._program, self._threads)
        self._inputs = self._program.arrays if self._engine.arrays else self._program.inputs
        self._memory = ResidentMemory()
        self._memory.restart_peak()
        return {"ready": True}

    def first(self, reference: str) -> dict[str, Any]:
        from .measurement import Stopwatch

        start = time.perf_counter()
        function: Any = self._start()
        tracing = None
        if self._engine_name == "tf":
            function.get_concrete_function(*self._inputs)
            tracing = time.perf_counter() - start
        self._wait(function(*self._inputs))
        seconds = time.perf_counter() - start
        first_call_bytes = self._memory.peak_bytes()
        if self._engine.family == "tfbridge":
            import tfbridge

            tfbridge.wait_for_compilation()
        results = self._program.run(function, STEPS - 1, self._inputs)
        error = self._error(results, Path(reference))
        self._stopwatch = Stopwatch(function, self._inputs, self._wait)
        self._stopwatch.warm_up(WARM_UP_SECONDS)
        self._memory.restart_peak()
        return {"seconds": seconds, "tracing": tracing, "error": error, "bytes": first_call_bytes}

    def round(self, seconds: float) -> dict[str, Any]:
        median, least = self._stopwatch.round(seconds)
        return {"seconds": median, "least": least}

    def peak(self) -> dict[str, Any]:
        return {"bytes": self._memory.peak_bytes()}

    def profile(self) -> dict[str, Any]:
        import tfbridge

        from ...bridge.api.profile import profile
        from .measurement import Kernel

        made = profile(tfbridge.jit(self._program.function), *self._program.inputs, runs=PROFILED_RUNS)
        kernels = []
        for kernel, calls, ns in made.events:
            launches = calls / made.runs
            kernels.append(
                Kernel(
                    kernel.name,
                    ", ".join(kernel.ops),
                    launches,
                    kernel.flops * launches,
                    kernel.bytes * launches,
                    ns / made.runs / 1e9,
                )
            )
        return {"kernels": kernels, "footprint_bytes": made.footprint_bytes}

    def _wait(self, result: Any) -> None:
        """Returns when the result is there; arrays are when they are returned."""
        if not self._engine.arrays:
            import tensorflow as tf

            tf.nest.flatten(result)[0].numpy()

    def _error(self, results: list[Any], reference: Path) -> float:
        import numpy as np

        from .workloads import relative_error

        if self._engine_name == "tf":
            with reference.open("wb") as file:
                np.savez(file, *results)
        with np.load(reference) as wanted:
            return relative_error(results, list(wanted.values()))


def main(arguments: list[str]) -> None:
    engine, suite, size, threads = arguments
    limit_threads(int(threads))
    # Answers keep standard output to themselves; whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Session(engine, suite, size, int(threads)), sys.stdin, answers)


def serve(session: Session, commands: TextIO, answers: TextIO) -> None:
    """Answers commands until there are no more."""
    for line in commands:
        values = json.loads(line)
        print(json.dumps(getattr(session, values.pop("command"))(**values)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
