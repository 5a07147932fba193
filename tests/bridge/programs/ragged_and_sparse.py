"""Ragged and sparse tensors through functions, with dense arithmetic between."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0, 4.0, 5.0], [6.0]])
    sparse = tf.sparse.from_dense(np.array([[0, 1, 0], [2, 0, 3], [0, 0, 0]], "f4"))
    w = tf.Variable(np.linspace(-1, 1, 6).reshape(3, 2).astype("f4"))

    @compiled
    def pool(r):
        scaled = tf.ragged.map_flat_values(lambda v: tf.tanh(v) * 2.0 + 1.0, r)
        return tf.reduce_sum(scaled, 1), tf.reduce_mean(scaled, 0), scaled.to_tensor(-1.0), scaled * 2.0

    @compiled
    def product(s):
        with tf.GradientTape() as tape:
            dense = tf.nn.softplus(tf.sparse.sparse_dense_matmul(s, w))
            loss = tf.reduce_sum(dense * dense)
        return dense, tape.gradient(loss, w), tf.sparse.to_dense(s * 2.0), tf.sparse.reduce_sum(s, 1)

    @compiled
    def select(x):
        kept = tf.boolean_mask(x, x > 0.0)
        values, index, count = tf.unique_with_counts(tf.cast(tf.round(kept), tf.int32))
        return tf.exp(kept) - 1.0, tf.where(x > 1.0), values * 2, index, count

    sums, means, padded, scaled = pool(ragged)
    x = tf.constant(np.random.default_rng(15).normal(size=(30,)).astype("f4")) * 2.0
    found = {"sums": sums, "means": means, "padded": padded, "flat": scaled.flat_values}
    found |= {f"product {k}": v for k, v in enumerate(product(sparse))}
    found |= {f"select {k}": v for k, v in enumerate(select(x))}
    return {name: value.numpy() for name, value in found.items()}
