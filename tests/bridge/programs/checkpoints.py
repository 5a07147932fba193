"""Training interrupted by a checkpoint, going back to it, and going on with a new model and optimizer."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf


def build():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def run() -> dict:
    keras.utils.set_random_seed(12)
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(16, 4)).astype("f4"), rng.normal(size=(16, 1)).astype("f4")
    fit = {"epochs": 2, "batch_size": 8, "shuffle": False, "verbose": 0}
    with tempfile.TemporaryDirectory() as folder:
        model = build()
        best = os.path.join(folder, "best.weights.h5")
        save = keras.callbacks.ModelCheckpoint(best, save_weights_only=True)
        model.fit(x, y, callbacks=[save], **fit)
        checkpoint = tf.train.Checkpoint(model=model)
        path = checkpoint.save(os.path.join(folder, "ckpt"))
        first = model.fit(x, y, **fit).history["loss"]
        checkpoint.restore(path)
        again = model.predict(x, verbose=0)
        other = build()
        other.load_weights(best)
        second = other.fit(x, y, **fit).history["loss"]
    return {"first": np.array(first), "again": again, "second": np.array(second)}
