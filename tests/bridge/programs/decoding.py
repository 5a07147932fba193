"""Loops that decode: attention with a cache, rejection sampling until all are done, slices at moving places."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(34)
    query, key, value = (tf.constant(rng.normal(size=(4, 4)).astype("f4")) for _ in range(3))

    @compiled
    def attend(x):
        keys, values, outputs, h = tf.zeros([6, 2, 4]), tf.zeros([2, 6, 4]), tf.TensorArray(tf.float32, 6), x
        for t in tf.range(6):
            keys = tf.tensor_scatter_nd_update(keys, [[t]], (h @ key)[None])
            values = tf.where((tf.range(6) == t)[None, :, None], (h @ value)[:, None], values)
            scores = tf.einsum("bd,tbd->bt", h @ query, keys)
            scores = tf.where(tf.range(6)[None] <= t, scores, -1e9)
            h = tf.einsum("bt,btd->bd", tf.nn.softmax(scores), values)
            outputs = outputs.write(t, h)
        return outputs.stack(), keys

    @compiled
    def sample(x):
        def body(i, x, done):
            proposal = x + tf.random.stateless_normal([4], [i, 7]) * 0.5
            accepted = tf.random.stateless_uniform([4], [i, 3]) < tf.exp((x**2 - proposal**2) / 2)
            x = tf.where(accepted & ~done, proposal, x)
            return i + 1, x, done | (tf.abs(x) < 0.05)

        return tf.while_loop(
            lambda i, _, done: (i < 30) & ~tf.reduce_all(done), body, (0, x, tf.zeros([4], tf.bool))
        )

    @compiled
    def window(x, i):
        return tf.slice(x, [i, 0], [3, 2]) * 2.0, x[i] - 1.0, x[:, i % 3], tf.gather(x, i) + tf.sin(x[0])

    found = {}
    results = [
        attend(tf.constant(rng.normal(size=(2, 4)).astype("f4"))),
        sample(tf.constant(rng.normal(size=4).astype("f4"))),
    ]
    x = tf.constant(rng.normal(size=(40, 3)).astype("f4"))
    results += [window(x, tf.constant(i)) for i in (0, 5, 11, 37)]
    for n, result in enumerate(tf.nest.flatten(results)):
        found[str(n)] = result.numpy()
    return found
