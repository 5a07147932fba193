"""A tf.Module with its own layers, an exponential average of the weights, and a training loop inside the function."""

import numpy as np
import tensorflow as tf


class Dense(tf.Module):
    def __init__(self, rng, inputs, outputs):
        self.w = tf.Variable(rng.normal(0, 0.3, (inputs, outputs)).astype("f4"))
        self.b = tf.Variable(np.zeros(outputs, "f4"))

    def __call__(self, x):
        return x @ self.w + self.b


class Net(tf.Module):
    def __init__(self, rng):
        self.layers = [Dense(rng, 3, 8), Dense(rng, 8, 2)]

    def __call__(self, x):
        return self.layers[1](tf.nn.silu(self.layers[0](x)))


def run(compiled=tf.function) -> dict:
    rng = np.random.default_rng(16)
    net = Net(rng)
    averages = [tf.Variable(v, trainable=False) for v in net.variables]
    x, y = rng.normal(size=(20, 3)).astype("f4"), rng.normal(size=(20, 2)).astype("f4")

    @compiled
    def train(x, y, steps):
        losses = tf.TensorArray(tf.float32, steps)
        for i in tf.range(steps):
            begin = (i * 4) % 16
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.abs(net(x[begin : begin + 4]) - y[begin : begin + 4]))
            for v, g in zip(net.trainable_variables, tape.gradient(loss, net.trainable_variables)):
                v.assign_sub(0.1 * g)
            for v, a in zip(net.variables, averages):
                a.assign(0.9 * a + 0.1 * v)
            losses = losses.write(i, loss)
        return losses.stack()

    losses = train(tf.constant(x), tf.constant(y), tf.constant(10))
    return {"losses": losses.numpy(), "average": averages[0].numpy(), "w": net.layers[1].w.numpy()}
