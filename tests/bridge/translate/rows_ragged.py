"""Rows of ops of ragged arrays."""

from __future__ import annotations

import numpy as np
from op_row import NUMBERS, Given, Random, row

R = Random
ALL = f"{NUMBERS} bool"
EMPTY = np.zeros(0)


def dense(values: object, default: object, splits: list[object], shape: object, types: str = "float32") -> None:
    """An array of values and the splits of its axes, made dense in a shape."""
    for index in ("int32", "int64"):
        row("RaggedTensorToTensor", np.array(shape, np.int64), values, default, [Given(s, index) for s in splits],
            types=types if index == "int64" else "float32", row_partition_types=["ROW_SPLITS"] * len(splits))


for shape in ([-1, 3], [3, 5], [6, 2], [-1, 0], [0, 4], [5, 1]):
    dense(R((7,)), R(()), [[0, 2, 2, 5, 6, 7]], shape, ALL)
    dense(R((7,)), R(()), [[0, 2, 2, 5]], shape)
dense(R((7,)), R(()), [[0, 2, 2, 5, 6, 7]], -1)
dense(R((7,)), R(()), [[0, 2, 2, 5, 6, 7]], [-1, -1])
for default in (R(()), R((1,)), R((3,))):
    dense(R((5, 3)), default, [[0, 2, 2, 5]], [-1, 4, 3])
    dense(R((5, 3)), default, [[0, 2, 2, 5]], [-1, 2, -1])
dense(R((4, 3, 2)), R((3, 1)), [[0, 1, 4]], [3, -1, 3, 2])
dense(R((5,)), R(()), [[0, 2, 2, 3], [0, 1, 3, 5]], [-1, 2, 2])
dense(R((5,)), R(()), [[0, 2, 2, 3], [0, 1, 3, 5]], [4, 3, 1])
dense(R((5,)), R(()), [[0, 2, 2, 3], [0, 1, 3, 5]], -1)
dense(R((0,)), R(()), [[0, 0, 0]], [-1, 3])
dense(R((0,)), R(()), [[0]], [2, 3])
dense(R((0, 2)), R(()), [[0]], -1)
dense(R((3, 0)), R(()), [[0, 1, 3]], [-1, 2, -1])
dense(R((0,)), R(()), [[0, 0, 0], [0]], [-1, 2, 2])

NUMBERED = ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]
for shape in ([4, 3], [4, 2], -1, [-1, -1], [-1, 1]):
    for ids in ([0, 0, 2, 2, 2], [3, 3, 3, 3, 3], [0, 1, 2, 3], []):
        row("RaggedTensorToTensor", np.array(shape, np.int64), R((5,)), R(()),
            [np.array(4, np.int64), Given(ids, "int64")],
            types=ALL if len(ids) == 5 else "float32", row_partition_types=NUMBERED)
for more in (["VALUE_ROWIDS"], ["ROW_SPLITS"]):
    others = Given([0, 0, 1, 2, 2] if more == ["VALUE_ROWIDS"] else [0, 2, 3, 5], "int32")
    row("RaggedTensorToTensor", np.array(-1), R((5, 2)), R((2,)),
        [np.array(2, np.int32), Given([0, 1, 1], "int32"), others],
        types="float32", row_partition_types=[*NUMBERED, *more])
row("RaggedTensorToTensor", np.array(-1), R((0,)), R(()), [np.array(0, np.int32), Given([], "int32")], types="float32",
    row_partition_types=NUMBERED)

for splits in ("int32", "int64"):
    for starts, limits, deltas in (
        ([0, 1, 5, 2], [3, 0, 9, 2], [1, 1, 2, 1]),
        ([5, 9, -3], [1, 9, -10], [-1, -2, -3]),
        (0, [3, 0, 5, 100], 1),
        ([0, 2], 7, [2, 3]),
        (0, 4, 1),
        (4, 0, 1),
        (EMPTY, EMPTY, 1),
    ):
        row("RaggedRange", *(Given(k) for k in (starts, limits, deltas)), types="int32 int64", Tsplits=splits)

for indices in ([1, 0, 2, 2], [], [0], [1, 1], [3, 2, 1, 0, 3]):
    row("RaggedGather", [Given([0, 2, 2, 5, 7], "int64")], R((7,)), Given(indices, "int32"),
        types=ALL if len(indices) == 4 else "float32", OUTPUT_RAGGED_RANK=1)
    row("RaggedGather", [Given([0, 2, 2, 5, 7], "int32")], R((9, 2)), Given(indices, "int64"), types="float32",
        OUTPUT_RAGGED_RANK=1)

for inner in ((), (2,), (2, 0), (1, 3)):
    row("RaggedTensorToSparse", [Given([0, 2, 2, 5], "int64")], R((5, *inner)), types=ALL if not inner else "float32")
    row("RaggedTensorToSparse", [Given([0, 2, 3], "int32"), Given([0, 1, 3, 5], "int32")], R((5, *inner)),
        types="float32")
row("RaggedTensorToSparse", [Given([0, 0, 0], "int64")], R((0,)), types="float32")
row("RaggedTensorToSparse", [Given([0], "int64")], R((0, 3)), types="float32")
