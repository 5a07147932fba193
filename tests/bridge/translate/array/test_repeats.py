"""Rows that are repeated as often as data says: one cluster, whatever the repeats are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from outcomes import compare, outcome

RANDOM = np.random.default_rng(5)


def repeated(x: tf.Tensor, r: tf.Tensor) -> Any:
    return tf.repeat(x, r, axis=0), tf.repeat(x[:, 0], r)


def summed(x: tf.Tensor, r: tf.Tensor) -> Any:
    rows = tf.repeat(x, r, axis=0)
    return tf.reduce_sum(tf.sin(rows), 0), tf.shape(rows)[0]


def gradient(x: tf.Tensor, r: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.repeat(x, r, axis=0) ** 2) + tf.reduce_sum(tf.repeat(x[:, 1], r))
    return loss, tape.gradient(loss, x)


def rows_of(x: tf.Tensor, r: tf.Tensor) -> tf.RaggedTensor:
    """As many rows as there are repeats, of the rows of x that these repeat."""
    return tf.RaggedTensor.from_row_lengths(tf.repeat(x, r, axis=0), tf.maximum(r, 0), validate=False)


def reduced_rows(x: tf.Tensor, r: tf.Tensor) -> Any:
    rows = rows_of(x, r)
    return (
        tf.reduce_sum(rows, 1),
        tf.reduce_mean(rows, 1),
        tf.reduce_max(rows, 1),
        rows.value_rowids(),
        rows.row_lengths(),
    )


def gradient_of_means(x: tf.Tensor, r: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        means = tf.reduce_mean(tf.ragged.map_flat_values(tf.sin, rows_of(x, r)), 1)
        loss = tf.reduce_sum(tf.where(tf.math.is_nan(means), 0.0, means) ** 2)
    return loss, tape.gradient(loss, x)


def in_a_loop(x: tf.Tensor, r: tf.Tensor) -> Any:
    def body(i: tf.Tensor, total: tf.Tensor) -> Any:
        return i + 1, total + tf.reduce_sum(tf.repeat(x, r + i, axis=0))

    return tf.while_loop(lambda i, _: i < 3, body, (0, 0.0))


COMPILED = (repeated, summed, gradient, reduced_rows, gradient_of_means, in_a_loop)


def escaping_mask(x: tf.Tensor, r: tf.Tensor) -> Any:
    """The maximum decides the mask's columns."""
    return tf.sequence_mask(r), tf.repeat(x, r, axis=0)


def escaping_maximum(x: tf.Tensor, r: tf.Tensor) -> Any:
    most = tf.reduce_max(r)
    mask = tf.range(most) < r[:, tf.newaxis]
    return tf.boolean_mask(tf.tile(x[:, tf.newaxis], [1, most, 1]), mask), most


def of_other_rows(x: tf.Tensor, r: tf.Tensor) -> Any:
    """Elements of a tile that is not cut into its rows: which they are depends on the maximum."""
    most = tf.maximum(0, tf.reduce_max(r))
    tiled = tf.tile(x[:, tf.newaxis], [1, most, 1])
    picked = tf.where(tf.reshape(tf.range(most) < r[:, tf.newaxis], [-1]))[:, 0]
    return tf.gather(tf.reshape(tf.transpose(tiled, [1, 0, 2]), [tf.shape(x)[0] * most, 3]), picked)


def of_all_columns(x: tf.Tensor, r: tf.Tensor) -> Any:
    most = tf.maximum(0, tf.reduce_max(r))
    return tf.reduce_sum(tf.tile(x[:, tf.newaxis], [1, most, 1]))


def along_columns(x: tf.Tensor, r: tf.Tensor) -> Any:
    return tf.repeat(tf.transpose(x), tf.maximum(r, 0), axis=1)


OTHERS = (escaping_mask, escaping_maximum, of_other_rows, of_all_columns, along_columns)


