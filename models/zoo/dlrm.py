"""A recommendation model: embedding tables for categories, products of every pair of vectors, two perceptrons.

Source: M. Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems, 2019.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..program import Program


def inference(
    batch: int = 128,
    tables: int = 26,
    entries: int = 10000,
    width: int = 32,
    dense: int = 13,
    bottom: tuple[int, ...] = (512, 256),
    top: tuple[int, ...] = (512, 256),
) -> Program:
    """Probabilities of a click.

    Shapes: features: f32[batch, dense], categories: s32[batch, tables] -> f32[batch, 1].
    """
    random = np.random.default_rng(1)

    def layers(*widths: int) -> list[tuple[tf.Variable, tf.Variable]]:
        return [
            (
                tf.Variable(random.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)),
                tf.Variable(random.normal(0, 0.1, columns).astype(np.float32)),
            )
            for rows, columns in zip(widths, widths[1:])
        ]

    vectors = tables + 1
    pairs = np.flatnonzero(np.tril(np.ones((vectors, vectors)), -1)).astype(np.int32)
    embeddings = [
        tf.Variable(random.normal(0, 0.3, (entries, width)).astype(np.float32)) for _ in range(tables)
    ]
    below = layers(dense, *bottom, width)
    above = layers(len(pairs) + width, *top, 1)

    def perceptron(x: tf.Tensor, weights: list[tuple[tf.Variable, tf.Variable]]) -> tf.Tensor:
        for matrix, bias in weights[:-1]:
            x = tf.nn.relu(tf.matmul(x, matrix) + bias)
        return tf.matmul(x, weights[-1][0]) + weights[-1][1]

    def click(features: tf.Tensor, categories: tf.Tensor) -> tf.Tensor:
        x = perceptron(features, below)
        rows = [tf.gather(table, categories[:, k]) for k, table in enumerate(embeddings)]
        stacked = tf.stack([x, *rows], axis=1)
        products = tf.matmul(stacked, stacked, transpose_b=True)
        chosen = tf.gather(tf.reshape(products, [-1, vectors * vectors]), pairs, axis=1)
        return tf.sigmoid(perceptron(tf.concat([x, chosen], axis=1), above))

    inputs = [
        random.standard_normal((batch, dense), dtype=np.float32),
        random.integers(0, entries, (batch, tables)).astype(np.int32),
    ]
    return Program(click, inputs, [*embeddings, *(w for layer in (*below, *above) for w in layer)])
