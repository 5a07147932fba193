"""Where shapes change, one compilation serves all sizes; hot ones get code of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.cluster import cluster_compiler
from tfbridge.bridge.launch import launch_site, prepacked_weights
from tfbridge.runtime.sizes import is_symbolic

RANDOM = np.random.default_rng(7)
W, V = (tf.Variable(RANDOM.normal(size=(6, 6)).astype("f4") * 0.3) for _ in range(2))
SIZES = (2, 3, 5, 8, 16, 17, 31, 64, 101)


def data(*dims: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=(*dims, 6)).astype("f4"))


def attention(x: tf.Tensor) -> tf.Tensor:
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    heads = tf.transpose(tf.reshape(x @ W, [batch, length, 2, 3]), [0, 2, 1, 3])
    weights = tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True))
    mixed = tf.reshape(tf.transpose(tf.matmul(weights, heads), [0, 2, 1, 3]), [batch, length, 6])
    return tf.nn.gelu(x + mixed) @ V / tf.cast(length, tf.float32)


pytestmark = pytest.mark.usefixtures("in_background")


def jitted(function: Callable[..., Any], *dims: int | None, **options: Any) -> Any:
    return tfbridge.jit(tf.function(function, input_signature=[tf.TensorSpec(dims)]), **options)


def check(f: Any, function: Callable[..., Any], *dims: int) -> None:
    x = data(*dims)
    np.testing.assert_allclose(f(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)


def counters(*names: str) -> tuple[int, ...]:
    stats = tfbridge.stats()
    return tuple(stats[name] for name in names)


def test_one_compilation_serves_all_sizes() -> None:
    f = jitted(attention, None, None, 6)
    check(f, attention, 3, 7)
    check(f, attention, 4, 9)
    assert tfbridge.wait_for_compilation(120)
    assert counters("compiles", "symbolic_compiles") == (2, 1)
    served = tfbridge.stats()["served_by_tensorflow"]
    for batch in SIZES:
        for length in SIZES[::2]:
            check(f, attention, batch, length)
    assert counters("compiles", "served_by_tensorflow") == (2, served)


def test_sizes_that_the_graph_leaves_open_are_symbols_before_they_vary() -> None:
    f = jitted(attention, None, None, 6)
    check(f, attention, 3, 7)
    check(f, attention, 4, 7)
    assert tfbridge.wait_for_compilation(120)
    served = tfbridge.stats()["served_by_tensorflow"]
    for length in SIZES:
        check(f, attention, 5, length)
    assert counters("compiles", "symbolic_compiles", "served_by_tensorflow") == (2, 1, served)


def test_a_bug_in_code_for_symbolic_sizes_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile_one = cluster_compiler._compile

    def broken(cluster: Any, key: Any, shapes: Any, values: Any, is_first: bool = True) -> Any:
        if is_symbolic(d for s in shapes if s is not None for d in s.dims):
            raise KeyError("no such buffer")
        return compile_one(cluster, key, shapes, values, is_first)

    monkeypatch.setattr(cluster_compiler, "_compile", broken)
    f = jitted(attention, None, None, 6)
    check(f, attention, 3, 7)
    check(f, attention, 4, 9)
    assert tfbridge.wait_for_compilation(120)
    assert "this is a bug in tfbridge" in caplog.text and "no such buffer" in caplog.text
    assert "no such buffer" in str(tfbridge.explain(f, data(4, 9)))
    check(f, attention, 5, 11)


def test_a_new_shape_needs_no_trace_and_its_code_no_weights_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The calls of a function with an input signature come to one trace, and to weights that are packed once."""
    w = tf.Variable(RANDOM.normal(size=(128, 256)).astype("f4") * 0.1)

    def product(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ w)

    f = tfbridge.jit(tf.function(product, input_signature=[tf.TensorSpec([None, 128])]))
    batches = [tf.constant(RANDOM.normal(size=(rows, 128)).astype("f4")) for rows in range(40, 70)]
    for x in batches[:3]:
        f(x)
    assert tfbridge.wait_for_compilation(120)
    f(batches[3])
    before = len(prepacked_weights.all_arguments())
    monkeypatch.setattr(f, "_first_call", lambda *_: pytest.fail("traced again"))
    for x in batches:
        np.testing.assert_allclose(f(x).numpy(), product(x).numpy(), rtol=1e-4, atol=1e-5)
    assert len(prepacked_weights.all_arguments()) == before > 0
    monkeypatch.undo()
    with pytest.raises(TypeError):
        f(tf.zeros([3, 100]))


