"""Ragged arrays in functions: TensorFlow's results and gradients for all lengths of rows, without its executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from outcomes import compare, outcome

RANDOM = np.random.default_rng(11)
TABLE = tf.constant(RANDOM.standard_normal((20, 4)), tf.float32)
WEIGHTS = tf.constant(RANDOM.standard_normal((4, 4)), tf.float32)


def dense(r: tf.RaggedTensor) -> Any:
    return r.to_tensor() * 2, r.to_tensor(-1, shape=[None, 3]), r.to_tensor(7, shape=[5, None])


def attended(r: tf.RaggedTensor) -> Any:
    """A model of sentences: embeddings, a mask, attention, the mean of each row, and the gradient."""
    table = tf.identity(TABLE)
    with tf.GradientTape() as tape:
        tape.watch(table)
        x = tf.gather(table, r.to_tensor())
        mask = tf.sequence_mask(r.row_lengths(), tf.shape(x)[1])
        scores = tf.where(mask[:, tf.newaxis], tf.matmul(x @ WEIGHTS, x, transpose_b=True), -1e9)
        part = tf.cast(mask, tf.float32)[..., tf.newaxis]
        total = tf.reduce_sum(tf.nn.softmax(scores) @ x * part, 1)
        means = total / tf.maximum(tf.reduce_sum(part, 1), 1.0)
        loss = tf.reduce_sum(means**2)
    return means, tf.convert_to_tensor(tape.gradient(loss, table))


def recurrent(r: tf.RaggedTensor) -> Any:
    x = tf.gather(TABLE, r.to_tensor())
    mask = tf.sequence_mask(r.row_lengths(), tf.shape(x)[1])

    def body(t: tf.Tensor, h: tf.Tensor) -> Any:
        return t + 1, tf.where(mask[:, t, tf.newaxis], tf.tanh(x[:, t] + h @ WEIGHTS), h)

    return tf.while_loop(lambda t, _: t < tf.shape(x)[1], body, (0, tf.zeros([tf.shape(x)[0], 4])))[1]


def kept_states(r: tf.RaggedTensor) -> Any:
    """A list of as many elements as the longest row has, and what its gradient pushes and pops."""
    weights = tf.identity(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        x = tf.transpose(tf.gather(TABLE, r.to_tensor()), [1, 0, 2])
        states = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[None, 4])
        h = tf.zeros([tf.shape(x)[1], 4])
        for t in tf.range(tf.shape(x)[0]):
            h = tf.tanh(x[t] + h @ weights * 0.1)
            states = states.write(t, h)
        found = states.stack()
        loss = tf.reduce_sum(found**2)
    return found, tape.gradient(loss, weights)


def gradient_of_dense(r: tf.RaggedTensor) -> Any:
    values = tf.cast(r.values, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(tf.sin(r.with_values(values).to_tensor(0.5)) ** 2)
    return tape.gradient(loss, values)


def two_ragged_axes(r: tf.RaggedTensor) -> Any:
    ends = tf.stack([0, r.nrows() // 2, r.nrows()])
    return tf.RaggedTensor.from_row_splits(r, ends, validate=False).to_tensor() + 1


def by_numbers(r: tf.RaggedTensor) -> Any:
    """Rows that are told by the number of each value's row."""
    return (
        tf.RaggedTensor.from_value_rowids(r.values, r.value_rowids(), r.nrows(), validate=False).to_tensor()
        + 1
    )


def picked(r: tf.RaggedTensor) -> Any:
    """An error where there are no rows."""
    rows = tf.gather(r, [0, 0, 0])
    return tf.reduce_sum(rows, 1), rows.to_tensor(), tf.concat([r, r + 1], 1)


def numbered(r: tf.RaggedTensor) -> Any:
    places = tf.ragged.range(r.row_lengths())
    back = tf.ragged.range(r.row_lengths(), 0, -2)
    return tf.reduce_sum(r * tf.cast(places, tf.int32), 1), places, tf.reverse(r, [1]), back


def sliced(r: tf.RaggedTensor) -> Any:
    return r[:, :2], r[:, -1:], r[:, 1:] * 2


def sparse(r: tf.RaggedTensor) -> Any:
    s = r.to_sparse()
    return s, tf.sparse.to_dense(s) + 1


def filtered(r: tf.RaggedTensor) -> Any:
    """Rows whose lengths depend on data."""
    few = tf.ragged.boolean_mask(r, r % 2 == 0)
    return tf.reduce_max(tf.gather(TABLE, few.to_tensor()), 1), few.to_sparse()


FUNCTIONS = (
    dense,
    attended,
    recurrent,
    kept_states,
    gradient_of_dense,
    two_ragged_axes,
    by_numbers,
    picked,
    numbered,
    sliced,
    sparse,
    filtered,
)


