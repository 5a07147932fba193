"""Loops over scalars and short vectors, where the cost of a step's dispatch is all there is."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..program import Program


def scalar(steps: int = 1000) -> Program:
    """Heun's method on y' = sin(t) - y, by tf.while_loop.

    Shapes: start: f32[] -> f32[].
    """
    size = 0.01

    def slope(time: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.sin(time) - y

    def step(n: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        time = size * tf.cast(n, tf.float32)
        first = slope(time, y)
        second = slope(time + size, y + size * first)
        return n + 1, y + 0.5 * size * (first + second)

    def function(start: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda n, y: n < steps, step, (0, start))[1]

    return Program(function, [np.array(0.5, np.float32)])


def leaving(most_steps: int = 1000, size: int = 64) -> Program:
    """Power iteration that AutoGraph's `break` leaves when the vector hardly moves any more.

    Shapes: matrix: f32[size, size], start: f32[size] -> f32[size], steps done: s32[].
    """
    random = np.random.default_rng(1)
    root = random.standard_normal((size, size))
    # A gap of 2 % between the first two eigenvalues: some 250 steps.
    basis, _ = np.linalg.qr(root)
    values = np.linspace(0.1, 0.98, size)
    values[-1] = 1.0
    matrix = ((basis * values) @ basis.T).astype(np.float32)

    def function(matrix: tf.Tensor, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        done = 0
        for _ in tf.range(most_steps):
            product = tf.linalg.matvec(matrix, vector)
            product /= tf.norm(product)
            moved = tf.reduce_max(tf.abs(product - vector))
            vector = product
            done += 1
            if moved < 1e-4:
                break
        return vector, tf.convert_to_tensor(done)

    return Program(function, [matrix, np.ones(size, np.float32) / np.float32(size**0.5)])
