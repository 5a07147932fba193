"""Constant strings in graphs: messages are compiled; what computes with strings, and that alone, is left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

X = tf.constant([1.0, 2.0, 3.0])
WORDS = ["a", "", "b"]


def chosen(x: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.not_equal(tf.constant(WORDS), ""), tf.cos(x), x * 2.0) + tf.sin(x)


def chosen_in_branch(x: tf.Tensor) -> tf.Tensor:
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: chosen(x), lambda: x)
    return y * tf.exp(x) + tf.sin(x)


def counted(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(x) * tf.cast(tf.size(tf.raw_ops.Identity(input=WORDS)), tf.float32) + tf.cos(x)


@pytest.mark.parametrize("function", [chosen, chosen_in_branch, counted])
def test_what_is_around_strings_is_compiled(function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    tfbridge.reset_stats()
    np.testing.assert_allclose(tfbridge.jit(function)(X), function(X), 1e-6)
    counters = tfbridge.stats()
    assert counters["clusters_compiled"] and not counters["fallbacks"], counters["ops_left_out"]


def test_messages_are_compiled() -> None:
    @tfbridge.jit
    def checked(x: tf.Tensor) -> tf.Tensor:
        def inside() -> tf.Tensor:
            tf.debugging.Assert(tf.reduce_sum(x) < 9.0, [tf.constant("too much"), x])
            return tf.sin(x)

        return tf.cond(tf.reduce_sum(x) > 0.0, inside, lambda: x)

    tfbridge.reset_stats()
    np.testing.assert_allclose(checked(X), tf.sin(X), 1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1 and not tfbridge.stats()["ops_left_out"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="too much"):
        checked(X * 9.0)
