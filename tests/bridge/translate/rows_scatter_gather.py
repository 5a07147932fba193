"""Rows of scatters, stitches, segments and gathers from variables."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from op_row import COMPLEXES, FLOATS, NUMBERS, REALS, TYPE, WIDE_FLOATS, Content, Given, Random, row

R = Random
ROWS = Given([[4], [1], [2]], "int32")
POINTS = Given([[4, 0], [1, 2], [2, 1]], "int64")


def dims(*sizes: int) -> np.ndarray:
    """A constant shape."""
    return np.array(sizes, np.int32)


row("ScatterNd", ROWS, R((3, 7)), dims(5, 7), types=f"{NUMBERS} bool")
row("ScatterNd", POINTS, R((3,)), np.array([5, 3], np.int64), types="float32")
row("ScatterNd", Given([[1], [1], [1]], "int32"), R((3, 2)), dims(5, 2), types="float32 int32")
row("ScatterNd", Given(np.zeros((0, 1)), "int32"), R((0, 2)), dims(5, 2), types="float32")
row("TensorScatterUpdate TensorScatterAdd TensorScatterSub", R((5, 7)), ROWS, R((3, 7)), types=f"{NUMBERS} bool")
row("TensorScatterMax TensorScatterMin", R((5, 7)), ROWS, R((3, 7)), types=REALS)
row("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin", R((5, 3)),
    Given([[4, 0], [1, 2], [2, 1]], "int32"), R((3,)), types="float32")
TABLE = Content(R((5, 3)))
row("ResourceScatterUpdate ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv "
    "ResourceScatterMax ResourceScatterMin", TABLE, Given([4, 1, 2], "int32"), R((3, 3), 1, 2),
    types=f"{WIDE_FLOATS} int32 int64")
row("ResourceScatterUpdate ResourceScatterAdd ResourceScatterMul", TABLE, Given([[4, 1], [0, 3]], "int64"), R(()),
    types="float32")
row("ResourceScatterNdUpdate ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdMax ResourceScatterNdMin",
    TABLE, Given([[4, 0], [1, 2], [2, 1]], "int32"), R((3,)), types=f"{WIDE_FLOATS} int32 int64")
row("ResourceGather", TABLE, Given([[4, 1], [0, 0]], "int32"), types=REALS, dtype=TYPE)
row("ResourceGatherNd", TABLE, Given([[4, 1], [0, 0]], "int32"), types="float32", dtype=TYPE)
row("ResourceStridedSliceAssign", Content(R((5, 6))), dims(1, 0), dims(4, 6), dims(1, 1), R((3, 6)), types=WIDE_FLOATS)
row("ResourceStridedSliceAssign", Content(R((5, 6))), dims(3, 0), dims(0, 6), dims(-2, 3), R((2, 2)), types="float32")
row("ResourceStridedSliceAssign", Content(R((5, 6))), dims(2), dims(3), dims(1), R((6,)), types="float32",
    shrink_axis_mask=1)
row("TensorStridedSliceUpdate", R((5, 6)), dims(1, 0), dims(4, 6), dims(1, 1), R((3, 6)), types=f"{REALS} bool")
row("TensorStridedSliceUpdate", R((5, 6)), dims(3, 0), dims(0, 6), dims(-2, 3), R((2, 2)), types="float32")
row("DynamicStitch ParallelDynamicStitch", [dims(0, 2), np.array([[1, 3], [4, 0]], np.int32)],
    [R((2, 3)), R((2, 2, 3))], types=f"{NUMBERS} bool")
row("DynamicStitch", [np.array(1, np.int32), np.array(0, np.int32)], [R((3,)), R((3,))], types="float32")
row("SparseToDense", POINTS, np.array([5, 3], np.int64), R((3,)), R(()), types=f"{REALS} bool", validate_indices=False)
row("SparseToDense", Given([1, 3], "int32"), dims(5), R(()), R(()), types="float32")
row("SparseToDense", Given([[0, 2], [1, 0], [1, 1], [4, 2]], "int64"), np.array([5, 3], np.int64), R((4,)), R(()),
    types="float32")
row("ScatterNd", Given([[1], [5], [-1]], "int32"), R((3,)), dims(5), types="float32", bad_indices_policy="IGNORE")
row("TensorScatterAdd TensorScatterUpdate", R((5, 2)), Given([[1], [5]], "int32"), R((2, 2)), types="float32",
    bad_indices_policy="IGNORE")
row("InplaceUpdate InplaceAdd", R((5, 3)), Given([-1, 7], "int32"), R((2, 3)), types="float32")
row("InplaceUpdate InplaceAdd InplaceSub", R((5, 3)), Given([4, 1], "int32"), R((2, 3)), types="float32 int32 float64")

SEGMENTS = Given([2, 0, 2, 5, 0, -1, 2], "int32")
row("UnsortedSegmentSum", R((7, 3)), SEGMENTS, np.array(6, np.int32), types=f"{REALS} {COMPLEXES}", tolerance=2e-5)
row("UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin", R((7, 3), 1, 3), SEGMENTS, np.array(6, np.int32),
    types=f"{FLOATS} int32 int64 int8 uint8")
row("UnsortedSegmentSum UnsortedSegmentMax", R((2, 3, 4)), Given([[2, 0, 2], [1, 1, 0]], "int64"),
    np.array(4, np.int64), types="float32")
row("UnsortedSegmentSum UnsortedSegmentMin", R((0, 3)), Given(np.zeros(0), "int32"), np.array(2, np.int32),
    types="float32")
for name in ("sum", "prod", "max", "min"):
    row(f"Segment{name.title()}V2", R((7, 3), 1, 3), Given([0, 0, 1, 1, 1, 2, 2], "int32"), np.array(3, np.int32),
        types=f"{WIDE_FLOATS} int32", reference=getattr(tf.math, f"unsorted_segment_{name}"))
for ids in ([0, 0, 1, 3, 3], [0, 0, 0, 0, 0], [2, 2, 2, 5, 6]):
    row("SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin", R((5, 3)), np.array(ids, np.int32),
        types=f"{FLOATS} int32 int64" if ids[0] == 2 else "float32")
row("SegmentSum", R((5,)), np.array([0, 1, 1, 1, 2]), types="float32 complex64")
row("SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin", R((5, 3)), Given([0, 0, 1, 3, 3], "int32"),
    types=f"{FLOATS} int32 int64")
for adjoint in (False, True):
    row("SparseTensorDenseMatMul", Given([[0, 1], [2, 0], [2, 3], [2, 3]], "int64"), R((4,)),
        np.array([3, 4], np.int64), R((3, 5) if adjoint else (4, 5)), types=f"{WIDE_FLOATS} {COMPLEXES} int32",
        adjoint_a=adjoint)

# Every order of numbers and NaN in three rows of one segment.
ORDERS = np.array(list(itertools.product([np.nan, -np.inf, 0, 1, np.inf], repeat=3))).T
row("UnsortedSegmentMax UnsortedSegmentMin", Given(ORDERS), Given([1, 1, 1], "int32"), np.array(2, np.int32),
    types=FLOATS)
row("SegmentMax SegmentMin", Given(ORDERS[:, ~np.isnan(ORDERS).any(0)]), np.array([1, 1, 1], np.int32),
    types=FLOATS)  # what NaN makes depends on the column, in TensorFlow
row("TensorScatterMax TensorScatterMin", R((2, 125)), Given([[1], [1], [1]], "int32"), Given(ORDERS), types=FLOATS)
row("ResourceScatterMax ResourceScatterMin", Content(R((2, 125))), Given([1, 1, 1], "int32"), Given(ORDERS),
    types=WIDE_FLOATS)
row("ResourceScatterNdMax ResourceScatterNdMin", Content(R((2, 125))), Given([[1], [1], [1]], "int32"), Given(ORDERS),
    types=WIDE_FLOATS)
