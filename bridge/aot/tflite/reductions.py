"""Operators that reduce along axes, sort, search, or transform."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .operation import Operation, Result
from .registry import translates

_REDUCTIONS: dict[str, Callable[..., tf.Tensor]] = {
    "MEAN": tf.reduce_mean,
    "SUM": tf.reduce_sum,
    "REDUCE_PROD": tf.reduce_prod,
    "REDUCE_MAX": tf.reduce_max,
    "REDUCE_MIN": tf.reduce_min,
    "REDUCE_ANY": tf.reduce_any,
    "REDUCE_ALL": tf.reduce_all,
}


@translates(*_REDUCTIONS)
def reduce(op: Operation) -> Result:
    return _REDUCTIONS[op.name](op.number(0), op.integers(1), keepdims=bool(op.option("keepDims", False)))


@translates("ARG_MAX", "ARG_MIN")
def arg_max(op: Operation) -> Result:
    search = tf.argmax if op.name == "ARG_MAX" else tf.argmin
    return search(op.number(0), op.integers(1)[0], op.results[0].dtype)


@translates("TOPK_V2", stores=True)
def top_k(op: Operation) -> Result:
    """Integers are in the order of the numbers that they stand for."""
    values, indices = tf.math.top_k(op.stored(0), op.integers(1)[0])
    return values, tf.cast(indices, op.results[1].dtype)


@translates("CUMSUM")
def cumulative_sum(op: Operation) -> Result:
    return tf.cumsum(
        op.number(0), op.integers(1)[0], bool(op.option("exclusive")), bool(op.option("reverse"))
    )


@translates("RFFT2D")
def real_fourier_transform(op: Operation) -> Result:
    return tf.signal.rfft2d(op.number(0), op.integers(1))


@translates("SHAPE")
def shape(op: Operation) -> Result:
    return tf.shape(op.stored(0), op.results[0].dtype)


@translates("RANK")
def rank(op: Operation) -> Result:
    return tf.constant(np.int32(op.stored(0).shape.rank))


@translates("RANGE")
def number_range(op: Operation) -> Result:
    return tf.range(op.number(0), op.number(1), op.number(2))


@translates("ONE_HOT")
def one_hot(op: Operation) -> Result:
    on, off = op.number(2), op.number(3)
    return tf.one_hot(op.number(0), op.integers(1)[0], on, off, op.option("axis"), on.dtype)
