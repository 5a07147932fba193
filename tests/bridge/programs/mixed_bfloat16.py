"""A small network under the mixed bfloat16 policy: bfloat16 layers, float32 variables."""

import keras
import numpy as np

TOLERANCE = 2e-2  # bfloat16 has eight bits; sums are rounded in another order


def run() -> dict:
    keras.utils.set_random_seed(6)
    policy = keras.DTypePolicy("mixed_bfloat16")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            keras.layers.Conv2D(4, 3, activation="relu", dtype=policy),
            keras.layers.Flatten(dtype=policy),
            keras.layers.Dense(8, activation="tanh", dtype=policy),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse")
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(16, 6, 6, 2)).astype("f4"), rng.normal(size=(16, 1)).astype("f4")
    history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, shuffle=False)
    return {"loss": np.array(history.history["loss"]), "predicted": model.predict(x, verbose=0)}
