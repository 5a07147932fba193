"""Keras's recurrent layers over a sequence, followed by a dense layer."""

from __future__ import annotations

import keras
import numpy as np

from ..program import Program, of_model


def lstm(batch: int = 16, steps: int = 50, features: int = 64, width: int = 128) -> Program:
    """Two layers of LSTM.

    Shapes: f32[batch, steps, features] -> f32[batch, 10].
    """
    keras.utils.set_random_seed(1)
    layers = [keras.layers.LSTM(width, return_sequences=True), keras.layers.LSTM(width)]
    return _program(layers, batch, steps, features)


def bidirectional_gru(batch: int = 16, steps: int = 50, features: int = 64, width: int = 128) -> Program:
    """A GRU forward and one backward over the sequence, their last states joined.

    Shapes: f32[batch, steps, features] -> f32[batch, 10].
    """
    keras.utils.set_random_seed(1)
    return _program([keras.layers.Bidirectional(keras.layers.GRU(width))], batch, steps, features)


def _program(layers: list[keras.Layer], batch: int, steps: int, features: int) -> Program:
    model = keras.Sequential([keras.Input((steps, features)), *layers, keras.layers.Dense(10)])
    sequence = np.random.default_rng(1).standard_normal((batch, steps, features), dtype=np.float32)
    return of_model(model, [sequence])
