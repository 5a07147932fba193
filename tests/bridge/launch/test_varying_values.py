"""Values that decide shapes and change with every call: what depends on them is left to TensorFlow in the end."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.cluster import code_cache
from tfbridge.compiler import UnsupportedError
from tfbridge.compiler.client.platforms import native

RANDOM = np.random.default_rng(3)
X = tf.constant(RANDOM.normal(size=(4, 40, 6)).astype("f4"))
W = tf.constant(RANDOM.normal(size=(6, 5)).astype("f4"))


def masked_mean(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    mask = tf.sequence_mask(lengths, dtype=tf.float32)
    hidden = tf.nn.gelu(x[:, : tf.shape(mask)[1]] @ W) * mask[..., None]
    return tf.reduce_sum(hidden, 1) / tf.cast(lengths, tf.float32)[:, None]


def counted(x: tf.Tensor, numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.math.bincount(numbers) * 2, tf.nn.softmax(x @ W)


def split(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.reshape(x, tf.stack([size, -1])) * 2.0) + 1.0


def _data() -> list[tf.Tensor]:
    return [tf.constant(RANDOM.integers(1, 40, 4).astype("i4")) for _ in range(8)]


def _close(found: object, wanted: object) -> None:
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [masked_mean, counted])
def test_data_is_no_key(function) -> None:
    """The reduction of the data is a stage by itself; its value, a size, is the key of the next."""
    tfbridge.reset_stats()
    jitted = tfbridge.jit(function)
    for lengths in _data():
        _close(jitted(X, lengths), function(X, lengths))
    report = tfbridge.explain(jitted, X, _data()[0])
    assert not report.left_out and [bool(c.keyed_by_value) for c in report.clusters] == [False, True]


def test_a_strict_function_has_code_for_all_values_of_data() -> None:
    strict = tfbridge.jit(masked_mean, strict=True)
    for lengths in _data():
        _close(strict(X, lengths), masked_mean(X, lengths))
    assert "further values run in TensorFlow" not in str(tfbridge.explain(strict, X, _data()[0]))
    assert tfbridge.stats()["fallbacks"] == 0


@pytest.mark.parametrize("function", [masked_mean, counted])
def test_data_is_no_key_of_clusters(function, clustering: None) -> None:
    graph = tf.function(function)
    for lengths in _data():
        _close(graph(X, lengths), function(X, lengths))
    assert tfbridge.stats()["fallbacks"] == 0


def test_sizes_are_keys_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "_MAX_CONSTANTS", 3)
    jitted = tfbridge.jit(split)
    for size in (1, 2, 4, 5, 8, 2, 16, 8, 1):
        _close(jitted(X, tf.constant(size)), split(X, tf.constant(size)))
    strict = tfbridge.jit(split, strict=True)
    for size in (1, 2, 4, 5, 8, 2):
        _close(strict(X, tf.constant(size)), split(X, tf.constant(size)))


def test_beyond_the_limit_a_strict_function_still_raises_what_does_not_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_cache, "_MAX_CONSTANTS", 1)
    strict = tfbridge.jit(
        tf.function(split, input_signature=[tf.TensorSpec([None, 40, 6]), tf.TensorSpec([], tf.int32)]),
        strict=True,
    )
    for size in (2, 4, 8):
        _close(strict(X, tf.constant(size)), split(X, tf.constant(size)))
    assert "compiled for 1 values of size" in str(tfbridge.explain(strict, X, tf.constant(8)))

    def fail(*_: object) -> None:
        raise UnsupportedError("softmax: has no code")

    monkeypatch.setattr(native(), "load_artifact", fail)
    with pytest.raises(UnsupportedError, match="softmax: has no code"):
        strict(X[:2], tf.constant(2))
    _close(strict(X, tf.constant(8)), split(X, tf.constant(8)))


def clustered(x: tf.Tensor, centres: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    count = tf.zeros(3)
    for _ in tf.range(4):
        nearest = tf.argmin(tf.reduce_sum((x[:, None] - centres[None]) ** 2, -1), 1, output_type=tf.int32)
        count = tf.ensure_shape(tf.math.bincount(nearest, minlength=3, maxlength=3, dtype=tf.float32), [3])
        centres = tf.math.unsorted_segment_sum(x, nearest, 3) / tf.maximum(count, 1.0)[:, None]
    return centres, count


def test_limits_that_leave_no_room_are_known() -> None:
    """tf.math.bincount with equal limits: its size is the minimum of a constant and of what is no less."""
    x = tf.constant(RANDOM.normal(size=(50, 2)).astype("f4"))
    _close(tfbridge.jit(clustered, strict=True)(x, x[:3]), clustered(x, x[:3]))
    one_more = tfbridge.jit(lambda x: tf.math.bincount(x, minlength=5, maxlength=3) + 1, strict=True)
    numbers = tf.constant([1, 2, 3, 4, 2, 2, 1])
    _close(one_more(numbers), tf.math.bincount(numbers, minlength=5, maxlength=3) + 1)
