"""Counters of compiled code, runs and unclustered ops, for `tfbridge.stats()` and for explanations.

The functions of this module (`count`, `count_unclustered`, ..., `stats`, `reset_stats`) are those of `process`, the
counters of this process.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from .threads import forking

COUNTERS = {
    "clusters_compiled": "clusters that got their first code, compiled or from the disk cache",
    "ops_compiled": "TensorFlow ops in these clusters",
    "fallbacks": "compilations that failed or were refused: TensorFlow runs the cluster for these shapes or values",
    "compiles": "modules compiled to machine code, in the foreground and in the background",
    "recompiles": "further code for clusters that have some: for other shapes, or other values that decide shapes",
    "memory_hits": "requests for code that code in memory met, for the same shapes or for symbolic sizes",
    "disk_hits": "modules whose code came from the disk cache",
    "background_compiles": "compilations that no call waited for",
    "served_by_tensorflow": "calls that TensorFlow served because there was no code yet",
    "symbolic_compiles": "compilations for symbolic sizes, whose code serves many shapes",
    "specializations": "compilations for one set of sizes, in the place of code for symbolic sizes",
}
"""What `Statistics.count` counts, by name."""
TOTALS = {
    "specialized_calls": "calls of compiled code",
    "ops_left_out": "ops that TensorFlow runs, by reason: once for every graph, and for every set of shapes of a "
    "cluster that does not compile",
    "compile_seconds": "seconds spent compiling",
    "background_cpu_seconds": "CPU seconds spent compiling in the background",
}
"""What else is in a snapshot, by name."""
_MAX_RECORDS = 4096
_MAX_REASONS = 1024
OTHER_REASONS = "other reasons"


@dataclasses.dataclass(frozen=True)
class ClusterRecord:
    """One compilation of a cluster: its name, source op count, argument shapes, kernels, and what it took.

    Units: seconds; temp_bytes and object_bytes are bytes. `from_disk`: read from the disk cache, not
    compiled. `key`: the cluster's, which no other one of the process has.
    """

    name: str
    ops: int
    shapes: str = ""
    kernels: int = 0
    seconds: float = 0.0
    temp_bytes: int = 0
    object_bytes: int = 0
    from_disk: bool = False
    key: str = ""


@dataclasses.dataclass(frozen=True)
class CallTimes:
    """Timed calls of a cluster: how many in compiled code and in TensorFlow, and the sums of their seconds."""

    compiled: int = 0
    compiled_seconds: float = 0.0
    tensorflow: int = 0
    tensorflow_seconds: float = 0.0


class Statistics:
    """Counters that any thread may raise."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._totals: dict[str, Callable[[], int]] = {}
        self.on_record: Callable[[], object] | None = None  # is called after each `record`
        self.reset()

    def reset(self) -> None:
        """Sets all counters to zero, and forgets the records of compilations. Code stays where it is."""
        totals = {name: total() for name, total in self._totals.items()}  # under their locks alone
        with self._lock:
            self._counts = dict.fromkeys(COUNTERS, 0)
            self._seconds = self._background_seconds = 0.0
            self._before = totals
            self._unclustered: dict[str, int] = {}
            self._clusters: collections.deque[ClusterRecord] = collections.deque(maxlen=_MAX_RECORDS)
            self._times: dict[str, CallTimes] = {}

    def count(self, counter: str, amount: int = 1) -> None:
        """Raises one of COUNTERS.

        Raises: KeyError  no such counter.
        """
        with self._lock:
            self._counts[counter] += amount

    def add_compile_seconds(self, seconds: float) -> None:
        """Time spent compiling."""
        with self._lock:
            self._seconds += seconds

    def add_background_seconds(self, seconds: float) -> None:
        """CPU time that compiling in the background took."""
        with self._lock:
            self._background_seconds += seconds

    def add_total(self, name: str, total: Callable[[], int]) -> None:
        """Adds a counter that others keep: `total` returns it."""
        self._totals[name], self._before[name] = total, 0

    def count_unclustered(self, reason: str, ops: int = 1) -> None:
        """Counts ops outside clusters by reason."""
        with self._lock:
            if reason not in self._unclustered and len(self._unclustered) >= _MAX_REASONS:
                reason = OTHER_REASONS
            self._unclustered[reason] = self._unclustered.get(reason, 0) + ops

    def record(self, cluster: ClusterRecord) -> None:
        """Keeps the record of one compilation."""
        with self._lock:
            self._clusters.append(cluster)
        if self.on_record is not None:
            self.on_record()

    def record_times(self, key: str, compiled_seconds: float, tensorflow_seconds: float) -> None:
        """Keeps what a call of a cluster took in compiled code and in TensorFlow; 0: not measured."""
        with self._lock:
            times = self._times.pop(key, CallTimes())
            if len(self._times) >= _MAX_RECORDS:
                del self._times[next(iter(self._times))]
            self._times[key] = CallTimes(
                times.compiled + (compiled_seconds > 0),
                times.compiled_seconds + compiled_seconds,
                times.tensorflow + (tensorflow_seconds > 0),
                times.tensorflow_seconds + tensorflow_seconds,
            )

    def call_times(self) -> dict[str, CallTimes]:
        """The timed calls by the cluster's key."""
        with self._lock:
            return dict(self._times)

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """The last records, oldest first."""
        with self._lock:
            return tuple(self._clusters)

    def snapshot(self) -> dict[str, Any]:
        """A copy of all counters of the process by name, `ops_left_out` as a dict by reason.

        >>> import tfbridge
        >>> tfbridge.reset_stats()
        >>> tfbridge.stats()["compiles"], tfbridge.stats()["ops_left_out"]
        (0, {})

        `COUNTERS` and `TOTALS` of this module say what each is.
        Units: `compile_seconds` are seconds, `background_cpu_seconds` CPU seconds; all others are numbers.
        """
        totals = {name: total() - self._before[name] for name, total in self._totals.items()}
        with self._lock:
            return {
                **self._counts,
                **totals,
                "ops_left_out": dict(self._unclustered),
                "compile_seconds": self._seconds,
                "background_cpu_seconds": self._background_seconds,
            }


process = Statistics()
count = process.count
add_compile_seconds = process.add_compile_seconds
add_background_seconds = process.add_background_seconds
add_total = process.add_total
count_unclustered = process.count_unclustered
record = process.record
record_times = process.record_times
call_times = process.call_times
clusters = process.clusters
stats = process.snapshot
reset_stats = process.reset
