"""Rows of the ops of a generator, and of samples of classes: TensorFlow's very numbers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from op_row import FLOATS, TYPE, Content, Given, Known, Random, row

PHILOX = Known(1, "int64")
STATE = Content(Given([-3, 5, 0x123456789ABCDEF], "int64"))


def dims(*sizes: int) -> np.ndarray:
    """A constant shape."""
    return np.array(sizes, np.int32)


for size in ((5, 3), (), (1031,)):
    row("StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal", STATE, PHILOX, dims(*size),
        types=FLOATS if size == (5, 3) else "float32 float64", dtype=TYPE)
row("StatefulUniformFullInt", STATE, PHILOX, dims(5, 3), types="int32 int64 uint32 uint64", dtype=TYPE)
row("StatefulUniformInt", STATE, PHILOX, dims(5, 3), Random((), 0, 2), Random((), 3, 90),
    types="int32 int64 uint32 uint64")
row("RngSkip", STATE, PHILOX, Given(7, "int64"), types="float32")
row("RngReadAndSkip", STATE, Known(1, "int32"), Given(2**56, "uint64"), types="float32")
row("StatelessMultinomial", Random((3, 7)), np.array(11, np.int32), Given([7, -3], "int64"), types=FLOATS)
row("StatelessMultinomial", Given([[0.0, -np.inf, 3.0, np.nan, 1.0]]), np.array(40, np.int32), Given([1, 2], "int64"),
    types="float32", output_dtype="int32")
row("StochasticCastToInt", Given([3.0, -4.0, 0.0, 1e9, -1e9, np.nan]), Given([5], "uint64"), Given([1, 2], "uint64"),
    np.array(1, np.int32), types="float32", Tout="int16",
    reference=lambda *_: tf.constant([3, -4, 0, 32767, -32768, 0], tf.int16))

KEY, COUNTER, PHILOX_NUMBER = Given([99], "uint64"), Given([7, 0], "uint64"), Known(1, "int32")
row("StatelessRandomGammaV2", dims(37, 5), Given([7, -3], "int64"), Given([0.3, 1.0, 2.5, 40.0, 0.01]),
    types=FLOATS, tolerance=1e-5)
row("StatelessRandomGammaV3", dims(11, 1), KEY, COUNTER, PHILOX_NUMBER, Given([1.7]), types="float32")
row("StatelessRandomPoisson", dims(37, 6), Given([7, -3], "int32"), Given([0.3, 1.0, 9.5, 10.5, 400.0, 0.0], "float32"),
    types="float32 float64 int32 int64", dtype=TYPE)
row("StatelessShuffle", Random((37, 3)), KEY, COUNTER, PHILOX_NUMBER, types="float32 int64")
row("StatelessShuffle", Random((1, 3)), KEY, COUNTER, PHILOX_NUMBER, types="float32")