def test_more_shapes_than_entries() -> None:
    """Entries of code for symbolic sizes that are evicted leave the fast calls of others."""
    f = jitted(attention, None, None, 6)
    for dims in ((3, 7), (4, 9)):
        check(f, attention, *dims)
    assert tfbridge.wait_for_compilation(120)
    shapes = [(2 + n % 30, 2 + n // 30) for n in range(600)]
    for dims in shapes:
        f(data(*dims))
    generation = f._plan_of_signature.cluster.code.generation
    for dims in shapes[:40] + shapes[-40:]:
        check(f, attention, *dims)
    assert f._plan_of_signature.cluster.code.generation == generation


def test_explain_tells_which_sizes_are_symbols() -> None:
    f = jitted(attention, None, None, 6)
    check(f, attention, 3, 7)
    check(f, attention, 4, 9)
    assert tfbridge.wait_for_compilation(120)
    report = tfbridge.explain(f, data(3, 7))
    (line,) = report.clusters[0].symbolic
    assert line.startswith("x[s0,s1,6] where s0 >= 2 and s1 >= 2")
    assert "code for symbolic sizes: x[s0,s1,6]" in str(report)


def test_a_size_of_one_gets_code_of_its_own() -> None:
    f = jitted(attention, None, None, 6)
    for dims in ((3, 7), (4, 9), (1, 5), (1, 11), (2, 1), (6, 6)):
        for _ in range(2):
            check(f, attention, *dims)
        assert tfbridge.wait_for_compilation(120)
    for dims in ((1, 30), (5, 1), (12, 2)):
        check(f, attention, *dims)


def test_hot_sizes_get_code_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_site, "priority", lambda calls, *_: 1.0 if calls.calls > 20 else None)
    f = jitted(attention, None, None, 6)
    check(f, attention, 3, 7)
    check(f, attention, 4, 9)
    assert tfbridge.wait_for_compilation(120)
    for _ in range(3):
        for _ in range(40):
            check(f, attention, 5, 8)
        assert tfbridge.wait_for_compilation(120)
    check(f, attention, 6, 11)
    assert counters("symbolic_compiles", "specializations", "compiles") == (1, 1, 3)


def test_calls_that_are_timed_again_count_as_calls_with_code(clustering: None) -> None:
    f = tf.function(attention, input_signature=[tf.TensorSpec([None, None, 6])])
    inputs = [data(batch, 4) for batch in range(2, 22)]
    for _ in range(4):
        for x in inputs:
            f(x)
        assert tfbridge.wait_for_compilation(120)
    for x in inputs:
        f(x)
    served = tfbridge.stats()["served_by_tensorflow"]
    for _ in range(2 * launch_site._RUNS_BEFORE_REVIEW):
        for x in inputs:
            f(x)
    assert tfbridge.stats()["served_by_tensorflow"] == served


def test_code_for_all_sizes_comes_before_code_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        launch_site, "priority", lambda *_: 1.0
    )  # a key is worth its code after one slow call
    f = jitted(attention, None, None, 6)
    for batch in (3, 4):
        check(f, attention, batch, 7)
    assert tfbridge.wait_for_compilation(120)
    assert counters("compiles", "symbolic_compiles") == (2, 1)


def test_sizes_that_do_not_fit_are_tensorflows_error() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.tanh(x) * 2.0, [-1, 4]) + 1.0

    f = jitted(function, None, 6)
    check(f, function, 4)
    check(f, function, 6)
    assert tfbridge.wait_for_compilation(120)
    check(f, function, 10)
    with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
        f(data(5))
    check(f, function, 12)


def windows(x: tf.Tensor) -> tf.Tensor:
    """Attention within windows of 4 rows, and the rows by pairs."""
    cut = tf.reshape(x, [-1, 4, 6])
    mixed = tf.nn.softmax(tf.matmul(cut, cut, transpose_b=True)) @ cut
    return tf.reshape(mixed, [-1, 12]) * 2.0


