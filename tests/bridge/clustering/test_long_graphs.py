"""Graphs of many ops in a row: nothing recurses through them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from few_frames import few_frames

FRAMES = 260  # that may be open at once, for a graph of any length
LENGTH = 300
X = tf.constant([0.1, 0.2, 0.3, 0.4])


def mixed(x: tf.Tensor) -> tf.Tensor:
    y = x
    for _ in range(LENGTH // 3):
        y = tf.tanh(tf.reduce_sum(tf.reshape(tf.concat([y, x], 0), [2, 4]), 0))
    return y


def identities_of_a_size(x: tf.Tensor) -> tf.Tensor:
    size = tf.shape(x)[0]
    for k in range(LENGTH):
        size = tf.cast(tf.identity(size), tf.int32 if k % 2 else tf.int64)
    return tf.fill([size], 2.0) + x


def loop_with_a_long_body(x: tf.Tensor) -> tf.Tensor:
    def body(step: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for k in range(LENGTH):
            y = tf.sin(y) if k % 2 else tf.tanh(y)
        return step + 1, y

    return tf.while_loop(lambda step, y: step < 2, body, (0, x))[1]


def pushes(x: tf.Tensor) -> tf.Tensor:
    values = tf.raw_ops.EmptyTensorList(element_shape=[4], max_num_elements=LENGTH, element_dtype=tf.float32)
    for _ in range(LENGTH):
        values = tf.raw_ops.TensorListPushBack(input_handle=values, tensor=x)
    return tf.raw_ops.TensorListConcatV2(
        input_handle=values,
        element_shape=[4],
        element_dtype=tf.float32,
        leading_dims=tf.constant([], tf.int64),
    )[0]


@pytest.mark.parametrize("function", [mixed, identities_of_a_size, loop_with_a_long_body, pushes])
def test_a_long_graph(function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    compiled = tfbridge.jit(function, strict=True)
    compiled.get_concrete_function(X)  # TensorFlow's own tracing takes as many frames as it likes
    with few_frames(FRAMES):
        found = compiled(X)
    np.testing.assert_allclose(found, function(X), rtol=1e-4, atol=1e-6)
