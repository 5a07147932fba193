"""Two hundred batch sizes through one function with an unknown batch, and as many starts of a slice."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    w = tf.Variable(np.linspace(-1, 1, 12).reshape(4, 3).astype("f4"))

    @compiled
    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)])
    def f(x):
        h = tf.nn.relu(x @ w)
        h = h - tf.reduce_mean(h, 0)
        return tf.reduce_sum(h * h, 1) + tf.cast(tf.shape(x)[0], tf.float32)

    @compiled
    def part(x, start):
        return tf.reduce_sum(tf.exp(x[start:start + 8]) * 0.5 - 1.0, 1)

    x = tf.constant(np.random.default_rng(19).normal(size=(220, 4)).astype("f4"))
    sums = [f(x[:n]).numpy().sum() for n in range(1, 201)]
    parts = [part(x, tf.constant(k)).numpy() for k in range(200)]
    return {"sums": np.array(sums), "parts": np.array(parts)}
