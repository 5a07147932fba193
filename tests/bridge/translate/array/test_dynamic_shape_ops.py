"""Results whose size depends on data: TensorFlow's results for every size, with one compile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from outcomes import compare, outcome
from tfbridge.compiler.errors import UnsupportedError

RANDOM = np.random.default_rng(3)


def matching_rows(x: tf.Tensor, m: tf.Tensor) -> Any:
    return tf.boolean_mask(x, m)


def reduced(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    sums = tf.reduce_sum(rows), tf.reduce_sum(rows, 1), tf.reduce_sum(rows, 0, keepdims=True)
    return (
        *sums,
        tf.reduce_mean(rows, 0),
        tf.reduce_mean(rows),
        tf.reduce_max(rows, 0),
        tf.reduce_prod(rows, -1),
        tf.reduce_any(rows > 1.0, 0),
    )


def elementwise(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    chosen = tf.where(rows > 0.0, rows, -1.0)
    return tf.cast(tf.sqrt(tf.abs(rows)) * 2.0 + chosen, tf.float64) - tf.constant(
        [1.0, 2.0, 3.0], tf.float64
    )


def activations(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = tf.nn.gelu(rows) + tf.nn.silu(rows) + tf.nn.leaky_relu(rows) + tf.sinh(rows) + tf.atan(rows)
        y = y + tf.math.lgamma(2.0 + rows * rows) + tf.math.add_n([rows, y])
    return y, tape.gradient(y, rows), tf.identity_n([rows, y])


def coordinates(x: tf.Tensor, m: tf.Tensor) -> Any:
    at = tf.where(x > 0.5)
    return at, tf.gather_nd(x, at), tf.gather(x, tf.where(m)), tf.expand_dims(tf.gather_nd(x, at), 1)


def losses(x: tf.Tensor, m: tf.Tensor) -> Any:
    weights = tf.constant([[0.5, -1.0, 0.25, 2.0], [1.0, 0.0, -0.5, 0.1], [0.3, 0.2, 0.1, -2.0]])
    rows = tf.where(tf.math.is_nan(x), 0.0, x)
    logits = tf.nn.bias_add(tf.matmul(tf.boolean_mask(rows, m), weights), [0.1, 0.2, 0.3, 0.4])
    labels = tf.boolean_mask(tf.cast(rows[:, 0] > 0.0, tf.int32), m)
    return (
        tf.nn.softmax(logits),
        tf.nn.log_softmax(tf.boolean_mask(rows[:, 1], m)),
        tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)),
    )


def run_time_shapes(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    count = tf.shape(rows)[0]
    filled = (
        tf.fill(tf.shape(rows), 2.0),
        tf.zeros([count, 4]) + 1.0,
        tf.broadcast_to([1.0, 2.0, 3.0], tf.shape(rows)),
    )
    return (
        count,
        tf.size(rows),
        tf.reshape(rows, [-1]),
        tf.reshape(rows, [count, 3]),
        tf.range(count),
        *filled,
        tf.zeros_like(rows),
        tf.tile([[7.0, 8.0]], [count, 2]),
        tf.reduce_sum(rows) / tf.cast(count, tf.float32),
    )


def joined(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows, others = tf.boolean_mask(x, m), tf.boolean_mask(x, ~m)
    return (
        tf.concat([rows, x, others], 0),
        tf.stack([rows, rows * 2.0], 1),
        tf.reduce_sum(tf.concat([rows, others], 0), 0),
    )


def along_rows(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(tf.where(tf.math.is_nan(x), 0.25, x), m)
    best = tf.argmax(rows, 1)
    return (
        best,
        tf.one_hot(best, 3),
        rows[:, 1],
        rows[:, ::2],
        rows[..., tf.newaxis],
        tf.cumsum(rows, 0),
        tf.cumsum(rows, 0, reverse=True, exclusive=True),
        tf.pad(rows, [[0, 0], [1, 2]]),
        *tf.split(rows, 3, 1),
        tf.clip_by_value(rows, -0.5, 0.5),
    )


def scattered(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows, at = tf.boolean_mask(x, m), tf.where(m)
    sums = tf.math.unsorted_segment_sum(rows, tf.cast(rows[:, 0] > 0.0, tf.int32), 2)
    return (
        sums,
        tf.scatter_nd(at, rows, tf.shape(x, tf.int64)),
        tf.tensor_scatter_nd_update(x, at, rows * 2.0),
    )


def different(x: tf.Tensor, m: tf.Tensor) -> Any:
    """Sums of rows that have the same number, as gradients of embeddings are made."""
    numbers = tf.cast(tf.abs(tf.where(m, x[:, 0], 9.0)) * 4.0, tf.int64)
    found, place = tf.unique(numbers)
    again, _, counts = tf.unique_with_counts(-numbers, tf.int64)
    return found, place, tf.math.unsorted_segment_sum(x, place, tf.shape(found)[0]), again, counts


def segments(x: tf.Tensor, m: tf.Tensor) -> Any:
    """Rows of ascending numbers: as many results as there are numbers."""
    numbers = tf.cumsum(tf.cast(m, tf.int64))
    ops = (
        tf.math.segment_sum,
        tf.math.segment_mean,
        tf.math.segment_prod,
        tf.math.segment_max,
        tf.math.segment_min,
    )
    return [op(tf.where(tf.math.is_nan(x), 0.25, x), numbers - tf.reduce_min(numbers)) * 2.0 for op in ops]


def sampled_classes(x: tf.Tensor, m: tf.Tensor) -> Any:
    """Classes that are among those sampled, as the loss of sampled classes masks them."""
    count = tf.shape(x)[0]
    classes = tf.cast(tf.where(m, tf.range(count), -1), tf.int64)[:, tf.newaxis]
    hits, places, weights = tf.nn.compute_accidental_hits(classes, tf.range(9, dtype=tf.int64), 1)
    at = tf.concat([hits[:, tf.newaxis], tf.cast(places, tf.int32)[:, tf.newaxis]], 1)
    return hits, places, tf.compat.v1.sparse_to_dense(at, tf.stack([count, 9]), weights, 0.0)


def partitions(x: tf.Tensor, m: tf.Tensor) -> Any:
    few, many = tf.dynamic_partition(x, tf.cast(m, tf.int32), 2)
    elements = tf.dynamic_partition(x, tf.cast(x > 0.5, tf.int32) + 1, 3)
    return few * 2.0, tf.reduce_sum(many, 0), *elements


def reshaped_to_a_fixed_size(x: tf.Tensor, m: tf.Tensor) -> Any:
    """An error unless as many match; TensorFlow's graph optimizers drop it with the reshape."""
    return tf.reshape(tf.boolean_mask(x, m), [tf.shape(x)[0], 3]) * 2.0


