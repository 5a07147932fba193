"""Keras optimizers whose step is a branch without results: gradient accumulation, and loss scaling of float16."""

import numpy as np
import tensorflow as tf

keras = tf.keras


def run() -> dict:
    rng = np.random.default_rng(31)
    x, y = rng.normal(size=(16, 4)).astype("f4"), rng.normal(size=(16, 1)).astype("f4")
    found = {}
    for name in ("Adam", "SGD"):
        keras.utils.set_random_seed(2)
        layers = [
            keras.Input((4,)),
            keras.layers.Dense(5, "selu", kernel_constraint="non_neg"),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential(layers)
        rate = keras.optimizers.schedules.CosineDecay(0.1, 10, warmup_steps=2, warmup_target=0.2)
        model.compile(getattr(keras.optimizers, name)(rate, gradient_accumulation_steps=2), "mse")
        found[f"{name}_loss"] = np.array(model.fit(x, y, 4, 3, shuffle=False, verbose=0).history["loss"])
        found |= {f"{name}_{k}": w for k, w in enumerate(model.get_weights())}
    variable = keras.Variable(np.ones(3, "f4"))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=64.0)
    optimizer.build([variable])

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient * 64.0, variable)])

    for value in (1.0, np.inf, 2.0):
        step(tf.fill([3], np.float32(value)))
    return found | {"scaled": variable.numpy()}
