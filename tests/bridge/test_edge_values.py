"""Elementwise functions at the ends of their domains, against TensorFlow or a mathematical fact."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.translate.math.float_to_integer import float_to_integer
from tfbridge.compiler import ComputationBuilder, LocalClient
from tfbridge.compiler.ir.element_types import element_type_of

INF, NAN = float("inf"), float("nan")
REALS = ("float32", "float64", "float16", "bfloat16")
OUTSIDE = (
    NAN,
    INF,
    -INF,
    300.0,
    -300.0,
    -2.5,
    127.9,
    -128.9,
    255.9,
    256.0,
    4e4,
    -4e4,
    7e4,
    3e9,
    -3e9,
    5e9,
    -5e9,
    1e20,
)


@pytest.mark.parametrize("source", [*REALS, "complex64", "complex128", "float8_e5m2"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_casts_out_of_range(source: str, target: str) -> None:
    """TensorFlow converts vectors of elements in one way, those that are left at the end in another."""
    values = np.resize(np.array(OUTSIDE, np.float32 if "8" in source[:7] else np.float64), 2 * 32 + 7)
    parts = [tf.cast(values[:n], source) for n in (2 * 32 + 7, 32, 5)]

    def function(*parts: tf.Tensor) -> list[tf.Tensor]:
        return [tf.cast(part, target) for part in parts]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(*parts), function(*parts), strict=True):
        np.testing.assert_array_equal(given, wanted)


# What TensorFlow 2.21 for AArch64 makes of 31 equal elements: (source, target, element, results and how many of each).
ON_AARCH64 = (
    ("float32", "int8", 300.0, [(44, 31)]),
    ("float32", "int16", -7e4, [(-4464, 31)]),
    ("float32", "uint8", -129.0, [(127, 16), (0, 8), (127, 7)]),
    ("float32", "uint8", 3e9, [(255, 16), (0, 8), (255, 7)]),
    ("bfloat16", "uint8", -129.0, [(0, 24), (127, 7)]),
    ("float16", "uint8", -129.0, [(127, 31)]),
    ("float32", "uint16", 3e9, [(24064, 24), (65535, 7)]),
    ("float16", "uint16", -129.0, [(0, 24), (65407, 7)]),
    ("complex64", "uint16", -4e4, [(0, 24), (25536, 7)]),
    ("float64", "int8", 3e9, [(0, 24), (-1, 7)]),
    ("float64", "uint16", -3e9, [(41472, 24), (0, 7)]),
    ("float64", "int32", 3e9, [(-1294967296, 28), (2147483647, 3)]),
    ("complex128", "uint32", 7e9, [(2705032704, 28), (4294967295, 3)]),
    ("float32", "int32", 3e9, [(2147483647, 31)]),
    ("float32", "uint32", -3e9, [(0, 31)]),
    ("float32", "int64", -INF, [(-(2**63), 31)]),
    ("float32", "uint64", INF, [(2**64 - 1, 31)]),
    ("float64", "int32", NAN, [(0, 31)]),
)


@pytest.mark.parametrize("source, target, element, runs", ON_AARCH64)
def test_casts_out_of_range_on_aarch64(
    source: str, target: str, element: float, runs: list[tuple[int, int]]
) -> None:
    b = ComputationBuilder("cast")
    x = b.constant(np.full(31, element).astype(tf.as_dtype(source).as_numpy_dtype))
    float_to_integer(b, x, element_type_of(target), "aarch64")
    [given] = LocalClient().compile(b.build()).execute([])
    np.testing.assert_array_equal(
        given, np.repeat(np.array([v for v, _ in runs], target), [n for _, n in runs])
    )


@pytest.mark.parametrize("dtype", REALS)
def test_signs_of_zeros(dtype: str) -> None:
    x = tf.constant([0.0, -0.0, 0.0, -0.0], dtype)
    y = tf.constant([-0.0, 0.0, 0.0, -0.0], dtype)

    def function(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        wide = tf.tile(x, [8]), tf.tile(y, [8])  # whole vectors of TensorFlow's
        return [
            tf.sign(x),
            tf.maximum(*wide),
            tf.minimum(*wide),
            tf.clip_by_value(wide[0], wide[1], wide[0] + 1),
        ]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x, y), function(x, y), strict=True):
        np.testing.assert_array_equal(np.signbit(given.numpy()), np.signbit(wanted.numpy()))


@pytest.mark.parametrize("dtype", REALS)
def test_activations_near_zero(dtype: str) -> None:
    """TensorFlow subtracts 1 from the exponential; its error is part of the answer."""
    x = tf.cast([-1e-5, -1e-3, -0.01, -0.1, -1.0, 0.0, -0.0, 2.0, NAN, INF, -INF], dtype)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.nn.elu(x), tf.nn.selu(x)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        absolute = 0.0 if dtype in ("float16", "bfloat16") else 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(
            tf.cast(given, "float64"), tf.cast(wanted, "float64"), rtol=0, atol=absolute
        )
        np.testing.assert_array_equal(np.signbit(given[5:7].numpy()), np.signbit(wanted[5:7].numpy()))


def test_sums_of_one_element_keep_its_sign() -> None:
    x = tf.constant([[-0.0], [0.0], [NAN]])

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.reduce_sum(x, 1),
            tf.reduce_mean(x, 1, keepdims=True),
            tf.nn.softmax_cross_entropy_with_logits(tf.ones_like(x), x),
        ]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        np.testing.assert_array_equal(given, wanted)
        np.testing.assert_array_equal(np.signbit(given[:2]), np.signbit(wanted[:2]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_and_bessel_functions(dtype: str) -> None:
    x = tf.constant(
        [1.0, 1.5, 2.0, 1.0001, 0.9999, 0.5, 1e-3, -0.5, -2.5, -7.3, 7.25, 8.0, 20.0, 88.7, 1e5], dtype
    )

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.lgamma(x), tf.math.digamma(x), tf.math.bessel_i0e(x), tf.math.bessel_i1e(x)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_denormals_are_those_of_zeros(dtype: str) -> None:
    tiny = np.finfo(dtype).tiny / 4
    x = tf.constant([0.0, -7.25, tiny, -tiny, 2.0, -0.0], dtype)
    y = tf.constant([tiny, tiny, -2.0, 3.0, 3.0, 3.0], dtype)
    given = tfbridge.jit(tf.pow, strict=True)(x, y)
    np.testing.assert_array_equal(given, [1.0, 1.0, INF, -0.0, 8.0, -0.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hyperbolic_functions_of_large_numbers(dtype: str) -> None:
    x = tf.constant(
        [88.7, -88.0, 50.0, 710.0 if dtype == "float64" else 89.0, 1e3, -1e3, INF, -INF, NAN], dtype
    )

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.sinh(x), tf.cosh(x)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [*REALS, "complex64", "complex128"])
def test_gradient_of_sinh(dtype: str) -> None:
    """At 11.5 both are near float16's largest number."""
    x = tf.cast(tf.constant([-11.5, -1.0, -0.4, -1e-4, 0.0, 0.3, 0.4, 0.9, 3.0, 11.5], tf.float64), dtype)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.sinh(x)
        return [y, tape.gradient(y, x)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        eps = float(ml_dtypes.finfo(tf.as_dtype(dtype).real_dtype.as_numpy_dtype).eps)
        given, wanted = (np.asarray(tf.cast(v, tf.complex128)) for v in (given, wanted))
        np.testing.assert_allclose(given, wanted, rtol=10 * eps)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_sinh_of_small_numbers_is_themselves(dtype: str) -> None:
    tiny = float(ml_dtypes.finfo(tf.as_dtype(dtype).as_numpy_dtype).tiny)
    x = tf.constant([0.0, -0.0, tiny, -tiny, 1.5 * tiny, tiny / 4, -tiny / 4, 1e-21], dtype)
    assert tfbridge.jit(tf.sinh, strict=True)(x).numpy().tobytes() == x.numpy().tobytes()


def test_the_incomplete_gamma_functions_have_no_holes() -> None:
    """TensorFlow's own do not converge for large a: these values are mpmath's."""
    a = tf.constant([3e9, 1e5, 710.0, 1e30, 1.5, 7.25, 1.0, 1e-38, 1e5, 1e5, 200.5], tf.float64)
    x = tf.constant([3e9, 1e5, 710.0, 1e30, 1e19, 1e308, 1.5, 0.5, 9.9e4, 6e4, 170.0], tf.float64)
    lower = [
        0.5000024278854013,
        0.5004205221103652,
        0.5049907179250911,
        0.5,
        1.0,
        1.0,
        0.7768698398515702,
        1.0,
        0.0007574199211747680,
        0.0,
        0.01221809673974472,
    ]

    def function(a: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.igamma(a, x), tf.math.igammac(a, x)]

    given, upper = tfbridge.jit(function, strict=True)(a, x)
    np.testing.assert_allclose(given, lower, rtol=1e-12)
    np.testing.assert_allclose(upper, 1 - np.array(lower), rtol=1e-11, atol=1e-12)


def test_zeta_of_large_numbers() -> None:
    x = tf.constant([1e19, 1e300, 1e19, 1.5, 1e308, 8388609.0], tf.float64)
    q = tf.constant([2.5, 1.0, 0.5, 1e308, -7.25, -0.5], tf.float64)
    given = tfbridge.jit(tf.math.zeta, strict=True)(x, q)
    np.testing.assert_array_equal(given, tf.math.zeta(x, q))
    n, x = tf.constant([1e19, 3.4e38, 3e9], tf.float32), tf.constant([1.0, 0.9999, -0.0])
    np.testing.assert_array_equal(tfbridge.jit(tf.math.polygamma, strict=True)(n, x), tf.math.polygamma(n, x))


_PARTS = (0.0, -0.0, 1.0, -2.5, INF, -INF, NAN)


@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atanh", "tan", "tanh"])
def test_complex_functions_on_their_edges(name: str) -> None:
    """As Annex G of C99 has them, signs of zeros included."""
    _same(getattr(tf.math, name), np.array([complex(x, y) for x in _PARTS for y in _PARTS]))


@pytest.mark.parametrize("name", ["cos", "cosh", "sin", "sinh"])
def test_complex_sines_of_infinity(name: str) -> None:
    values = [complex(x, y) for x in _PARTS for y in _PARTS if (x, y) not in itertools.product([NAN], [0.0])]
    _same(getattr(tf.math, name), np.array(values))


def test_complex_reciprocal_roots() -> None:
    _same(tf.math.rsqrt, np.array([complex(x, y) for x in _PARTS for y in _PARTS]))
    _same(tf.math.reciprocal, np.array([complex(0, NAN), complex(NAN, 0), complex(-2.5, 1)]))


@pytest.mark.parametrize("function", [tf.exp, tf.sigmoid, tf.nn.silu], ids=lambda f: f.__name__)
def test_complex_exponentials_of_large_numbers(function: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Only e^-inf is 0 whatever the angle: that of a large number is NaN where the angle is no number."""
    parts = (0.0, 1.0, -2.5, 1e30, -1e30, NAN, INF, -INF)
    given, wanted = _both(function, np.array([complex(x, y) for x in parts for y in parts]))
    np.testing.assert_allclose(given.real, wanted.real, rtol=1e-12)  # 1 + exp(-x) may cancel
    np.testing.assert_allclose(given.imag, wanted.imag, rtol=1e-12)


def test_complex_expm1_of_minus_infinity() -> None:
    _same(tf.math.expm1, np.array([complex(-INF, y) for y in (1.0, -2.5, INF, -INF, NAN)]))


def test_complex_sigmoid_of_real_numbers() -> None:
    _same(tf.sigmoid, np.array([complex(x, y) for x in (0.0, 1.0, -2.5) for y in (0.0, -0.0)]))


def test_complex_powers_of_infinities() -> None:
    """exp(y log x) with the product of C99's Annex G. Powers of 0 aside, which are 1 here."""
    numbers = [complex(x, y) for x in _PARTS for y in _PARTS]
    _same(tf.pow, *np.array([(x, y) for x in numbers for y in numbers if y != 0]).T)


def test_gradient_of_complex_roots_at_infinities() -> None:
    y = np.array([1j, 1 + 1j, -2.5 + 1j] * 3)
    dy = np.array([complex(0, INF), complex(INF, -2.5), complex(-INF, 1)]).repeat(3)
    _same(lambda y, dy: tf.raw_ops.SqrtGrad(y=y, dy=dy), y, dy)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arc_sines_of_the_smallest_numbers(dtype: str) -> None:
    tiny = np.finfo(dtype).tiny
    x = tf.constant([tiny, -tiny, tiny * 4, 1.0, -1.0, 0.0, -0.0, 1.5, NAN], dtype)
    given = tfbridge.jit(tf.asin, strict=True)(x)
    np.testing.assert_allclose(given, tf.asin(x), rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(given[5:7]), [False, True])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbours_of_denormals(dtype: str) -> None:
    info = np.finfo(dtype)
    values = [0.0, -0.0, info.smallest_subnormal, info.tiny / 2, info.tiny, 1.0, info.max, INF]
    x, y = np.meshgrid(*[np.array([*values, *(-v for v in values), NAN], dtype)] * 2)
    given, wanted = _both(tf.math.nextafter, x, y)
    np.testing.assert_array_equal(
        given.view(f"i{given.itemsize}")[~np.isnan(wanted)],
        wanted.view(f"i{given.itemsize}")[~np.isnan(wanted)],
    )
    np.testing.assert_array_equal(np.isnan(given), np.isnan(wanted))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_denormals_and_infinities(dtype: str) -> None:
    tiny = np.finfo(dtype).tiny
    x, y = tf.constant([tiny / 2, -tiny / 2, 0.0, 2.0], dtype), tf.zeros(4, dtype)

    def function(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.xlogy(x, y), tf.math.xdivy(x, y), tf.math.xlog1py(x, y)]

    for given, wanted in zip(tfbridge.jit(function, strict=True)(x, y), function(x, y), strict=True):
        np.testing.assert_array_equal(given, wanted)


def test_truth_of_denormals() -> None:
    """TensorFlow looks at the bits of bfloat16 and at the numbers of wider types."""
    for dtype in (tf.bfloat16, tf.float16, tf.float32, tf.float64):
        tiny = float(ml_dtypes.finfo(dtype.as_numpy_dtype).tiny)
        values = np.array([0.0, -0.0, tiny / 2, -tiny / 2, tiny, 1.0, NAN, INF])
        given, wanted = _both(lambda x: tf.cast(x, tf.bool), values.astype(dtype.as_numpy_dtype))
        np.testing.assert_array_equal(given, wanted)


def test_incomplete_gamma_functions_of_the_smallest_shapes() -> None:
    """1 - a E1(x): TensorFlow gives 0 and 1, the wrong way round."""
    a, x = tf.constant([2.3e-308, 2.3e-308, 1e-300], tf.float64), tf.constant([1.0, 0.5, 0.001], tf.float64)
    np.testing.assert_array_equal(tfbridge.jit(tf.math.igamma, strict=True)(a, x), [1.0] * 3)
    np.testing.assert_array_equal(tfbridge.jit(tf.math.igammac, strict=True)(a, x), [0.0] * 3)


def _both(function: Callable[..., tf.Tensor], *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function's values, compiled and as TensorFlow has them."""
    tensors = [tf.constant(a) for a in arrays]
    return tfbridge.jit(function, strict=True)(*tensors).numpy(), function(*tensors).numpy()


def _same(function: Callable[..., tf.Tensor], *arrays: np.ndarray) -> None:
    given, wanted = _both(function, *arrays)
    for a, b in ((given.real, wanted.real), (given.imag, wanted.imag)):
        np.testing.assert_allclose(a, b, rtol=1e-14)
        known = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


def test_ranges_of_floats() -> None:
    """Every number is rounded twice, whatever the numbers before it."""

    def function(_: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.range(tf.constant(start, dtype), limit, delta)
            for dtype in ("float32", "float64")
            for start, limit, delta in ((-5, 5, 0.7), (1, 0, -0.3), (0, 1e-3, 1e-4), (3, 3, 1))
        ]

    x = tf.zeros(1)
    for given, wanted in zip(tfbridge.jit(function, strict=True)(x), function(x), strict=True):
        np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize(
    "values",
    [(0.0, INF, 1.0), (0.0, NAN, 1.0), (0.0, 1e30, 1.0), (0.0, 1.0, NAN), (NAN, 1.0, 1.0), (1.0, 0.0, 1.0)],
)
def test_ranges_without_an_end(values: tuple[float, float, float]) -> None:
    """TensorFlow's error, of shapes that are wrong."""
    tfbridge.reset_stats()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Requires"):
        tfbridge.jit(lambda start, limit, delta: tf.range(start, limit, delta) + 1.0)(
            *map(tf.constant, values)
        )
    assert all(reason.startswith("ShapeError: ") for reason in tfbridge.stats()["ops_left_out"])


@pytest.mark.parametrize("columns", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_of_segments_with_nan(columns: int, dtype: str) -> None:
    x = np.tile(np.arange(12.0)[:, None], (1, columns))
    x[[0, 4, 6, 8]] = NAN
    ids = [0, 0, 0, 1, 1, 1, 1, 3, 3, 4, 4, 4]

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.segment_max(x, ids), tf.math.segment_min(x, ids)]

    given, wanted = (f(tf.constant(x, dtype)) for f in (tfbridge.jit(function, strict=True), function))
    for a, b in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
