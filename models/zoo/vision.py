"""Image classifiers of keras.applications with seeded random weights.

Shapes: f32[batch, side, side, 3] -> f32[batch, 1000] probabilities.
"""

from __future__ import annotations

import keras
import numpy as np

from ..program import Program, of_model


def program(application: str, batch: int = 1, side: int = 224) -> Program:
    """The inference of `keras.applications.<application>` on random images."""
    keras.utils.set_random_seed(1)
    model = getattr(keras.applications, application)(weights=None, input_shape=(side, side, 3))
    random = np.random.default_rng(1)
    _set_statistics(model, random.standard_normal((8, side, side, 3), dtype=np.float32))
    return of_model(model, [random.standard_normal((batch, side, side, 3), dtype=np.float32)])


def _set_statistics(model: keras.Model, images: np.ndarray) -> None:
    """Gives each batch norm the mean and variance of these images, as training would.

    With the initial ones (0 and 1) activations of random weights grow from layer to layer without end.
    """
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(images, training=True)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
