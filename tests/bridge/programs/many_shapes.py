"""Many batch sizes through one function with an unknown batch, many places of a slice, and more sizes of one than are
compiled for."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    w = tf.Variable(np.linspace(-1, 1, 12).reshape(4, 3).astype("f4"))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)])
    def f(x):
        h = tf.nn.relu(x @ w)
        h = h - tf.reduce_mean(h, 0)
        return tf.reduce_sum(h * h, 1) + tf.cast(tf.shape(x)[0], tf.float32)

    f = f if compiled is tf.function else compiled(f)

    @compiled
    def part(x, start):
        return tf.reduce_sum(tf.exp(x[start : start + 8]) * 0.5 - 1.0, 1)

    @compiled
    def rest(x, start):
        return tf.reduce_sum(tf.exp(x[start:]) * 0.5 - 1.0)

    x = tf.constant(np.random.default_rng(19).normal(size=(60, 4)).astype("f4"))
    sums = [f(x[:n]).numpy().sum() for n in range(1, 41)]
    parts = [part(x, tf.constant(k)).numpy() for k in range(40)]
    rests = [rest(x, tf.constant(k)).numpy() for k in range(40)]
    return {"sums": np.array(sums), "parts": np.array(parts), "rests": np.array(rests)}
