"""Seeded random ops in a function, stateful and stateless, dropout and a generator: the same numbers in every run."""

import keras
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    keras.utils.set_random_seed(21)
    generator = tf.random.Generator.from_seed(5)
    dropout = keras.layers.Dropout(0.4, seed=3)

    @compiled
    def f(x):
        stateless = tf.random.stateless_uniform((4, 3), (1, 2)) * x + tf.random.stateless_normal((3,), (3, 4))
        return (
            stateless,
            dropout(x * 2.0 + 1.0, training=True),
            generator.normal((2, 3)) * x[:1],
            tf.random.uniform((4, 3), seed=8) * x - 0.5,
        )

    x = tf.ones((4, 3))
    calls = [f(x) for _ in range(2)]
    return {f"{k} {n}": value.numpy() for k, call in enumerate(calls) for n, value in enumerate(call)}
