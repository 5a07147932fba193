"""A small network under the mixed float16 policy: the loss scale is halved where gradients overflow."""

import keras
import numpy as np

TOLERANCE = 1e-2  # float16 has eleven bits


def run() -> dict:
    keras.utils.set_random_seed(7)
    policy = keras.DTypePolicy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh", dtype=policy),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=2.0**20)
    model.compile(optimizer, "mse")
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(16, 6)).astype("f4"), rng.normal(size=(16, 1)).astype("f4")
    history = model.fit(x, y, batch_size=4, epochs=3, verbose=0, shuffle=False)
    return {
        "loss": np.array(history.history["loss"]),
        "predicted": model.predict(x, verbose=0),
        "scale": np.array(optimizer.dynamic_scale),
        "steps": np.array(optimizer.iterations),
    }
