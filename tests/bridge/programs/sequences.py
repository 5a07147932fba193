"""Sequences of any length: a masked LSTM and training of a recurrent cell, with signatures that leave sizes open."""

import numpy as np
import tensorflow as tf

ANY = tf.TensorSpec([None, None, 3])


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(33)
    cell = tf.keras.layers.LSTMCell(4)
    cell.build((None, 3))
    for weight in cell.weights:
        weight.assign(rng.normal(size=weight.shape).astype("f4") * 0.3)
    w, u = (tf.Variable(rng.normal(size=(3, 3)).astype("f4") * 0.3) for _ in range(2))

    @tf.function(input_signature=[ANY, tf.TensorSpec([None], tf.int32)])
    def masked(x, lengths):
        batch, time = tf.shape(x)[0], tf.shape(x)[1]
        rows = tf.TensorArray(tf.float32, time)
        h = c = tf.zeros([batch, 4])
        for i in tf.range(time):
            _, (new_h, new_c) = cell(x[:, i], [h, c])
            mask = tf.cast(i < lengths, tf.float32)[:, None]
            h, c = mask * new_h + (1 - mask) * h, mask * new_c + (1 - mask) * c
            rows = rows.write(i, h)
        return tf.transpose(rows.stack(), [1, 0, 2]), h

    @tf.function(input_signature=[ANY])
    def train(x):
        with tf.GradientTape() as tape:
            h = tf.zeros([tf.shape(x)[0], 3])
            for i in tf.range(tf.shape(x)[1]):
                h = tf.tanh(x[:, i] @ w + h @ u)
            loss = tf.reduce_mean(h**2)
        for variable, gradient in zip((w, u), tape.gradient(loss, (w, u))):
            variable.assign_sub(0.1 * gradient)
        return loss

    if compiled is not tf.function:
        masked, train = compiled(masked), compiled(train)
    found = {}
    for k, (batch, time) in enumerate(((2, 3), (1, 5), (3, 2))):
        x = tf.constant(rng.normal(size=(batch, time, 3)).astype("f4"))
        rows, last = masked(x, tf.range(1, batch + 1))
        found |= {f"rows{k}": rows.numpy(), f"last{k}": last.numpy(), f"loss{k}": train(x).numpy()}
    return found | {"w": w.numpy(), "u": u.numpy()}
