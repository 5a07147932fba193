"""Operators that put rows at places, sum rows that have the same place, and make or read diagonals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .operation import Operation, Result
from .registry import translates

_SEGMENTS: dict[str, Callable[..., tf.Tensor]] = {
    "UNSORTED_SEGMENT_MAX": tf.math.unsorted_segment_max,
    "UNSORTED_SEGMENT_MIN": tf.math.unsorted_segment_min,
    "UNSORTED_SEGMENT_PROD": tf.math.unsorted_segment_prod,
    "UNSORTED_SEGMENT_SUM": tf.math.unsorted_segment_sum,
}


@translates("SCATTER_ND")
def scatter(op: Operation) -> Result:
    return tf.scatter_nd(op.number(0), op.number(1), op.number(2))


@translates("SPARSE_TO_DENSE")
def sparse_to_dense(op: Operation) -> Result:
    places, values, default = op.number(0), op.number(2), op.number(3)
    dims = op.integers(1)
    if places.shape.rank == 0:
        places = places[None]
    if places.shape.rank == 1:
        places = places[:, None]
    whole = tf.fill(dims, default)
    return tf.tensor_scatter_nd_update(whole, places, tf.broadcast_to(values, places.shape[:1]))


@translates(*_SEGMENTS)
def unsorted_segments(op: Operation) -> Result:
    return _SEGMENTS[op.name](op.number(0), op.number(1), op.integers(2)[0])


@translates("REVERSE_SEQUENCE")
def reverse_sequence(op: Operation) -> Result:
    return tf.reverse_sequence(
        op.number(0), op.number(1), int(op.option("seqDim", 0)), int(op.option("batchDim", 0))
    )


@translates("MATRIX_DIAG")
def matrix_diagonal(op: Operation) -> Result:
    return tf.linalg.diag(op.number(0))


@translates("MATRIX_SET_DIAG")
def set_matrix_diagonal(op: Operation) -> Result:
    return tf.linalg.set_diag(op.number(0), op.number(1))


@translates("BROADCAST_ARGS")
def broadcast_dims(op: Operation) -> Result:
    return tf.constant(np.array(np.broadcast_shapes(op.integers(0), op.integers(1)), op.results[0].dtype))
