"""A transformer block (causal attention, feed-forward, dropout off) trained to repeat its input, in a loop of ours."""

import keras
import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    keras.utils.set_random_seed(4)
    tokens = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(12, 8)(tokens)
    a = keras.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = keras.layers.LayerNormalization()(x + a)
    x = keras.layers.LayerNormalization()(
        x + keras.layers.Dense(8)(keras.layers.Dense(16, activation="gelu")(x))
    )
    model = keras.Model(tokens, keras.layers.Dense(12)(x))
    optimizer = keras.optimizers.AdamW(0.01)
    optimizer.build(model.trainable_variables)

    @compiled
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        )
        return loss

    rng = np.random.default_rng(4)
    losses = []
    for _ in range(4):
        words = tf.constant(rng.integers(0, 12, (4, 6)), tf.int32)
        losses.append(step(words, words).numpy())
    return {"losses": np.array(losses), "logits": model(words).numpy()}