def inputs(n: int, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    rows = RANDOM.standard_normal((n, 3)).astype(np.float32)
    return tf.constant(rows), tf.constant(RANDOM.integers(-1, most + 1, n), tf.int32)


@pytest.mark.parametrize("function", [*COMPILED, *OTHERS])
@pytest.mark.parametrize("n", [7, 31, 1, 0])
def test_any_repeats(function: Callable[..., Any], n: int) -> None:
    compiled, traced = tfbridge.jit(function), tf.function(function)
    for most in (3, 0, 8, 1, 5):
        given = inputs(n, most)
        compare(outcome(compiled, *given), outcome(traced, *given))


@pytest.mark.parametrize("function", COMPILED)
def test_one_compile_for_all(function: Callable[..., Any]) -> None:
    compiled = tfbridge.jit(function, strict=True)
    compiled(*inputs(13, 4))
    tfbridge.reset_stats()
    for most in (0, 1, 7, 13):
        given = inputs(13, most)
        compare(outcome(compiled, *given), outcome(function, *given))
    counters = tfbridge.stats()
    assert (counters["compiles"], counters["recompiles"], counters["fallbacks"]) == (0, 0, 0)


def test_more_repeats_than_the_bound() -> None:
    """TensorFlow serves the call, and the next code has a larger bound."""
    compiled = tfbridge.jit(repeated, strict=True)
    compiled(*inputs(5, 3))
    for most in (300, 300, 2, 3000):
        given = inputs(5, most)[0], tf.constant([0, most, 1, 0, 2])
        compare(outcome(compiled, *given), outcome(repeated, *given))
    given = inputs(5, 3)[0], tf.constant([250, 1, 0, 3, 2])
    tfbridge.reset_stats()
    compare(outcome(compiled, *given), outcome(repeated, *given))
    assert tfbridge.stats()["fallbacks"] == 0


def test_constant_repeats_are_no_bound(tmp_path: Path) -> None:
    """What is known when compiling is taken as it is: an export, which has no second code, has them too."""

    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.repeat(x, tf.constant([2, 0, 300]), axis=0) * 2.0

    signature = [tf.TensorSpec([3, 2])]
    tfbridge.aot.compile(tf.function(function, input_signature=signature), name="repeats", out_dir=tmp_path)
    assert (tmp_path / "repeats.o").exists()
    compiled = tfbridge.jit(function, strict=True)
    tfbridge.reset_stats()
    np.testing.assert_array_equal(compiled(tf.ones([3, 2])), function(tf.ones([3, 2])))
    assert tfbridge.stats()["fallbacks"] == 0


@pytest.mark.parametrize("type_", ["float64", "int32", "int64", "bool", "complex64", "bfloat16"])
def test_types(type_: str) -> None:
    compiled = tfbridge.jit(lambda x, r: tf.repeat(x, r, axis=0), strict=True)
    rows, repeats = inputs(9, 4)
    rows = tf.cast(rows * 3.0, type_)
    for counts in (repeats, tf.cast(repeats, tf.int64), tf.constant([2])):
        np.testing.assert_array_equal(compiled(rows, counts), tf.repeat(rows, counts, axis=0))


def test_repeated_text() -> None:
    """TensorFlow repeats it; what says how often is compiled as ever."""
    words = tf.constant(["a", "b", "c"])
    function = tf.function(lambda r: (tf.repeat(words, r), tf.repeat([1.0, 2.0, 3.0], r)))
    compiled = tfbridge.jit(function)
    for repeats in ([1, 0, 2], [4, 4, 4]):
        found, wanted = compiled(tf.constant(repeats)), function(tf.constant(repeats))
        for f, w in zip(found, wanted):
            np.testing.assert_array_equal(f, w)


def test_rows_of_any_number() -> None:
    """Sizes that are open when the function is traced."""
    signature = [tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32)]
    traced = tf.function(gradient, input_signature=signature)
    compiled = tfbridge.jit(traced, strict=True)
    for n in (4, 9, 17, 2, 40):
        given = inputs(n, 5)
        compare(outcome(compiled, *given), outcome(traced, *given))


@pytest.mark.parametrize("function", COMPILED)
def test_under_auto_clustering(function: Callable[..., Any], clustering: None) -> None:
    traced = tf.function(function)
    for most in (3, 0, 8):
        given = inputs(11, most)
        compare(outcome(traced, *given), outcome(function, *given))
    assert tfbridge.stats()["clusters_compiled"]
