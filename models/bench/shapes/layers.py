"""What the models of the suite are made of: seeded weights, attention, normalisation."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

MASKED = -1e9  # added to the scores of what is not attended to


class Weights:
    """Seeded variables, and all that were asked for."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self.variables: list[tf.Variable] = []

    def __call__(self, rows: int, columns: int) -> tf.Variable:
        values = self._random.standard_normal((rows, columns), dtype=np.float32) / math.sqrt(rows)
        self.variables.append(tf.Variable(values))
        return self.variables[-1]


def normalized(x: tf.Tensor) -> tf.Tensor:
    """Layer normalisation without weights."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6)


def attention(
    queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, heads: int, bias: tf.Tensor
) -> tf.Tensor:
    """Shapes: f32[batch, n, width], f32[batch, m, width] twice, f32[..., n or 1, m] -> f32[batch, n, width]."""
    width = queries.shape[-1]
    batch, count = tf.shape(queries)[0], tf.shape(queries)[1]

    def split(x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.reshape(x, [batch, tf.shape(x)[1], heads, width // heads]), [0, 2, 1, 3])

    scores = tf.matmul(split(queries), split(keys), transpose_b=True) / math.sqrt(width // heads)
    mixed = tf.matmul(tf.nn.softmax(scores + bias), split(values))
    return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch, count, width])
