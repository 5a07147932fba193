"""Single operations at sizes where people wait for them, each in TensorFlow and in NumPy: the suite `ops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ..program import Array, Program
from .workloads import Workload

_Rows = list[
    tuple[
        str,
        Callable[..., Any],
        Callable[..., Any],
        Callable[..., Sequence[Array]],
        tuple[int, ...],
        tuple[int, ...],
        float,
    ]
]


def _random() -> np.random.Generator:
    return np.random.default_rng(1)


def _numbers(*dims: int) -> list[Array]:
    return [_random().standard_normal(dims, dtype=np.float32)]


def _complex(n: int) -> list[Array]:
    parts = _random().standard_normal((n, 2), dtype=np.float32)
    return [parts.view(np.complex64)[:, 0]]


def _rows_of(table: int, width: int, count: int) -> list[Array]:
    """A table, row numbers and as many rows."""
    random = _random()
    return [
        random.standard_normal((table, width), dtype=np.float32),
        random.integers(0, table, count).astype(np.int32),
        random.standard_normal((count, width), dtype=np.float32),
    ]


def _positive(n: int) -> list[Array]:
    """A positive definite matrix."""
    root = _random().standard_normal((n, n))
    return [(root @ root.T / n + np.eye(n)).astype(np.float32)]


def _triangle(n: int, columns: int) -> list[Array]:
    random = _random()
    matrix = np.tril(random.standard_normal((n, n)) / n) + 2 * np.eye(n)
    return [matrix.astype(np.float32), random.standard_normal((n, columns), dtype=np.float32)]


def _scatter_add(table: Array, rows: Array, updates: Array) -> Array:
    result = table.copy()
    np.add.at(result, rows, updates)
    return result


def _batch_norm(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    channels = x.shape[-1]
    return tuple(tf.compat.v1.nn.fused_batch_norm(x, tf.ones(channels), tf.zeros(channels), epsilon=1e-3))


def _batch_norm_numpy(x: Array) -> tuple[Array, ...]:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    scaled = (x - mean) * (1 / np.sqrt(variance + np.float32(1e-3)))
    return scaled, mean, variance * np.float32(count / (count - 1))


def _top_k_numpy(x: Array, k: int) -> tuple[Array, Array]:
    largest = np.argpartition(-x, k)[:k]
    order = largest[np.argsort(-x[largest], kind="stable")]
    return x[order], order.astype(np.int32)


def _uniform(seed: tf.Tensor, n: int) -> tf.Tensor:
    return tf.random.stateless_uniform([n], seed)


# name, in TensorFlow, in NumPy, inputs of sizes, sizes, sizes for tests, tolerance
_ROWS: _Rows = [
    ("sort", tf.sort, np.sort, _numbers, (1_000_000,), (100,), 0.0),
    (
        "argsort",
        lambda x: tf.argsort(x, stable=True),
        lambda x: np.argsort(x, kind="stable").astype(np.int32),
        _numbers,
        (1_000_000,),
        (100,),
        0.0,
    ),
    ("cumsum", tf.cumsum, np.cumsum, _numbers, (1_000_000,), (100,), 1e-4),
    (
        "scatter_add_rows",
        lambda table, rows, updates: tf.tensor_scatter_nd_add(table, rows[:, None], updates),
        _scatter_add,
        _rows_of,
        (10_000, 64, 100_000),
        (10, 4, 100),
        1e-5,
    ),
    (
        "gather_rows",
        lambda table, rows, _: tf.gather(table, rows),
        lambda table, rows, _: table[rows],
        _rows_of,
        (100_000, 64, 100_000),
        (10, 4, 100),
        0.0,
    ),
    *(
        (
            f"fft_{n}",
            tf.signal.fft,
            lambda x: np.fft.fft(x).astype(np.complex64),
            _complex,
            (n,),
            (n % 97 + 30,),
            1e-5,
        )
        for n in (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1000)
    ),
    ("cholesky", tf.linalg.cholesky, np.linalg.cholesky, _positive, (512,), (12,), 1e-5),
    ("triangular_solve", tf.linalg.triangular_solve, np.linalg.solve, _triangle, (512, 512), (12, 5), 1e-5),
    (
        "top_k",
        lambda x: tuple(tf.math.top_k(x, 100)),
        lambda x: _top_k_numpy(x, 100),
        _numbers,
        (1_000_000,),
        (200,),
        0.0,
    ),
    ("argmax", lambda x: tf.argmax(x, 1), lambda x: np.argmax(x, 1), _numbers, (4096, 4096), (5, 70), 0.0),
    ("batch_norm_training", _batch_norm, _batch_norm_numpy, _numbers, (32, 56, 56, 64), (2, 5, 5, 8), 1e-5),
    (
        "reduce_axis_0",
        lambda x: tf.reduce_sum(x, 0),
        lambda x: x.sum(0),
        _numbers,
        (4096, 4096),
        (50, 70),
        1e-4,
    ),
    (
        "reduce_axis_1",
        lambda x: tf.reduce_sum(x, 1),
        lambda x: x.sum(1),
        _numbers,
        (4096, 4096),
        (50, 70),
        1e-4,
    ),
    # NumPy draws other numbers between 0 and 1.
    (
        "random_uniform",
        partial(_uniform, n=10_000_000),
        lambda seed: np.random.default_rng(seed).random(10_000_000, dtype=np.float32),
        lambda: [np.array([1, 2], np.int32)],
        (),
        (),
        1.01,
    ),
]


def _program(
    function: Callable[..., Any],
    numpy_function: Callable[..., Any],
    inputs: Callable[..., Sequence[Array]],
    sizes: tuple[int, ...],
) -> Program:
    program = Program(lambda *values: function(*values), inputs(*sizes))
    program.numpy_function = numpy_function
    return program


OPERATIONS = {
    name: Workload(
        name,
        "inference",
        partial(_program, function, numpy_function, inputs, sizes),
        partial(_program, function, numpy_function, inputs, small),
        tolerance,
    )
    for name, function, numpy_function, inputs, sizes, small, tolerance in _ROWS
}
