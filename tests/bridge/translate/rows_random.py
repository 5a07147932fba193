"""Rows of random ops: TensorFlow's very numbers."""

from __future__ import annotations

import numpy as np
from op_row import FLOATS, TYPE, Given, Random, row, xla

SEED = Given([7, -3], "int64")
KEY, COUNTER = Given([0x123456789ABCDEF], "uint64"), Given([2**64 - 3, 5], "uint64")
ALGORITHM = np.array(1, np.int32)


def dims(*sizes: int) -> np.ndarray:
    """A constant shape."""
    return np.array(sizes, np.int32)


row("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg", SEED, types="float32")
row("StatelessRandomGetAlg", types="float32")
for size in ((5, 3), (0,), (), (1031,)):
    kinds = FLOATS if size == (5, 3) else "float32 float64"
    row("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", dims(*size), SEED, types=kinds,
        dtype=TYPE)
    row("StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2", dims(*size), KEY, COUNTER,
        ALGORITHM, types=kinds, dtype=TYPE)
row("StatelessRandomUniformFullInt", dims(5, 3), SEED, types="int32 int64 uint32 uint64", dtype=TYPE)
row("StatelessRandomUniformFullIntV2", dims(5, 3), KEY, COUNTER, ALGORITHM, types="int32 int64 uint32 uint64",
    dtype=TYPE)
row("StatelessRandomUniformInt", dims(5, 3), SEED, Random((), -9, -5), Random((), 3, 90), types="int32 int64")
row("StatelessRandomUniformIntV2", dims(5, 3), KEY, COUNTER, ALGORITHM, Random((), 0, 2), Random((), 3, 90),
    types="int32 int64 uint32 uint64")
# ThreeFry, of which XLA alone has a kernel for CPUs.
row("StatelessRandomUniformV2 StatelessTruncatedNormalV2", dims(5, 3), KEY, Given([5], "uint64"),
    np.array(2, np.int32), types="float32 float64", dtype=TYPE, reference=xla)
row("StatelessRandomUniformFullIntV2", dims(5, 3), KEY, Given([5], "uint64"), np.array(2, np.int32),
    types="int32 int64 uint32 uint64", dtype=TYPE, reference=xla)

MANY = Given([0, 1, 5, 99, 77], "int64")
SEEDS = Given([[1, 2, 3], [-1, -2, -3], [2**40 + 5, 3, 4], [0, 0, 0], [7, 7, 2**31 - 1]], "int64")
for rounds in (4, 6, 24):
    row("RandomIndexShuffle", MANY, Given([7, -3, 12], "int32"), Given(99, "int64"), types="int64", rounds=rounds)
    row("RandomIndexShuffle", MANY, SEEDS, Given([99, 100, 65537, 2**40, 10**6], "int64"), types="int64",
        rounds=rounds)
INDICES = "int32 int64 uint32 uint64"
row("RandomIndexShuffle", Given([5, 0]), Given([7, 3, 12], "uint32"), Given([65536, 1]), types=INDICES)
row("RandomIndexShuffle", Given(0), Given([7, 3, 12], "uint64"), Given(0), types=INDICES)
row("RandomIndexShuffle", Given(3), Given([[7, 3, 12], [1, 2, 3]], "int32"), Given(70000), types=INDICES)
