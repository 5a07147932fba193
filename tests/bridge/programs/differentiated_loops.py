"""Gradients of loops: until converged, a solver with a length known at run time, branches inside, loops inside."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(35)
    w = tf.Variable(rng.normal(size=(3, 3)).astype("f4") * 0.4)

    @compiled
    def root(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            x = a
            while tf.reduce_max(tf.abs(x * x - a)) > 1e-4:
                x = 0.5 * (x + a / x)
            total = tf.reduce_sum(x)
        return x, tape.gradient(total, a)

    @compiled
    def solve(y, steps):
        with tf.GradientTape() as tape:
            rows = tf.TensorArray(tf.float32, steps)
            for i in tf.range(steps):
                half = y + 0.05 * tf.tanh(y @ w)
                y = y + 0.1 * tf.tanh(half @ w)
                rows = rows.write(i, y)
            loss = tf.reduce_sum(rows.stack() ** 2)
        return loss, tape.gradient(loss, w)

    @compiled
    def branching(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows, h = tf.TensorArray(tf.float32, 5), x[0]
            for i in tf.range(5):
                if tf.reduce_sum(h) > 0.0:
                    h = h * 0.5 + x[i]
                else:
                    h = tf.tanh(h) + x[i]
                rows = rows.write(i, h)
            total = tf.reduce_sum(rows.stack() ** 2)
        return total, tape.gradient(total, x)

    @compiled
    def nested(x, k):
        with tf.GradientTape() as tape:
            for i in tf.range(k):
                for _ in tf.range(i + 1):
                    x = tf.tanh(x @ w)
            total = tf.reduce_sum(x)
        return total, tape.gradient(total, w)

    @compiled
    def under_a_tape(x):
        for _ in tf.range(4):
            x = tf.tanh(x @ w)
        return x

    x = tf.constant(rng.normal(size=(5, 3)).astype("f4"))
    results = [
        root(tf.constant([2.0, 3.0, 50.0])),
        solve(x, tf.constant(3)),
        solve(x, tf.constant(6)),
        branching(x),
        nested(x, tf.constant(0)),
        nested(x, tf.constant(3)),
    ]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(under_a_tape(x) ** 2)
    results.append(tape.gradient(loss, w))
    return {str(k): value.numpy() for k, value in enumerate(tf.nest.flatten(results)) if value is not None}
