"""A GAN: two models and two optimizers in one step, random numbers from a seeded generator."""

import keras
import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    keras.utils.set_random_seed(9)
    generator = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="leaky_relu"), keras.layers.Dense(6)]
    )
    critic = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="elu"), keras.layers.Dense(1)]
    )
    makes, judges = keras.optimizers.Adam(0.01, 0.5), keras.optimizers.Adam(0.02, 0.5)
    makes.build(generator.trainable_variables)
    judges.build(critic.trainable_variables)

    @compiled
    def step(real, seed):
        noise = tf.random.stateless_normal((tf.shape(real)[0], 4), seed)
        with tf.GradientTape() as g, tf.GradientTape() as c:
            made = generator(noise, training=True)
            true, false = critic(real, training=True), critic(made, training=True)
            loss_c = tf.reduce_mean(tf.nn.softplus(-true)) + tf.reduce_mean(tf.nn.softplus(false))
            loss_g = tf.reduce_mean(tf.nn.softplus(-false))
        makes.apply_gradients(
            zip(g.gradient(loss_g, generator.trainable_variables), generator.trainable_variables)
        )
        judges.apply_gradients(
            zip(c.gradient(loss_c, critic.trainable_variables), critic.trainable_variables)
        )
        return loss_g, loss_c

    real = tf.constant(np.random.default_rng(9).normal(size=(8, 6)).astype("f4"))
    losses = [[v.numpy() for v in step(real, tf.constant([k, 7]))] for k in range(5)]
    return {"losses": np.array(losses), "weights": generator.get_weights()[0]}
