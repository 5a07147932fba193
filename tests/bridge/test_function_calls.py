"""Functions called as ops, as TensorFlow 1's Defun makes them: in a function, in loops and in branches of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.python.framework.function import Defun
from tensorflow.python.ops import functional_ops

RANDOM = np.random.default_rng(5)
X = tf.constant(RANDOM.normal(size=(3, 4)).astype("f4"))


def ctc(logits: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        labels = tf.constant([[1, 2, 2], [3, 1, 0]])
        loss = tf.nn.ctc_loss(labels, logits, tf.constant([3, 2]), tf.constant([7, 6]), logits_time_major=False,
                              blank_index=0)
    return loss, tape.gradient(loss, logits)


def looped(x: tf.Tensor) -> Any:
    @Defun(tf.int32, tf.float32)
    def is_early(i: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return i < 5

    @Defun(tf.float32, func_name="two_of_one")
    def two(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.nn.top_k(x, 2)[0][:, :1] + x, tf.sin(x)

    @Defun(tf.int32, tf.float32)
    def step(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second = two(x)
        return i + 1, second - first * 0.1

    return functional_ops.While([tf.constant(0), x], is_early, step)


LOGITS = tf.constant(RANDOM.normal(size=(2, 7, 5)).astype("f4"))


@pytest.mark.parametrize(("function", "x"), [(ctc, LOGITS), (looped, X)], ids=["ctc", "looped"])
def test_whole(function: Callable[..., Any], x: tf.Tensor) -> None:
    _compare(tfbridge.jit(function, strict=True)(x), tf.function(function)(x))


@pytest.mark.parametrize(("function", "x"), [(ctc, LOGITS), (looped, X)], ids=["ctc", "looped"])
def test_clustered(function: Callable[..., Any], x: tf.Tensor, clustering: None) -> None:
    found = tf.function(function)(x)
    assert tfbridge.stats()["clusters_compiled"] == 1
    tfbridge.disable_auto_clustering()
    _compare(found, tf.function(function)(x))


def test_in_tensorflow() -> None:
    """What runs a cluster's nodes in TensorFlow finds the functions too."""
    from tfbridge.bridge.decorator import cluster_of

    concrete = tf.function(looped).get_concrete_function(X)
    cluster = cluster_of(concrete)
    _compare(cluster.original([X]), concrete(X))


def _compare(found: Any, wanted: Any) -> None:
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)
