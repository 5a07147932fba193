"""Random ops without a seed: TensorFlow's distributions, new numbers in every run; with one: TensorFlow's numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

COUNT = 20000
CASES: dict[str, tuple[Callable[[], tf.Tensor], float, float]] = {  # with mean and deviation
    "RandomUniform": (lambda: tf.random.uniform([COUNT]), 0.5, 12**-0.5),
    "RandomStandardNormal": (lambda: tf.random.normal([COUNT], dtype=tf.float64), 0, 1),
    "TruncatedNormal": (lambda: tf.random.truncated_normal([COUNT]), 0, 0.8796),
    "RandomUniformInt": (lambda: tf.random.uniform([COUNT], 3, 8, tf.int32), 5, 2**0.5),
    "NonDeterministicInts": (
        lambda: tf.raw_ops.NonDeterministicInts(shape=[COUNT], dtype=tf.int32),
        0,
        2**32 * 12**-0.5,
    ),
    "Multinomial": (
        lambda: tf.raw_ops.Multinomial(logits=[[0.0, np.log(3.0)]], num_samples=COUNT),
        0.75,
        0.433,
    ),
    "RandomGamma": (lambda: tf.random.gamma([COUNT], 2.5), 2.5, 2.5**0.5),
    "RandomPoissonV2": (lambda: tf.random.poisson([COUNT], 12.0), 12, 12**0.5),
    "ParameterizedTruncatedNormal": (
        lambda: tf.raw_ops.ParameterizedTruncatedNormal(
            shape=[COUNT], means=1.0, stdevs=2.0, minvals=0.0, maxvals=4.0
        ),
        1.7127,
        1.0587,
    ),
}


@pytest.fixture(autouse=True)
def no_global_seed() -> None:
    """Another test of this process may have set one, which is then the seed of every op."""
    tf.random.set_seed(None)


@pytest.mark.parametrize("op", CASES)
def test_distribution(op: str) -> None:
    draw, mean, deviation = CASES[op]
    tfbridge.reset_stats()
    compiled = tfbridge.jit(draw, strict=True)
    first, second = (np.ravel(compiled().numpy()).astype(np.float64) for _ in range(2))
    assert tfbridge.stats()["fallbacks"] == 0
    assert (first != second).any()
    for drawn, other in ((first, second), (second, first)):
        np.testing.assert_allclose(drawn.mean(), mean, 0, 5 * deviation / COUNT**0.5)
        np.testing.assert_allclose(drawn.std(), deviation, 0.04)
        assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.05


def test_stateless_truncated_normal() -> None:
    """TensorFlow's distribution, the same numbers for a seed; a parameter for every column."""

    def draw(seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_parameterized_truncated_normal(
            [COUNT, 2, 3], seed, [[0.0, 1.0, 2.0]], [[1.0], [2.0]], [-1.0, -np.inf, 3.0], 8.0
        )

    seed, other = tf.constant([3, 4]), tf.constant([3, 5])
    tfbridge.reset_stats()
    compiled = tfbridge.jit(draw, strict=True)
    drawn, wanted = compiled(seed).numpy(), draw(seed).numpy()
    assert tfbridge.stats()["fallbacks"] == 0
    np.testing.assert_array_equal(drawn, compiled(seed))
    assert (drawn != compiled(other).numpy()).mean() > 0.99
    assert (drawn <= 8).all() and (drawn >= np.array([-1, -np.inf, 3])).all()
    shares = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(drawn, shares, 0), np.quantile(wanted, shares, 0), 0, 0.15)


def test_far_tail() -> None:
    drawn = tfbridge.jit(
        lambda: tf.raw_ops.ParameterizedTruncatedNormal(
            shape=[3, 1000],
            means=[0.0, 5.0, -2.0],
            stdevs=[1.0],
            minvals=[8.0, -9.0, -3.0],
            maxvals=[9.0, -5.0, -1.0],
        ),
        strict=True,
    )().numpy()
    for row, (low, high) in zip(drawn, ((8, 9), (-9, -5), (-3, -1))):
        assert (row >= low).all() and (row <= high).all() and len(np.unique(row)) > 500


def test_shuffle_keeps_the_rows() -> None:
    rows = np.arange(600).reshape(200, 3)
    shuffled = tfbridge.jit(tf.random.shuffle, strict=True)(tf.constant(rows)).numpy()
    assert (shuffled != rows).any()
    np.testing.assert_array_equal(shuffled[np.argsort(shuffled[:, 0])], rows)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tf.random.uniform([5], seed=3),
        lambda: tf.random.shuffle(tf.range(9), seed=4),
        lambda: tf.random.normal([3, 2], seed=1) * 2.0 + 1.0,
    ],
)
def test_seed_gives_tensorflows_numbers(draw: Callable[[], tf.Tensor]) -> None:
    runs = []
    for make in (tf.function, tfbridge.jit):
        tf.random.set_seed(5)
        function = make(draw)
        runs.append([function().numpy() for _ in range(3)])
    np.testing.assert_array_equal(runs[1], runs[0])
