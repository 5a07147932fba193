"""Under auto-clustering: functions whose clusters have no code yet run as in plain TensorFlow."""

from __future__ import annotations

import contextvars
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.dispatch import tf_function_hook, unclustered_calls
from tfbridge.bridge.launch import compile_policy, coverage
from tfbridge.bridge.tf_internals import symbols as tfp
from tfbridge.runtime.threads import background

W = tf.Variable(np.random.default_rng(1).normal(size=(6, 6)).astype("f4"))
COUNT = tf.Variable(0)


@pytest.fixture(autouse=True)
def in_background(tmp_path: Path) -> Iterator[None]:
    assert tfbridge.wait_for_compilation(120)
    COUNT.assign(0)
    with tfbridge.options(compile="background", cache_dir=str(tmp_path)):
        tfbridge.enable_auto_clustering()
        yield
    tfbridge.disable_auto_clustering()
    assert tfbridge.wait_for_compilation(120)


def layer(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.tanh(x @ W) * 2.0 + 1.0)


def in_parts(x: tf.Tensor) -> tf.Tensor:
    """Two clusters, with a node between that does not compile."""
    COUNT.assign_add(1)
    y = tf.numpy_function(lambda a: a, [layer(x)], tf.float32)
    y.set_shape([None, 6])
    return tf.nn.gelu(tf.tanh(y) * 3.0) + 1.0


