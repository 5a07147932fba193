"""Counters."""

from __future__ import annotations

import threading

import pytest
from tfbridge.runtime.statistics import COUNTERS, ClusterRecord, Statistics


def test_counts_and_reset() -> None:
    counted = Statistics()
    counted.count("compiles")
    counted.count("ops_compiled", 7)
    counted.add_compile_seconds(0.5)
    counted.leave_out("string type", 2)
    counted.leave_out("string type")
    counted.record(ClusterRecord("c0", 7))
    assert counted.snapshot() == {
        **dict.fromkeys(COUNTERS, 0),
        "compiles": 1,
        "ops_compiled": 7,
        "compile_seconds": 0.5,
        "ops_left_out": {"string type": 3},
    }
    assert counted.clusters() == (ClusterRecord("c0", 7),)
    counted.reset()
    assert counted.snapshot() == {**dict.fromkeys(COUNTERS, 0), "compile_seconds": 0.0, "ops_left_out": {}}
    assert counted.clusters() == ()


def test_unknown_counter() -> None:
    with pytest.raises(KeyError):
        Statistics().count("compile")


def test_snapshot_is_a_copy() -> None:
    counted = Statistics()
    counted.snapshot()["ops_left_out"]["x"] = 1
    assert counted.snapshot()["ops_left_out"] == {}


def test_many_threads() -> None:
    counted = Statistics()

    def work() -> None:
        for _ in range(2000):
            counted.count("memory_hits")
            counted.leave_out("x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.snapshot()["memory_hits"] == 16_000 and counted.snapshot()["ops_left_out"] == {"x": 16_000}
