"""Integers that decide shapes and differ in every call: one code serves them all, once two calls have shown it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(8)
IMAGE = tf.constant(RANDOM.normal(size=(1, 8, 8, 3)).astype("f4"))
Program = Callable[[tf.Tensor, tf.Tensor], Any]


def first(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(x[:n] * 2.0)


def last(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x[-n:], 0) + 1.0


def numbers(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.sin(tf.cast(tf.range(n), tf.float32)[:, None] * x[0]) + tf.cast(n, tf.float32)


def steps(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.range(1, 3 * n, 2), tf.float32) * x[0, 0]


def identity(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.eye(n) * x[0, 0] + 1.0


def triangle(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.linalg.band_part(tf.ones([n, n]), -1, 0) * x[0, 0])


def padded(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.pad(x, [[0, n], [n, 1]]) * 2.0 + 1.0


def tiled(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.tile(x, [n, 1]) * 2.0 + 1.0


def repeated(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.repeat(x, n, axis=0) * 2.0 + 1.0


def broadcast(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(x, tf.concat([[n], tf.shape(x)], 0)) * 2.0 + 1.0


def in_two(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    a, b = tf.split(x, [n, tf.shape(x)[0] - n], num=2)
    return tf.reduce_sum(a, 0) - tf.reduce_max(b, 0)


def products(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x[:n], x[:n], transpose_b=True) + 1.0


def random(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_normal([n, 3], [1, 2]) * x[0, 0]


def resized(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(IMAGE, [n + 6, 3 * n]) * x[0, 0]


def mesh(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    a, b = tf.meshgrid(tf.range(n), tf.range(tf.shape(x)[0]))
    return tf.cast(a * b, tf.float32) * x[0, 0]


def states(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    state = tf.zeros([n, 6])
    for row in x[:4]:
        state = tf.tanh(state + row)
    return state


def slope(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.tanh(x[:n]) ** 2)
    return tape.gradient(loss, x)


def generated(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    steps, state = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[6]), x[0]
    for i in tf.range(n):
        state = tf.tanh(state + x[i % tf.shape(x)[0]])
        steps = steps.write(i, state)
    return steps.stack()


def spectrum(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.signal.stft(tf.reshape(tf.tile(x, [12, 4]), [-1])[: n * 60 + 100], 64, 32))


def in_heads(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tf.reshape(tf.tile(x, [1, n]), [-1, n, 6]), [1, 0, 2]) * 2.0


def scattered(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.scatter_nd(tf.range(tf.shape(x)[0])[:, None] % n, x, [n + 2, 6]) * 2.0


PROGRAMS = (
    first,
    last,
    numbers,
    steps,
    identity,
    triangle,
    padded,
    tiled,
    repeated,
    broadcast,
    in_two,
    products,
    random,
    resized,
    mesh,
    states,
    slope,
    generated,
    spectrum,
    in_heads,
    scattered,
)
SCALAR = tf.TensorSpec([], tf.int32)
pytestmark = pytest.mark.usefixtures("in_background")


def compared(function: Any, program: Callable[..., Any], *arguments: Any) -> None:
    """Calls with each value, and compares with TensorFlow; code comes in between."""
    for values in zip(*arguments, strict=True):
        wanted = program(*values).numpy()
        np.testing.assert_allclose(function(*values).numpy(), wanted, rtol=1e-4, atol=1e-4)
        assert tfbridge.wait_for_compilation(120)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_code_for_all_values(program: Program) -> None:
    function = tfbridge.jit(
        tf.function(program, input_signature=[tf.TensorSpec([None, 6]), SCALAR]),
    )
    x = [tf.constant(RANDOM.normal(size=(rows, 6)).astype("f4")) for rows in (20, 21, 33, 20, 47, 16)]
    compared(function, program, x, [tf.constant(n) for n in (5, 7, 12, 9, 3, 11)])
    stats = tfbridge.stats()
    assert stats["symbolic_compiles"] == 1
    assert stats["compiles"] == 2  # one for the first call
    assert not stats["ops_left_out"]


def test_several_integers_of_one_argument() -> None:
    def slices(x: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return tf.slice(x, begin, size) * 2.0 + 1.0

    vector = tf.TensorSpec([2], tf.int64)
    function = tfbridge.jit(
        tf.function(slices, input_signature=[tf.TensorSpec([None, None]), vector, vector])
    )
    x = [tf.constant(RANDOM.normal(size=(20 + k, 30)).astype("f4")) for k in range(5)]
    begin = [tf.constant(b, tf.int64) for b in ([2, 3], [4, 2], [3, 5], [7, 2], [2, 2])]
    size = [tf.constant(s, tf.int64) for s in ([5, 6], [7, 9], [4, 4], [13, 2], [2, 28])]
    compared(function, slices, x, begin, size)
    assert tfbridge.stats()["symbolic_compiles"] == 1
    (cluster,) = tfbridge.explain(function, x[0], begin[0], size[0]).clusters
    assert "size = " in cluster.symbolic[0]


def test_an_axis_is_no_size() -> None:
    """What must be a number in code is one: the rest is symbolic."""

    def reduced(x: tf.Tensor, axis: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.tanh(x), axis) + 1.0

    function = tfbridge.jit(tf.function(reduced, input_signature=[tf.TensorSpec([None] * 4), SCALAR]))
    shapes = ((5, 6, 7, 8), (4, 5, 6, 7), (6, 7, 8, 9), (7, 6, 5, 4), (8, 8, 9, 9), (3, 9, 5, 7))
    x = [tf.constant(RANDOM.normal(size=shape).astype("f4")) for shape in shapes]
    compared(function, reduced, x, [tf.constant(axis) for axis in (2, 3, 2, 3, 2, 3)])
    assert tfbridge.stats()["symbolic_compiles"] == 2


def test_wrong_values_are_errors() -> None:
    """Values of the same code that TensorFlow refuses."""
    function = tfbridge.jit(
        tf.function(
            lambda x, n: tf.slice(x, [n, 0], [n, 6]) * 2.0, input_signature=[tf.TensorSpec([None, 6]), SCALAR]
        )
    )
    x = tf.constant(RANDOM.normal(size=(20, 6)).astype("f4"))
    for n in (5, 7, 9):
        np.testing.assert_array_equal(function(x, tf.constant(n)).numpy(), x[n : 2 * n].numpy() * 2.0)
        assert tfbridge.wait_for_compilation(120)
    for n in (11, -3, 2**31 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError):
            function(x, tf.constant(n))
        assert tfbridge.wait_for_compilation(120)
    np.testing.assert_array_equal(function(x, tf.constant(10)).numpy(), x[10:].numpy() * 2.0)


def test_code_of_an_earlier_process_for_other_values() -> None:
    """The disk cache has code that does not serve the values of these calls: more than there are rows."""
    signature = [tf.TensorSpec([None, 6]), SCALAR]
    x = [tf.constant(RANDOM.normal(size=(rows, 6)).astype("f4")) for rows in (20, 21, 33, 20)]
    for values in ((5, 7, 12, 9), (25, 27, 40, 29)):
        tfbridge.reset_stats()
        function = tfbridge.jit(tf.function(last, input_signature=signature))
        compared(function, last, x, [tf.constant(n) for n in values])
        stats = tfbridge.stats()
        assert stats["symbolic_compiles"] == 1 and stats["served_by_tensorflow"] <= 2


@pytest.mark.parametrize("size", [0, 1])
def test_none_and_one(size: int) -> None:
    function = tfbridge.jit(tf.function(first, input_signature=[tf.TensorSpec([None, 6]), SCALAR]))
    x = tf.constant(RANDOM.normal(size=(20, 6)).astype("f4"))
    compared(function, first, [x] * 6, [tf.constant(n) for n in (5, 7, size, 6, size, 8)])


def masked(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    mask = tf.sequence_mask(lengths, dtype=tf.float32)
    return tf.reduce_sum(tf.nn.gelu(x[: tf.shape(mask)[1]]), 1) * tf.reduce_sum(mask, 0)


def counted(x: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.math.bincount(indices) * 2, tf.float32) + x[0, 0]


def segments(x: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    rows = x[: tf.size(indices)]
    return tf.nn.softmax(tf.math.unsorted_segment_sum(rows, indices, tf.reduce_max(indices) + 1))


def one_hot(x: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return tf.one_hot(indices, tf.reduce_max(indices) + 1) * x[0, 0] + 1.0


def each_repeated(x: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.repeat(x[: tf.size(counts)], counts, axis=0))


def ragged(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    rows = tf.RaggedTensor.from_row_lengths(x[: tf.reduce_sum(lengths)], lengths, validate=False)
    return tf.nn.softmax(tf.reduce_sum(rows, axis=1))


@pytest.mark.parametrize(
    "program", [masked, counted, segments, one_hot, each_repeated, ragged], ids=lambda p: p.__name__
)
def test_sizes_that_are_reduced_from_data(program: Program) -> None:
    """The reduction is a stage of its own, but for that of repeats; few codes serve all its values."""
    signature = [tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)]
    function = tfbridge.jit(tf.function(program, input_signature=signature))
    lengths = [tf.constant(RANDOM.integers(1, 5 + k, 6 + k).astype("i4")) for k in range(8)]
    x = [tf.constant(RANDOM.normal(size=(100 + k, 6)).astype("f4")) for k in range(8)]
    compared(function, program, x, lengths)
    stats = tfbridge.stats()
    assert stats["compiles"] <= 9 and stats["served_by_tensorflow"] <= 5
    assert not stats["ops_left_out"]
    report = tfbridge.explain(function, x[0], lengths[0])
    assert len(report.clusters) == 1 + (program is not each_repeated) and not report.left_out
