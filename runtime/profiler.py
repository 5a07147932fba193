"""A profile of kernels: how often each was launched and how long it took, as a list and as a Chrome trace.

The run context's recorder adds to two u64 per kernel launch of the schedule, in the order of `Artifact.kernels`: calls,
and ticks of the cycle counter (`llvm.readcyclecounter`).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .code import linker
from .code.artifact import Artifact, KernelRecord
from .llvm.ir_builder import Function, Int, Ptr
from .llvm.module_text import ModuleText
from .llvm.types import parameters
from .run_context import RECORD_END, RECORD_START, Recorder

_SLOTS = 2


@functools.cache
def _native() -> linker.Loaded:
    """`i64 ticks()`, which reads the cycle counter, and a recorder's function `count`."""
    module = ModuleText()
    f = Function(module, "ticks", [], result="i64", linkage="")
    f.ret(f.call("llvm.readcyclecounter", "i64", []))
    module.add("ticks", f.text())
    f = Function(module, "count", parameters("ptr recorder, i64 kernel, ptr last"), linkage="")
    recorder, last = f.pointers("recorder", "last")
    now = recorded_end(f, last, _ticks)
    with f.if_(f.integer("kernel").differs(RECORD_START)):
        slots = (recorder + Recorder.data.offset).load_ptr() + f.integer("kernel") * (8 * _SLOTS)
        slots.atomic_rmw("add", f.i64(1), "monotonic")
        (slots + 8).atomic_rmw("add", now - last.load_int(), "monotonic")
    last.store(recorded_end(f, last, _ticks))
    f.ret()
    module.add("count", f.text())
    return linker.load_text(module.text(), ("ticks", "count"))


def _ticks(f: Function) -> Int:
    return Int.of(f, f.call("llvm.readcyclecounter", "i64", []))


def recorded_end(f: Function, last: Ptr, clock: Callable[[Function], Int]) -> Int:
    """When the kernel ended that a recorder's function is told of."""
    given = (last + RECORD_END).load_int()
    with f.if_(given.equals(0), end=given) as is_now:
        is_now.end = clock(f)
    end: Int = is_now.end
    return end


class Event(NamedTuple):
    """What one kernel took over all calls.

    Units: ns over all calls; kernel.flops and kernel.bytes are per call.
    """

    kernel: KernelRecord
    calls: int
    ns: float


def ticks_per_ns() -> float:
    """How many ticks of the cycle counter pass in a nanosecond; measured once, over ten milliseconds."""
    global _rate
    if _rate is None:
        ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(_native().addresses["ticks"])
        start, start_ns = ticks(), time.perf_counter_ns()
        while time.perf_counter_ns() - start_ns < 10_000_000:
            pass
        _rate = (ticks() - start) / (time.perf_counter_ns() - start_ns)
    return _rate


_rate: float | None = None


class Profile:
    """Counters of one executable. Put `address` into the run context's `recorder` field."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self._slots = (ctypes.c_uint64 * (_SLOTS * max(1, len(artifact.kernels))))()
        self._recorder = Recorder(_native().addresses["count"], ctypes.addressof(self._slots))
        self.address: int = ctypes.addressof(self._recorder)

    def reset(self) -> None:
        """All counters to zero."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))

    def events(self) -> list[Event]:
        """The kernels in the order of the schedule."""
        rate = ticks_per_ns()
        return [
            Event(kernel, self._slots[_SLOTS * i], self._slots[_SLOTS * i + 1] / rate)
            for i, kernel in enumerate(self.artifact.kernels)
        ]


def write_chrome_trace(
    events: Iterable[Event], path: str | os.PathLike[str], process: str = "tfbridge"
) -> None:
    """Writes events in a row, each with the time of all its calls, as JSON for Perfetto or chrome://tracing."""
    rows: list[dict[str, object]] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": process}}]
    start_us = 0.0
    for kernel, calls, ns in events:
        if calls == 0:
            continue
        us = ns / 1e3
        rows.append(
            {
                "name": kernel.label,
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": start_us,
                "dur": us,
                "args": {
                    "calls": calls,
                    "ops": ", ".join(kernel.ops),
                    "tasks": kernel.tasks,
                    "gflops": kernel.flops * calls / us / 1e3 if us else 0.0,
                    "gbytes_per_s": kernel.bytes * calls / us / 1e3 if us else 0.0,
                },
            }
        )
        start_us += us
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": rows, "displayTimeUnit": "ns"}, file, indent=1)
