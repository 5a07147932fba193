"""Arrays and lists of a size that depends on data: through loops, branches and calls, sliced along their rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(7)
X = tf.constant(RANDOM.standard_normal((9, 3)), tf.float32)
MASKS = [tf.constant(RANDOM.uniform(size=9) < share) for share in (0.5, 0.8, 1.1)]


def compare(function: Callable[..., object], *masks: tf.Tensor, is_whole: bool = True) -> None:
    """The function gives what TensorFlow gives; all of it compiles and runs as compiled code, if it `is_whole`."""
    compiled, plain = tfbridge.jit(function, strict=is_whole), tf.function(function)
    for mask in masks or MASKS:
        got, wanted = (tf.nest.flatten(f(X, mask)) for f in (compiled, plain))
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)
    if not is_whole:
        return
    (cluster,) = tfbridge.explain(compiled, X, MASKS[0]).clusters
    assert (cluster.runs, cluster.fallback_runs) == (len(masks or MASKS), 0)


@pytest.mark.parametrize(
    "rows",
    [
        lambda x: x[::-1],
        lambda x: x[1:],
        lambda x: x[:-1],
        lambda x: x[1:-1],
        lambda x: x[::2],
        lambda x: x[-2::-2],
        lambda x: x[:2],
        lambda x: x[20:],
        lambda x: x[-3:],
        lambda x: x[1:, 1],
        lambda x: x[::-1, ::-1],
        lambda x: x[-1],
        lambda x: x[0, 1:],
        lambda x: tf.reverse(x, [0]),
        lambda x: x[: tf.shape(x)[0] - 1],
        lambda x: x[tf.shape(x)[0] - 1],
        lambda x: X[: tf.shape(x)[0]],
        lambda x: tf.range(2, tf.shape(x)[0] + 3) * 2,
        lambda x: tf.broadcast_to(x, tf.shape(x)),
    ],
    ids=lambda rows: "",
)
def test_rows(rows: Callable[[tf.Tensor], tf.Tensor]) -> None:
    compare(lambda x, m: tf.sin(tf.cast(rows(tf.boolean_mask(x, m)), tf.float32)) * 2)


@pytest.mark.parametrize(
    "rows",
    [
        lambda x: x[::-1],
        lambda x: x[1:],
        lambda x: x[1::2],
        lambda x: x[-1],
        lambda x: x[:-1] * x[1:],
        lambda x: tf.reduce_mean(x, 0) * x,
        lambda x: tf.reduce_mean(x) * tf.reduce_mean(x, 1, keepdims=True) * x,
    ],
    ids=lambda rows: "",
)
def test_gradients_of_rows(rows: Callable[[tf.Tensor], tf.Tensor]) -> None:
    def function(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.tanh(0.3 * rows(tf.boolean_mask(x, m))))
        return tf.convert_to_tensor(tape.gradient(y, x))

    compare(function)


def test_row_that_is_not_there_is_an_error() -> None:
    function = tfbridge.jit(lambda x, m: tf.boolean_mask(x, m)[6] * 2)
    np.testing.assert_allclose(function(X, MASKS[2]), X[6] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="slice index 6 of dimension 0 out of bounds"):
        function(X, tf.constant([True] * 3 + [False] * 6))


def test_through_a_loop_and_a_list_of_its_length() -> None:
    def returns(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        rewards = tf.boolean_mask(x, m)[::-1]
        count, total = tf.shape(rewards)[0], tf.zeros(3)
        made = tf.TensorArray(tf.float32, count)
        for k in tf.range(count):
            total = rewards[k] + 0.9 * total
            made = made.write(k, total)
        made = made.stack()[::-1]
        return (made - tf.reduce_mean(made)) / (tf.math.reduce_std(made) + 1e-6)

    compare(returns)


def test_gradient_through_a_loop_over_rows() -> None:
    def function(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows, total = tf.boolean_mask(x, m), tf.zeros(3)
            for k in tf.range(tf.shape(rows)[0]):
                total = tf.tanh(rows[k] + total) * 1.5
            y = tf.reduce_sum(total)
        return tf.convert_to_tensor(tape.gradient(y, x))

    compare(function, is_whole=False)  # the gradient of rows[k] wants the shape of rows in the loop


def test_list_written_as_often_as_there_are_rows() -> None:
    """The loop's bound is known, the length of the list that it makes longer is not."""

    def function(x: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.boolean_mask(x, m)
        made = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=(3,))
        for k in tf.range(tf.shape(rows)[0]):
            made = made.write(k, tf.exp(rows[k]))
        return made.stack(), made.size()

    compare(function)


def test_through_branches_and_calls() -> None:
    @tf.function
    def doubled(rows: tf.Tensor) -> tf.Tensor:
        return tf.exp(rows) * 2

    def function(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        rows = tf.boolean_mask(x, m)
        if tf.reduce_sum(rows) > 0:
            rows = doubled(rows)
        else:
            rows = tf.concat([rows, x[:2]], 0)
        return rows, tf.shape(rows)

    compare(function, *MASKS, *(tf.logical_not(m) for m in MASKS))


def test_episode_with_an_early_end() -> None:
    """Arrays that grow as they are written, in a loop with a break, read as far as it came, and the gradient."""
    w = tf.Variable(RANDOM.standard_normal((3, 3)) * 0.5, dtype=tf.float32)

    def function(x: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            state, limit = x[0], tf.reduce_sum(tf.cast(m, tf.float32))
            values, rewards = (tf.TensorArray(tf.float32, 0, dynamic_size=True) for _ in range(2))
            for step in tf.range(20):
                state = tf.tanh(tf.linalg.matvec(w, state) + 0.3)
                values = values.write(step, tf.reduce_sum(state))
                rewards = rewards.write(step, 1.0 - state[0])
                if tf.cast(step, tf.float32) >= limit:
                    break
            value, reward = values.stack(), rewards.stack()
            gain = tf.cumsum(reward[::-1])[::-1]
            count = tf.cast(tf.size(gain), tf.float32)
            loss = tf.reduce_sum(tf.expand_dims(gain, 1) * tf.expand_dims(value, 1)) / count
        return loss, value, tape.gradient(loss, w)

    compare(function)
