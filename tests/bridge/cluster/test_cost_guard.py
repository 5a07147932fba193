"""Never slower: a cluster that loses against TensorFlow at one of its first calls is left to TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.cluster import cost_guard
from tfbridge.bridge.cluster.cost_guard import Measurement
from tfbridge.bridge.clustering.reports import recent_reports
from tfbridge.bridge.launch import cluster_registry, entry_table, resource_variables
from tfbridge.runtime import statistics
from tfbridge.runtime.code.executable import Executable, Frame

SLOWER, FASTER = Measurement(0.5, 0.1), Measurement(0.1, 0.5)


@pytest.fixture(autouse=True)
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tfbridge.reset_stats()
    monkeypatch.setattr(cost_guard, "RUNS_BEFORE_BENCHMARK", 0)
    with tfbridge.options(cost_guard=True, cache_dir=str(tmp_path)):
        yield
    tfbridge.disable_auto_clustering()


def clustered() -> tuple[tf.types.experimental.GenericFunction, tf.Variable]:
    v = tf.Variable(2.0)

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        v.assign_add(1.0)
        return tf.tanh(x) * v + tf.exp(x)

    tfbridge.enable_auto_clustering(min_cluster_size=1)
    return function, v


def run(times: int) -> entry_table.Counters:
    """Runs a function that many times, compares, and returns what ran."""
    function, v = clustered()
    before = recent_reports()
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for n in range(times):
        np.testing.assert_allclose(function(tf.constant(x)), np.tanh(x) * (3 + n) + np.exp(x), rtol=1e-5)
    assert v.numpy() == 2 + times
    [cluster] = [c for r in recent_reports(before) for c in r.clusters]
    return cluster_registry.counters(cluster.key)


def test_the_slower_cluster_is_left_to_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: SLOWER)
    counters = run(3)
    assert (counters.compiles, counters.fallback_runs) == (0, 3)
    stats = tfbridge.stats()
    assert stats["fallbacks"] == 0
    assert any(reason.startswith("TensorFlow is faster") for reason in stats["ops_left_out"])


def test_the_faster_cluster_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: FASTER)
    counters = run(3)
    assert (counters.compiles, counters.uncompiled) == (1, 0)
    assert not tfbridge.stats()["ops_left_out"]
    [times] = statistics.call_times().values()
    assert times == statistics.CallTimes(1, FASTER.compiled_seconds, 1, FASTER.tensorflow_seconds)


@pytest.mark.parametrize("measurement", [SLOWER, FASTER])
def test_the_benchmark_waits_for_some_runs(measurement: Measurement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "RUNS_BEFORE_BENCHMARK", 2)
    measured: list[int] = []
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: measured.append(1) or measurement)
    run(2)
    assert not measured
    counters = run(5)
    assert measured == [1]
    assert counters.uncompiled == (measurement is SLOWER)
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: pytest.fail("measured again"))
    assert run(3).uncompiled == (measurement is SLOWER)


def test_a_direct_call_is_tried_after_some_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "RUNS_BEFORE_BENCHMARK", 3)
    calls: list[int] = []
    measured: list[int] = []
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: measured.append(len(calls)) or SLOWER)
    function = tfbridge.jit(lambda x: tf.tanh(x) * 2.0 + x, cost_guard=True)
    x = tf.ones(3)
    for number in range(6):
        np.testing.assert_allclose(function(x), np.full(3, np.tanh(1) * 2 + 1), rtol=1e-5)
        calls.append(number)
    assert measured == [3]


def test_a_dropped_cluster_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "RUNS_BEFORE_BENCHMARK", 2)
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: pytest.fail("measured"))
    function, _ = clustered()
    before = recent_reports()
    function(tf.ones(3))
    [cluster] = [c for r in recent_reports(before) for c in r.clusters]
    cluster_registry.drop_code(cluster.key)
    for _ in range(4):
        function(tf.ones(3))
    assert cluster_registry.counters(cluster.key).compiles == 0


def test_each_shape_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(
        cost_guard, "_measure", lambda code, original, inputs: measured.append(inputs) or FASTER
    )
    function, _ = clustered()
    for size in (3, 4, 3, 4, 3):
        function(tf.ones(size))
    assert len(measured) == 2


def test_the_decision_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: SLOWER)
    run(1)
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: pytest.fail("measured again"))
    assert run(2).fallback_runs == 2


def test_a_measured_cluster_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_MIN_SECONDS", 0.0)
    counters = run(3)
    assert counters.compiles + counters.uncompiled == 1


def test_explain_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: SLOWER)
    function = tfbridge.jit(lambda x: tf.tanh(x) * 2.0 + x, cost_guard=True)
    x = tf.ones(3)
    function(x)
    assert "TensorFlow, which is faster: compiled code takes 500.000 ms" in str(tfbridge.explain(function, x))


@pytest.mark.parametrize("strict", [False, True])
def test_decorated_functions_are_not_measured(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: pytest.fail("measured"))
    function = tfbridge.jit(lambda x: tf.tanh(x) * 2.0 + x, strict=strict)
    np.testing.assert_allclose(function(tf.ones(3)), np.full(3, np.tanh(1) * 2 + 1), rtol=1e-5)


def test_keyed_values_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = iter([SLOWER, FASTER])
    monkeypatch.setattr(cost_guard, "_measure", lambda *_: next(measurements))
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    function = tf.function(lambda x, n: tf.sin(tf.reshape(x, tf.stack([n, -1]))) + 1.0)
    x = tf.range(12, dtype=tf.float32)
    for n in (2, 3, 2, 3):
        np.testing.assert_allclose(
            function(x, tf.constant(n)), np.sin(np.arange(12)).reshape(n, -1) + 1, rtol=1e-5, atol=1e-5
        )


@pytest.mark.skipif(not resource_variables.available(), reason="variables are read before the launch")
def test_what_is_packed_once_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[bool] = []
    execute = Executable.execute

    def noted(
        self: Executable, arrays: Sequence[np.ndarray], frame: Frame | None = None, is_packed: bool = False
    ) -> list[np.ndarray]:
        timed.append(is_packed)
        return execute(self, arrays, frame, is_packed)

    random = np.random.default_rng(0)
    x, weights = (random.integers(-4, 5, dims).astype(np.float32) for dims in ((40, 128), (128, 512)))
    v = tf.Variable(weights)
    monkeypatch.setattr(cost_guard, "RUNS_BEFORE_BENCHMARK", 3)
    monkeypatch.setattr(cost_guard, "_MIN_SECONDS", 1e9)
    monkeypatch.setattr(Executable, "execute", noted)
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    function = tf.function(lambda x: tf.nn.relu(tf.matmul(x, v)))
    for _ in range(6):
        np.testing.assert_array_equal(function(tf.constant(x)), np.maximum(x @ weights, 0))
    assert timed[:4] == [False, True, True, True]  # and then the call itself
