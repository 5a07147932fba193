"""map_fn, scan, foldl, vectorized_map, and while_loop with shape invariants, with gradients through some."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    x = tf.constant(np.random.default_rng(18).normal(size=(5, 3)).astype("f4"))

    @compiled
    def maps(x):
        a = tf.map_fn(lambda r: tf.reduce_logsumexp(r) * r, x)
        b = tf.scan(lambda c, r: tf.tanh(c + r), x, tf.zeros(3))
        c = tf.foldl(lambda c, r: c * 0.5 + tf.reduce_max(r), x, tf.constant(0.0))
        d = tf.vectorized_map(lambda r: tf.linalg.matvec(tf.linalg.diag(r) + 1.0, r), x)
        return a, b, c, d

    @compiled
    def grow(x):
        def body(i, rows):
            return i + 1, tf.concat([rows, tf.sin(rows[-1:]) * 2.0], 0)

        return tf.while_loop(
            lambda i, _: i < 6, body, (0, x), (tf.TensorShape(()), tf.TensorShape((None, 3)))
        )[1]

    @compiled
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.scan(lambda c, r: tf.tanh(c * r) + r, x, tf.ones(3)))
        return tape.gradient(y, x)

    found = {str(k): v for k, v in enumerate(maps(x))} | {"grow": grow(x), "gradient": gradient(x)}
    return {name: v.numpy() for name, v in found.items()}
