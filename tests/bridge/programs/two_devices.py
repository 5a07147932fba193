"""MirroredStrategy over two logical processors: variables on both, gradients summed over them."""

import keras
import numpy as np
import tensorflow as tf


def run() -> dict:
    keras.utils.set_random_seed(20)
    strategy = tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices("CPU")][:2])
    rng = np.random.default_rng(20)
    x, y = rng.normal(size=(16, 4)).astype("f4"), rng.normal(size=(16, 1)).astype("f4")
    with strategy.scope():
        w = tf.Variable(np.linspace(-1, 1, 4).reshape(4, 1).astype("f4"))
        b = tf.Variable([0.5])

    def local(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.nn.softplus(x @ w + b) - y)) / 8.0
        context = tf.distribute.get_replica_context()
        for v, g in zip((w, b), context.all_reduce("sum", tape.gradient(loss, (w, b)))):
            v.assign_sub(0.1 * g)
        return loss

    @tf.function
    def step(x, y):
        return strategy.reduce("sum", strategy.run(local, (x, y)), None)

    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(8))
    losses = [step(*batch).numpy() for batch in data]
    return {"losses": np.array(losses), "w": w.numpy(), "b": b.numpy()}
