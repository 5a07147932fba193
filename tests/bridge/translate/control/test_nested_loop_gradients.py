"""Gradients, and gradients of gradients, of loops with branches and loops inside: lists of optionals and of lists."""

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


def repeated(step: Callable[..., Any], y: tf.Tensor, n: Any, most: int | None) -> tf.Tensor:
    """step(i, y) n times, and no more often than `most`."""
    return tf.while_loop(
        lambda i, _: i < n, lambda i, y: (i + 1, step(i, y)), (0, y), maximum_iterations=most
    )[1]


def turned(y: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: tf.sin(y @ W) * 0.6 + 0.1, lambda: tf.tanh(y) * 0.8 + 0.2)


def branch(most: int | None) -> Callable[..., Any]:
    return lambda x, n: repeated(lambda i, y: turned(y), x, n, most)


def branches_in_branch(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def step(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        other = tf.cond(tf.equal(i % 2, 0), lambda: y * tf.reduce_max(y), lambda: y * 0.9)
        return tf.cond(tf.reduce_sum(y) > 0.0, lambda: turned(y * 1.1), lambda: other)

    return repeated(step, x, n, 8)


def cases(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def step(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        ways = [lambda: tf.sin(y @ W), lambda: y * tf.reduce_max(y) * 0.5, lambda: tf.tanh(y) + 0.1]
        return tf.switch_case(i % 3, ways)

    return repeated(step, x, n, 8)


def loop(most: int | None, most_inside: int | None) -> Callable[..., Any]:
    def step(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return repeated(lambda _, z: tf.tanh(z @ W) + 0.1 * y, y, i, most_inside)

    return lambda x, n: repeated(step, x, n, most)


def branch_in_loop_in_loop(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return repeated(lambda i, y: repeated(lambda _, z: turned(z), y, i, 7), x, n, 8)


def loop_in_branch(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def step(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        looped = lambda: repeated(lambda _, z: tf.tanh(z @ W) + 0.1 * x, y, i, 7)  # noqa: E731
        return tf.cond(tf.reduce_sum(y) > 0.0, looped, lambda: tf.sin(y) + 0.1)

    return repeated(step, x, n, 8)


def mapped(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def row(r: tf.Tensor) -> tf.Tensor:
        small = lambda z: tf.reduce_sum(z * z) > 0.1  # noqa: E731
        return tf.while_loop(small, lambda z: (tf.tanh(z) * 0.6,), (r,))[0]

    return tf.map_fn(row, x)


def scanned(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def step(a: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_sum(a) > 0.0, lambda: tf.tanh(a + row), lambda: a * 0.5 + tf.sin(row))

    return tf.scan(step, x, tf.zeros(3))


def with_gradient(function: Callable[..., Any], order: int) -> Callable[..., Any]:
    def program(x: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(function(x, n) ** 2)
            if order == 1:
                return total, tape.gradient(total, x)
            gradient = tf.convert_to_tensor(tape.gradient(total, x))
            total = tf.reduce_sum(gradient * gradient)
        return gradient, outer.gradient(total, x)

    return program


FIRST = {
    "branch": branch(8),
    "loop": loop(8, 7),
    "loop without bound inside": loop(8, None),
} | {
    f.__name__: f
    for f in (
        branches_in_branch,
        cases,
        branch_in_loop_in_loop,
        loop_in_branch,
        mapped,
        scanned,
    )
}
SECOND = {
    "branch": branch(8),
    "branch without bound": branch(None),
    "loop": loop(8, 7),
    "loop without bound inside": loop(8, None),
    "loop without bound outside": loop(None, 7),
    "loops without bounds": loop(None, None),
} | {f.__name__: f for f in (cases, mapped)}


def compare(program: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    plain = tf.function(program)
    expected = [plain(X, tf.constant(n)) for n in (3, 5)]
    tfbridge.reset_stats()
    for n, wanted in zip((3, 5), expected):
        for a, b in zip(compiled(X, tf.constant(n)), wanted, strict=True):
            scale = np.abs(tf.convert_to_tensor(b).numpy()).max()
            np.testing.assert_allclose(tf.convert_to_tensor(a), tf.convert_to_tensor(b), 1e-4, 1e-5 * scale)
    counters = tfbridge.stats()
    assert counters["clusters_compiled"] == 1 and not counters["fallbacks"], counters["ops_left_out"]
    assert not counters["ops_left_out"]


@pytest.mark.parametrize("name", FIRST)
def test_gradient(name: str) -> None:
    program = with_gradient(FIRST[name], 1)
    compare(program, tfbridge.jit(program))


@pytest.mark.parametrize("name", SECOND)
def test_gradient_of_gradient(name: str) -> None:
    program = with_gradient(SECOND[name], 2)
    compare(program, tfbridge.jit(program))


def test_under_the_flag(clustering: None) -> None:
    program = with_gradient(branch_in_loop_in_loop, 1)
    plain = tf.function(program)(X, tf.constant(5))
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    tfbridge.reset_stats()
    for a, b in zip(tf.function(program)(X, tf.constant(5)), plain, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    assert not tfbridge.stats()["fallbacks"] and not tfbridge.stats()["ops_left_out"]
