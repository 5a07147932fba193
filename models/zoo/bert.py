"""BERT's encoder: token, position and segment vectors, blocks that normalise after adding, a pooled first token.

Source: J. Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2018.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from ..program import Program, of_model

EPSILON = 1e-12  # of layer normalisation


class Embedding(keras.layers.Layer):
    """The sum of token, position and (first) segment vectors."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = keras.layers.Embedding(vocabulary, width)
        self.positions = keras.layers.Embedding(length, width)
        self.segments = keras.layers.Embedding(2, width)
        self.length = length

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        for layer in (self.tokens, self.positions, self.segments):
            layer.build(input_shape)

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        return (
            self.tokens(tokens) + self.positions(tf.range(self.length)) + self.segments(tf.zeros_like(tokens))
        )


def build(length: int, width: int, heads: int, blocks: int, vocabulary: int) -> keras.Model:
    """Shapes: s32[batch, length] -> f32[batch, length, width], f32[batch, width]."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((length,), dtype="int32")
    stream = keras.layers.LayerNormalization(epsilon=EPSILON)(Embedding(vocabulary, length, width)(tokens))
    for _ in range(blocks):
        attended = keras.layers.MultiHeadAttention(heads, width // heads)(stream, stream)
        stream = keras.layers.LayerNormalization(epsilon=EPSILON)(keras.layers.Add()([stream, attended]))
        hidden = keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation="gelu")(stream))
        stream = keras.layers.LayerNormalization(epsilon=EPSILON)(keras.layers.Add()([stream, hidden]))
    return keras.Model(tokens, [stream, keras.layers.Dense(width, activation="tanh")(stream[:, 0])])


def inference(
    batch: int = 1,
    length: int = 128,
    width: int = 768,
    heads: int = 12,
    blocks: int = 12,
    vocabulary: int = 30522,
) -> Program:
    """The encoder, by default of the size of BERT base, on random tokens."""
    tokens = np.random.default_rng(1).integers(0, vocabulary, (batch, length)).astype(np.int32)
    return of_model(build(length, width, heads, blocks, vocabulary), [tokens])
