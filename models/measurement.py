"""What the benchmark measures of one engine on one workload, and how."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_SECONDS = 1e-3  # shorter calls are repeated this long: well above the cost of clock and loop
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass
class Measurement:
    """One engine on one workload.

    Units: `round_seconds` median seconds of one call, per round; `first_call_bytes` and `peak_bytes` resident
    memory above what the process held before the first call: during that call, and during those after it.
    """

    engine: str
    first_call_seconds: float = np.nan
    round_seconds: list[float] = field(default_factory=list)
    error: float = np.nan
    first_call_bytes: int = 0
    peak_bytes: int = 0
    failure: str = ""

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.round_seconds) if self.round_seconds else np.nan


class Stopwatch:
    """Times calls of a function on inputs that are ready, as its user makes them."""

    def __init__(self, function: Callable[..., Any], inputs: tuple[Any, ...],
                 wait: Callable[[Any], None]) -> None:
        """`wait` returns when the result that it is given has been computed."""
        self._function = function
        self._inputs = inputs
        self._wait = wait
        self._calls = 1

    def sample(self) -> float:
        """Seconds of a call, averaged over as many calls as a sample has."""
        function, inputs = self._function, self._inputs
        start = time.perf_counter()
        for _ in range(self._calls):
            result = function(*inputs)
        self._wait(result)
        return (time.perf_counter() - start) / self._calls

    def warm_up(self, seconds: float) -> None:
        """Calls until the time is over, and settles how many calls a sample has."""
        end = time.perf_counter() + seconds
        samples = [self.sample()]
        while time.perf_counter() < end:
            samples.append(self.sample())
        self._calls = max(1, round(SAMPLE_SECONDS / statistics.median(samples)))

    def round(self, seconds: float) -> float:
        """The median of the samples, at least three, that fit into the time."""
        gc.collect()
        gc.disable()
        self.sample()
        end = time.perf_counter() + seconds
        samples: list[float] = []
        while len(samples) < 3 or time.perf_counter() < end:
            samples.append(self.sample())
        gc.enable()
        return statistics.median(samples)


class ResidentMemory:
    """The peak of resident memory above that at the start; zero where the system does not tell."""

    def __init__(self) -> None:
        # Building the model freed memory that the allocator keeps; reused, it would hide what the calls need.
        gc.collect()
        if sys.platform == "linux":
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)
        self._start = _status_bytes("VmRSS")

    def restart_peak(self) -> None:
        """Forgets the peak so far."""
        if CLEAR_REFS.exists():
            CLEAR_REFS.write_text("5")

    def peak_bytes(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._start)


def _status_bytes(name: str) -> int:
    if not STATUS.exists():
        return 0
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
