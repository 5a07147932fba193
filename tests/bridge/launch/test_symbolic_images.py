"""Images whose number, height and width change from call to call: one compilation for symbolic sizes serves them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

SIZES = [(2, 2, 2), (2, 3, 5), (3, 8, 7), (2, 31, 32), (7, 97, 5), (4, 65, 64)]
WINDOWS = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 33), (3, 3, 33, 40)]
RNG = np.random.default_rng(0)
WEIGHTS = [tf.constant(RNG.standard_normal(dims, np.float32) / 5) for dims in WINDOWS]
KERNEL = tf.constant(RNG.standard_normal((3, 3, 16, 1), np.float32))


pytestmark = pytest.mark.usefixtures("in_background")


def network(x: tf.Tensor) -> tf.Tensor:
    for weights, stride in zip(WEIGHTS, (2, 1, 2, 2)):
        x = tf.nn.relu(tf.nn.conv2d(x, weights, stride, "SAME") + 0.1)
    return tf.reduce_mean(x, [1, 2])


def gradients(x: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch((x, *WEIGHTS))
        loss = tf.reduce_mean(network(x) ** 2)
    return [loss, *tape.gradient(loss, (x, *WEIGHTS))]


def depthwise(x: tf.Tensor) -> tf.Tensor:
    x = tf.nn.depthwise_conv2d(tf.nn.conv2d(x, WEIGHTS[0], 2, "SAME"), KERNEL, [1, 1, 1, 1], "SAME")
    return tf.nn.depthwise_conv2d(x, KERNEL, [1, 2, 2, 1], "SAME")


def depthwise_gradients(x: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch((x, KERNEL))
        loss = tf.reduce_mean(depthwise(x) ** 2)
    return tape.gradient(loss, (x, KERNEL))


def without_padding(x: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch((x, WEIGHTS[0]))
        loss = tf.reduce_mean(tf.nn.conv2d(x, WEIGHTS[0], 1, "VALID") ** 2)
    return tape.gradient(loss, (x, WEIGHTS[0]))


def pools(x: tf.Tensor) -> tf.Tensor:
    y = tf.nn.avg_pool2d(tf.nn.max_pool2d(x, 3, 2, "SAME"), 3, 1, "SAME")
    return tf.nn.max_pool2d(y, 2, 2, "SAME")


def pool_gradients(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(pools(x) ** 2)
    return tape.gradient(loss, x)


def upsampled(x: tf.Tensor) -> tf.Tensor:
    whole = tf.nn.relu(tf.nn.conv2d(x, WEIGHTS[0], 1, "SAME"))
    half = tf.nn.relu(tf.nn.conv2d(whole, WEIGHTS[1], 2, "SAME"))
    back = tf.nn.conv2d_transpose(half, WEIGHTS[1], tf.shape(whole), 2, "SAME")
    return tf.nn.conv2d(tf.concat([back, whole], -1), WEIGHTS[2], 1, "SAME")


def resized(x: tf.Tensor) -> tf.Tensor:
    height, width = tf.unstack(tf.shape(x)[1:3])
    larger = tf.image.resize(x, [2 * height, 2 * width])
    return tf.image.resize(larger, [height, width], method="nearest") + tf.image.resize(x, [height, width])


def resized_to_a_number(x: tf.Tensor) -> tf.Tensor:
    corners = tf.compat.v1.image.resize_bilinear(x, [20, 31], align_corners=True)
    return tf.image.resize(x, [20, 31]) + corners * 2.0


def resize_gradients(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(resized(x) ** 2)
    return tape.gradient(loss, x)


@pytest.mark.parametrize(
    "function",
    [
        *[network, gradients, without_padding, depthwise, depthwise_gradients, pools, pool_gradients],
        *[upsampled, resized, resized_to_a_number, resize_gradients],
    ],
    ids=lambda f: f.__name__,
)
def test_one_compilation_serves_all_sizes(function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    f = tfbridge.jit(tf.function(function, input_signature=[tf.TensorSpec([None, None, None, 3])]))
    served = -1
    for dims in ((4, 40, 56), (3, 49, 33), *SIZES):
        if function is without_padding and min(dims) < 3:
            continue
        x = tf.constant(RNG.standard_normal((*dims, 3), np.float32))
        for result, expected in zip(tf.nest.flatten(f(x)), tf.nest.flatten(function(x)), strict=True):
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(result, expected, 1e-4, 1e-5 * max(scale, 1), err_msg=str(dims))
        assert tfbridge.wait_for_compilation(120)
        if dims[1] == 49:
            served = tfbridge.stats()["served_by_tensorflow"]
    stats = tfbridge.stats()
    assert (stats["compiles"], stats["symbolic_compiles"]) == (2, 1), tfbridge.explain(f, x)
    assert stats["served_by_tensorflow"] == served
