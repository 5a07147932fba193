"""A module with a table of words, a signature and a variable: exported, loaded, called and trained on."""

import tempfile

import numpy as np
import tensorflow as tf


class Scorer(tf.Module):
    def __init__(self) -> None:
        self.w = tf.Variable(np.linspace(-1, 1, 12).reshape(3, 4).astype("f4"), name="w")
        self.calls = tf.Variable(0, name="calls")

    @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32)])
    def score(self, x):
        self.calls.assign_add(1)
        logits = tf.nn.relu(x) @ self.w
        values, indices = tf.math.top_k(tf.nn.softmax(logits), 2)
        return {"values": values, "indices": indices}


def run() -> dict:
    x = tf.constant(np.random.default_rng(10).normal(size=(5, 3)).astype("f4"))
    with tempfile.TemporaryDirectory() as folder:
        module = Scorer()
        module.score(x)
        tf.saved_model.save(module, folder, signatures=module.score)
        loaded = tf.saved_model.load(folder)
        served = loaded.signatures["serving_default"](x)
        again = loaded.score(x[:2])
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(loaded.score(x)["values"])
        gradient = tape.gradient(total, loaded.w)
    return {
        "values": served["values"].numpy(),
        "indices": served["indices"].numpy(),
        "again": again["values"].numpy(),
        "gradient": gradient.numpy(),
        "calls": loaded.calls.numpy(),
    }
