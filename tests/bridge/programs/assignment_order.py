"""Variables read and assigned several times in a step: in branches without results, in loops, around ops of Python."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(32)
    u, v = (tf.Variable(rng.normal(size=3).astype("f4")) for _ in range(2))
    count = tf.Variable(0)

    @compiled
    def chain(x):
        before = v.read_value()
        v.assign_add(x)
        u.assign(v * 2.0 - before)
        if tf.reduce_sum(u) > 0.0:
            v.assign(u * tf.sin(x))
            count.assign_add(1)
        else:
            u.assign_sub(v)
        after = tf.identity(v)
        v.assign(after * 0.5 + tf.cast(count, tf.float32) * 0.1)
        return before, after, u * 1.0

    @compiled
    def branches(x):
        def both():
            v.assign_add(x)
            u.assign(v * 2.0)

        def one():
            u.assign_sub(x)

        big = tf.reduce_sum(x) > 0.0
        tf.cond(big, both, one)
        tf.cond(big, lambda: [u.assign(u + v), None][1], lambda: None)
        for k in tf.range(3):
            if u[0] > 0.5:
                u.assign(u * 0.7 + tf.cast(k, tf.float32) * 0.1)
        return u + v

    @compiled
    def around_python(x):
        y = tf.numpy_function(
            lambda a: a + np.float32(v.assign_add(tf.ones(3)).numpy()[0] * 0), [x], tf.float32
        )
        y = tf.ensure_shape(y, [3]) * 2.0 + 1.0
        with tf.control_dependencies([y]):
            read = v * 3.0
        with tf.control_dependencies([read]):
            u.assign(y)
        return y + read

    found = {}
    for k in range(4):
        x = tf.constant(rng.normal(size=3).astype("f4"))
        for name, function in (("chain", chain), ("branches", branches), ("python", around_python)):
            for n, value in enumerate(tf.nest.flatten(function(x))):
                found[f"{name}{k}_{n}"] = value.numpy()
    return found | {"u": u.numpy(), "v": v.numpy(), "count": count.numpy()}
