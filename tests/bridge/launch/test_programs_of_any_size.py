"""Programs in which several axes change from call to call: code that fixes none of them serves sizes not met before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

RANDOM = np.random.default_rng(4)
WARM_SIZES, NEW_SIZES = 4, 8
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Sequence[int | None]], Callable[..., Any]]] = {}

pytestmark = pytest.mark.usefixtures("in_background")


def weights(*dims: int) -> tf.Variable:
    return tf.Variable(RANDOM.normal(size=dims).astype("f4") * 0.3)


VECTORS, KERNEL, DILATED, SCALES = weights(6, 6), weights(3, 3, 6, 6), weights(2, 6, 6), weights(6)


def program(*dims: Sequence[int | None], of: Callable[..., Any] = lambda *sizes: sizes) -> Any:
    """Adds a program of arrays of floats. of: the arrays' unknown sizes, from random ones, if they depend."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, dims, of
        return function

    return add


def gradients(function: Callable[[], tf.Tensor], *sources: Any) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(sources)
        loss = tf.reduce_mean(function() ** 2)
    return [loss, *tape.gradient(loss, sources)]


@program([None, None, 6])
def steps_of_time(x: tf.Tensor) -> list[tf.Tensor]:
    def run() -> tf.Tensor:
        steps = tf.shape(x)[1]

        def step(t: tf.Tensor, state: tf.Tensor, states: tf.TensorArray) -> Any:
            state = tf.tanh(x[:, t] + state @ VECTORS)
            return t + 1, state, states.write(t, state)

        state, states = tf.zeros([tf.shape(x)[0], 6]), tf.TensorArray(tf.float32, steps)
        return tf.while_loop(lambda t, *_: t < steps, step, (0, state, states))[2].stack()

    return gradients(run, x, VECTORS)


@program([None, None, None], [None, 3], of=lambda a, b, c, n: ((a, b, c), (n,)))
def points(x: tf.Tensor, p: tf.Tensor) -> Any:
    places = tf.cast((p % 1.0) * tf.cast(tf.shape(x), tf.float32), tf.int32)
    places = tf.minimum(places, tf.shape(x) - 1)
    taken = tf.gather_nd(x, places)
    return taken, tf.scatter_nd(places, taken, tf.shape(x)), gradients(lambda: tf.gather_nd(x, places), x)


@program([None, None, None, 6])
def batch_norm(x: tf.Tensor) -> list[tf.Tensor]:
    def run() -> tf.Tensor:
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, SCALES, SCALES, is_training=True)[:3]
        return tf.reduce_sum(y * y * y) + tf.reduce_sum(mean) + tf.reduce_sum(variance)

    return gradients(run, x, SCALES)


@program([1, None, None, 6], [None, 4], of=lambda h, w, n: ((h, w), (n,)))
def crops(x: tf.Tensor, boxes: tf.Tensor) -> list[tf.Tensor]:
    images = tf.zeros([tf.shape(boxes)[0]], tf.int32)
    return gradients(lambda: tf.image.crop_and_resize(x, 0.5 + 0.3 * boxes, images, [3, 1]), x, boxes)


@program([None, None, None, 3])
def contrasts(x: tf.Tensor) -> Any:
    return tf.image.adjust_contrast(x, 0.7), tf.image.per_image_standardization(x)


@program([None, None, None, 3])
def largest_places(x: tf.Tensor) -> Any:
    return tf.nn.max_pool_with_argmax(x, 2, 2, "SAME"), tf.nn.max_pool_with_argmax(x, 3, 2, "VALID")


@program([None, None])
def diagonals(x: tf.Tensor) -> Any:
    ones = tf.eye(tf.shape(x)[0], tf.shape(x)[1])
    return x * ones, tf.linalg.diag_part(x), tf.linalg.set_diag(x, 2.0 * tf.linalg.diag_part(x))


@program([None, None, None, 2])
def bicubic(x: tf.Tensor) -> list[tf.Tensor]:
    height, width = tf.unstack(tf.shape(x)[1:3])

    def run() -> tf.Tensor:
        large = tf.image.resize(x, [2 * height, width + 3], "bicubic")
        small = tf.image.resize(x, [height // 2 + 1, 5], "bicubic")
        return tf.reduce_sum(large * large, [1, 2]) + tf.reduce_sum(small, [1, 2])

    corners = tf.compat.v1.image.resize_bicubic(x, [height + 1, 2 * width], align_corners=True)
    return [corners, *gradients(run, x)]


@program([None, None, None, 6])
def padded_windows(x: tf.Tensor) -> tf.Tensor:
    count, height, width = tf.unstack(tf.shape(x)[:3])
    y = tf.pad(x, [[0, 0], [0, -height % 4], [0, -width % 4], [0, 0]])
    rows, columns = tf.shape(y)[1] // 4, tf.shape(y)[2] // 4
    windows = tf.transpose(tf.reshape(y, [count, rows, 4, columns, 4, 6]), [0, 1, 3, 2, 4, 5])
    mixed = tf.nn.softmax(tf.reshape(windows, [-1, 16, 6]) @ VECTORS)
    back = tf.transpose(tf.reshape(mixed, [count, rows, columns, 4, 4, 6]), [0, 1, 3, 2, 4, 5])
    return tf.reshape(back, tf.shape(y))[:, :height, :width]


@program([None, None, None, 6])
def encoder_and_decoder(x: tf.Tensor) -> tf.Tensor:
    count, height, width = tf.unstack(tf.shape(x)[:3])
    y = tf.pad(x, [[0, 0], [0, height % 2], [0, -width % 2], [0, 0]])
    half = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(y, KERNEL, 1, "SAME")), 2, 2, "VALID")
    back = tf.nn.conv2d_transpose(half, KERNEL, tf.shape(y), 2)
    return (y + back)[:, :height, :width]


