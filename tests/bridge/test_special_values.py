"""NaN and infinities where an op's answer is not arithmetic's alone: compiled code gives, or leaves, TensorFlow's."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

NAN, INF = np.nan, np.inf
RANDOM = np.random.default_rng(7)


def with_special(*dims: int) -> np.ndarray:
    """Random f32, some of them NaN or infinite."""
    array = RANDOM.normal(size=dims).astype(np.float32)
    array.flat[[3, 17, 40]] = NAN, INF, -INF
    return array


CASES: dict[str, tuple[Callable[[tf.Tensor], tf.Tensor], np.ndarray]] = {
    "area": (lambda x: tf.image.resize(x, (4, 5), "area"), with_special(2, 7, 5, 3)),
    "antialias": (lambda x: tf.image.resize(x, (4, 9), "bilinear", antialias=True), with_special(2, 7, 5, 3)),
    "log_sums": (lambda x: tf.math.cumulative_logsumexp(x, 1), with_special(6, 9)),
    "log_sums_reversed": (lambda x: tf.math.cumulative_logsumexp(x, 0, True, True), with_special(6, 9)),
    "crop": (
        lambda x: tf.image.crop_and_resize(x, [[-0.5, 0.1, 2.0, 0.7]], [1], (3, 4)),
        with_special(2, 7, 5, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_in_tensorflow(name: str) -> None:
    """Once with special values, once without: the run with some may be left to TensorFlow, the other is not."""
    function, special = CASES[name]
    tfbridge.reset_stats()
    compiled = tfbridge.jit(function, strict=True)
    plain = np.nan_to_num(special, posinf=1.0, neginf=-1.0)
    for array in (plain, special, plain):
        np.testing.assert_allclose(
            compiled(tf.constant(array)), function(tf.constant(array)), rtol=2e-5, atol=2e-5
        )
    assert tfbridge.stats()["fallbacks"] == 0


def test_boxes_that_are_not_finite_are_an_error() -> None:
    function = tfbridge.jit(lambda x, boxes: tf.image.crop_and_resize(x, boxes, [0], (2, 2)), strict=True)
    image = tf.ones((1, 4, 4, 1))
    assert function(image, tf.constant([[0.0, 0.0, 1.0, 1.0]])).shape == (1, 2, 2, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        function(image, tf.constant([[0.0, NAN, 1.0, 1.0]]))


@pytest.mark.parametrize("function", [tf.linalg.logm, tf.linalg.sqrtm])
@pytest.mark.parametrize(
    "matrix", [[[-1.0, 0.0], [0.0, 2.0]], [[2.0, 1.0], [0.5, 3.0]], [[0.0, 0.0], [0.0, 2.0]]]
)
def test_matrices_on_the_cut(function: Callable[[tf.Tensor], tf.Tensor], matrix: list[list[float]]) -> None:
    """Eigenvalues that are negative, or zero."""
    x = tf.constant(matrix, tf.complex128)
    np.testing.assert_allclose(tfbridge.jit(function, strict=True)(x), function(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_is_sorted_last(dtype: str) -> None:
    """TensorFlow's own order of it depends on where it stands; at the end it stays there."""
    values = tf.constant([[3.0, INF, -INF, -0.0, 0.0, 2.0, NAN], [1.0, 5.0, 4.0, 2.0, NAN, NAN, NAN]], dtype)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.sort(x),
            tf.sort(x, direction="DESCENDING"),
            tf.argsort(x, stable=True),
            *tf.math.top_k(x, 7),
        ]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(values), function(values), strict=True):
        np.testing.assert_array_equal(tf.cast(given, "float64"), tf.cast(wanted, "float64"))


@pytest.mark.parametrize(
    ("dtype", "is_sorted"),
    [
        ("float32", False),
        ("float32", True),
        ("bfloat16", False),
        ("float64", True),
        ("int32", False),
        ("uint8", False),
    ],
)
def test_top_k_has_the_order_of_tensorflows_heap(dtype: str, is_sorted: bool) -> None:
    """Also of NaN, which is neither more nor less than a number, and of equal elements."""
    values = np.random.RandomState(0).randint(0, 40, (20, 61)).astype(np.float64)
    if "float" in dtype:
        values[:, ::9], values[:10, 3::17], values[values == 7] = -0.0, NAN, 0.0
    x = tf.cast(values, dtype)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        counts = (2, 3, 7, 17, 60)
        return [part for k in counts for part in tf.math.top_k(x, k, sorted=is_sorted)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        assert given.numpy().tobytes() == wanted.numpy().tobytes()


def test_fake_quantization_without_a_range_is_an_error() -> None:
    function = tfbridge.jit(lambda x: tf.quantization.fake_quant_with_min_max_args(tf.exp(x), 3.0, 1.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="min has to be smaller than max"):
        function(tf.ones(3))


def test_gamma_of_what_is_no_shape() -> None:
    shapes = tf.constant([-0.5, -0.66, -1.0, 0.0, -0.0, NAN, INF, -INF, 2.0])

    def function(alpha: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomGammaV2(shape=[5, 9], seed=seed, alpha=alpha)

    seed = tf.constant([3, 7])
    found = tfbridge.jit(function, strict=True)(shapes, seed)
    np.testing.assert_allclose(found, function(shapes, seed), rtol=1e-4)


DENORMAL = np.array([1e-45, -1e-40, 1e-38, 1.0], np.float32)


def scaled(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Both read denormals; the second also makes some."""
    return tf.cast(x > 0, tf.float32), x * 1e30 + tf.exp(x * 0 - 100)


@pytest.mark.parametrize("numerics", ["tf", "reproducible"])
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_denormals_are_zero_on_every_route(numerics: str, size: int) -> None:
    """First and later direct calls, inside a function, from another thread, on arrays; large ones with helpers."""
    array = np.resize(DENORMAL, size)
    x = tf.constant(array)
    compiled = tfbridge.jit(scaled, strict=True, numerics=numerics)
    inside, others = tf.function(lambda x: compiled(x)), []
    thread = threading.Thread(target=lambda: others.append(compiled(x)))
    thread.start()
    thread.join()
    wanted = [part.numpy().view(np.uint32) for part in scaled(x)]
    assert wanted[1][0] == 0, "TensorFlow keeps denormals"
    for results in (*others, compiled(x), compiled(x), inside(x), inside(x), compiled.native(array)):
        for result, want in zip(results, wanted):
            np.testing.assert_array_equal(np.asarray(result).view(np.uint32), want)
    assert np.float32(1e-45) * np.float32(1e30) > 0, "a run has changed this thread's mode"


def test_denormal_constants_are_folded_as_they_would_run() -> None:
    compiled = tfbridge.jit(lambda x: x + tf.constant(1e-40) * tf.constant(1e30), strict=True)
    assert compiled(tf.constant(0.0)) == 0
