"""Calls whose code is not there are served by TensorFlow, and later by code that was compiled meanwhile."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from run_python import run_python
from tfbridge.bridge.cluster import original_nodes
from tfbridge.bridge.dispatch.call_plan import NO_FAST_PATH
from tfbridge.bridge.launch import cluster_registry, launch_site
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.errors import UnsupportedError
from tfbridge.runtime.threads import background
from tfbridge.runtime.threads.background import Request

RANDOM = np.random.default_rng(5)
W = tf.Variable(RANDOM.normal(size=(6, 6)).astype("f4"))
ANY = [tf.TensorSpec([None, 6])]


def data(rows: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=(rows, 6)).astype("f4"))


def layer(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.tanh(x @ W) * 2.0 + 1.0)


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def in_background(tmp_path: Path) -> Iterator[None]:
    """The default of users, with nothing on disk; what another test left is done before."""
    assert tfbridge.wait_for_compilation(120)
    tfbridge.reset_stats()
    with tfbridge.options(compile="background", symbolic_sizes=False, cache_dir=str(tmp_path)):
        yield
    tfbridge.disable_auto_clustering()
    assert tfbridge.wait_for_compilation(120)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is worth its code."""
    monkeypatch.setattr(launch_site, "priority", lambda *_: 1.0)


@pytest.fixture
def held() -> Iterator[Callable[[], None]]:
    """Nothing is compiled in the background before the function is called."""
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        done.wait(60)

    background.process.request(Request("holder", 0, work, 1.0))
    assert begun.wait(60)
    yield done.set
    done.set()


def jitted(function: Callable[..., Any] = layer, **options: Any) -> Any:
    return tfbridge.jit(tf.function(function, input_signature=ANY), **options)


def clustered(function: Callable[..., Any] = layer) -> Any:
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    return tf.function(function, input_signature=ANY)


def counters(*names: str) -> tuple[int, ...]:
    stats = tfbridge.stats()
    return tuple(stats[name] for name in names)


SERVED, COMPILED, IN_BACKGROUND = "served_by_tensorflow", "specialized_calls", "background_compiles"


def test_a_new_shape_of_a_function_is_served_at_once(eager: None, held: Callable[[], None]) -> None:
    f = jitted()
    for x in (data(3), data(3)):
        close(f(x), layer(x))
    assert counters(SERVED, COMPILED, IN_BACKGROUND) == (0, 2, 0), "the first code is waited for"
    for x in (data(4), data(4)):
        close(f(x), layer(x))
    assert counters(SERVED, COMPILED, IN_BACKGROUND) == (2, 2, 0)
    held()
    assert tfbridge.wait_for_compilation(120)
    assert counters(SERVED, COMPILED, IN_BACKGROUND) == (2, 2, 1)
    for x in (data(4), data(4), data(3)):
        close(f(x), layer(x))
    assert counters(SERVED, IN_BACKGROUND, "recompiles", "fallbacks") == (2, 1, 1, 0)
    assert tfbridge.stats()[COMPILED] in (4, 5)  # the run that is timed is not counted
    assert tfbridge.stats()["background_cpu_seconds"] > 0


@pytest.mark.parametrize("make", [clustered, lambda f=layer: jitted(f, first_compile="background")])
def test_the_first_call_is_served_at_once(make: Callable[..., Any], held: Callable[[], None]) -> None:
    f = make()
    x = data(3)
    first = f(x)
    assert counters(SERVED, COMPILED) == (1, 0)
    held()
    assert tfbridge.wait_for_compilation(120)
    close(f(x), first)
    close(f(x), first)
    served, compiled, in_background = counters(SERVED, COMPILED, IN_BACKGROUND)
    assert (served, in_background) == (1, 1) and compiled >= 1


def test_other_keys_wait_for_the_cost_of_the_first(held: Callable[[], None]) -> None:
    f = clustered()
    for rows in (3, 4, 5, 4, 5):
        f(data(rows))
    assert background.preparations.wait(60)
    assert sum(owner != "holder" for owner, _ in background.process._waiting) == 1
    held()
    assert tfbridge.wait_for_compilation(120)
    assert counters(IN_BACKGROUND) == (1,)


