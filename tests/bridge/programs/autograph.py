"""AutoGraph: while, for, break, continue, early return, an array that grows, nested conditions."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    @compiled
    def collatz(n):
        steps = tf.constant(0)
        while n > 0:
            if n == 1:
                break
            if n % 2 == 0:
                n = n // 2
                steps += 1
                continue
            n = 3 * n + 1
            steps += 1
            if steps > 200:
                break
        return steps

    @compiled
    def newton(x):
        if tf.reduce_any(x < 0.0):
            return tf.zeros_like(x) - 1.0
        guess = x
        for _ in tf.range(50):
            better = 0.5 * (guess + x / guess)
            if tf.reduce_max(tf.abs(better - guess)) < 1e-6 * tf.reduce_max(x):
                break
            guess = better
        return guess

    @compiled
    def rows(x):
        out = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        k = 0
        for row in x:
            if tf.reduce_sum(row) < 0.0:
                continue
            out = out.write(k, tf.sort(row) * 2.0)
            k += 1
        return out.stack()

    x = np.random.default_rng(14).normal(size=(9, 4)).astype("f4")
    return {
        "collatz": np.array([collatz(tf.constant(n)).numpy() for n in (1, 6, 27)]),
        "newton": newton(tf.constant([2.0, 9.0, 100.0])).numpy(),
        "negative": newton(tf.constant([2.0, -9.0, 100.0])).numpy(),
        "rows": rows(tf.constant(x)).numpy(),
    }
