"""A functional Keras model with two inputs, two outputs and two losses: fit, evaluate, predict."""

import keras
import numpy as np


def run() -> dict:
    keras.utils.set_random_seed(1)
    image, extra = keras.Input((8, 8, 1), name="image"), keras.Input((3,), name="extra")
    h = keras.layers.Conv2D(4, 3, activation="relu")(image)
    h = keras.layers.BatchNormalization()(h)
    h = keras.layers.GlobalAveragePooling2D()(keras.layers.MaxPooling2D()(h))
    h = keras.layers.concatenate([h, extra])
    label = keras.layers.Dense(3, activation="softmax", name="label")(h)
    score = keras.layers.Dense(1, name="score")(h)
    model = keras.Model([image, extra], {"label": label, "score": score})
    model.compile(
        "adam",
        {"label": "sparse_categorical_crossentropy", "score": "mse"},
        metrics={"label": ["accuracy"], "score": ["mae"]},
        loss_weights={"label": 1.0, "score": 0.5},
    )
    rng = np.random.default_rng(1)
    x = {"image": rng.normal(size=(20, 8, 8, 1)).astype("f4"), "extra": rng.normal(size=(20, 3)).astype("f4")}
    y = {"label": rng.integers(0, 3, 20), "score": rng.normal(size=(20, 1)).astype("f4")}
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    found = {f"history {k}": np.array(v) for k, v in history.history.items()}
    found |= {
        f"evaluate {k}": np.array(v) for k, v in model.evaluate(x, y, verbose=0, return_dict=True).items()
    }
    return found | model.predict(x, batch_size=7, verbose=0)