def test_a_key_that_does_not_pay_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_site, "priority", lambda *_: None)
    f = jitted()
    for rows in (3, *range(4, 9), *range(4, 9)):
        x = data(rows)
        close(f(x), layer(x))
    assert tfbridge.wait_for_compilation(120)
    assert counters(SERVED, IN_BACKGROUND, "recompiles") == (10, 0, 0)


@pytest.mark.parametrize("share", [0, 100])
def test_the_share(share: int, eager: None) -> None:
    with tfbridge.options(background_share=share):
        f = clustered()
        for rows in (3, 4):
            f(data(rows))
        assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()[IN_BACKGROUND] == (2 if share else 0)


def test_foreground_and_strict_functions_wait_for_their_code(clustering: None) -> None:
    with tfbridge.options(compile="foreground"):
        f = jitted()
        for rows in (3, 4):
            f(data(rows))
    g = jitted(strict=True)
    for rows in (5, 6):
        g(data(rows))
    assert counters(SERVED, IN_BACKGROUND, COMPILED) == (0, 0, 4)


def test_code_on_disk_serves_the_first_call() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x * 2.0) + tf.sin(x) * 3.0

    with tfbridge.options(compile="foreground"):
        clustered(function)(data(3))
    assert counters("compiles", "disk_hits") == (1, 0)
    x = data(3)
    close(clustered(function)(x), function(x))
    assert counters("compiles", "disk_hits", SERVED, IN_BACKGROUND) == (1, 1, 0, 0)


def test_the_saving_is_measured_once(eager: None, held: Callable[[], None]) -> None:
    f = jitted()
    f(data(3))
    (site,) = sites(f)
    assert site.costs.compilations == 1 and site.costs.cpu_seconds > 0 and not site.costs.is_measured
    for rows in (4, 5):
        f(data(rows))
        held()
        assert tfbridge.wait_for_compilation(120)
        x = data(rows)
        close(f(x), layer(x))
        assert site.costs.is_measured
        before = site.costs.tensorflow_seconds
    assert site.costs.tensorflow_seconds == before and site.costs.compilations == 3


def sites(f: Any) -> list[launch_site.LaunchSite]:
    plan = next(iter(f._concrete_plans.values()))
    return cluster_registry._clusters[plan.cluster.key].sites


def test_calls_find_the_fast_path_when_there_is_code(eager: None, held: Callable[[], None]) -> None:
    f = jitted()
    array = data(4).numpy()
    f(data(3))
    for _ in range(20):
        f(data(4))
        np.testing.assert_allclose(f.native(array), layer(tf.constant(array)).numpy(), rtol=1e-5)
    held()
    assert tfbridge.wait_for_compilation(120)
    for _ in range(3):
        f(data(4))
        np.testing.assert_allclose(f.native(array), layer(tf.constant(array)).numpy(), rtol=1e-5)
    assert all(entry.fast_path is not NO_FAST_PATH for entry in f._entries.values())
    assert all(path is not NO_FAST_PATH for path in f._array_fast_paths.values())


def test_variables_and_random_numbers_are_the_same(eager: None) -> None:
    """Whatever serves a step: each updates the variables once, and draws the next numbers."""

    def steps(compiled: Callable[..., Any]) -> list[Any]:
        v, count, fresh = tf.Variable(W), tf.Variable(0), tf.Variable(tf.zeros(6))
        generator = tf.random.Generator.from_seed(3)
        table = tf.Variable(RANDOM.normal(size=(9, 6)).astype("f4") * 0 + 0.5)

        @compiled
        def step(x: tf.Tensor) -> Any:
            noise = generator.normal([6]) + tf.random.stateless_normal([6], [1, 2])
            rows = tf.gather(table, tf.range(tf.shape(x)[0]) % 9)
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(tf.tanh((x + noise + rows) @ v) ** 2)
            v.assign_sub(0.1 * tape.gradient(total, v))
            count.assign_add(1)
            fresh.assign(tf.reduce_mean(x, 0))
            return total, fresh + tf.cast(count, tf.float32)

        results = []
        for rows in (2, 3, 3, 4, 3, 4, 2, 4):
            results.append(step(tf.ones((rows, 6)) * rows))
            if rows == 4:
                assert tfbridge.wait_for_compilation(120)
        return [*results, v, count, fresh]

    wanted = steps(lambda f: tf.function(f, input_signature=ANY))
    tolerance = 1e-3  # eight steps, each of which enlarges the rounding of those before
    close(steps(lambda f: jitted(f)), wanted, tolerance)
    assert tfbridge.stats()[SERVED] and tfbridge.stats()[IN_BACKGROUND] == 2
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    close(steps(lambda f: tf.function(f, input_signature=ANY)), wanted, tolerance)