def rows_of(n: int, most: int) -> tf.RaggedTensor:
    """So many rows of numbers, each of as many as `most` or fewer."""
    lengths = RANDOM.integers(0, most + 1, n)
    values = RANDOM.integers(0, 20, lengths.sum()).astype(np.int32)
    return tf.RaggedTensor.from_row_lengths(values, lengths)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_lengths(function: Callable[..., Any]) -> None:
    compiled, traced = tfbridge.jit(function), tf.function(function)
    for n, most in ((5, 3), (5, 6), (5, 0), (1, 1), (0, 3), (11, 2), (5, 300)):
        given = rows_of(n, most)
        compare(outcome(compiled, given), outcome(traced, given))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_once_for_all_lengths(function: Callable[..., Any]) -> None:
    signature = [tf.RaggedTensorSpec([None, None], tf.int32)]
    compiled = tfbridge.jit(tf.function(function, input_signature=signature), strict=True)
    for n, most in ((7, 5), (9, 8), (6, 7), (8, 6), (5, 9)):
        compiled(rows_of(n, most))
    tfbridge.wait_for_compilation()
    tfbridge.reset_stats()
    for n, most in ((8, 7), (12, 8), (9, 6)):
        given = rows_of(n, most)
        compare(outcome(compiled, given), outcome(function, given))
    assert tfbridge.stats()["fallbacks"] == 0


@pytest.mark.parametrize("function", (attended, picked, sparse, filtered))
def test_under_auto_clustering(function: Callable[..., Any], clustering: None) -> None:
    traced = tf.function(function)
    for most in (3, 5, 0):
        given = rows_of(7, most)
        compare(outcome(traced, given), outcome(function, given))
    assert tfbridge.stats()["clusters_compiled"]


@pytest.mark.parametrize(
    "splits", [[0, 2, 4], [1, 2, 5], [0, 3, 2, 5], [0, -1, 5], [0, 2, 5, 5], [0, 7, 5], [0]]
)
@pytest.mark.parametrize("function", (dense, picked, sparse, two_ragged_axes))
def test_splits_that_are_none(function: Callable[..., Any], splits: list[int]) -> None:
    """TensorFlow's results and errors, where splits do not ascend from 0 to the number of values."""
    compiled, traced = tfbridge.jit(function), tf.function(function)
    given = tf.RaggedTensor.from_row_splits(tf.range(5), tf.constant(splits, tf.int64), validate=False)
    compare(outcome(compiled, given), outcome(traced, given))


@pytest.mark.parametrize("ids", [[0, 0, 2, 2], [0, 2, 1, 2], [-1, 0, 0, 1], [0, 0, 1, 5], [0, 1, 2, 2]])
@pytest.mark.parametrize("rows", [0, 3, 5])
def test_numbers_of_rows_that_are_none(ids: list[int], rows: int) -> None:
    def function(values: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> Any:
        return tf.RaggedTensor.from_value_rowids(values, ids, rows, validate=False).to_tensor() * 2

    compiled, traced = tfbridge.jit(function), tf.function(function)
    given = tf.range(4), tf.constant(ids, tf.int64), tf.constant(rows, tf.int64)
    compare(outcome(compiled, *given), outcome(traced, *given))


def test_more_values_than_the_bound() -> None:
    """TensorFlow serves the call, and the next code has a larger bound."""
    compiled = tfbridge.jit(numbered, strict=True)
    for most in (3, 2000, 2000, 3):
        given = tf.RaggedTensor.from_row_lengths(tf.range(most + 3), [most, 0, 2, 1])
        compare(outcome(compiled, given), outcome(numbered, given))
    tfbridge.reset_stats()
    compare(outcome(compiled, given), outcome(numbered, given))
    assert tfbridge.stats()["fallbacks"] == 0


def test_one_call_with_too_many_values() -> None:
    """It runs in TensorFlow, and the others as before."""
    compiled = tfbridge.jit(lambda n: tf.reduce_sum(tf.ragged.range(n).values % 7) + 1, strict=True)
    for number in (3, 20_000_000, 5):
        given = tf.constant([number, 2], tf.int64)
        found = compiled(given)
        assert int(found) == np.sum(np.arange(number) % 7) + 2
    tfbridge.reset_stats()
    compiled(tf.constant([9, 9], tf.int64))
    assert (tfbridge.stats()["fallbacks"], tfbridge.stats()["recompiles"]) == (0, 0)


def test_ranges_as_long_as_numbers_are() -> None:
    compiled, traced = (
        f(lambda a, b, d: tf.ragged.range(a, b, d).values + 1) for f in (tfbridge.jit, tf.function)
    )
    largest = np.iinfo(np.int64).max
    for starts, limits, deltas in (
        ([largest - 3, 0], [largest, 2], [2, 1]),
        ([-largest, 0], [largest, 5], [largest, 3]),
        ([5, 5], [-5, 9], [-largest - 1, largest]),
        ([0, 1], [4, 3], [0, 1]),
    ):
        given = [tf.constant(k, tf.int64) for k in (starts, limits, deltas)]
        compare(outcome(compiled, *given), outcome(traced, *given))


@pytest.mark.parametrize("partition", ("ROW_SPLITS", "VALUE_ROWIDS"))
def test_partitions_of_other_ranks(partition: str) -> None:
    """TensorFlow's kernel reads them as vectors."""
    types = ["ROW_SPLITS"] if partition == "ROW_SPLITS" else ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def made_dense(numbers: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.RaggedTensorToTensor(
            shape=tf.constant([-1, -1], tf.int64),
            values=tf.range(5.0),
            default_value=0.0,
            row_partition_tensors=[tf.constant(4, tf.int64), numbers][-len(types) :],
            row_partition_types=types,
        )

    compiled = tfbridge.jit(made_dense)
    numbers = [0, 2, 5] if partition == "ROW_SPLITS" else [0, 0, 1, 3, 3]
    for shape in ((-1,), (-1, 1), (1, -1)):
        given = tf.reshape(tf.constant(numbers, tf.int64), shape)
        compare(outcome(compiled, given), outcome(made_dense, given))
