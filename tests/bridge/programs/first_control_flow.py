"""TensorFlow 1's own control flow: cond and while_loop made of Switch and Merge, their gradients, in a session."""

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_ops import merge, switch

v1 = tf.compat.v1


def run() -> dict:
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        found = {}
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, (None, 3))
            branch = v1.cond(tf.reduce_sum(x) > 0.0, lambda: x * x, lambda: tf.exp(x) - 1.0)
            _, looped = v1.while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, tf.sin(y) + branch), (0, x))
            nested = v1.cond(
                x[0, 0] > 0.0,
                lambda: v1.cond(x[0, 1] > 0.0, lambda: looped, lambda: -looped),
                lambda: looped * 0.5,
            )
            off, on = switch(x, tf.reduce_sum(x) > 0.0)
            merged, number = merge([on * 3.0, off - 2.0])
            read = merge([tf.tanh(off), tf.sinh(on)])
            numbered = tf.cast(read.value_index, tf.float32) + read.output
            outputs = [nested, *tf.gradients(branch, x), *tf.gradients(nested, x), merged, number, numbered]
            with v1.Session() as session:
                for k, rows in enumerate((1, 2, 2, 5)):
                    values = np.random.default_rng(k).normal(size=(rows, 3)).astype("f4")
                    found |= {f"{k}_{n}": value for n, value in enumerate(session.run(outputs, {x: values}))}
        return found
    finally:
        if was_v2:
            v1.enable_control_flow_v2()
