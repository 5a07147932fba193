"""What constants decide has a known size: masks, and other operands of ops whose results have sizes of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

MASK = np.arange(30).reshape(5, 6) % 7 < 3
_inner = tf.function(lambda x: tf.boolean_mask(x, MASK, axis=1) * 2.0)


def _triangle(x: tf.Tensor) -> tf.Tensor:
    mask = tf.linalg.band_part(tf.ones([5, 6], tf.bool), -1, 0)
    return tf.boolean_mask(x, mask, axis=1)


def _in_a_loop(x: tf.Tensor) -> tf.Tensor:
    total = tf.zeros([4, int(MASK[:, 0].sum()), 6])
    for k in tf.range(3):
        part = tf.boolean_mask(x, MASK[:, 0], axis=1) * tf.cast(k, tf.float32)
        total += tf.ensure_shape(part, total.shape)
    return total


def _in_branches(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(
        x[0, 0, 0] > 0,
        lambda: tf.boolean_mask(x, MASK[0], axis=2),
        lambda: -tf.boolean_mask(x, MASK[0], axis=2),
    )


def _unique(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    values, places, counts = tf.unique_with_counts(tf.constant([3, 1, 3, 0]))
    return tf.gather(x, values, axis=1), places, counts


def _parts(x: tf.Tensor) -> tf.Tensor:
    parts = tf.dynamic_partition(tf.range(6), tf.constant([0, 1, 1, 0, 1, 1]), 2)
    return tf.concat([tf.gather(x, p, axis=2) for p in parts], 2)


def _nothing(x: tf.Tensor) -> tf.Tensor:
    return tf.boolean_mask(x, np.zeros(5, bool), axis=1)


def _gradient(x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(_triangle(x) ** 2)
    return tape.gradient(y, x)


def _of_random_numbers(x: tf.Tensor) -> tf.Tensor:
    is_kept = tf.random.stateless_uniform([6], [1, 2]) < 0.5
    return tf.boolean_mask(x, is_kept, axis=2)


FUNCTIONS: dict[str, Callable[[tf.Tensor], Any]] = {
    "mask": lambda x: tf.boolean_mask(x, MASK, axis=1),
    "triangle": _triangle,
    "inner function": lambda x: _inner(x) + 1.0,
    "mapped": lambda x: tf.map_fn(lambda row: tf.boolean_mask(row, MASK), x),
    "loop": _in_a_loop,
    "branches": _in_branches,
    "unique": _unique,
    "partition": _parts,
    "no element": _nothing,
    "gradient": _gradient,
    "random numbers": _of_random_numbers,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_cluster_of_known_sizes(name: str) -> None:
    x = tf.constant(np.random.default_rng(0).standard_normal((4, 5, 6)), tf.float32)
    compiled = tfbridge.jit(FUNCTIONS[name])
    for result, expected in zip(
        tf.nest.flatten(compiled(x)), tf.nest.flatten(tf.function(FUNCTIONS[name])(x)), strict=True
    ):
        np.testing.assert_array_equal(result, expected)
    report = tfbridge.explain(compiled, x)
    assert report.is_whole and [c.name.startswith("__inference_") for c in report.clusters] == [True]
    kernels = [kernel.name for kernel in report.clusters[0].kernels]
    assert not [k for k in kernels if k.startswith(("nonzero", "sort", "scatter"))] or name == "gradient"


def test_bad_constants_are_tensorflows_error() -> None:
    def bad(x: tf.Tensor) -> tf.Tensor:
        return x + tf.cast(tf.dynamic_partition([1, 2, 3], [0, 5, 1], 2)[0], tf.float32)

    for function in (tf.function(bad), tfbridge.jit(bad)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"partitions\[1\] = 5 is not in \[0, 2\)"):
            function(tf.ones([1]))


def test_words_stay_words() -> None:
    def numbered(x: tf.Tensor) -> tf.Tensor:
        return x + tf.unique(tf.constant(["a", "b", "a"]))[1]

    np.testing.assert_array_equal(tfbridge.jit(numbered)(tf.constant(1)), [1, 2, 1])
