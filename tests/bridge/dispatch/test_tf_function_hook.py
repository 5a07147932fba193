"""Under the flag, an eager call of a function that compiles as a whole goes straight to its code."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.dispatch import tf_function_hook

X = tf.constant(np.linspace(-1, 1, 6, dtype=np.float32))


@pytest.fixture(autouse=True)
def clustering() -> Iterator[None]:
    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(min_cluster_size=2)
    yield
    tfbridge.disable_auto_clustering()


def body(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x) * 2.0 + x


def goes_directly(function: Any, *args: Any) -> bool:
    """Whether the last call of a function found a way that takes these arguments."""
    way, _ = function.__dict__[tf_function_hook._CALLS]._fast_path
    return way(*args) is not NotImplemented


def concrete_plan(concrete: Any) -> Any:
    return concrete.__dict__.get(tf_function_hook._PLAN)


def test_a_call_goes_directly() -> None:
    function = tf.function(body)
    for size in (6, 0, 1, 7, 6):
        x = tf.range(size, dtype=tf.float32)
        np.testing.assert_allclose(function(x), body(x), rtol=1e-6)
        np.testing.assert_allclose(function(x), body(x), rtol=1e-6)
        assert goes_directly(function, x)
    stats = tfbridge.stats()
    assert stats["clusters_compiled"] + stats["recompiles"] == 4 and not stats["fallbacks"]


def test_structures_keywords_and_arrays() -> None:
    @tf.function
    def function(pair: Any, scale: float = 2.0, *, offset: Any = None) -> Any:
        total = pair[0]["a"] * scale + pair[1]
        return {"total": total if offset is None else total + offset, "none": None}

    a, b = X.numpy(), tf.ones(6)
    for _ in range(3):
        np.testing.assert_allclose(function(({"a": a}, b))["total"], a * 2 + 1, rtol=1e-6)
        np.testing.assert_allclose(function(({"a": X}, b), 3.0)["total"], a * 3 + 1, rtol=1e-6)
        found = function(({"a": X}, b), offset=np.float32(1))
        np.testing.assert_allclose(found["total"], a * 2 + 2, rtol=1e-6)
        assert found["none"] is None


def test_variables_are_updated() -> None:
    v = tf.Variable(tf.zeros(6))

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        v.assign_add(tf.tanh(x) * 2.0)
        return v * 1.0

    for n in range(1, 5):
        np.testing.assert_allclose(function(X), np.tanh(X) * 2 * n, rtol=1e-5)
    np.testing.assert_allclose(v, np.tanh(X) * 8, rtol=1e-5)


def test_variables_made_in_the_first_call() -> None:
    class Scaled(tf.Module):
        v: Any = None

        @tf.function
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            if self.v is None:
                self.v = tf.Variable(tf.fill(tf.shape(x), 3.0))  # cannot be lifted out of the function
            return tf.tanh(x) * self.v + x

    one, other = Scaled(), Scaled()
    for scaled in (one, other, one, other, one):
        np.testing.assert_allclose(scaled(X), np.tanh(X) * 3 + X, rtol=1e-5)


def test_what_looks_on_sees_tensorflow_run() -> None:
    function = tf.function(body)
    function(X)
    assert goes_directly(function, X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = function(X)
    np.testing.assert_allclose(tape.gradient(y, X), 3 - 2 * np.tanh(X) ** 2, rtol=1e-5)
    with tf.autodiff.ForwardAccumulator(X, tf.ones(6)) as accumulator:
        y = function(X)
    np.testing.assert_allclose(accumulator.jvp(y), 3 - 2 * np.tanh(X) ** 2, rtol=1e-5)
    ran: list[int] = []

    @tf.function
    def traced(x: tf.Tensor) -> tf.Tensor:
        ran.append(1)
        return body(x)

    traced(X)
    tf.config.run_functions_eagerly(True)
    try:
        traced(X)
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(ran) == 2
    outer = tf.function(lambda x: function(x) + traced(x))
    np.testing.assert_allclose(outer(X), 2 * body(X), rtol=1e-6)


def test_what_does_not_compile_is_left_to_the_graph_pass() -> None:
    seen: list[float] = []

    def see(x: tf.Tensor) -> tf.Tensor:
        seen.append(float(x[0]))
        return x

    function = tf.function(lambda x: body(x) + tf.py_function(see, [x], tf.float32))
    small = tf.function(lambda x: x + 1.0)
    for _ in range(3):
        function(X)
        np.testing.assert_allclose(small(X), X + 1.0)
    assert len(seen) == 3
    assert not goes_directly(function, X) and not goes_directly(small, X)


def test_errors_are_tensorflows() -> None:
    function = tf.function(lambda x, i: tf.gather(x, i) * 2.0 + 1.0)
    for _ in range(2):
        assert function(X, tf.constant(1)).shape == ()
    with pytest.raises(tf.errors.InvalidArgumentError):
        function(X, tf.constant(6))
    with pytest.raises(ValueError):
        tf.function(lambda x: tf.matmul(x, x) * 2.0 + 1.0)(tf.ones((2, 3)))
    signed = tf.function(body, input_signature=[tf.TensorSpec([None], tf.float32)])
    for size in (2, 3):
        assert signed(tf.ones(size)).shape == size
    for _ in range(2):
        np.testing.assert_allclose(
            signed(np.ones(2)), body(tf.ones(2)), rtol=1e-6
        )  # f64, which TensorFlow converts
    for wrong in (tf.ones((2, 2)), tf.ones(2, tf.int32)):
        with pytest.raises(TypeError):
            signed(wrong)


def test_captures_that_are_made_anew() -> None:
    offset = [1.0]

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        late = tf.compat.v1.get_default_graph().capture_call_time_value(
            lambda: tf.constant(offset[0]), tf.TensorSpec((), tf.float32)
        )
        return body(x) + late

    for value in (1.0, 2.0, 3.0):
        offset[0] = value
        np.testing.assert_allclose(function(X), body(X) + value, rtol=1e-6)


def test_functions_by_value_and_instances() -> None:
    power = tf.function(lambda x, n: body(x) ** n)
    for n in (1, 2, 3, 2, 1):
        np.testing.assert_allclose(power(X, n), body(X) ** n, rtol=1e-5)

    class Layer:
        def __init__(self, w: float) -> None:
            self.w = tf.Variable(w)

        @tf.function
        def apply(self, x: tf.Tensor) -> tf.Tensor:
            return body(x) * self.w

    first, second = Layer(1.0), Layer(2.0)
    for _ in range(3):
        np.testing.assert_allclose(second.apply(X), 2 * first.apply(X), rtol=1e-6)


def test_saved_model(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable(tf.ones(6))
    module.f = tf.function(lambda x: body(x) * module.v, input_signature=[tf.TensorSpec([None], tf.float32)])
    wanted = module.f(X)
    tf.saved_model.save(module, str(tmp_path), signatures={"serve": module.f})
    loaded = tf.saved_model.load(str(tmp_path))
    signature = loaded.signatures["serve"]
    for _ in range(3):
        np.testing.assert_allclose(loaded.f(X), wanted, rtol=1e-6)
        np.testing.assert_allclose(signature(X)["output_0"], wanted, rtol=1e-6)
    assert concrete_plan(signature) is not None
    loaded.v.assign(tf.zeros(6))
    np.testing.assert_array_equal(signature(X)["output_0"], np.zeros(6))


def test_options_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    with tfbridge.options(deny_ops=["Tanh"]):
        function = tf.function(body)
        function(X)
        function(X)
    assert not goes_directly(function, X)
    tfbridge.disable_auto_clustering()
    later = tf.function(body)
    later(X)
    assert not goes_directly(later, X)


def test_a_strategy_runs_its_replicas() -> None:
    strategy = tf.distribute.get_strategy()
    function = tf.function(body)
    np.testing.assert_allclose(strategy.run(function, (X,)), body(X), rtol=1e-6)
    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    with one.scope():
        v = tf.Variable(2.0)
        scaled = tf.function(lambda x: body(x) * v)
    for _ in range(3):
        np.testing.assert_allclose(one.run(scaled, (X,)), 2 * body(X), rtol=1e-6)
        np.testing.assert_allclose(scaled(X), 2 * body(X), rtol=1e-6)


def test_no_warning_of_tracing_too_often(caplog: pytest.LogCaptureFixture) -> None:
    function = tf.function(lambda x: body(x))  # of its own: TensorFlow counts the calls by function
    for size in range(1, 12):
        for _ in range(12):
            function(tf.ones(size))
    assert "retracing" not in caplog.text


def test_threads() -> None:
    v = tf.Variable(0.0)

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        v.assign_add(1.0)
        return tf.reduce_sum(body(x)) * 2.0

    def run(number: int) -> None:
        size = (3, 5, 7, 3)[number]
        x = tf.ones(size)
        expected = size * float(np.tanh(1.0) * 2 + 1) * 2
        for _ in range(40):
            assert abs(float(function(x)) - expected) <= 1e-3 * expected

    in_threads(4, run)
    assert v.numpy() == 160


def test_functions_that_are_gone_are_freed() -> None:
    function = tf.function(body)
    function(X)
    function(X)
    gone = weakref.ref(function.python_function), weakref.ref(function)
    del function
    gc.collect()
    assert gone[1]() is None


def test_explain_tells_of_direct_calls() -> None:
    function = tf.function(body)
    for _ in range(3):
        function(X)
    report = tfbridge.explain(function, X)
    assert [(c.runs, c.fallback_runs) for c in report.clusters] == [(3, 0)] and not report.left_out


def test_calls_of_concrete_functions_that_tensorflow_runs_are_found_again() -> None:
    concrete = tf.function(lambda x: tf.strings.length(x)).get_concrete_function(
        tf.TensorSpec([None], tf.string)
    )
    for _ in range(4):
        assert concrete(tf.constant(["a", "bc"])).numpy().tolist() == [1, 2]
    calls = concrete.__dict__[tf_function_hook._CALLS]
    assert calls.misses == 1
    assert list(calls._entries.values()) == [None]


def test_calls_of_signatures_go_directly(tmp_path: Path) -> None:
    """Those of a SavedModel, with tensors and with arrays, which TensorFlow converts to the signature's types; it tells
    what does not fit."""
    module = tf.Module()
    weights = tf.Variable(tf.ones([3, 2]))
    module.weights = weights
    module.serve = tf.function(
        lambda x: {"y": tf.nn.relu(x @ weights) * 2.0}, input_signature=[tf.TensorSpec([None, 3], name="x")]
    )
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    x = np.arange(6.0).reshape(2, 3)
    wanted = np.maximum(x @ np.ones((3, 2)), 0) * 2
    tensor = tf.constant(x, tf.float32)
    for _ in range(4):
        for found in (
            signature(x=tensor),
            signature(tensor),
            signature(x=x),
            signature(x=x.astype("f4")),
            signature(x=x.tolist()),
        ):
            np.testing.assert_allclose(found["y"], wanted, rtol=1e-6)
        for error, args, kwargs in (
            (TypeError, (x,), {}),
            (TypeError, (), {"y": tensor}),
            (tf.errors.InvalidArgumentError, (), {"x": tf.constant(x)}),
            (tf.errors.InvalidArgumentError, (), {"x": tensor[:, :2]}),
        ):
            with pytest.raises(error):
                signature(*args, **kwargs)
    assert goes_directly(signature, tensor)
    calls = signature.__dict__[tf_function_hook._CALLS]
    ((_, entry),) = calls._structured_entries.values()
    assert entry.fast_path[0](tensor) is not NotImplemented
