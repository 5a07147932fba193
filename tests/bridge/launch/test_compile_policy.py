"""When a key is compiled: saving against cost, over measured seconds."""

from __future__ import annotations

import math

import pytest
from tfbridge.bridge.launch import compile_policy
from tfbridge.bridge.launch.compile_policy import CallCounts, Costs, KeyCalls, Served, priority


def costs(cpu_seconds: float = 0.1, compilations: int = 1, ratio: float | None = None) -> Costs:
    result = Costs(compilations, cpu_seconds)
    if ratio is not None:
        result.add_measurement(ratio, 1.0)
    return result


def test_code_pays_when_it_would_have_saved_its_cost() -> None:
    half = costs(0.1, ratio=0.5)
    assert priority(KeyCalls(19, 0.01), half) is None
    assert priority(KeyCalls(20, 0.01), half) == pytest.approx(1.0)
    assert priority(KeyCalls(40, 0.01), half) == pytest.approx(2.0)


def test_faster_code_and_cheaper_code_come_sooner() -> None:
    calls = KeyCalls(20, 0.01)
    assert priority(calls, costs(0.1, ratio=0.1)) > priority(calls, costs(0.1, ratio=0.5))
    assert priority(calls, costs(0.05, ratio=0.5)) > priority(calls, costs(0.1, ratio=0.5))
    assert priority(calls, costs(0.2, ratio=0.5)) is None


def test_the_cost_is_the_mean_of_all_compilations() -> None:
    known = costs(0.1)
    known.add_compilation(0.3)
    assert known.expected == pytest.approx(0.2)
    assert priority(KeyCalls(39, 0.01), known) is None
    assert priority(KeyCalls(40, 0.01), known) is not None


def test_without_a_measurement_half_of_the_time_is_saved() -> None:
    assert priority(KeyCalls(20, 0.01), costs(0.1)) == pytest.approx(1.0)
    assert not costs().is_measured and costs(ratio=2.0).is_measured


def test_slow_code_of_a_key_does_not_rule_out_others() -> None:
    slow = costs(0.1, ratio=3.0)
    assert priority(KeyCalls(100, 0.01), slow) is None
    assert priority(KeyCalls(1000, 0.01), slow) is not None


def test_a_key_whose_calls_were_not_measured_waits() -> None:
    assert priority(KeyCalls(1000, 0.0), costs()) is None


def test_the_first_code_waits_until_calls_have_taken_about_what_it_costs() -> None:
    served = Served()
    served.add(9.0)  # the first call, which makes things that later ones find
    assert served.priority == 0.0
    served.add(0.9 * compile_policy.FIRST_SECONDS)
    assert served.priority == 0.0
    served.add(0.02 * compile_policy.FIRST_SECONDS, 5)
    assert served.priority == math.inf
    hot = Served()
    hot.pay()
    assert hot.priority == math.inf


def test_other_keys_wait_for_the_cost_of_the_first_code() -> None:
    assert priority(KeyCalls(1000, 0.01), Costs()) is None


def test_a_full_table_doubles_the_cost() -> None:
    assert priority(KeyCalls(39, 0.01), costs(0.1, ratio=0.5), is_full=True) is None
    assert priority(KeyCalls(40, 0.01), costs(0.1, ratio=0.5), is_full=True) == pytest.approx(1.0)


def test_the_fastest_run_counts() -> None:
    calls = KeyCalls()
    for seconds in (0.5, 0.01, 0.2):
        calls.add_run(seconds)
    assert calls.seconds == 0.01


def test_the_calls_of_the_latest_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_policy, "MAX_KEYS", 2)
    counts = CallCounts()
    for key in (b"a", b"b", b"a", b"c"):
        counts.count(key)
    assert counts.of(b"b") is None
    assert counts.of(b"a") == KeyCalls(2) and counts.take(b"a") == KeyCalls(2)
    assert counts.of(b"a") is None and counts.take(b"a") == KeyCalls()
