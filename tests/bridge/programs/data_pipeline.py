"""A tf.data pipeline: numeric maps, filter, py_function, shuffle, windows; and a reduction over it in a function."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    tf.random.set_seed(13)
    rng = np.random.default_rng(13)
    x = rng.normal(size=(40, 6)).astype("f4")

    def prepare(row, index):
        row = (row - tf.reduce_mean(row)) / (tf.math.reduce_std(row) + 1e-3)
        row = tf.reverse(row, [0]) if index % 2 == 0 else tf.exp(row) * 0.1
        return tf.clip_by_value(row, -1.0, 1.0), index

    def double(row, index):
        doubled = tf.py_function(lambda v: v * 2.0, [row], tf.float32)
        return tf.ensure_shape(doubled, (6,)), index

    data = tf.data.Dataset.from_tensor_slices((x, np.arange(40))).map(prepare, tf.data.AUTOTUNE)
    data = data.filter(lambda row, index: tf.reduce_sum(row) > -2.0).map(double)
    data = data.shuffle(16, seed=3).batch(7).prefetch(2)

    @compiled
    def total(data):
        result = tf.zeros(6)
        for rows, index in data:
            result += tf.reduce_sum(tf.tanh(rows) * tf.cast(index, tf.float32)[:, None], 0)
        return result

    return {"rows": np.concatenate([rows.numpy() for rows, _ in data]), "total": total(data).numpy()}
