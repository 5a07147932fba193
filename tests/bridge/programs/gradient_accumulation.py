"""Gradients summed over three batches in variables, then applied: two functions that share state."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(8)
    weights = [tf.Variable(rng.normal(size=(5, 4)).astype("f4")), tf.Variable(np.zeros(4, "f4"))]
    sums = [tf.Variable(tf.zeros_like(w), trainable=False) for w in weights]

    @compiled
    def accumulate(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.softplus(x @ weights[0] + weights[1]) - y))
        for total, gradient in zip(sums, tape.gradient(loss, weights)):
            total.assign_add(gradient / 3.0)
        return loss

    @compiled
    def apply():
        for w, total in zip(weights, sums):
            w.assign_sub(0.1 * total)
            total.assign(tf.zeros_like(total))

    losses = []
    for step in range(6):
        x = tf.constant(rng.normal(size=(4, 5)).astype("f4"))
        losses.append(accumulate(x, x[:, :4]).numpy())
        if step % 3 == 2:
            apply()
    return {
        "losses": np.array(losses),
        "w": weights[0].numpy(),
        "b": weights[1].numpy(),
        "sum": sums[0].numpy(),
    }
