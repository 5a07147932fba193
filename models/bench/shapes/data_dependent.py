"""Programs whose shapes depend on the data, in every call or within it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ...program import Array, Program
from .case import Outcome, Scale, sequence
from .layers import MASKED, Weights

WIDTH, CLASSES = 64, 10
WINDOW = 16
MAX_BOXES = 50


def graph_attention(engine: str, scale: Scale) -> Outcome:
    """A graph attention network on graphs of about 300 nodes and 1,500 edges, another graph in each call.

    Source: P. Veličković et al., Graph Attention Networks, 2018.
    """
    weights = Weights()
    layers = [(weights(WIDTH, WIDTH), weights(WIDTH, 1), weights(WIDTH, 1)) for _ in range(2)]

    def network(nodes: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
        count, source, target = tf.shape(nodes)[0], edges[:, 0], edges[:, 1]
        for layer, of_source, of_target in layers:
            nodes = tf.matmul(nodes, layer)
            scores = tf.gather(tf.matmul(nodes, of_source), source)
            scores = tf.nn.leaky_relu(scores + tf.gather(tf.matmul(nodes, of_target), target))
            largest = tf.math.unsorted_segment_max(scores, target, count)
            shares = tf.exp(scores - tf.gather(largest, target))
            sums = tf.math.unsorted_segment_sum(shares, target, count)
            mixed = tf.gather(nodes, source) * shares / tf.gather(sums, target)
            nodes = tf.nn.elu(tf.math.unsorted_segment_sum(mixed, target, count))
        return nodes

    def calls() -> Iterator[tuple[Array, Array]]:
        random = np.random.default_rng(1)
        for _ in range(scale.count(60, 8)):
            nodes, edges = random.integers(250, 350), random.integers(1250, 1750)
            yield (
                random.standard_normal((nodes, WIDTH), dtype=np.float32),
                random.integers(0, nodes, (edges, 2)).astype(np.int32),
            )

    signature = [tf.TensorSpec([None, WIDTH], tf.float32), tf.TensorSpec([None, 2], tf.int32)]
    return sequence(engine, Program(network, (), weights.variables, signature=signature), calls(), scale)


def sliding_attention(engine: str, scale: Scale) -> Outcome:
    """Attention to a window, its predecessor and its successor; the length is padded to whole windows.

    Source: I. Beltagy et al., Longformer: The Long-Document Transformer, 2020.
    """
    weights = Weights()
    layers = [weights(WIDTH, 3 * WIDTH) for _ in range(2)]

    def neighbours(x: tf.Tensor) -> tf.Tensor:
        """Shapes: f32[batch, windows, WINDOW, width] -> f32[batch, windows, 3 * WINDOW, width]."""
        padded = tf.pad(x, [[0, 0], [1, 1], [0, 0], [0, 0]])
        return tf.concat([padded[:, :-2], x, padded[:, 2:]], 2)

    def encode(x: tf.Tensor) -> tf.Tensor:
        batch, length = tf.shape(x)[0], tf.shape(x)[1]
        windows = (length + WINDOW - 1) // WINDOW
        padded = windows * WINDOW
        is_padding = tf.cast(tf.range(padded) >= length, tf.float32)
        bias = neighbours(tf.reshape(is_padding, [1, windows, WINDOW, 1])) * MASKED
        x = tf.pad(x, [[0, 0], [0, padded - length], [0, 0]])
        for layer in layers:
            parts = tf.reshape(tf.matmul(x, layer), [batch, windows, WINDOW, 3 * WIDTH])
            queries, keys, values = tf.split(parts, 3, axis=-1)
            scores = tf.matmul(queries, neighbours(keys), transpose_b=True) * WIDTH**-0.5
            shares = tf.nn.softmax(scores + tf.linalg.matrix_transpose(bias))
            x += tf.reshape(tf.matmul(shares, neighbours(values)), [batch, padded, WIDTH])
        return x[:, :length]

    def calls() -> Iterator[tuple[Array]]:
        random = np.random.default_rng(1)
        for _ in range(scale.count(60, 8)):
            dims = (random.integers(1, 9), random.integers(32, 513), WIDTH)
            yield (random.standard_normal(dims, dtype=np.float32),)

    signature = [tf.TensorSpec([None, None, WIDTH], tf.float32)]
    return sequence(engine, Program(encode, (), weights.variables, signature=signature), calls(), scale)


def boolean_mask(engine: str, scale: Scale) -> Outcome:
    """Steps of gradient descent on a loss over the tokens that a mask selects; shapes are the same in every call."""
    weights = Weights()
    hidden, outputs = weights(WIDTH, WIDTH), weights(WIDTH, CLASSES)

    def step(tokens: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.matmul(tf.nn.relu(tf.matmul(tf.boolean_mask(tokens, mask), hidden)), outputs)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.boolean_mask(labels, mask), logits)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(weights.variables, tape.gradient(loss, weights.variables)):
            variable.assign_sub(0.01 * gradient)
        return loss

    def calls() -> Iterator[tuple[Array, Array, Array]]:
        random = np.random.default_rng(1)
        for _ in range(scale.count(120, 10)):
            yield (
                random.standard_normal((32, 64, WIDTH), dtype=np.float32),
                random.integers(0, CLASSES, (32, 64)).astype(np.int32),
                random.random((32, 64)) < random.uniform(0.2, 0.8),
            )

    signature = [
        tf.TensorSpec([32, 64, WIDTH], tf.float32),
        tf.TensorSpec([32, 64], tf.int32),
        tf.TensorSpec([32, 64], tf.bool),
    ]
    program = Program(step, (), weights.variables, weights.variables, signature)
    return sequence(engine, program, calls(), scale)


def non_max_suppression(engine: str, scale: Scale) -> Outcome:
    """The boxes with a high score, without those that overlap a better one."""
    weights = Weights()
    scorer = weights(WIDTH, 1)

    def detect(features: tf.Tensor, corners: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.sigmoid(tf.matmul(features, scorer))[:, 0]
        boxes = tf.concat([corners, corners + sizes], 1)
        likely = tf.where(scores > 0.5)[:, 0]
        boxes, scores = tf.gather(boxes, likely), tf.gather(scores, likely)
        chosen_boxes = tf.image.non_max_suppression(boxes, scores, MAX_BOXES, 0.5)
        return tf.gather(boxes, chosen_boxes), tf.gather(scores, chosen_boxes)

    def calls() -> Iterator[tuple[Array, Array, Array]]:
        random = np.random.default_rng(1)
        for _ in range(scale.count(60, 8)):
            count = random.integers(300, 600)
            yield (
                random.standard_normal((count, WIDTH), dtype=np.float32),
                random.random((count, 2), dtype=np.float32),
                0.05 + 0.2 * random.random((count, 2), dtype=np.float32),
            )

    signature = [tf.TensorSpec([None, n], tf.float32) for n in (WIDTH, 2, 2)]
    return sequence(engine, Program(detect, (), weights.variables, signature=signature), calls(), scale)