def calls(f: Callable[[tf.Tensor], tf.Tensor], function: Callable[..., tf.Tensor], count: int) -> None:
    for number in range(count):
        x = tf.constant(np.full((3 + number % 7, 6), 0.1 * number, np.float32))
        np.testing.assert_allclose(f(x), function(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [layer, in_parts])
def test_clusters_without_code_are_left_out_of_most_calls(
    function: Callable[..., tf.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background.process, "request", lambda request: None)
    f = tf.function(function, input_signature=[tf.TensorSpec([None, 6])])
    calls(f, function, 1)
    assert background.preparations.wait(120)
    before = coverage.process.fallbacks
    calls(f, function, 200)
    assert 2 <= coverage.process.fallbacks - before <= 30
    assert COUNT.numpy() == (402 if function is in_parts else 0)


@pytest.mark.parametrize("function", [layer, in_parts])
def test_code_is_used_once_it_is_there(function: Callable[..., tf.Tensor]) -> None:
    f = tf.function(function, input_signature=[tf.TensorSpec([None, 6])])
    for _ in range(6):
        calls(f, function, 10)
        assert tfbridge.wait_for_compilation(120)
    calls(f, function, 2)
    before = coverage.process.fallbacks, tfbridge.stats()["served_by_tensorflow"]
    calls(f, function, 20)
    assert (coverage.process.fallbacks, tfbridge.stats()["served_by_tensorflow"]) == before


def test_a_form_is_made_without_running_it() -> None:
    f = tf.function(in_parts, input_signature=[tf.TensorSpec([None, 6])]).get_concrete_function()
    x = tf.ones([4, 6])
    tfp.prepare_without_graph_passes(f, [x, *f.captured_inputs])
    assert COUNT.numpy() == 0
    with tfp.without_graph_passes():
        np.testing.assert_allclose(f(x), in_parts(x), rtol=1e-5)
    assert COUNT.numpy() == 2


@pytest.mark.parametrize("function", [layer, in_parts])
def test_the_first_call_is_tensorflows_and_has_the_function_made_ready(
    function: Callable[..., tf.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[background.Request] = []
    with monkeypatch.context() as held:
        held.setattr(background.preparations, "request", requests.append)
        f = tf.function(function, input_signature=[tf.TensorSpec([None, 6])])
        before = coverage.process.fallbacks
        calls(f, function, 30)
        assert coverage.process.fallbacks == before and len(requests) == 1
    count = COUNT.numpy()
    background.preparations.request(requests[0])
    assert tfbridge.wait_for_compilation(120)
    assert COUNT.numpy() == count
    served = tfbridge.stats()["served_by_tensorflow"]
    calls(f, function, 1)
    # A function that compiles as a whole has code for its first call; in parts, each of its clusters was found.
    fallbacks = 0 if function is layer else 2
    assert coverage.process.fallbacks == before + fallbacks
    assert tfbridge.stats()["served_by_tensorflow"] == served + fallbacks


def test_a_function_is_made_ready_once_its_calls_have_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = background.preparations.finished
    f = tf.function(layer, input_signature=[tf.TensorSpec([None, 6])])
    calls(f, layer, 20)  # in some milliseconds
    assert background.preparations.finished == finished
    monkeypatch.setattr(compile_policy, "FIRST_SECONDS", 1e-4)
    calls(f, layer, 20)
    end = time.monotonic() + 120
    while background.preparations.finished == finished or not tfbridge.stats()["compiles"]:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_is_made_ready_while_a_first_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[background.Request] = []
    started, released = threading.Event(), threading.Event()
    call_concrete = tfp.call_concrete

    def call(concrete: Any, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]) -> Any:
        if tensors[0].shape[0] == 3:
            started.set()
            assert released.wait(120)
        return call_concrete(concrete, tensors, captured)

    monkeypatch.setattr(background.preparations, "request", requests.append)
    monkeypatch.setattr(tfp, "call_concrete", call)
    f = tf.function(layer, input_signature=[tf.TensorSpec([None, 6])]).get_concrete_function()
    slow = threading.Thread(target=contextvars.copy_context().run, args=[f, tf.ones([3, 6])])
    slow.start()
    assert started.wait(120)
    for _ in range(3):
        f(tf.ones([2, 6]))
    assert not requests
    with monkeypatch.context() as impatient:
        impatient.setattr(unclustered_calls, "_MAX_WAIT_SECONDS", 0.0)
        f(tf.ones([2, 6]))
    assert [request.priority for request in requests] == [0.0]
    monkeypatch.setattr(compile_policy, "FIRST_SECONDS", 1e-6)
    f(tf.ones([2, 6]))
    assert len(requests) == 1
    released.set()
    slow.join(120)
    f(tf.ones([2, 6]))
    assert [request.priority for request in requests] == [0.0, math.inf]


def test_a_function_that_may_be_made_ready_keeps_nothing_large_alive() -> None:
    f = tf.function(lambda x: layer(x) + 1.0)
    f(x := tf.ones([1 << 14, 6]))
    argument, concrete = weakref.ref(x), weakref.ref(f.get_concrete_function(x))
    del x
    gc.collect()
    assert argument() is None
    del f
    gc.collect()
    assert concrete() is None
    assert tfbridge.wait_for_compilation(120)


def test_code_is_asked_for_by_the_sizes_of_large_arguments() -> None:
    f = tf.function(layer)
    x = tf.random.normal([1 << 14, 6])
    f(x)
    tfbridge.reset_stats()
    assert tfbridge.wait_for_compilation(120)
    np.testing.assert_allclose(f(x), layer(x), rtol=1e-5, atol=1e-6)
    assert tfbridge.stats()["served_by_tensorflow"] == 0 and tfbridge.stats()["compiles"] == 1


def structured(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    return {"sum": x + y, "pair": (tf.tanh(x) * 2.0 - 1.0, [y * 3.0])}


@pytest.mark.parametrize("signature", [None, [tf.TensorSpec([None, 3]), tf.TensorSpec(None)]])
def test_calls_before_a_function_is_ready_find_it_themselves(
    signature: Any, function_calls: list[str]
) -> None:
    f = tf.function(structured, input_signature=signature)
    for rows in (2, 3, 2, 3, 2, 5):
        x, y = tf.random.normal([rows, 3]), tf.random.normal([rows, 1])
        tf.nest.map_structure(np.testing.assert_array_equal, f(x, y), structured(x, y))
    expected = [2, 3, 5] if signature is None else [2]
    assert len(function_calls) == len(expected)
    with pytest.raises(TypeError):
        f(tf.ones([2, 3], tf.float64), tf.ones([2, 1]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, y)["sum"]
    np.testing.assert_array_equal(tape.gradient(y, x), tf.ones_like(x))
    tf.nest.map_structure(np.testing.assert_array_equal, f(x=x, y=y), structured(x, y))


@pytest.fixture
def function_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An item for each call that TensorFlow finds the concrete function of."""
    seen: list[str] = []
    original = tf_function_hook._FunctionCalls._traced_call

    def traced(self: Any, *args: Any) -> Any:
        seen.append("call")
        return original(self, *args)

    monkeypatch.setattr(tf_function_hook._FunctionCalls, "_traced_call", traced)
    return seen


def test_a_function_that_an_earlier_process_met_is_not_prepared() -> None:
    for is_prepared in (True, False):
        concrete = tf.function(in_parts).get_concrete_function(tf.TensorSpec([None, 6]))
        concrete(tf.ones([2, 6]))
        assert concrete.__dict__["_tfbridge_in_background"] == is_prepared


def test_a_tape_around_calls(caplog: pytest.LogCaptureFixture) -> None:
    """The function of the gradient, whose captures are others in each call, is compiled too."""
    x = tf.constant(np.linspace(-1, 1, 6, dtype=np.float32))
    function = tf.function(lambda x: tf.tanh(x) * 2.0 + x)
    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    with tfbridge.options(cost_guard=False):
        for _ in range(20):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(function(x))
            np.testing.assert_allclose(tape.gradient(total, x), 3 - 2 * np.tanh(x) ** 2, rtol=1e-5)
            tfbridge.wait_for_compilation()
    assert not caplog.records
    assert tfbridge.stats()["clusters_compiled"] > 1
