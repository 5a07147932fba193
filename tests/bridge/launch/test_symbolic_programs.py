"""Programs whose first axis is of another size in each call: one compilation for the first size, one for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(9)
WEIGHTS = tf.Variable(RANDOM.normal(size=(6, 6)).astype("f4") * 0.3)
TABLE = tf.Variable(RANDOM.normal(size=(256, 6)).astype("f4"))
IMAGES = tf.Variable(RANDOM.normal(size=(3, 3, 1, 4)).astype("f4") * 0.2)
SIZES = (2, 3, 5, 8, 16, 17, 31, 64, 101)

Program = Callable[[tf.Tensor], Any]


def rows(x: tf.Tensor) -> tf.Tensor:
    return tf.shape(x)[0]


def dense_of_four_axes(x: tf.Tensor) -> Any:
    return tf.tensordot(tf.reshape(x, [-1, 3, 1, 2]), WEIGHTS[:2], [[3], [0]])


def positions(x: tf.Tensor) -> Any:
    return x + tf.gather(TABLE, 7 + tf.range(rows(x))) + tf.gather(TABLE, rows(x))


def grown(x: tf.Tensor) -> Any:
    longer = tf.concat([x, x[-1:] * 2.0], 0)
    return longer, tf.nn.softmax(tf.matmul(longer, longer, transpose_b=True)) @ longer


def windows(x: tf.Tensor) -> Any:
    padded = tf.pad(x, [[0, -rows(x) % 4], [0, 0]])
    return tf.reduce_max(tf.reshape(padded, [rows(padded) // 4, 4, 6]), 1), tf.range(0, rows(x), 3)


def whole_windows(x: tf.Tensor) -> Any:
    count = (rows(x) + 3) // 4
    return tf.range(count), tf.zeros([count, 4]), tf.fill([4 * count + rows(x) // 3], x[0, 0])


def downwards(x: tf.Tensor) -> Any:
    return tf.range(rows(x), 0, -2), tf.gather(x, tf.range(rows(x) - 1, -1, -1))


def filled(x: tf.Tensor) -> Any:
    kinds = tf.zeros([rows(x), 3], tf.int32)
    return tf.reduce_sum(tf.gather(TABLE, kinds), 1) + x, tf.ones_like(x), tf.fill([rows(x)], 7)


def recurrent(x: tf.Tensor) -> Any:
    def step(i: tf.Tensor, state: tf.Tensor) -> Any:
        return i + 1, tf.tanh(state @ WEIGHTS + x)

    return tf.while_loop(lambda i, _: i < 5, step, (0, tf.zeros_like(x)))[1]


def over_rows(x: tf.Tensor) -> Any:
    def step(i: tf.Tensor, state: tf.Tensor) -> Any:
        return i + 1, tf.tanh(state * 0.5 + x[i])

    return tf.while_loop(lambda i, _: i < rows(x), step, (0, x[0]))[1]


def lists(x: tf.Tensor) -> Any:
    return tf.map_fn(lambda row: tf.reduce_sum(row) * row, x), tf.scan(lambda a, row: a * 0.5 + row, x)


def ordered(x: tf.Tensor) -> Any:
    return (
        tf.sort(x, 0),
        tf.argsort(x[:, 0], stable=True),
        tf.math.top_k(x[:, 1], 2).values,
        tf.searchsorted(tf.sort(x[:, 2]), x[:, 3]),
        tf.argmax(x, 0),
        tf.cumsum(x, 0),
    )


def matches(x: tf.Tensor) -> Any:
    kept = tf.boolean_mask(x, x[:, 0] > 0.1)
    return kept, tf.reduce_mean(tf.nn.relu(kept @ WEIGHTS)), tf.where(x[:, 1] > 0.0)


def boxes(x: tf.Tensor) -> Any:
    numbers = tf.image.non_max_suppression(tf.concat([x[:, :2], x[:, :2] + 0.5], 1), x[:, 2], 2, 0.4)
    return tf.gather(x, numbers)


def segments(x: tf.Tensor) -> Any:
    places = tf.range(rows(x)) % 3
    return tf.math.unsorted_segment_sum(x, places, 3), tf.math.unsorted_segment_max(x, places // 2, rows(x))


def moved(x: tf.Tensor) -> Any:
    halves = tf.split(x, 2, 1)
    return (
        tf.stack(halves, 1),
        tf.tile(x, [2, 1]),
        tf.reverse(x, [0]),
        tf.roll(x, 1, 0),
        tf.transpose(x),
        tf.one_hot(tf.cast(x[:, 0], tf.int32) % 5, 5),
        tf.linalg.diag(x),
        tf.linalg.band_part(tf.matmul(x, x, transpose_b=True), 1, 2),
    )


def images(x: tf.Tensor) -> Any:
    planes = tf.reshape(x, [-1, 3, 2, 1])
    mixed = tf.nn.conv2d(planes, IMAGES, 1, "SAME")
    return (
        tf.nn.max_pool2d(tf.nn.relu(mixed), 2, 1, "SAME"),
        tf.nn.max_pool_with_argmax(mixed, 2, 2, "SAME"),
        tf.image.resize(planes, [5, 4]),
        tf.abs(tf.signal.rfft(x)),
    )


def sizes_as_images(x: tf.Tensor) -> Any:
    planes = tf.reshape(x, [1, -1, 6, 1])
    mixed = tf.nn.conv2d(planes, IMAGES, 2, "SAME")
    return tf.nn.avg_pool2d(tf.nn.relu(mixed), 2, 1, "SAME"), tf.reduce_mean(mixed, [1, 2])


def learned(x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(tf.square(tf.nn.softmax(tf.nn.gelu(x @ WEIGHTS)) - x))
    return loss, tape.gradient(loss, [x, WEIGHTS])


def normalized(x: tf.Tensor) -> Any:
    mean, variance = tf.nn.moments(x, [0], keepdims=True)
    scaled = (x - mean) * tf.math.rsqrt(variance + 1e-3)
    return scaled, tf.einsum("ni,ij,mj->nm", x, WEIGHTS, x), tf.math.reduce_logsumexp(x, 0)


def causal(x: tf.Tensor) -> Any:
    places = tf.range(rows(x), dtype=tf.float32)
    scores = tf.where(places[:, None] >= places[None, :], tf.matmul(x, x, transpose_b=True), -1e9)
    return tf.nn.softmax(scores) @ x, tf.range(0.0, tf.cast(rows(x), tf.float32), 0.5)


def of_halves(x: tf.Tensor) -> Any:
    half, third = rows(x) / 2, tf.floor(tf.cast(rows(x), tf.float32) / 3.0) + 1.0
    smaller = tf.image.resize(x[None, :, :, None], [tf.cast(tf.math.ceil(half + 1.0), tf.int32), 3])
    return smaller, tf.zeros([tf.cast(third, tf.int32)]), tf.reshape(x, [tf.cast(half * 4.0, tf.int32), 3])


def learned_words(x: tf.Tensor) -> Any:
    words = tf.cast(tf.abs(x[:, 0]) * 50.0, tf.int32) % 256
    splits = tf.stack([0, rows(x) // 3, rows(x) // 2, rows(x)])
    with tf.GradientTape() as tape:
        ragged = tf.RaggedTensor.from_row_splits(words, splits, validate=False)
        means = tf.reduce_mean(tf.nn.embedding_lookup(TABLE, ragged), 1)
        loss = tf.reduce_sum(means[-1] ** 2)
    return tf.convert_to_tensor(tape.gradient(loss, TABLE))


def chosen_of_many(x: tf.Tensor) -> Any:
    return tf.gather(tf.tile(x, [1, 1 << 16]), tf.where(x[:, 0] > -9.0)[:, 0])


ONE_FOR_ALL = (
    dense_of_four_axes,
    positions,
    grown,
    whole_windows,
    downwards,
    filled,
    recurrent,
    over_rows,
    matches,
    boxes,
    segments,
    moved,
    images,
    sizes_as_images,
    learned,
    normalized,
    causal,
    of_halves,
)


pytestmark = pytest.mark.usefixtures("in_background")


def traced(program: Program) -> Program:
    return tf.function(program, input_signature=[tf.TensorSpec([None, 6])])


def outcome(program: Program, x: tf.Tensor) -> Any:
    """The results, or the type of the error."""
    try:
        return [tf.convert_to_tensor(r) for r in tf.nest.flatten(program(x))]
    except tf.errors.OpError as error:
        return type(error)


def check(f: Program, program: Program, n: int) -> None:
    x = tf.constant(RANDOM.normal(size=(n, 6)).astype("f4"))
    found, wanted = outcome(f, x), outcome(traced(program), x)
    if isinstance(wanted, type):
        assert found is wanted
        return
    assert [(a.dtype, a.shape) for a in found] == [(b.dtype, b.shape) for b in wanted]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def compiled(program: Program) -> Program:
    """The program, with code for two sizes and what follows from them."""
    f = tfbridge.jit(traced(program))
    for n in (12, 19):
        check(f, program, n)
        assert tfbridge.wait_for_compilation(120)
    return f


@pytest.mark.parametrize("program", ONE_FOR_ALL)
def test_one_compilation_serves_all_sizes(program: Program) -> None:
    f = compiled(program)
    before = tfbridge.stats()
    assert (before["compiles"], before["symbolic_compiles"]) == (2, 1)
    for n in SIZES:
        check(f, program, n)
    after = tfbridge.stats()
    assert (after["compiles"], after["served_by_tensorflow"]) == (2, before["served_by_tensorflow"])


@pytest.mark.parametrize("program", [learned_words, chosen_of_many])
def test_rows_of_a_size_that_depends_on_data_beside_symbols(program: Program) -> None:
    f = compiled(program)
    before = tfbridge.stats()
    assert (before["compiles"], before["symbolic_compiles"]) == (2, 1)
    for n in SIZES[3:]:
        check(f, program, n)
    after = tfbridge.stats()
    assert (after["compiles"], after["served_by_tensorflow"]) == (2, before["served_by_tensorflow"])


@pytest.mark.parametrize("program", [*ONE_FOR_ALL, lists, windows, ordered])
def test_few_compilations_serve_sizes_of_any_kind(program: Program) -> None:
    """Sizes 1 and 0, and those that guards keep apart, have code of their own."""
    f = compiled(program)
    for n in (1, 20, 24, 0, 7, 2, 33, 1, 96, 0):
        check(f, program, n)
        assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["compiles"] <= 6
