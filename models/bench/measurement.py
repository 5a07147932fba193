"""What the benchmark measures of one engine on one workload, and how."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SAMPLE_SECONDS = 1e-3  # shorter calls are repeated this long: well above the cost of clock and loop
PROCESS = Path("/proc/self")


class Kernel(NamedTuple):
    """A kernel of the compiled code: what it computes and moves in all its launches of one call, and how long."""

    name: str
    ops: str
    launches: float
    flops: float
    bytes: float
    seconds: float


@dataclass
class Measurement:
    """One engine on one workload.

    Units: `round_seconds` median seconds of one call, per round, `least_seconds` of the fastest sample;
    `warm_first_call_seconds` those of a fresh process that finds code in the disk cache; `tracing_seconds` the part of
    the first call in which Python makes the graph, where it is known; `first_call_bytes` and
    `peak_bytes` peak resident memory above what the process held before the first call: during that call, and
    during those after it. `kernels` and `footprint_bytes` (all memory that they work on) where the engine tells.
    """

    engine: str
    first_call_seconds: float = np.nan
    round_seconds: list[float] = field(default_factory=list)
    error: float = np.nan
    first_call_bytes: int = 0
    peak_bytes: int = 0
    failure: str = ""
    least_seconds: float = np.nan
    warm_first_call_seconds: float = np.nan
    tracing_seconds: float = np.nan
    footprint_bytes: int = 0
    kernels: list[Kernel] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.round_seconds) if self.round_seconds else np.nan

    @property
    def all_calls_bytes(self) -> int:
        """The peak over all calls."""
        return max(self.first_call_bytes, self.peak_bytes)


class Stopwatch:
    """Times calls of a function on inputs that are ready, as its user makes them."""

    def __init__(
        self, function: Callable[..., Any], inputs: tuple[object, ...], wait: Callable[[object], None]
    ) -> None:
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

    def round(self, seconds: float) -> tuple[float, float]:
        """The median and the least of the samples, at least three, that fit into the time."""
        gc.collect()
        gc.disable()
        self.sample()
        end = time.perf_counter() + seconds
        samples: list[float] = []
        while len(samples) < 3 or time.perf_counter() < end:
            samples.append(self.sample())
        gc.enable()
        return statistics.median(samples), min(samples)


class ResidentMemory:
    """The peak of resident memory above that at the start, of this process and of those that it has started since.

    Zero where the system does not tell.
    """

    def __init__(self) -> None:
        # Building the model freed memory that the allocator keeps; reused, it would hide what the calls need.
        gc.collect()
        if sys.platform == "linux":
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)
        self._start = _status_bytes(PROCESS, "VmRSS")

    def restart_peak(self) -> None:
        """Forgets the peak so far."""
        for process in (PROCESS, *_children(PROCESS)):
            if (process / "clear_refs").exists():
                (process / "clear_refs").write_text("5")

    def growth_bytes(self) -> int:
        """What this process holds now and did not at the start."""
        return _status_bytes(PROCESS, "VmRSS") - self._start

    def peak_bytes(self) -> int:
        own = max(0, _status_bytes(PROCESS, "VmHWM") - self._start)
        return own + sum(_status_bytes(child, "VmHWM") for child in _children(PROCESS))


def _children(process: Path) -> Iterator[Path]:
    """The folders of the processes that this one has started, and of theirs."""
    for listed in process.glob("task/*/children"):
        for number in listed.read_text().split():
            child = Path("/proc") / number
            yield child
            yield from _children(child)


def _status_bytes(process: Path, name: str) -> int:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:  # another system, or a process that has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
