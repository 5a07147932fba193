"""TensorArrays that a loop reads in a branch or an inner loop: their elements are not known before the loop writes
them, and the gradient of the branch that reads one element is a list of zeros with one other element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

X = tf.constant([1.0, 2.0])
Shape = tuple[int, ...] | None


def array(n: Any, shape: Shape = None) -> tf.TensorArray:
    return tf.TensorArray(tf.float32, size=n, clear_after_read=False, element_shape=shape)


def recurrence(shape: Shape = None, writes_inside: bool = False) -> Callable[..., tf.Tensor]:
    """2 x twice, and from then on a function of the last two elements."""

    def function(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        ta = array(n, shape)
        for i in tf.range(n):
            if i < 2:
                v = x * 2.0
                if writes_inside:
                    ta = ta.write(i, v)
            else:
                v = tf.sin(ta.read(i - 1)) + ta.read(i - 2) * x
                if writes_inside:
                    ta = ta.write(i, v)
            if not writes_inside:
                ta = ta.write(i, v)
        return ta.stack()

    return function


def over_all_before(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    ta = array(n)
    for i in tf.range(n):
        total = x
        for j in tf.range(i):
            total += tf.ensure_shape(ta.read(j), [2]) * 0.5
        ta = ta.write(i, total)
    return ta.stack()


def sweeps(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    ta = array(3)
    for i in tf.range(n):
        for j in tf.range(3):
            v = x * 2.0 if i == 0 else tf.cos(ta.read(j)) + 1.0
            ta = ta.write(j, v)
    return ta.stack()


def cases(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    ta = array(n)
    for i in tf.range(n):
        ways = [
            lambda: x,
            lambda ta=ta: ta.read(0) * 3.0,
            lambda ta=ta, i=i: ta.gather([0, 1])[1] + ta.read(i - 1),
        ]
        ta = ta.write(i, tf.switch_case(tf.minimum(i, 2), ways))
    return ta.stack()


PROGRAMS = {
    "recurrence": recurrence(),
    "known_elements": recurrence((2,)),
    "written_in_branches": recurrence(writes_inside=True),
    "over_all_before": over_all_before,
    "sweeps": sweeps,
    "cases": cases,
}


def value_and_gradients(program: Callable[..., tf.Tensor], order: int) -> Callable[..., list[tf.Tensor]]:
    def function(x: tf.Tensor, n: tf.Tensor) -> list[tf.Tensor]:
        if order == 0:
            return [program(x, n)]
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = function_below(x, n)
        return [*results, tape.gradient(results[-1], x)]

    function_below = value_and_gradients(program, order - 1) if order else None
    return function


@pytest.mark.parametrize(
    ("name", "order"),
    [(name, order) for name in PROGRAMS for order in (0, 1) if (name, order) != ("cases", 1)],
)
def test_program(name: str, order: int) -> None:
    function = value_and_gradients(PROGRAMS[name], order)
    compiled = tfbridge.jit(function, strict=True)
    tfbridge.reset_stats()
    for n in (2, 5):
        expected = tf.function(function)(X, tf.constant(n))
        for a, b in zip(compiled(X, tf.constant(n)), expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert tfbridge.stats()["fallbacks"] == 0


def test_gradients_of_branches_that_all_read() -> None:
    """TensorFlow runs them: nothing tells how long the lists of zeros of the branches are."""

    def program(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        ta = array(n, (2,)).write(0, x).write(1, x * 2.0)
        for i in tf.range(2, n):
            v = tf.sin(ta.read(i - 2)) if i % 2 == 0 else tf.cos(ta.read(i - 1) * x)
            ta = ta.write(i, v)
        return ta.stack()

    function = value_and_gradients(program, 1)
    expected = tf.function(function)(X, tf.constant(5))
    for a, b in zip(tfbridge.jit(function)(X, tf.constant(5)), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
