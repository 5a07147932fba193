"""Steps of optimizers on rows of variables: with indices that come twice, with gradients of embeddings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

v1 = tf.compat.v1
RAW: dict[str, Callable[..., object]] = {
    "momentum": lambda v, a, grad, indices: tf.raw_ops.ResourceSparseApplyMomentum(
        var=v, accum=a, lr=0.1, grad=grad, indices=indices, momentum=0.9
    ),
    "adagrad": lambda v, a, grad, indices: tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=v, accum=a, lr=0.1, epsilon=1e-3, grad=grad, indices=indices
    ),
}


def variables() -> list[tf.Variable]:
    numbers = np.random.default_rng(3)
    return [tf.Variable(numbers.uniform(0.5, 1, (7, 2)).astype(np.float32)) for _ in range(2)]


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("indices", [[3, 0, 6], [3, 0, 3, 3], [5], [7, 1]])
def test_indices(name: str, indices: list[int]) -> None:
    grad = np.random.default_rng(4).normal(size=(len(indices), 2)).astype(np.float32)
    ends = []
    for wrap in (tf.function, tfbridge.jit):
        own = variables()

        @wrap
        def step(grad: tf.Tensor, indices: tf.Tensor, own: list[tf.Variable] = own) -> tf.Tensor:
            RAW[name](*(v.handle for v in own), grad, indices)
            return own[0].read_value() * 2.0

        error = ""
        for _ in range(2):
            try:
                step(tf.constant(grad), tf.constant(indices))
            except tf.errors.InvalidArgumentError as raised:
                error = raised.message
        ends.append(([v.numpy() for v in own], "out of range" in error))
    assert ends[0][1] == ends[1][1] == (7 in indices)
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        lambda: v1.train.RMSPropOptimizer(0.1, centered=True),
        lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.1),
        lambda: v1.train.AdadeltaOptimizer(0.1),
    ],
    ids=["momentum", "rms_prop", "ftrl", "adadelta"],
)
def test_gradients_of_embeddings(optimizer: Callable[[], v1.train.Optimizer]) -> None:
    ends = []
    for wrap in (tf.function, tfbridge.jit):
        table, chosen = (
            tf.Variable(np.random.default_rng(5).normal(size=(50, 3)).astype(np.float32)),
            optimizer(),
        )

        @wrap
        def step(
            numbers: tf.Tensor, table: tf.Variable = table, chosen: v1.train.Optimizer = chosen
        ) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.tanh(tf.gather(table, numbers)) ** 2)
            (grad,) = tape.gradient(loss, [table])
            chosen.apply_gradients([(grad, table)])
            return loss

        numbers = np.random.default_rng(6)
        for count in (9, 9, 9):
            step(tf.constant(numbers.integers(0, 50, count)))
        ends.append(table.numpy())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5, atol=1e-6)
    assert len(tfbridge.explain(step, tf.constant([1, 2, 1])).clusters) == 1
