"""Profiles: counters that code writes become events and a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machine_code import emit
from tfbridge.runtime.code.artifact import Artifact, KernelRecord
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.profiler import Event, ticks_per_ns, write_chrome_trace
from tfbridge.runtime.run_context import OFFSETS, RECORD_START

# Tells the recorder of the second kernel, which began a million ticks ago.
ENTRY = f"""
declare i64 @llvm.readcyclecounter()
define i32 @entry(ptr %context, ptr %args, ptr %results, ptr %temp) {{
  %last = alloca [2 x i64]
  store [2 x i64] zeroinitializer, ptr %last
  %at = getelementptr i8, ptr %context, i64 {OFFSETS["recorder"]}
  %recorder = load ptr, ptr %at
  %record = load ptr, ptr %recorder
  call void %record(ptr %recorder, i64 {RECORD_START}, ptr %last)
  %now = call i64 @llvm.readcyclecounter()
  %before = sub i64 %now, 1000000
  store i64 %before, ptr %last
  call void %record(ptr %recorder, i64 1, ptr %last)
  ret i32 0
}}
"""
KERNELS = (
    KernelRecord("first", 10, 20, 1),
    KernelRecord("second", 4000, 800, 2, ("model/add", "model/tanh")),
)


def test_events_and_trace(tmp_path: Path) -> None:
    run = Executable(Artifact(emit(ENTRY), "entry", (), (), kernels=KERNELS), profile=True)
    for _ in range(3):
        run.execute([])
    first, second = run.profile.events()
    assert first == Event(KERNELS[0], 0, 0.0)
    assert (second.kernel, second.calls) == (KERNELS[1], 3)
    assert 3e6 <= second.ns * ticks_per_ns() < 4e6
    write_chrome_trace([first, second, second], tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [row["name"] for row in rows] == ["process_name"] + ["model/add [second]"] * 2
    assert rows[1]["args"]["ops"] == "model/add, model/tanh" and rows[1]["args"]["calls"] == 3
    assert rows[2]["ts"] == pytest.approx(rows[1]["dur"])
    assert rows[1]["args"]["gflops"] == pytest.approx(4000 / (second.ns / 3))
    run.profile.reset()
    assert run.profile.events()[1].calls == 0


def test_off_by_default() -> None:
    assert Executable(Artifact(emit(ENTRY), "entry", (), (), kernels=KERNELS)).profile is None
