"""A long short-term memory cell, unrolled over time by tf.while_loop with TensorArrays."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..program import Program


def inference(batch: int = 16, time: int = 64, features: int = 128, width: int = 256) -> Program:
    """The hidden states of every step.

    Shapes: f32[batch, time, features] -> f32[batch, time, width].
    """
    random = np.random.default_rng(1)
    weights = tf.Variable(
        random.normal(0, (features + width) ** -0.5, (features + width, 4 * width)).astype(np.float32)
    )
    bias = tf.Variable(random.normal(0, 0.1, 4 * width).astype(np.float32))

    def cell(inputs: tf.Tensor, hidden: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        gates = tf.matmul(tf.concat([inputs, hidden], axis=1), weights) + bias
        enter, forget, candidate, leave = tf.split(gates, 4, axis=1)
        memory = tf.sigmoid(forget + 1.0) * memory + tf.sigmoid(enter) * tf.tanh(candidate)
        return tf.sigmoid(leave) * tf.tanh(memory), memory

    def lstm(sequence: tf.Tensor) -> tf.Tensor:
        steps = tf.shape(sequence)[1]
        inputs = tf.TensorArray(tf.float32, steps).unstack(tf.transpose(sequence, [1, 0, 2]))
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, width])
        start = tf.zeros([tf.shape(sequence)[0], width])

        def body(
            step: tf.Tensor, hidden: tf.Tensor, memory: tf.Tensor, states: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
            hidden, memory = cell(inputs.read(step), hidden, memory)
            return step + 1, hidden, memory, states.write(step, hidden)

        *_, states = tf.while_loop(lambda step, *_: step < steps, body, (0, start, start, outputs))
        return tf.transpose(states.stack(), [1, 0, 2])

    sequence = random.standard_normal((batch, time, features), dtype=np.float32)
    return Program(lstm, [sequence], [weights, bias])