def halves(x: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(tf.tanh(x), 2)
    return first * second + first


def blocks(x: tf.Tensor) -> tf.Tensor:
    image = tf.reshape(tf.tanh(x), [1, -1, 8, 6])
    return tf.nn.depth_to_space(tf.nn.space_to_depth(image, 2) * 2.0, 2)


@pytest.mark.parametrize("function", [windows, halves, blocks])
def test_sizes_that_must_be_multiples(function: Callable[..., Any]) -> None:
    """One compilation serves all multiples; TensorFlow tells of the others."""
    f = jitted(function, None, 6)
    for rows in (48, 80):
        check(f, function, rows)
    assert tfbridge.wait_for_compilation(120)
    served = tfbridge.stats()["served_by_tensorflow"]
    for rows in (32, 64, 96, 112, 1600):
        check(f, function, rows)
    assert counters("compiles", "symbolic_compiles", "served_by_tensorflow") == (2, 1, served)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        f(data(41))
    check(f, function, 16)


def test_training_steps_of_any_batch() -> None:
    def steps(make: Callable[..., Any]) -> list[np.ndarray]:
        v, momentum = tf.Variable(tf.ones([6, 6])), tf.Variable(tf.zeros([6, 6]))

        def step(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.softmax(tf.tanh(x @ v)) ** 2)
            momentum.assign(momentum * 0.9 + tape.gradient(loss, v))
            v.assign_sub(0.1 * momentum)
            return loss

        f, results = make(step), []
        for rows in (4, 5, 7, 3, 16, 33, 2, 1, 9):
            results.append(f(tf.ones((rows, 6)) * rows / 10).numpy())
            assert tfbridge.wait_for_compilation(120)
        return [*results, v.numpy(), momentum.numpy()]

    signature = [tf.TensorSpec([None, 6])]
    wanted = steps(lambda f: tf.function(f, input_signature=signature))
    found = steps(lambda f: jitted(f, None, 6))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert tfbridge.stats()["symbolic_compiles"] >= 1 and tfbridge.stats()["compiles"] <= 4


def test_code_for_symbolic_sizes_is_found_on_disk() -> None:
    for _ in range(2):
        f = jitted(attention, None, None, 6)
        for dims in ((3, 7), (4, 9), (8, 5)):
            check(f, attention, *dims)
            assert tfbridge.wait_for_compilation(120)
    assert counters("compiles", "disk_hits") == (2, 2)


def test_without_symbolic_sizes_every_shape_is_compiled_by_itself() -> None:
    f = jitted(attention, None, None, 6, symbolic_sizes=False)
    for dims in ((3, 7), (4, 9), (5, 9)):
        check(f, attention, *dims)
    assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["symbolic_compiles"] == 0


def test_shapes_that_came_before_the_first_code_are_served_too() -> None:
    f = jitted(attention, None, None, 6, first_compile="background")
    shapes = ((3, 7), (4, 9), (5, 11), (2, 6))
    for dims in shapes:
        check(f, attention, *dims)
    assert tfbridge.wait_for_compilation(120)
    check(f, attention, *shapes[1])
    assert tfbridge.wait_for_compilation(120)
    assert counters("compiles", "symbolic_compiles", "clusters_compiled") == (1, 1, 1)
    served = tfbridge.stats()["served_by_tensorflow"]
    for dims in shapes:
        check(f, attention, *dims)
    assert counters("compiles", "served_by_tensorflow") == (1, served)


def test_calls_on_tensorflows_threads_are_counted_and_timed() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        y = tf.numpy_function(
            lambda a: a + np.float32(1), [x], tf.float32
        )  # TensorFlow runs what follows elsewhere
        y.set_shape([None, 6])
        return tf.nn.softmax(tf.tanh(y @ W) @ V) + tf.nn.gelu(y)

    tfbridge.enable_auto_clustering()
    f = tf.function(function, input_signature=[tf.TensorSpec([None, 6])])
    check_rows(f, function, 3)  # the graph is clustered after the first call
    assert tfbridge.wait_for_compilation(120)
    rows = (3, 4, 5, 7)
    for _ in range(2):
        for count in rows:
            check_rows(f, function, count)
    assert tfbridge.stats()["served_by_tensorflow"] >= 2
    for _ in range(2):
        assert tfbridge.wait_for_compilation(120)
        check_rows(f, function, 8)
    served = tfbridge.stats()["served_by_tensorflow"]
    for count in rows:
        check_rows(f, function, count)
    assert tfbridge.stats()["served_by_tensorflow"] == served


def check_rows(f: Any, function: Callable[..., Any], rows: int) -> None:
    x = data(rows)
    np.testing.assert_allclose(f(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)
