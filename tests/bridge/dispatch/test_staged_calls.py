"""Functions in which data decides sizes on any axis: code for each stage, with the sizes that the ones before found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(13)


def masked_columns(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    columns = tf.boolean_mask(tf.transpose(x), m, axis=1)
    return columns * 2.0, tf.reduce_sum(columns**2, 1)


def pairs(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    distances = tf.reduce_sum((rows[:, tf.newaxis] - rows[tf.newaxis]) ** 2, -1)
    return distances, tf.matmul(rows, rows, transpose_b=True), tf.nn.softmax(-distances) @ rows


def moved(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    return (
        tf.transpose(rows) + 1.0,
        tf.tile(rows, [2, 1]),
        tf.pad(rows, [[1, 2], [0, 0]]),
        tf.einsum("nd->dn", rows),
    )


def counted(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    return tf.math.bincount(n), tf.math.bincount(n, x[:, 0]), tf.one_hot(n, tf.reduce_max(n) + 1) * 2.0


def measured(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    mask = tf.cast(tf.sequence_mask(n), tf.float32)
    return mask, tf.reduce_sum(mask, 1), tf.range(tf.reduce_sum(n)) * 2, tf.repeat(x, [2, 0, 1], axis=1)


def repeated_columns(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    return tf.repeat(tf.transpose(x), n, axis=1) + 1.0


def gradient(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows = tf.boolean_mask(x, m)
        loss = tf.reduce_sum(tf.matmul(rows, rows, transpose_b=True) ** 2)
        loss += tf.reduce_sum(tf.boolean_mask(tf.transpose(x), m, axis=1) ** 3)
    return loss, tape.gradient(loss, x)


def three_stages(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """What rows there are decides a size, and what is computed with it another one."""
    few = tf.boolean_mask(n, m)
    mask = tf.sequence_mask(few, tf.reduce_max(tf.concat([few, [1]], 0)))
    longer = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    return tf.cast(tf.sequence_mask(tf.concat([longer, [2]], 0)), tf.float32) * 2.0


def loop_over_columns(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    columns = tf.transpose(tf.boolean_mask(x, m))
    total = tf.zeros([3])
    for i in tf.range(tf.shape(columns)[1]):
        total = tf.tanh(total + columns[:, i])
    return total


FUNCTIONS = (
    masked_columns,
    pairs,
    moved,
    counted,
    measured,
    repeated_columns,
    gradient,
    three_stages,
    loop_over_columns,
)


def inputs(n: int, share: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Rows, of which about that share match, and a number from 0 to 5 for each."""
    rows = RANDOM.standard_normal((n, 3)).astype(np.float32)
    numbers = RANDOM.integers(0, 6, n).astype(np.int32)
    return tf.constant(rows), tf.constant(RANDOM.uniform(size=n) < share), tf.constant(numbers)


def check(found: Any, wanted: Any) -> None:
    for f, w in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(f, w, 2e-5, 2e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_size(function: Callable[..., Any]) -> None:
    compiled, traced = tfbridge.jit(function), tf.function(function)
    for n, share in ((7, 0.5), (7, 0.0), (7, 1.0), (1, 1.0), (23, 0.4), (7, 0.8)):
        given = inputs(n, share)
        check(compiled(*given), traced(*given))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_once_for_all_sizes(function: Callable[..., Any]) -> None:
    compiled = tfbridge.jit(function, compile="background", first_compile="foreground")
    for share in (0.5, 0.6, 0.4, 0.7, 0.5):
        compiled(*inputs(31, share))
        tfbridge.wait_for_compilation()
    tfbridge.reset_stats()
    for share in (0.45, 0.55, 0.65):
        given = inputs(31, share)
        check(compiled(*given), function(*given))
    counters = tfbridge.stats()
    assert (counters["compiles"], counters["fallbacks"]) == (0, 0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_under_auto_clustering(function: Callable[..., Any], clustering: None) -> None:
    traced = tf.function(function)
    for share in (0.5, 0.0, 1.0):
        given = inputs(11, share)
        check(traced(*given), function(*given))


def test_explained() -> None:
    compiled = tfbridge.jit(pairs)
    given = inputs(9, 0.5)
    for _ in range(3):
        compiled(*given)
    tfbridge.wait_for_compilation()
    report = tfbridge.explain(compiled, *given)
    assert len(report.clusters) == 2 and all(c.runs for c in report.clusters)
    assert "ops compiled, in 2 clusters" in str(report)


def test_variables() -> None:
    """A step of training: the second stage updates what the first has read."""
    weights = tf.Variable(tf.ones([3, 2]))

    def step(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.boolean_mask(x @ weights, m)
            loss = tf.reduce_sum(tf.matmul(rows, rows, transpose_b=True))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss, weights + 0.0

    compiled = tfbridge.jit(step, strict=True)
    for share in (0.5, 0.8, 0.2, 0.6):
        given, before = inputs(8, share), tf.identity(weights)
        found, after = compiled(*given), tf.identity(weights)
        weights.assign(before)
        check(found, step(*given))
        check(after, weights)


def test_a_constant_as_a_result() -> None:
    compiled = tfbridge.jit(lambda n: (tf.math.bincount(n) * 2, tf.constant(3), n))
    for numbers in ([1, 2], [4, 4], [0, 1]):
        found = compiled(tf.constant(numbers))
        np.testing.assert_array_equal(found[0], np.bincount(numbers) * 2)
        assert (int(found[1]), found[2].numpy().tolist()) == (3, numbers)


def test_errors_of_later_stages() -> None:
    def function(n: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, tf.range(tf.reduce_max(n) + 1)) * 2.0

    compiled = tfbridge.jit(function)
    x = tf.range(4.0)
    for numbers in ([1, 3], [2, 0], [3, 3], [1, 1]):
        np.testing.assert_array_equal(compiled(tf.constant(numbers), x), 2 * np.arange(max(numbers) + 1.0))
    for numbers in ([9, 3], [4, 4]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            compiled(tf.constant(numbers), x)
