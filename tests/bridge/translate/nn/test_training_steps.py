"""Steps of Keras' optimizers, also on the sparse gradients of an embedding, compiled whole."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

# With sparse gradients the others use ops of data-dependent shape.
SPARSE = frozenset({"SGD", "Adam", "Adamax", "Nadam", "Ftrl", "AdamW"})
OPTIMIZERS = ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl", "AdamW")


def losses(name: str, compiled: bool) -> np.ndarray:
    """Losses of some steps, then the table."""
    random = np.random.default_rng(0)
    table = tf.Variable(random.normal(size=(7, 3)).astype(np.float32))
    weights = tf.Variable(random.normal(size=(3, 2)).astype(np.float32))
    optimizer = getattr(tf.keras.optimizers, name)(0.1)
    optimizer.build([table, weights])

    def step(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(table, ids) if name in SPARSE else tf.one_hot(ids, 7) @ table
            logits = tf.reduce_mean(rows, 1) @ weights
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, [table, weights]), [table, weights]))
        return loss

    run = tfbridge.jit(step, strict=True) if compiled else tf.function(step)
    ids, labels = tf.constant(random.integers(0, 7, (5, 4))), tf.constant(random.integers(0, 2, (5,)))
    return np.concatenate([[float(run(ids, labels)) for _ in range(4)], table.numpy().ravel()])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    expected = losses(name, False)
    tfbridge.reset_stats()
    np.testing.assert_allclose(losses(name, True), expected, 1e-4, 1e-5)
    assert tfbridge.stats()["fallbacks"] == 0