def test_tensorflow_gets_variables_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is made for a call: neither for one that is read, nor for one that is updated."""
    monkeypatch.setattr(original_nodes, "_new_variable", lambda *_: pytest.fail("a variable was made"))
    v, table = tf.Variable(W), tf.Variable(RANDOM.normal(size=(9, 6)).astype("f4"))

    def step(x: tf.Tensor) -> tf.Tensor:
        before = tf.reduce_sum(v)
        v.assign_add(tf.matmul(x, tf.gather(table, tf.range(tf.shape(x)[0])), transpose_a=True))
        v.assign(v * 0.5)
        return x @ v + before

    x, start = data(3), v.numpy()
    wanted = [step(x), step(x), v.read_value()]
    v.assign(start)
    with tfbridge.options(background_share=0):
        f = clustered(step)
        close([f(x), f(x), v], wanted)
    assert counters(SERVED, IN_BACKGROUND) == (2, 0)


def test_errors_are_those_of_tensorflow(eager: None) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.tanh(x) * 2.0, [3, 6]) @ W

    f = jitted(function)
    f(data(3))
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
            f(data(4))
        assert tfbridge.wait_for_compilation(120)


def test_a_failing_compilation_is_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError("not today")

    monkeypatch.setattr(type(native()), "load_artifact", refuse)
    f = jitted(first_compile="background")
    with caplog.at_level(logging.INFO, "tfbridge.fallbacks"):
        x = data(3)
        close(f(x), layer(x))
        assert tfbridge.wait_for_compilation(120)
    assert counters("fallbacks", IN_BACKGROUND, SERVED) == (1, 0, 1)
    close(f(x), layer(x))
    assert "not today" in caplog.text and "not today" in "".join(tfbridge.stats()["ops_left_out"])


def test_data_that_decides_shapes_is_no_key() -> None:
    def masked(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        mask = tf.sequence_mask(lengths, dtype=tf.float32)
        return tf.nn.gelu(x[:, : tf.shape(mask)[1]] * 2.0) * mask

    f, x = tfbridge.jit(masked), tf.constant(RANDOM.normal(size=(4, 40)).astype("f4"))
    for longest in range(5, 15):
        lengths = tf.constant([1, 2, 3, longest])
        close(f(x, lengths), masked(x, lengths))
    tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["compiles"] <= 4 and not tfbridge.stats()["ops_left_out"]


def test_explain_tells_what_waits_and_what_was_compiled(eager: None, held: Callable[[], None]) -> None:
    f = jitted()
    f(data(3))
    f(data(4))
    (cluster,) = tfbridge.explain(f, data(3)).clusters
    assert len(cluster.waiting) == 1 and "f32[4,6]" in cluster.waiting[0] and not cluster.background
    held()
    assert tfbridge.wait_for_compilation(120)
    report = tfbridge.explain(f, data(3))
    (cluster,) = report.clusters
    assert not cluster.waiting
    (line,) = cluster.background
    assert "x was f32[3,6], is f32[4,6] (axis 0)" in line and "CPU s" in line and "1 calls" in line
    assert "compiled in the background: " in str(report)


def test_dropped_functions_cancel_their_requests(eager: None, held: Callable[[], None]) -> None:
    def requests() -> int:
        return sum(owner != "holder" for owner, _ in background.process._waiting)

    f = jitted(lambda x: tf.tanh(x @ W) - 1.0)
    f(data(3))
    f(data(4))
    assert requests() == 2  # the run in TensorFlow is planned, the new shape compiled
    del f
    gc.collect()
    jitted(lambda x: tf.tanh(x @ W) - 2.0)(data(3))  # an addition drops what is not used any more
    assert requests() == 1  # its own plan


def test_code_of_a_cluster_that_went_is_not_published(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = threading.Event(), threading.Event()
    load = type(native()).load_artifact

    def slow(*args: Any) -> Any:
        if background.is_here():
            begun.set()
            done.wait(60)
        return load(*args)

    monkeypatch.setattr(type(native()), "load_artifact", slow)
    f = jitted(lambda x: tf.tanh(x @ W) - 3.0)
    f(data(3))
    f(data(4))
    assert begun.wait(60)
    del f
    gc.collect()
    g = jitted(lambda x: tf.tanh(x @ W) - 4.0)  # may get the launch of the other
    g(data(3))
    done.set()
    assert tfbridge.wait_for_compilation(120)
    x = data(4)
    close(g(x), tf.tanh(x @ W) - 4.0)


def test_threads_with_new_shapes(eager: None) -> None:
    f = jitted()

    def work(number: int) -> None:
        for rows in np.random.default_rng(number).integers(1, 9, 30):
            x = data(int(rows))
            close(f(x), layer(x))

    in_threads(8, work)
    assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["clusters_compiled"] + tfbridge.stats()["recompiles"] == 8


def test_longer_lists_are_compiled_for_in_the_background(held: Callable[[], None]) -> None:
    x = tf.constant(RANDOM.normal(size=(3, 4)).astype("f4"))

    def function(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.tanh(y) + x), (0, x))
        return tape.gradient(y, x)

    f = tfbridge.jit(function)
    for n in (3, 70, 70):
        close(f(x, tf.constant(n)), function(x, tf.constant(n)))
    assert tfbridge.stats()["recompiles"] == 0
    held()
    assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["recompiles"] == 1
    close(f(x, tf.constant(70)), function(x, tf.constant(70)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_the_child_of_a_fork_waits_for_its_code(eager: None, held: Callable[[], None]) -> None:
    """TensorFlow's threads are the parent's."""
    f = jitted()
    f(data(3))
    x = data(4)
    wanted = f(x).numpy()
    child = os.fork()
    if not child:
        is_same = np.allclose(f(x), wanted, atol=1e-5)
        os._exit(0 if is_same and counters(SERVED, "recompiles") == (1, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_iterations_keep_their_order_in_tensorflow() -> None:
    """A forward function on a tape has its loops lowered; what runs in TensorFlow has them rebuilt, with the order."""
    start = np.ones((64, 64), "f4")
    v = tf.Variable(start)

    def f(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor) -> tf.Tensor:
            v.assign(tf.tanh(v) * 0.5 + tf.cast(i, tf.float32))
            return i + 1

        tf.while_loop(lambda i: i < 30, body, [0])
        return x * 2.0

    def run(function: Callable[..., Any]) -> list[float]:
        v.assign(start)
        values = []
        for _ in range(4):
            x = tf.ones([3])
            with tf.GradientTape() as tape:
                tape.watch(x)
                function(x)
            values.append(v.numpy()[0, 0])
        return values

    wanted = run(tf.function(f))
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    with tfbridge.options(background_share=0):
        assert run(tf.function(f)) == wanted
    assert tfbridge.stats()[SERVED] and not tfbridge.stats()[COMPILED]


LEAVING = """
import time, tensorflow as tf
f = tf.function(lambda x: tf.tanh(x @ x) * 2.0 + tf.sin(x) - tf.cos(x))
print(f(tf.ones((5, 5))).shape)
time.sleep({pause})
"""


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_program_ends_while_code_is_compiled(pause: float, tmp_path: Any) -> None:
    start = time.monotonic()
    ended = run_python(
        LEAVING.format(pause=pause),
        TFBRIDGE_AUTO_JIT="1",
        TFBRIDGE_COMPILE="background",
        TFBRIDGE_CACHE_DIR=str(tmp_path),
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    assert ended.returncode == 0 and "(5, 5)" in ended.stdout
    assert "tfbridge" not in ended.stderr and time.monotonic() - start < 120


def test_options() -> None:
    for wrong in ({"compile": "later"}, {"first_compile": "x"}, {"background_share": 101}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tfbridge.jit(layer, **wrong)
    with pytest.raises(TypeError, match="background_share"):
        tfbridge.jit(layer, background_share="much")