@program([None, None, 6])
def dilations(x: tf.Tensor) -> tf.Tensor:
    for step in (2, 4):
        x += tf.tanh(tf.nn.convolution(tf.pad(x, [[0, 0], [step, 0], [0, 0]]), DILATED, dilations=[step]))
    return x


@program([None, None, None, None], [None, 12], of=lambda n, t: ((n, t, 2, 6), (n,)))
def longer_cache(cache: tf.Tensor, x: tf.Tensor) -> Any:
    longer = tf.concat([cache, tf.reshape(x, [tf.shape(x)[0], 1, 2, 6])], 1)
    return longer, tf.reshape(tf.reduce_mean(longer, 1), [tf.shape(x)[0], 12])


@program([None, None])
def ordered(x: tf.Tensor) -> list[tf.Tensor]:
    return gradients(lambda: tf.sort(x)[:, :2] + tf.math.top_k(x * x, 2).values, x)


@program([None, None, 6], [None, None, 6], of=lambda n, a, b: ((n, a), (n, b)))
def pairs(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
    def run() -> tf.Tensor:
        scores = tf.einsum("bid,de,bje->bij", x, VECTORS, y)
        return tf.einsum("bij,bje->bie", tf.nn.softmax(scores), y) * tf.reduce_max(scores, 2, keepdims=True)

    return gradients(run, x, VECTORS)


@program([None, 6])
def routed_rows(x: tf.Tensor) -> list[tf.Tensor]:
    def run() -> tf.Tensor:
        chosen = tf.argmax(x[:, :3], 1, output_type=tf.int32)
        numbers = tf.dynamic_partition(tf.range(tf.shape(x)[0]), chosen, 3)
        parts = [tf.nn.gelu(part @ VECTORS) for part in tf.dynamic_partition(x, chosen, 3)]
        return x + tf.dynamic_stitch(numbers, parts) * tf.reduce_max(x, 1, keepdims=True)

    return gradients(run, x, VECTORS)


@program([None, None])
def spectrum(x: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.signal.rfft(x, [64])) + tf.reduce_sum(tf.abs(tf.signal.rfft(x, [4])))


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_serves_sizes_that_are_new(name: str) -> None:
    function, dims, of = PROGRAMS[name]
    unknown = sum(axis is None for array in dims for axis in array)
    given = of.__code__.co_argcount or unknown
    f = tf.function(function, input_signature=[tf.TensorSpec(array) for array in dims])
    compiled = tfbridge.jit(f)

    def check() -> list[tf.Tensor]:
        sizes = of(*RANDOM.choice(np.arange(5, 24), given, replace=False))
        each = iter(sizes if isinstance(sizes[0], tuple) else [sizes])
        arrays = []
        for array in dims:
            values = iter(next(each))
            shape = [next(values) if axis is None else axis for axis in array]
            arrays.append(tf.constant(RANDOM.normal(size=shape).astype("f4")))
        for found, wanted in zip(
            tf.nest.flatten(compiled(*arrays)), tf.nest.flatten(f(*arrays)), strict=True
        ):
            scale = float(np.abs(wanted).max(initial=1))
            np.testing.assert_allclose(found, wanted, 1e-4, 2e-5 * scale, err_msg=str(sizes))
        return arrays

    for _ in range(WARM_SIZES):
        check()
        assert tfbridge.wait_for_compilation(120)
    served = tfbridge.stats()["served_by_tensorflow"]
    for _ in range(NEW_SIZES):
        arrays = check()
        assert tfbridge.stats()["served_by_tensorflow"] == served, str(tfbridge.explain(compiled, *arrays))


def test_quotients_of_sizes_in_narrow_types() -> None:
    """A size of 300 is 44 in eight bits, before it is divided."""

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def narrow(x: tf.Tensor) -> Any:
        size = tf.shape(x)[0]
        return tf.cast(size, tf.uint8) // 3, tf.cast(size, tf.int16) % 7, -size % 4, tf.fill([size // 5], 1)

    compiled = tfbridge.jit(narrow)
    for n in (20, 30, 300, 40_000, 7):
        for found, wanted in zip(compiled(tf.zeros([n])), narrow(tf.zeros([n])), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert tfbridge.wait_for_compilation(120)
    assert tfbridge.stats()["symbolic_compiles"] == 1