def of_two_masks(x: tf.Tensor, m: tf.Tensor) -> Any:
    """An error unless the numbers of matches are equal, or one is 1."""
    return tf.boolean_mask(x, m) + tf.boolean_mask(x, tf.logical_not(m))


def sums_of_other_rows(x: tf.Tensor, m: tf.Tensor) -> Any:
    """An error where the numbers of rows differ."""
    return tf.matmul(tf.boolean_mask(x, m), tf.boolean_mask(x, x[:, 0] > 0.0), transpose_a=True)


def of_other_bounds(x: tf.Tensor, m: tf.Tensor) -> Any:
    """As many of twice the rows as there are rows: three sizes that are the same."""
    twice = tf.concat([m, tf.logical_not(m)], 0)
    rows = tf.boolean_mask(tf.concat([x, x], 0), twice)
    places = tf.boolean_mask(tf.cast(tf.range(tf.size(twice)) % 2, tf.int32), twice)
    return rows * x, tf.math.unsorted_segment_sum(x, places, 2), tf.stack([x, rows], 1)


def with_all_rows(x: tf.Tensor, m: tf.Tensor) -> Any:
    return tf.boolean_mask(x, m) * x


def gradients(x: tf.Tensor, m: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(tf.square(tf.boolean_mask(x, m)))
    return loss, tape.gradient(loss, x)


def in_a_loop(x: tf.Tensor, m: tf.Tensor) -> Any:
    def body(i: tf.Tensor, total: tf.Tensor) -> Any:
        return i + 1, total + tf.reduce_sum(tf.boolean_mask(x, m) * tf.cast(i, tf.float32))

    return tf.while_loop(lambda i, _: i < 4, body, (0, 0.0))


def gradient_of_losses(x: tf.Tensor, m: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        picked = tf.gather_nd(tf.sin(x), tf.where(m))
        loss = tf.reduce_sum(losses(x, m)[2]) / tf.cast(tf.shape(picked)[0], tf.float32) + tf.reduce_sum(
            picked
        )
    return loss, tape.gradient(loss, x)


def summed_rows(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m)
    return tf.matmul(rows, rows, transpose_a=True), tf.matmul(rows, tf.sin(rows), transpose_a=True)


def boxes_of_matches(x: tf.Tensor, m: tf.Tensor) -> Any:
    corners = tf.where(tf.math.is_nan(x), 0.0, x)
    boxes = tf.boolean_mask(tf.concat([corners[:, :2], corners[:, :2] + 0.7], 1), m)
    scores = tf.boolean_mask(corners[:, 2], m)
    numbers = tf.image.non_max_suppression(boxes, scores, 9, 0.3)
    softly = tf.image.non_max_suppression_with_scores(boxes, scores, 5, 0.4, 0.1, 0.5)
    padded = tf.raw_ops.NonMaxSuppressionV4(
        boxes=boxes,
        scores=scores,
        max_output_size=8,
        iou_threshold=0.3,
        score_threshold=0.0,
        pad_to_max_output_size=True,
    )
    return tf.gather(boxes, numbers), numbers, softly, padded


COMPILED = (
    summed_rows,
    boxes_of_matches,
    matching_rows,
    reduced,
    elementwise,
    activations,
    coordinates,
    losses,
    run_time_shapes,
    joined,
    along_rows,
    scattered,
    different,
    segments,
    sampled_classes,
    partitions,
    gradients,
    gradient_of_losses,
)  # as a whole
FUNCTIONS = (*COMPILED, sums_of_other_rows, of_other_bounds, of_two_masks, with_all_rows, in_a_loop)


def inputs(n: int, share: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows, of which about that share match."""
    rows = RANDOM.standard_normal((n, 3)).astype(np.float32)
    rows[::5, 1] = np.nan
    return tf.constant(rows), tf.constant(RANDOM.uniform(size=n) < share)


@pytest.mark.parametrize("function", [*FUNCTIONS, reshaped_to_a_fixed_size])
@pytest.mark.parametrize("n", [7, 97, 1, 0])
def test_any_number_of_matches(function: Callable[..., Any], n: int) -> None:
    compiled, graph = tfbridge.jit(function), tf.function(function)
    for share in (0.5, 0.0, 1.0, 0.2, 0.5, 0.8):
        given = inputs(n, share)
        found, wanted = outcome(compiled, *given), outcome(function, *given)
        if function is reshaped_to_a_fixed_size and found is not wanted:
            wanted = outcome(graph, *given)
        compare(found, wanted)


@pytest.mark.parametrize("function", COMPILED)
def test_one_compile_for_all_numbers(function: Callable[..., Any]) -> None:
    compiled = tfbridge.jit(function, strict=True)
    compiled(*inputs(31, 0.5))
    tfbridge.reset_stats()
    for k in range(8):
        given = inputs(31, k / 7)
        compare(outcome(compiled, *given), outcome(function, *given))
    counters = tfbridge.stats()
    assert (counters["compiles"], counters["recompiles"], counters["fallbacks"]) == (0, 0, 0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_under_auto_clustering(function: Callable[..., Any], clustering: None) -> None:
    traced = tf.function(function)
    for share in (0.5, 0.0, 1.0):
        given = inputs(23, share)
        compare(outcome(traced, *given), outcome(function, *given))
    assert tfbridge.stats()["clusters_compiled"]


@pytest.mark.parametrize("dims", [(300_000,), (300, 1009), (2, 3, 50_000)])
def test_large(dims: tuple[int, ...]) -> None:
    """Memory of such results is used again."""
    compiled = tfbridge.jit(lambda mask: tf.where(mask))
    for share in (0.5, 0.001, 1.0, 0.0, 0.7):
        mask = tf.constant(RANDOM.uniform(size=dims) < share)
        np.testing.assert_array_equal(compiled(mask), tf.where(mask))


def test_few_of_many_large_rows() -> None:
    """TensorFlow gathers those."""
    compiled = tfbridge.jit(matching_rows)
    rows = tf.constant(RANDOM.standard_normal((20_000, 128)), tf.float32)
    for share in (0.5, 0.01, 0.0, 0.3):
        mask = tf.constant(RANDOM.uniform(size=20_000) < share)
        np.testing.assert_array_equal(compiled(rows, mask), np.asarray(rows)[np.asarray(mask)])


def test_arrays_of_numpy() -> None:
    compiled = tfbridge.jit(lambda mask: tf.where(mask))
    for share in (0.5, 0.1, 0.9):
        mask = RANDOM.uniform(size=51) < share
        np.testing.assert_array_equal(compiled.native(mask), np.argwhere(mask))


def test_under_the_cost_guard() -> None:
    """The trial's results are cut too."""
    compiled = tfbridge.jit(
        lambda x, m: (tf.boolean_mask(tf.sin(x), m), tf.reduce_sum(tf.cos(x))), cost_guard=True
    )
    for k in range(7):
        rows = tf.constant(RANDOM.standard_normal((40_000, 8)), tf.float32)
        mask = tf.constant(RANDOM.uniform(size=40_000) < k / 7)
        found = compiled(rows, mask)[0]
        np.testing.assert_allclose(found, np.sin(rows)[np.asarray(mask)], 1e-5, 1e-6)


def test_gathering_from_matches() -> None:
    """Past the end of what matches is an error, which a bounded array must not hide."""

    def function(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.boolean_mask(x, m), [0, 4])

    compiled = tfbridge.jit(function)
    for share in (1.0, 0.0):
        given = inputs(7, share)
        compare(outcome(compiled, *given), outcome(function, *given))
    assert tfbridge.explain(compiled, *inputs(7, 1.0)).is_whole


@pytest.mark.parametrize(
    "size",
    [
        lambda n: n - 3,
        lambda n: 2 + n,
        lambda n: tf.cast(tf.cast(n, tf.int64), tf.int32) - 1,
        lambda n: tf.cast(tf.cast(n + 200, tf.int8), tf.int32),
        lambda n: tf.cast(tf.cast(n, tf.float32) - 0.5, tf.int32),
        lambda n: functools.reduce(lambda m, _: m + m, range(3), n),
    ],
)
def test_sizes_made_of_sizes(size: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Negative ones are TensorFlow's error, and a type that does not hold every number changes them."""

    def function(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
        return tf.fill([size(tf.shape(tf.boolean_mask(x, m))[0])], 2.0)

    compiled = tfbridge.jit(function)
    for share in (1.0, 0.5, 0.0):
        given = inputs(7, share)
        compare(outcome(compiled, *given), outcome(function, *given))


def test_a_number_of_no_partition() -> None:
    """TensorFlow's error."""
    compiled = tfbridge.jit(lambda x, p: tf.dynamic_partition(x, p, 2), strict=True)
    for bad in (2, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
            compiled(tf.ones(3), tf.constant([0, bad, 1]))


def test_many_partitions_stay() -> None:
    """Every one would take memory for all rows."""

    def function(x: tf.Tensor, p: tf.Tensor) -> Any:
        return tf.dynamic_partition(x * 2.0, p, 20)

    given = inputs(9, 1.0)[0], tf.range(9)
    compare(outcome(tfbridge.jit(function), *given), outcome(function, *given))
    with pytest.raises(UnsupportedError, match="it makes 20 parts"):
        tfbridge.jit(function, strict=True)(*given)
