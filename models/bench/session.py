"""What a worker of the benchmark does: it calls one engine on a workload, and measures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tfbridge

from .engines import ENGINES
from .measurement import Kernel, ResidentMemory, Stopwatch
from .suites import SUITES
from .workloads import relative_error

STEPS = 3  # calls before results are compared: variables have been updated more than once
WARM_UP_SECONDS = 0.3
PROFILED_RUNS = 10


class Session:
    """An engine on a workload, then perhaps on others. Methods without underscore are commands."""

    def __init__(self, engine: str, suite: str, size: str, threads: int) -> None:
        self._engine_name, self._engine = engine, ENGINES[engine]
        self._engine.load()
        self._rows = SUITES[suite].rows
        self._size, self._threads = size, threads

    def open(self, workload: str) -> dict[str, object]:
        """Does what comes before the first call: the program is built and, by some engines, converted."""
        row = self._rows[workload]
        self._program = row.build_small() if self._size == "small" else row.build()
        self._start = self._engine.prepare(self._program, self._threads)
        self._inputs = self._program.arrays if self._engine.arrays else self._program.inputs
        self._memory = ResidentMemory()
        self._memory.restart_peak()
        return {"ready": True}

    def first(self, reference: str) -> dict[str, object]:
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
            tfbridge.wait_for_compilation()
        results = self._program.run(function, STEPS - 1, self._inputs)
        error = self._error(results, Path(reference))
        self._stopwatch = Stopwatch(function, self._inputs, self._wait)
        self._stopwatch.warm_up(WARM_UP_SECONDS)
        self._memory.restart_peak()
        return {"seconds": seconds, "tracing": tracing, "error": error, "bytes": first_call_bytes}

    def round(self, seconds: float) -> dict[str, object]:
        median, least = self._stopwatch.round(seconds)
        return {"seconds": median, "least": least}

    def peak(self) -> dict[str, object]:
        return {"bytes": self._memory.peak_bytes()}

    def profile(self) -> dict[str, object]:
        from ...bridge.api.profile import profile

        measured = profile(tfbridge.jit(self._program.function), *self._program.inputs, runs=PROFILED_RUNS)
        kernels = []
        for kernel, calls, ns in measured.events:
            launches = calls / measured.runs
            kernels.append(
                Kernel(
                    kernel.name,
                    ", ".join(kernel.ops),
                    launches,
                    kernel.flops * launches,
                    kernel.bytes * launches,
                    ns / measured.runs / 1e9,
                )
            )
        return {"kernels": kernels, "footprint_bytes": measured.footprint_bytes}

    def _wait(self, result: object) -> None:
        """Returns when the result is there; arrays are when they are returned."""
        if not self._engine.arrays:
            tf.nest.flatten(result)[0].numpy()

    def _error(self, results: list[np.ndarray], reference: Path) -> float:
        if self._engine_name == "tf":
            with reference.open("wb") as file:
                np.savez(file, *results)
        with np.load(reference) as expected:
            return relative_error(results, list(expected.values()))
