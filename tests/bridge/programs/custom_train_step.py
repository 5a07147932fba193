"""A subclassed model with its own train_step, metric, clipped gradients, callbacks and a learning-rate schedule."""

import keras
import numpy as np
import tensorflow as tf


class Autoencoder(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encode = keras.layers.Dense(4, activation="tanh")
        self.decode = keras.layers.Dense(10)
        self.norm = keras.layers.LayerNormalization()
        self.error = keras.metrics.Mean(name="error")

    def call(self, x, training=False):
        code = self.norm(self.encode(x))
        return self.decode(code), code

    @property
    def metrics(self) -> list:
        return [self.error]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            restored, code = self(data, training=True)
            loss = tf.reduce_mean(tf.square(restored - data)) + 0.01 * tf.reduce_mean(tf.abs(code))
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.5)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.error.update_state(loss)
        return {"error": self.error.result(), "norm": norm}


def run() -> dict:
    keras.utils.set_random_seed(2)
    x = np.random.default_rng(2).normal(size=(32, 10)).astype("f4")
    model, seen = Autoencoder(), []
    rate = keras.optimizers.schedules.CosineDecay(0.05, 10)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9))
    stop = keras.callbacks.EarlyStopping("error", mode="min", patience=1, min_delta=100.0)
    watch = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: seen.append(logs["norm"]))
    history = model.fit(x, batch_size=8, epochs=5, verbose=0, shuffle=False, callbacks=[stop, watch])
    return {
        "error": np.array(history.history["error"]),
        "norms": np.array(seen),
        "weights": model.get_weights()[0],
    }
