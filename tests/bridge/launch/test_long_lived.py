"""Processes that live long: many shapes through one function, many functions made and dropped. Memory stays bounded,
results stay right, and code that goes is not running."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.api.jit import Jit
from tfbridge.bridge.launch import cluster_registry, entry_table
from tfbridge.runtime import statistics
from tfbridge.runtime.code.executable import Executable


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    cluster_registry.drop_unused()
    tfbridge.reset_stats()
    yield
    tfbridge.disable_auto_clustering()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[Executable]:
    """The executables made since that are in memory."""
    alive: weakref.WeakSet[Executable] = weakref.WeakSet()
    original = Executable.__init__

    def init(self: Executable, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        alive.add(self)

    monkeypatch.setattr(Executable, "__init__", init)
    return alive


def few(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """Lets a launch keep few entries."""
    monkeypatch.setattr(entry_table, "MAX_ENTRIES", entries)


def wanted(x: np.ndarray) -> np.ndarray:
    return np.tanh(x) * 2 + x


def plain() -> Any:
    return tf.function(lambda x: tf.tanh(x) * 2.0 + x, input_signature=[tf.TensorSpec([None], tf.float32)])


def by_decorator() -> Any:
    return tfbridge.jit(plain())


def by_flag() -> Any:
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    return plain()


def check(f: Any, size: int) -> None:
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    np.testing.assert_allclose(f(tf.constant(x)).numpy(), wanted(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [by_decorator, by_flag])
def test_many_shapes_keep_the_code_of_a_few(
    make: Any, made: weakref.WeakSet[Executable], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, 8)
    f = make()
    for size in [*range(1, 41), *range(1, 41), *range(40, 0, -1)]:
        check(f, size)
        if isinstance(f, Jit):
            f._entries.clear()
    gc.collect()
    assert 8 <= len(made) <= 24  # those in the table, and some that a call might have had when they went
    assert not tfbridge.stats()["fallbacks"]


def test_two_hundred_batch_sizes() -> None:
    f = by_flag()
    for size in range(1, 201):
        check(f, size)
    stats = tfbridge.stats()
    print(
        f"200 batch sizes: {stats['compiles']} compiled, {stats['disk_hits']} read from disk, "
        f"{stats['compile_seconds']:.1f} s of compiling"
    )
    assert stats["compiles"] + stats["disk_hits"] == 200 and not stats["fallbacks"]


def test_what_is_used_stays(made: weakref.WeakSet[Executable], monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, 8)
    f = by_flag()
    for size in range(1, 41):
        check(f, size)
        check(f, 100)
    stats = tfbridge.stats()
    assert stats["clusters_compiled"] + stats["recompiles"] == 41


@pytest.mark.parametrize("make", [by_decorator, by_flag])
def test_threads_run_while_code_goes(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, 3)
    f = make()

    def work(seed: int) -> None:
        for size in np.random.default_rng(seed).integers(1, 12, 60):
            check(f, int(size))
            if isinstance(f, Jit):
                f._entries.pop(next(iter(f._entries), None), None)

    in_threads(6, work)


@pytest.mark.parametrize("make", [by_decorator, by_flag])
def test_functions_that_are_dropped_leave_nothing(make: Any, made: weakref.WeakSet[Executable]) -> None:
    def once(scale: float) -> None:
        def body(x: Any) -> Any:
            return tf.tanh(x) * scale + x

        f = tfbridge.jit(body) if make is by_decorator else tf.function(body)
        np.testing.assert_allclose(f(tf.ones(3)), np.tanh(1.0) * scale + np.ones(3), rtol=1e-5)

    make()
    sizes = []
    for round_ in range(6):
        for k in range(20):
            once(float(round_ % 2 * 20 + k))
        gc.collect()
        cluster_registry.drop_unused()
        sizes.append((len(cluster_registry._sites), len(made)))
    # Launches are used again: there are as many as had not been collected yet when one was needed.
    assert sizes[-1][0] < sizes[0][0] + 20 and sizes[-1][1] <= 2, sizes
    assert len(cluster_registry._retired) <= cluster_registry._MAX_RETIRED


def test_counters_of_runs_only_grow() -> None:
    """While functions are dropped and their sites are given away, and when code loses its entry."""
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    done = threading.Event()
    found = []

    def watch() -> None:
        while not done.is_set():
            found.append(tfbridge.stats()["specialized_calls"])

    def work() -> None:
        for k in range(60):
            f = tf.function(lambda x, scale=float(k): tf.tanh(x) * scale + x)
            for _ in range(5):
                f(tf.ones(3))
            if k % 3 == 0:
                cluster_registry.drop_code(next(reversed(cluster_registry._clusters)))
                f(tf.ones(3))
            if k % 10 == 0:
                del f
                gc.collect()
                cluster_registry.drop_unused()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    assert found == sorted(found) and found[-1] >= 200


def test_sessions_and_data_leave_no_launches() -> None:
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    before = len(cluster_registry._sites)
    for _ in range(3):
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, (None, 4))
            y = tf.tanh(x * 3.0) + tf.exp(x)
            with tf.compat.v1.Session() as session:
                session.run(y, {x: np.ones((2, 4))})
        rows = tf.data.Dataset.from_tensor_slices(np.ones((4, 8), np.float32))
        mapped = rows.map(tfbridge.jit(lambda x: tf.tanh(x) * 2.0))
        assert len(list(mapped)) == 4
        del mapped
    gc.collect()
    cluster_registry.drop_unused()
    assert len(cluster_registry._sites) <= before + 1


def test_code_whose_assumption_fails_again_and_again_goes() -> None:
    f = tfbridge.jit(lambda x, i: x[i : i + 4] * 2.0)
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(f(tf.constant(x), tf.constant(2)), x[2:6] * 2)
    for _ in range(20):
        np.testing.assert_array_equal(f(tf.constant(x), tf.constant(10)), x[10:] * 2)
    (plan,) = f._concrete_plans.values()
    counters = cluster_registry.counters(plan.cluster.key)
    assert counters.bailouts >= 8 and not counters.compiles
    np.testing.assert_array_equal(f(tf.constant(x), tf.constant(3)), x[3:7] * 2)


def test_a_few_failed_assumptions_do_no_harm() -> None:
    f = tfbridge.jit(lambda x, i: x[i : i + 4] * 2.0)
    x = np.arange(12, dtype=np.float32)
    for i in [2, 3, 4, 10] * 12:
        np.testing.assert_array_equal(f(tf.constant(x), tf.constant(i)), x[i : i + 4] * 2)
    (plan,) = f._concrete_plans.values()
    assert cluster_registry.counters(plan.cluster.key).compiles == 1


def test_statistics_are_bounded() -> None:
    counters = statistics.Statistics()
    for k in range(5000):
        counters.count_unclustered(f"reason {k}")
        counters.record(statistics.ClusterRecord(f"cluster {k}", 1))
    assert len(counters.snapshot()["ops_left_out"]) <= 1025
    assert sum(counters.snapshot()["ops_left_out"].values()) == 5000
    assert len(counters.clusters()) == 4096
