"""Integers that a loop stores for its gradient: valid as indices, but of any size and sign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

X = tf.constant(np.random.default_rng(0).normal(size=(5, 3)).astype("f4"))
PLACES = tf.constant([-1, -2, -3, 0, 1])


@pytest.mark.parametrize("most", [None, 5])
def test_rows_counted_from_the_end(most: int | None) -> None:
    """The gradient takes the places back, and counts from the end as the loop did."""

    def program(x: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            step = lambda i, y: (i + 1, y * x[i - 5] + x[PLACES[i]])  # noqa: E731
            y = tf.while_loop(lambda i, _: i < n, step, (0, x[0]), maximum_iterations=most)[1]
        return y, tf.convert_to_tensor(tape.gradient(y, x))

    expected = tf.function(program)(X, tf.constant(4))
    tfbridge.reset_stats()
    for given, wanted in zip(tfbridge.jit(program)(X, tf.constant(4)), expected, strict=True):
        np.testing.assert_allclose(given, wanted, 1e-5, 1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1 and not tfbridge.stats()["fallbacks"]


def test_trips_of_a_loop_that_are_taken_back() -> None:
    """A loop runs as often as another one did: the lists that it appends to have room for as many elements."""

    def program(x: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        def outer(k: tf.Tensor, total: tf.Tensor, stored: tf.Tensor) -> Any:
            stored, count = tf.raw_ops.TensorListPopBack(
                input_handle=stored, element_shape=tf.constant([], tf.int32), element_dtype=tf.int32
            )
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.while_loop(lambda i, _: i < count, lambda i, y: (i + 1, tf.sin(y) * y), (0, x))[1]
            return k + 1, total + tape.gradient(y, x), stored

        stored = tf.raw_ops.TensorListFromTensor(tensor=counts, element_shape=tf.constant([], tf.int32))
        return tf.while_loop(lambda k, *_: k < 3, outer, (0, tf.zeros_like(x), stored))[1]

    counts = tf.constant([1, 4, 2])
    expected = tf.function(program)(X, counts)
    tfbridge.reset_stats()
    np.testing.assert_allclose(tfbridge.jit(program)(X, counts), expected, 1e-5, 1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1 and not tfbridge.stats()["fallbacks"]
