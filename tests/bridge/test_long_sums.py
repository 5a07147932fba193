"""Sums of many products lose no more to rounding than blocks of them do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

MAX_ERROR = 1.5e-6  # of float32, root mean square; term by term it is 2e-6 to 4e-6


def _kernel_gradient(window: int, stride: int) -> Callable[..., tf.Tensor]:
    def gradient(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        shape = [window, window, x.shape[3], dy.shape[3]]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=shape, out_backprop=dy, strides=[1, stride, stride, 1], padding="SAME"
        )

    return gradient


def _depthwise_gradient(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
        input=x, filter_sizes=[3, 3, x.shape[3], 1], out_backprop=dy, strides=[1, 1, 1, 1], padding="SAME"
    )


def _of_rows(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, y, transpose_a=True)


CASES: dict[str, tuple[Callable[..., tf.Tensor], list[int], list[int]]] = {
    "product": (tf.matmul, [64, 25000], [25000, 64]),
    "product of columns": (_of_rows, [25000, 70], [25000, 33]),
    "few rows": (_of_rows, [25000, 8], [25000, 8]),
    "batch": (_of_rows, [2, 20000, 17], [2, 20000, 19]),
    "convolution": (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [1, 8, 8, 2048], [3, 3, 2048, 16]),
    "gradient of 3x3 kernels": (_kernel_gradient(3, 1), [8, 56, 56, 16], [8, 56, 56, 24]),
    "gradient of 3x3 kernels, stride 2": (_kernel_gradient(3, 2), [16, 84, 84, 3], [16, 42, 42, 32]),
    "gradient of 1x1 kernels": (_kernel_gradient(1, 1), [8, 56, 56, 32], [8, 56, 56, 32]),
    "gradient of depthwise kernels": (_depthwise_gradient, [8, 56, 56, 16], [8, 56, 56, 16]),
}


def _moments(x: tf.Tensor) -> tf.Tensor:
    return tf.concat(tf.nn.moments(x, list(range(x.shape.rank - 1))), 0)


@pytest.mark.parametrize("shape", [(6272, 32), (6271, 20), (8, 28, 28, 32), (20011, 3), (50000, 128)])
def test_long_sums_of_columns(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random(shape, np.float32) + 1
    exact = _moments(tf.constant(x, tf.float64)).numpy()
    np.testing.assert_allclose(tfbridge.jit(_moments)(tf.constant(x)), exact, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_long_sums(name: str) -> None:
    function, *shapes = CASES[name]
    random = np.random.default_rng(0)
    arguments = [random.standard_normal(shape, dtype=np.float32) for shape in shapes]
    exact = function(*[tf.constant(x, tf.float64) for x in arguments]).numpy()
    got = tfbridge.jit(function)(*[tf.constant(x) for x in arguments]).numpy()
    error = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))
    assert error < MAX_ERROR, f"{error:.1e}"
