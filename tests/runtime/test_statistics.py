"""Counters."""

from __future__ import annotations

import pytest
from in_threads import in_threads
from tfbridge.runtime.statistics import COUNTERS, CallTimes, ClusterRecord, Statistics


def test_counts_and_reset() -> None:
    counted = Statistics()
    counted.count("compiles")
    counted.count("ops_compiled", 7)
    counted.add_compile_seconds(0.5)
    counted.add_background_seconds(0.25)
    counted.count_unclustered("string type", 2)
    counted.count_unclustered("string type")
    counted.record(ClusterRecord("c0", 7))
    assert counted.snapshot() == {
        **dict.fromkeys(COUNTERS, 0),
        "compiles": 1,
        "ops_compiled": 7,
        "compile_seconds": 0.5,
        "background_cpu_seconds": 0.25,
        "ops_left_out": {"string type": 3},
    }
    assert counted.clusters() == (ClusterRecord("c0", 7),)
    counted.reset()
    seconds = dict.fromkeys(("compile_seconds", "background_cpu_seconds"), 0.0)
    assert counted.snapshot() == {**dict.fromkeys(COUNTERS, 0), **seconds, "ops_left_out": {}}
    assert counted.clusters() == ()


def test_a_total_that_others_keep_counts_from_the_reset() -> None:
    counted, runs = Statistics(), [3]
    counted.add_total("runs", lambda: runs[0])
    assert counted.snapshot()["runs"] == 3
    counted.reset()
    runs[0] += 2
    assert counted.snapshot()["runs"] == 2


def test_times_are_summed_and_bounded() -> None:
    counted = Statistics()
    for k in range(5000):
        counted.record_times(f"c{k}", 1.0, 2.0)
    counted.record_times("c4999", 0.5, 0.0)
    assert counted.call_times()["c4999"] == CallTimes(2, 1.5, 1, 2.0)
    assert len(counted.call_times()) == 4096
    counted.reset()
    assert counted.call_times() == {}


def test_unknown_counter() -> None:
    with pytest.raises(KeyError):
        Statistics().count("compile")


def test_snapshot_is_a_copy() -> None:
    counted = Statistics()
    counted.snapshot()["ops_left_out"]["x"] = 1
    assert counted.snapshot()["ops_left_out"] == {}


def test_many_threads() -> None:
    counted = Statistics()

    def work(_: int) -> None:
        for _ in range(2000):
            counted.count("memory_hits")
            counted.count_unclustered("x")

    in_threads(8, work)
    assert counted.snapshot()["memory_hits"] == 16_000 and counted.snapshot()["ops_left_out"] == {"x": 16_000}
