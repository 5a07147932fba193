"""Ops of arrays whose size depends on data: TensorFlow's results and gradients for every size, with one compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from outcomes import compare, outcome

RANDOM = np.random.default_rng(7)


def ordered(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    values, numbers = tf.boolean_mask(x[:, 0], m), tf.boolean_mask(n, m)
    found, _, counts = tf.unique_with_counts(n)
    order = tf.argsort(counts, direction="DESCENDING", stable=True)
    return tf.sort(values), tf.sort(numbers, direction="DESCENDING"), tf.gather(found, order), tf.sort(counts)


def best_three(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """An error where there are fewer."""
    return tf.nn.top_k(tf.boolean_mask(x[:, 0], m), 3)


def losses_of_hot_labels(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        labels, logits = tf.one_hot(tf.boolean_mask(n, m), 3), tf.boolean_mask(x, m)
        losses = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(losses)
    return losses, tape.gradient(loss, x)


def random_numbers(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    dims = [tf.shape(rows)[0], 5]
    return (
        tf.random.stateless_normal(dims, (1, 2)),
        tf.random.stateless_uniform(dims, (3, 4), dtype=tf.float64),
        tf.random.stateless_truncated_normal(dims, (5, 6)),
        tf.random.stateless_uniform(dims, (7, 8), None, None, tf.int32),
        tf.nn.experimental.stateless_dropout(rows, 0.4, (9, 10)),
    )


def experts(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """Every row goes to one of three layers; their results are put together again."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        parts = tf.dynamic_partition(x, n, 3)
        places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), n, 3)
        rows = tf.dynamic_stitch(
            places, [tf.sin(parts[0]), parts[1] * 2.0, tf.matmul(parts[2], tf.eye(3) * 3.0)]
        )
        loss = tf.reduce_sum(rows**2)
    return rows, tf.reduce_sum(rows, 1), tape.gradient(loss, x)


