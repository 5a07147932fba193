"""Slices whose place is known only at run time: one compile for all places, and TensorFlow's results at the ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.analysis import symbolic_size
from tfbridge.bridge.graph.graph import Tensor, from_function_def

X = np.random.default_rng(7).standard_normal((12, 5)).astype(np.float32)

FORWARD: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, i: x[i : i + 4] * 2.0,
    "two axes": lambda x, i: x[i : i + 4, 1:-1] + 1.0,
    "end first": lambda x, i: tf.exp(x[i - 3 : i]),
    "multiple": lambda x, i: x[i * 2 : (i + 1) * 2] * 3.0,
    "of a shape": lambda x, i: x[i : i + tf.shape(x)[1]] * tf.transpose(x)[:, :5],
    "step": lambda x, i: x[i : i + 5 : 2] * 2.0,
    "ellipsis": lambda x, i: tf.transpose(x)[..., i : i + 3] * 2.0,
    "new axis": lambda x, i: x[tf.newaxis, i : i + 3, :, tf.newaxis] * 2.0,
    "single and range": lambda x, i: x[tf.clip_by_value(i, 0, 11), i : i + 2] * 2.0,
    "backwards beside": lambda x, i: x[i : i + 3, ::-2] * 2.0,
    "wide index": lambda x, i: x[tf.cast(i, tf.int64) : tf.cast(i, tf.int64) + 2] * 2.0,
    "slice": lambda x, i: tf.slice(x, [i, 1], [4, 3]) * 2.0,
    "slice to the end": lambda x, i: tf.slice(x, [i, 1], [4, -1]) * 2.0,
    "range": lambda x, i: tf.gather(x, tf.range(i, i + 3) % 12) * 2.0,
    "padding": lambda x, i: tf.pad(x, [[i, 6 - i], [0, 0]]) * 2.0,
    "padding both ways": lambda x, i: tf.pad(x, [[3 - i, i], [i, 6 - i]], constant_values=1.5) * 2.0,
    "reflected": lambda x, i: tf.pad(x, [[12 - i, i], [i, 4 - i]], "REFLECT") * 2.0,
    "symmetric": lambda x, i: tf.pad(x, [[0, 0], [6 - i, i]], "SYMMETRIC") * 2.0,
    "in a loop": lambda x, i: tf.while_loop(
        lambda k, t: k < 3, lambda k, t: (k + 1, t + x[i + k : i + k + 4]), (0, tf.zeros((4, 5)))
    )[1],
}
GRADIENTS = ["plain", "two axes", "step", "new axis", "single and range", "slice", "slice to the end"]


def outcome(f: Callable[..., Any], *given: Any) -> Any:
    """The result, or the type of the error."""
    try:
        return [v.numpy() for v in tf.nest.flatten(f(*given))]
    except tf.errors.InvalidArgumentError as error:
        return type(error)


def check(f: Callable[..., Any]) -> None:
    plain, compiled = tf.function(f), tfbridge.jit(f)
    tfbridge.reset_stats()
    outcome(compiled, tf.constant(X), tf.constant(3))
    assert tfbridge.stats()["clusters_compiled"]
    tfbridge.reset_stats()
    for i in [*range(-15, 15), 2**31 - 2, -(2**31)]:
        wanted, found = (outcome(g, tf.constant(X), tf.constant(i)) for g in (plain, compiled))
        if isinstance(wanted, type):
            assert found is wanted, i
        else:
            assert [(v.shape, v.dtype) for v in found] == [(v.shape, v.dtype) for v in wanted], i
            for a, b in zip(found, wanted):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(i))
    stats = tfbridge.stats()
    assert not stats["recompiles"] and not stats["clusters_compiled"], "another place was compiled for"
    assert not stats["fallbacks"], stats["ops_left_out"]


@pytest.mark.parametrize("name", FORWARD)
def test_places(name: str) -> None:
    check(FORWARD[name])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    def gradient(x: Any, i: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(FORWARD[name](x, i) ** 2)
        return y, tf.convert_to_tensor(tape.gradient(y, x))

    check(gradient)


def test_two_hundred_places_are_one_compile() -> None:
    @tfbridge.jit
    def f(x: Any, i: Any) -> Any:
        return tf.reduce_sum(x[i : i + 16] * 2.0, axis=0) + x[i]

    x = np.random.default_rng(1).standard_normal((216, 3)).astype(np.float32)
    tfbridge.reset_stats()
    for i in range(200):
        wanted = (x[i : i + 16] * 2.0).sum(axis=0) + x[i]
        np.testing.assert_allclose(f(tf.constant(x), tf.constant(i)), wanted, rtol=1e-4, atol=1e-5)
    stats = tfbridge.stats()
    assert (stats["clusters_compiled"], stats["recompiles"], stats["fallbacks"]) == (1, 0, 0)


def test_variables_keep_their_value_when_a_run_is_left() -> None:
    """A run that TensorFlow does instead updates variables once."""
    results = []
    for decorator in (tf.function, tfbridge.jit):
        total = tf.Variable(np.zeros(5, np.float32))
        count = tf.Variable(0)

        @decorator
        def step(x: Any, i: Any, total: Any = total, count: Any = count) -> Any:
            count.assign_add(1)
            total.assign_add(tf.reduce_sum(x[i : i + 4], axis=0))
            return total * 2.0

        found = [step(tf.constant(X), tf.constant(i)).numpy() for i in (0, 7, 10, 11, 3, -2, 12)]
        results.append((*found, total.numpy(), count.numpy()))
    for wanted, given in zip(*results):
        np.testing.assert_allclose(given, wanted, rtol=1e-5)


def test_under_auto_clustering() -> None:
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    try:

        @tf.function
        def f(x: Any, i: Any) -> Any:
            return tf.exp(x[i : i + 4]) * 2.0 - 1.0

        tfbridge.reset_stats()
        for i in range(-13, 14):
            np.testing.assert_allclose(
                f(tf.constant(X), tf.constant(i)), np.exp(tf.constant(X)[i : i + 4]) * 2.0 - 1.0, rtol=1e-5
            )
        assert tfbridge.stats()["clusters_compiled"] == 1
        assert not tfbridge.stats()["recompiles"]
    finally:
        tfbridge.disable_auto_clustering()


def test_polynomials() -> None:
    """A difference of elements is fixed where the graph shows it, and only there."""

    @tf.function
    def f(i: Any, j: Any) -> Any:
        return tf.stack([(i + 1) * 4, j]), tf.stack([i * 4, i]), tf.shape(tf.reshape(j, [1]))

    concrete = f.get_concrete_function(tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.int32))
    graph = from_function_def(concrete.function_def)
    high, low = (
        next(n for n in graph.nodes.values() if n.op == "Identity" and n.name == f"Identity{k}")
        for k in ("", "_1")
    )
    ends = [[symbolic_size.element(graph, Tensor(n.name, 0), k) for k in range(2)] for n in (high, low)]
    assert symbolic_size.difference(ends[0][0], ends[1][0]) == {(): 4}
    assert not symbolic_size.is_fixed(graph, symbolic_size.difference(ends[0][1], ends[1][1]))
