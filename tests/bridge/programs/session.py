"""TensorFlow 1: placeholders, a graph, an optimizer, summaries, a saver and a session."""

import os
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def run() -> dict:
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(12, 4)).astype("f4"), rng.normal(size=(12, 2)).astype("f4")
    with tf.Graph().as_default() as graph:
        px, py = v1.placeholder(tf.float32, (None, 4)), v1.placeholder(tf.float32, (None, 2))
        keep = v1.placeholder_with_default(1.0, ())
        with v1.variable_scope("layer"):
            w = v1.get_variable("w", initializer=tf.constant(rng.normal(size=(4, 2)).astype("f4")))
            b = v1.get_variable("b", initializer=tf.zeros(2))
        out = tf.tanh(v1.matmul(px, w) + b) * keep
        loss = tf.reduce_mean(tf.square(out - py))
        step = v1.train.get_or_create_global_step()
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step)
        v1.summary.scalar("loss", loss)
        summary, saver = v1.summary.merge_all(), v1.train.Saver()
        losses = []
        with tempfile.TemporaryDirectory() as folder, v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for k in range(4):
                rows = slice(0, 12 - k)
                text, value, _ = session.run([summary, loss, train], {px: x[rows], py: y[rows]})
                losses.append(value)
            assert b"loss" in text
            path = saver.save(session, os.path.join(folder, "model"))
            session.run(train, {px: x, py: y})
            saver.restore(session, path)
            result = session.run({"out": out, "w": w, "step": step}, {px: x, keep: 0.5})
    return result | {"losses": np.array(losses)}