def stitched_numbers(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """Numbers that come twice have the later row."""
    numbers = tf.dynamic_partition(tf.range(tf.size(n)) // 2, n, 3)
    return tf.dynamic_stitch(numbers, tf.dynamic_partition(x, n, 3))


def segments_of_matches(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    rows, numbers = tf.boolean_mask(x, m), tf.cumsum(tf.boolean_mask(n % 2, m))
    numbers = numbers - tf.reduce_min(numbers)
    ops = tf.math.segment_sum, tf.math.segment_mean, tf.math.segment_max, tf.math.segment_prod
    return [op(rows, numbers) for op in ops]


def other_rows(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """An error where the elements do not fill the rows."""
    rows = tf.boolean_mask(x, m)
    numbers = tf.boolean_mask(x, tf.stack([m, m, m], 1))
    return tf.reshape(rows, [-1, 2]) * 2.0, tf.reshape(numbers, [-1, 3]), tf.reshape(rows, [-1, 3, 1])


def embedded(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    table = tf.stack([x[:1, 0], x[:1, 1], x[:1, 2]]) if len(x) else tf.ones([3, 1])
    return tf.gather(table, tf.unique(n)[0])


def layers(rows: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    hidden = tf.nn.relu(rows @ kernel + bias)
    return hidden - tf.reduce_mean(hidden, 1, keepdims=True)


def layers_of_rows(x: tf.Tensor, m: tf.Tensor, n: tf.Tensor) -> Any:
    """Gradients of weights and biases sum over as many rows as match, or as there are segments."""
    kernel, bias = tf.reshape(tf.linspace(-1.0, 1.0, 51), [3, 17]), tf.linspace(0.5, -0.5, 17)
    results = []
    for rows in (
        tf.boolean_mask(x, m),
        tf.math.segment_mean(x, tf.sort(n) // 2),
        tf.gather(x, tf.unique(n)[0]),
    ):
        with tf.GradientTape() as tape:
            tape.watch((kernel, bias))
            loss = tf.reduce_sum(tf.tanh(layers(rows, kernel, bias)) ** 2)
        results += [loss, *tape.gradient(loss, (kernel, bias))]
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(tf.math.segment_mean(x, tf.sort(n))))
    return [*results, tape.gradient(loss, x), tf.reduce_max(tf.boolean_mask(x, m), 0)]


COMPILED = (
    layers_of_rows,
    ordered,
    losses_of_hot_labels,
    random_numbers,
    experts,
    stitched_numbers,
    segments_of_matches,
    embedded,
)


def inputs(n: int, share: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Rows, of which about that share match, and a number from 0 to 2 for each."""
    rows = RANDOM.standard_normal((n, 3)).astype(np.float32)
    numbers = RANDOM.integers(0, 3, n).astype(np.int32)
    return tf.constant(rows), tf.constant(RANDOM.uniform(size=n) < share), tf.constant(numbers)


@pytest.mark.parametrize("function", [*COMPILED, best_three, other_rows])
@pytest.mark.parametrize("n", [7, 53, 1, 0])
def test_any_size(function: Callable[..., Any], n: int) -> None:
    compiled, traced = tfbridge.jit(function), tf.function(function)
    for share in (0.5, 0.0, 1.0, 0.2):
        given = inputs(n, share)
        compare(outcome(compiled, *given), outcome(traced, *given))


def test_many_rows() -> None:
    """Kernels of several tasks run some of them."""
    compiled = tfbridge.jit(layers_of_rows, strict=True)
    for share in (0.5, 0.01, 0.0, 1.0):
        given = inputs(4001, share)
        for found, wanted in zip(compiled(*given), layers_of_rows(*given)):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("function", COMPILED)
def test_one_compile_for_all_sizes(function: Callable[..., Any]) -> None:
    compiled = tfbridge.jit(function, strict=True)
    compiled(*inputs(31, 0.5))
    tfbridge.reset_stats()
    for k in range(6):
        given = inputs(31, k / 5)
        compare(outcome(compiled, *given), outcome(function, *given))
    counters = tfbridge.stats()
    assert (counters["compiles"], counters["recompiles"], counters["fallbacks"]) == (0, 0, 0)


def test_order_of_nan() -> None:
    """TensorFlow's own, where a NaN is among the matches."""
    compiled, traced = tfbridge.jit(best_three, strict=True), tf.function(best_three)
    rows, _, numbers = inputs(13, 1.0)
    rows = tf.constant(np.where(np.arange(39).reshape(13, 3) % 9 == 0, np.nan, rows), tf.float32)
    for matches in (tf.ones(13, tf.bool), ~tf.math.is_nan(rows[:, 0])):
        given = rows, matches, numbers
        compare(outcome(compiled, *given), outcome(traced, *given))


def test_stitched_beyond_the_number_of_parts() -> None:
    """TensorFlow makes room for the rows between; what is in them is anything."""
    function = tf.function(lambda x, n: tf.dynamic_stitch(tf.dynamic_partition(n, n % 2, 2), [x[:2], x[:1]]))
    found = tfbridge.jit(function)(tf.ones([3, 2]), tf.constant([0, 6, 11]))
    assert found.shape == (12, 2)
    np.testing.assert_array_equal(tf.gather(found, [0, 6, 11]), np.ones((3, 2)))


def test_more_segments_than_rows() -> None:
    """TensorFlow serves the first call, and the next code has room for more, up to a limit."""

    def function(x: tf.Tensor, n: tf.Tensor) -> Any:
        ops = tf.math.segment_sum, tf.math.segment_mean, tf.math.segment_max, tf.math.segment_min
        return [op(x, n) for op in ops] + [tf.sparse.segment_mean(x, tf.range(tf.size(n)), n)]

    compiled, x = tfbridge.jit(function, strict=True), inputs(5, 1.0)[0]
    for numbers in ([0, 0, 1, 3, 3], [0, 9, 9, 40, 47], [0, 1, 2, 3, 100_000], [3, 3, 20, 30, 45]):
        given = x, tf.constant(numbers)
        compare(outcome(compiled, *given), outcome(function, *given))
    tfbridge.reset_stats()
    for numbers in ([0, 0, 12, 13, 46], [1, 2, 3, 4, 5]):
        given = x, tf.constant(numbers)
        compare(outcome(compiled, *given), outcome(function, *given))
    assert (tfbridge.stats()["fallbacks"], tfbridge.stats()["recompiles"]) == (0, 0)
