"""Under auto-clustering: functions whose clusters have no code yet run as in plain TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.launch import coverage
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


def test_a_function_that_an_earlier_process_met_is_not_prepared() -> None:
    for is_prepared in (True, False):
        concrete = tf.function(in_parts).get_concrete_function(tf.TensorSpec([None, 6]))
        concrete(tf.ones([2, 6]))
        assert concrete.__dict__["_tfbridge_in_background"] == is_prepared
