"""Preprocessing layers in and around a model: normalization, rescaling, categories, buckets, words, images."""

import keras
import numpy as np
import tensorflow as tf


def run() -> dict:
    keras.utils.set_random_seed(5)
    rng = np.random.default_rng(5)
    numbers = rng.normal(3.0, 2.0, (16, 3)).astype("f4")
    words = np.array(["red", "green", "blue", "pink"])[rng.integers(0, 4, (16, 1))]
    kinds = rng.integers(0, 5, (16, 1))
    images = rng.integers(0, 255, (16, 6, 6, 3)).astype("f4")
    normalize = keras.layers.Normalization()
    normalize.adapt(numbers)
    lookup = keras.layers.StringLookup(vocabulary=["red", "green", "blue"], output_mode="one_hot")

    a, b = keras.Input((3,)), keras.Input((1,), dtype="string")
    c, d = keras.Input((1,), dtype="int32"), keras.Input((6, 6, 3))
    pixels = keras.layers.Flatten()(keras.layers.CenterCrop(4, 4)(keras.layers.Rescaling(1 / 127.5, -1.0)(d)))
    features = keras.layers.concatenate(
        [
            normalize(a),
            lookup(b),
            keras.layers.CategoryEncoding(5, "one_hot")(c),
            pixels,
            keras.layers.Discretization([0.0, 2.0, 4.0], output_mode="multi_hot")(a),
        ]
    )
    model = keras.Model([a, b, c, d], keras.layers.Dense(2)(features))
    model.compile("sgd", "mse")
    inputs = [tf.constant(numbers), tf.constant(words), tf.constant(kinds, tf.int32), tf.constant(images)]
    data = tf.data.Dataset.from_tensor_slices((tuple(inputs), numbers[:, :2])).batch(5)
    history = model.fit(data, epochs=2, verbose=0)
    return {"loss": np.array(history.history["loss"]), "predicted": model.predict(data, verbose=0)}
