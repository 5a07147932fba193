"""Programs of sparse arrays, with as many elements as data says, and their gradients: one cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from outcomes import compare, outcome

RANDOM = np.random.default_rng(11)
TABLE = tf.constant(RANDOM.standard_normal((9, 4)), tf.float32)


def sparse(x: tf.Tensor, m: tf.Tensor) -> tf.SparseTensor:
    """The elements of x where m holds."""
    at = tf.where(m)
    return tf.SparseTensor(at, tf.gather_nd(x, at), x.shape)


def bags_of_words(x: tf.Tensor, m: tf.Tensor) -> Any:
    """Rows of a table for the words of every bag, some of them empty, and the table's gradient."""
    at = tf.where(m)
    words = tf.cast(tf.abs(tf.gather_nd(x, at)) * 3.0, tf.int64) % 9
    ids = tf.SparseTensor(at, words, x.shape)
    weights = tf.SparseTensor(at, tf.abs(tf.gather_nd(x, at)) + 0.5, x.shape)
    with tf.GradientTape() as tape:
        tape.watch(TABLE)
        results = [
            tf.nn.safe_embedding_lookup_sparse(TABLE, ids, combiner="mean"),
            tf.nn.safe_embedding_lookup_sparse(TABLE, ids, weights, combiner="sqrtn"),
            tf.nn.safe_embedding_lookup_sparse(TABLE, ids, combiner="sum", default_id=2),
        ]
        loss = sum(tf.reduce_sum(tf.sin(r)) for r in results)
    return results, tf.convert_to_tensor(tape.gradient(loss, TABLE))


def filled(x: tf.Tensor, m: tf.Tensor) -> Any:
    at = tf.where(m)
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows, is_empty = tf.sparse.fill_empty_rows(tf.SparseTensor(at, tf.gather_nd(x, at), x.shape), 1.5)
        loss = tf.reduce_sum(rows.values**3)
    return rows.values, rows.indices, is_empty, tf.sparse.to_dense(rows), tape.gradient(loss, x)


def with_dense_arrays(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = sparse(x, m)
    reshaped = tf.sparse.reshape(rows, [-1, x.shape[0]])
    return (
        tf.sparse.add(rows, tf.ones(x.shape)),
        (rows * tf.range(5.0)).values,
        (rows / (2.0 + tf.range(5.0))).values,
        tf.sparse.reduce_sum(rows, 1),
        tf.sparse.reduce_sum(rows),
        reshaped.indices,
        tf.sparse.to_dense(reshaped),
    )


def different_floats(x: tf.Tensor, m: tf.Tensor) -> Any:
    values = tf.boolean_mask(tf.round(x), m)
    found, places, counts = tf.unique_with_counts(values)
    return found, places, counts, tf.math.unsorted_segment_sum(values, places, tf.size(found))


def selected(x: tf.Tensor, m: tf.Tensor) -> Any:
    """As `tf.compat.v1.where` picks rows, and elements."""
    rows = tf.boolean_mask(x, m[:, 0])
    kept = tf.compat.v1.where(rows[:, 0] > 0.0, rows, -rows)
    return kept, tf.compat.v1.where(rows > 0.0, rows, tf.zeros_like(rows))


def twice_masked(x: tf.Tensor, m: tf.Tensor) -> Any:
    rows = tf.boolean_mask(x, m[:, 0])
    likely = tf.where(rows[:, 1] > 0.0)[:, 0]
    return tf.gather(rows, likely), tf.where(rows > 0.5), tf.where(tf.gather(rows, likely) > 0.2)


FUNCTIONS = (twice_masked, bags_of_words, filled, with_dense_arrays, different_floats, selected)


def inputs(n: int, share: float) -> tuple[tf.Tensor, tf.Tensor]:
    x = RANDOM.standard_normal((n, 5)).astype(np.float32)
    return tf.constant(x), tf.constant(RANDOM.uniform(size=(n, 5)) < share)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("n", [6, 17, 1])
def test_one_compile_for_all_sizes(function: Callable[..., Any], n: int) -> None:
    compiled, traced = tfbridge.jit(function, strict=True), tf.function(function)
    compiled(*inputs(n, 0.5))
    tfbridge.reset_stats()
    for share in (0.5, 0.1, 1.0, 0.0, 0.8):
        given = inputs(n, share)
        compare(outcome(compiled, *given), outcome(traced, *given))
    counters = tfbridge.stats()
    assert (counters["compiles"], counters["recompiles"], counters["fallbacks"]) == (0, 0, 0)


def _reshaped(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    rows = tf.SparseTensor(tf.cast(k, tf.int64)[:, tf.newaxis], x[:3, 0], [4])
    return tf.sparse.to_dense(tf.sparse.reshape(rows, tf.reshape(tf.cast(k[2] + 1, tf.int64), [1])))


def _filled_rows(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    at = tf.cast(k, tf.int64)[:, tf.newaxis]
    return tf.raw_ops.SparseFillEmptyRows(indices=at, values=x[:3, 0], dense_shape=[3], default_value=0.0)[1]


@pytest.mark.parametrize(
    ("op", "bad"),
    [
        (lambda x, k: tf.sparse.segment_sum(x, k, [0, 0, 1]), [0, 4, 1]),
        (lambda x, k: tf.sparse.segment_mean(x, [0, 1, 2], k), [0, 2, 1]),
        (lambda x, k: tf.sparse.segment_sum(x, [0, 1, 2], k, num_segments=3), [0, 1, 3]),
        (lambda x, k: _reshaped(x, k), [0, 1, 2]),
        (lambda x, k: _filled_rows(x, k), [0, 1, 3]),
    ],
)
def test_errors(op: Callable[..., Any], bad: list[int]) -> None:
    """TensorFlow's own."""
    x, compiled = tf.ones([4, 2]), tfbridge.jit(lambda x, k: op(x, k))
    for k in (tf.constant(bad), tf.constant([0, 1, 2])):
        outcomes = []
        for f in (compiled, tf.function(op)):
            try:
                outcomes.append(np.asarray(f(x, k)).tolist())
            except tf.errors.OpError as error:
                outcomes.append(type(error))
            except ValueError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


def test_segments_far_apart() -> None:
    """TensorFlow makes the rows of the segments between."""
    compiled = tfbridge.jit(lambda x, k, s: tf.sparse.segment_sum(x, k, s))
    for ids in ([0, 1, 1], [0, 4, 20]):
        given = tf.ones([4, 2]), tf.constant([0, 3, 3]), tf.constant(ids)
        np.testing.assert_array_equal(compiled(*given), tf.sparse.segment_sum(*given))
