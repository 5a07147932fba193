"""tf.custom_gradient, recompute_grad, stop_gradient, second derivatives, jacobian and forward mode in functions."""

import numpy as np
import tensorflow as tf


@tf.custom_gradient
def clipped(x):
    def gradient(up):
        return tf.clip_by_value(up, -0.1, 0.1) * tf.sign(x)

    return tf.nn.relu(x), gradient


def run(compiled=tf.function) -> dict:
    w = tf.Variable(np.linspace(-1, 1, 9).reshape(3, 3).astype("f4"))

    def energy(x):
        return tf.reduce_sum(tf.square(clipped(x @ w)) + tf.stop_gradient(tf.exp(x)) * x)

    @compiled
    def first(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = energy(x)
        return value, *tape.gradient(value, [x, w])

    @compiled
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = tf.reduce_sum(tf.sin(x) * tf.exp(x @ w))
            gradient = inner.gradient(value, x)
        return outer.jacobian(gradient, x)

    x = tf.constant(np.random.default_rng(17).normal(size=(2, 3)).astype("f4"))
    wave = compiled(lambda x: tf.sin(x) * tf.sqrt(x * x + 1.0))
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
        y = wave(x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        z = wave(x)
        u = tf.reduce_sum(z * z)
    value, dx, dw = first(x)
    found = {
        "value": value,
        "dx": dx,
        "dw": dw,
        "second": second(x),
        "forward": forward.jvp(y),
        "dz": tape.gradient(z, x),
        "du": tape.gradient(u, x),
    }
    return {name: v.numpy() for name, v in found.items()}
