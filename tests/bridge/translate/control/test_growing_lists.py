"""Loops of unknown length: lists that their gradients push to, arrays that grow as they are written.

Each program is compiled as a whole; where a list outgrows its bound, TensorFlow runs the call and larger code follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(1)
X = tf.constant(RANDOM.normal(size=(5, 3)).astype("f4"))
W = tf.constant((RANDOM.normal(size=(3, 3)) * 0.4).astype("f4"))


def with_gradient(loss: Callable[..., tf.Tensor]) -> Callable[..., Any]:
    def function(x: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.autograph.to_graph(loss)(x, n)
        return total, tape.gradient(total, x)

    return function


def until_small(x, n):
    while tf.reduce_sum(tf.abs(x)) > 0.5:
        x = tf.tanh(x) * 0.7
    return tf.reduce_sum(x * x)


def counted(x, n):
    for _ in tf.range(n):
        x = tf.tanh(x @ W) + x * 0.1
    return tf.reduce_sum(x * x)


def nested(x, n):
    y = x
    for i in tf.range(n):
        for _ in tf.range(i % 4):
            y = tf.tanh(y @ W) + 0.1 * x
    return tf.reduce_sum(y * y)


def branching(x, n):
    y, i = x, 0
    while i < n:
        if tf.reduce_sum(y) > 0.0:
            y = tf.sin(y @ W) * 0.6 + 0.1
            if i % 2 == 0:
                y = y * tf.reduce_max(y)
        else:
            y = tf.tanh(y) * 0.8 + 0.2
        i += 1
    return tf.reduce_sum(y * y)


def loop_in_branch(x, n):
    if n > 4:
        while tf.reduce_sum(tf.abs(x)) > 0.5:
            x = tf.tanh(x) * 0.8
    else:
        x = tf.sin(x) * tf.reduce_sum(x)
    return tf.reduce_sum(x * x)


def with_break(x, n):
    h = tf.zeros(3)
    for row in x:
        h = tf.tanh(h + tf.linalg.matvec(W, row))
        if tf.reduce_sum(h) > 0.8:
            break
    return tf.reduce_sum(h * h)


def second_order(x: tf.Tensor, n: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        first = with_gradient(counted)(x, n)[1]
        total = tf.reduce_sum(first * first)
    return first, tape.gradient(total, x)


def written_while(x: tf.Tensor, n: tf.Tensor) -> Any:
    """How many elements there are depends on data."""

    def body(k: tf.Tensor, y: tf.Tensor, kept: tf.TensorArray) -> Any:
        return k + 1, y * 0.9, kept.write(k, y * 2.0)

    kept = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    k, _, kept = tf.while_loop(
        lambda k, y, _: tf.logical_and(k < n, tf.reduce_sum(tf.abs(y)) > 1e-4), body, (0, x[0], kept)
    )
    return kept.stack(), k, kept.size()


def written_in_turn(x: tf.Tensor, n: tf.Tensor) -> Any:
    """How many there are follows from the loop."""
    kept = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    _, kept = tf.while_loop(
        lambda k, _: k < 6, lambda k, t: (k + 1, t.write(k, x[0] * tf.cast(k, tf.float32))), (0, kept)
    )
    return tf.nn.softmax(kept.write(6, x[1]).stack() @ W)


PROGRAMS: dict[str, Callable[..., Any]] = {
    f.__name__: with_gradient(f)
    for f in (until_small, counted, nested, branching, loop_in_branch, with_break)
} | {f.__name__: f for f in (second_order, written_while, written_in_turn)}
LENGTHS = {
    "second_order": (3,),
    "written_while": (3, 90, 90, 5, 0),
    "counted": (3, 64, 65, 65, 300, 300, 0, 1),
}


@pytest.mark.parametrize("way", ["jit", "flag"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, way: str, clustering: None) -> None:
    program, lengths = PROGRAMS[name], LENGTHS.get(name, (3, 5))
    plain = tf.function(program)
    expected = [plain(X, tf.constant(n)) for n in lengths]
    tfbridge.reset_stats()
    if way == "flag":
        tfbridge.enable_auto_clustering(min_cluster_size=1)
        compiled: Any = tf.function(program)
    else:
        compiled = tfbridge.jit(program)
    for n, wanted in zip(lengths, expected, strict=True):
        given = compiled(X, tf.constant(n))
        for a, b in zip(tf.nest.flatten(given), tf.nest.flatten(wanted), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5)  # sums over hundreds of steps
    counters = tfbridge.stats()
    assert counters["clusters_compiled"] == 1 and not counters["fallbacks"], counters["ops_left_out"]
    assert not counters["ops_left_out"]


def test_a_length_is_no_reason_to_compile_again() -> None:
    compiled = tfbridge.jit(with_gradient(counted))
    tfbridge.reset_stats()
    for n in range(20):
        compiled(X, tf.constant(n))
    assert tfbridge.stats()["compiles"] + tfbridge.stats()["disk_hits"] + tfbridge.stats()["memory_hits"] <= 1
    assert tfbridge.stats()["recompiles"] == 0


def test_variables_are_updated_once_where_a_run_is_left() -> None:
    """The run that outgrows a bound has changed nothing when TensorFlow begins anew."""

    def steps(compiled: Any) -> list[np.ndarray]:
        v, calls = tf.Variable(W), tf.Variable(0)

        @compiled
        def step(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
            calls.assign_add(1)
            with tf.GradientTape() as tape:
                _, y = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.tanh(y @ v) + x), (0, x))
                total = tf.reduce_sum(y * y)
            v.assign_sub(0.001 * tape.gradient(total, v))
            return total

        return [*(step(X, tf.constant(n)).numpy() for n in (3, 70, 70, 2)), v.numpy(), calls.numpy()]

    expected = steps(tf.function)
    tfbridge.reset_stats()
    for given, wanted in zip(steps(tfbridge.jit), expected, strict=True):
        np.testing.assert_allclose(given, wanted, 1e-4)
    assert tfbridge.stats()["recompiles"] == 1 and not tfbridge.stats()["fallbacks"]
