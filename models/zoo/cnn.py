"""A classifier of small grey images: two blocks of convolution, batch norm, relu and max pooling."""

from __future__ import annotations

import keras
import numpy as np

from ..program import Program, of_model, of_training


def build(side: int = 28, filters: int = 32, classes: int = 10) -> keras.Model:
    """Shapes: f32[batch, side, side, 1] -> f32[batch, classes] logits."""
    keras.utils.set_random_seed(1)
    layers: list[keras.Layer] = [keras.Input((side, side, 1))]
    for block_filters in (filters, 2 * filters):
        layers += [
            # Batch norm subtracts the mean, so a bias before it would do nothing.
            keras.layers.Conv2D(block_filters, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(2),
        ]
    layers += [
        keras.layers.Flatten(),
        keras.layers.Dense(4 * filters, activation="relu"),
        keras.layers.Dense(classes),
    ]
    return keras.Sequential(layers)


def inference(batch: int = 32, side: int = 28, filters: int = 32) -> Program:
    """The classifier on random images."""
    return of_model(build(side, filters), [_images(batch, side)])


def training(batch: int = 64, side: int = 28, filters: int = 32) -> Program:
    """A step of Adam on random images and labels."""
    labels = np.random.default_rng(2).integers(0, 10, batch).astype(np.int32)
    return of_training(build(side, filters), _images(batch, side), labels)


def _images(batch: int, side: int) -> np.ndarray:
    return np.random.default_rng(1).random((batch, side, side, 1), dtype=np.float32)
