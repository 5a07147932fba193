"""A transformer encoder over token numbers: attention, layer norm, gelu, a classifier on the mean token."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from ..program import Program, of_model, of_training

VOCABULARY = 1000
CLASSES = 10


class Embedding(keras.layers.Layer):
    """Token and position vectors, added."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.tokens = keras.layers.Embedding(VOCABULARY, width)
        self.positions = keras.layers.Embedding(length, width)
        self.length = length

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.tokens.build(input_shape)
        self.positions.build((self.length,))

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        return self.tokens(tokens) + self.positions(tf.range(self.length))


def build(length: int = 128, width: int = 256, heads: int = 4, blocks: int = 4) -> keras.Model:
    """Shapes: s32[batch, length] -> f32[batch, CLASSES] logits."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((length,), dtype="int32")
    stream = Embedding(length, width)(tokens)
    for _ in range(blocks):
        normal = keras.layers.LayerNormalization()(stream)
        # Softmax cancels what a bias of the keys adds, so its gradient would be rounding noise alone.
        attended = keras.layers.MultiHeadAttention(heads, width // heads, use_bias=False)(normal, normal)
        stream = keras.layers.Add()([stream, attended])
        normal = keras.layers.LayerNormalization()(stream)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(normal)
        stream = keras.layers.Add()([stream, keras.layers.Dense(width)(hidden)])
    stream = keras.layers.LayerNormalization()(stream)
    pooled = keras.layers.GlobalAveragePooling1D()(stream)
    return keras.Model(tokens, keras.layers.Dense(CLASSES)(pooled))


def inference(
    batch: int = 8, length: int = 128, width: int = 256, heads: int = 4, blocks: int = 4
) -> Program:
    """The encoder on random tokens."""
    return of_model(build(length, width, heads, blocks), [_tokens(batch, length)])


def training(batch: int = 8, length: int = 128, width: int = 256, heads: int = 4, blocks: int = 4) -> Program:
    """A step of Adam on random tokens and labels."""
    labels = np.random.default_rng(2).integers(0, CLASSES, batch).astype(np.int32)
    return of_training(build(length, width, heads, blocks), _tokens(batch, length), labels)


def _tokens(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (batch, length)).astype(np.int32)
