"""A multi-layer perceptron: three dense layers."""

from __future__ import annotations

import keras
import numpy as np

from ..program import Program, of_model, of_training


def build(features: int = 784, width: int = 512, classes: int = 10) -> keras.Model:
    """Shapes: f32[batch, features] -> f32[batch, classes] logits."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(classes),
        ]
    )


def inference(batch: int = 32, width: int = 512) -> Program:
    """The perceptron on random features."""
    return of_model(build(width=width), [_features(batch)])


def training(batch: int = 128, width: int = 512) -> Program:
    """A step of Adam on random features and labels."""
    labels = np.random.default_rng(2).integers(0, 10, batch).astype(np.int32)
    return of_training(build(width=width), _features(batch), labels)


def _features(batch: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((batch, 784), dtype=np.float32)
