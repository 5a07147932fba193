"""Rows of ops of sparse arrays."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, NUMBERS, REALS, Given, Random, row

R = Random
POINTS = [[0, 1], [0, 3], [2, 0], [2, 2], [2, 4]]
SHAPE = np.array([4, 5], np.int64)

for ids in ([0, 0, 1, 3, 3], [0, 0, 0, 0, 0], [2, 2, 2, 3, 4]):
    picked = Given([3, 0, 3, 1, 2], "int32")
    row("SparseSegmentSum", R((4, 3)), picked, Given(ids, "int32"), types=REALS if ids[1:2] == [0] else "float32")
    row("SparseSegmentMean SparseSegmentSqrtN", R((4, 3)), picked, Given(ids, "int32"), types=FLOATS)
    for count in (5, 9):
        row("SparseSegmentSumWithNumSegments", R((4, 3)), picked, Given(ids, "int64"), np.array(count, np.int32),
            types=REALS)
        row("SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments", R((4, 2, 1)), picked,
            Given(ids, "int32"), np.array(count, np.int64), types=FLOATS)
    row("SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad", R((5, 3)), picked, Given(ids, "int32"),
        np.array(6, np.int32), types=FLOATS)
row("SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2", R((5, 3)),
    Given([3, 0, 3, 1, 2, 1], "int32"), Given([0, 0, 1, 3, 3, 4], "int32"), np.array(6, np.int32), types=FLOATS)
for rows in (0, 1):
    none = R((rows,), 0, 0, "int32")
    row("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN", R((3, 2)), none, none, types="float32")
    row("SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments", R((3, 2)), none, none,
        np.array(2, np.int32), types="float32")
    row("SparseSegmentMeanGradV2", R((2, 2)), none, none, np.array(3, np.int32), types="float32")

for target in ([5, 4], [20], [2, -1, 5], [4, 5], [-1]):
    row("SparseReshape", Given(POINTS, "int64"), SHAPE, Given(target, "int64"), types="int64")
row("SparseReshape", R((0, 2), 0, 0, "int64"), SHAPE, Given([-1, 2], "int64"), types="int64")
row("SparseReorder", Given(POINTS[::-1], "int64"), R((5,)), Given(SHAPE, "int64"), types=f"{NUMBERS} bool")
row("SparseReorder", Given([[7], [2], [5], [0]], "int64"), R((4,)), Given([9], "int64"), types="float32")
row("SparseReorder", R((0, 2), 0, 0, "int64"), R((0,)), Given(SHAPE, "int64"), types="float32")
for points in (POINTS, POINTS[::-1], [[2, 1], [0, 3], [2, 0], [0, 2], [3, 4]], [[3, 0]], np.zeros((0, 2))):
    row("SparseFillEmptyRows", Given(points, "int64"), R((len(points),)), SHAPE, R(()),
        types=f"{NUMBERS} bool" if points is POINTS else "float32")
row("SparseFillEmptyRows", Given([[k, 0] for k in range(4)], "int64"), R((4,)), SHAPE, R(()), types="float32")
row("SparseFillEmptyRows", R((0, 2), 0, 0, "int64"), R((0,)), np.array([0, 5]), R(()), types="float32")
row("SparseFillEmptyRowsGrad", Given([0, 2, 3], "int64"), R((6,)), types=NUMBERS)
row("SparseFillEmptyRowsGrad", Given([], "int64"), R((4,)), types="float32")
row("SparseFillEmptyRowsGrad", Given([], "int64"), R((0,)), types="float32")

row("SparseTensorDenseAdd", Given(POINTS, "int64"), R((5,)), Given(SHAPE, "int64"), R((4, 5)),
    types=f"{REALS} {COMPLEXES}")
row("SparseTensorDenseAdd", Given(POINTS[:1] * 2, "int32"), R((2,)), Given(SHAPE, "int32"), R((4, 5)), types="float32")
row("SparseTensorDenseAdd", R((0, 2), 0, 0, "int64"), R((0,)), Given(SHAPE, "int64"), R((4, 5)), types="float32")
for dims in ((4, 5), (1, 5), (4, 1), (5,), (1,), ()):
    row("SparseDenseCwiseMul SparseDenseCwiseAdd SparseDenseCwiseDiv", Given(POINTS, "int64"), R((5,), 1, 4),
        Given(SHAPE, "int64"), R(dims, 1, 4), types=REALS if dims == (4, 5) else "float32")
for axes in ([0], [1], [-1], [0, 1], []):
    for keep in (False, True):
        row("SparseReduceSum", Given(POINTS, "int64"), R((5,)), SHAPE, np.array(axes, np.int32), keep_dims=keep,
            types=f"{REALS} {COMPLEXES}" if axes == [1] else "float32")
row("SparseReduceSum", R((0, 2), 0, 0, "int64"), R((0,)), SHAPE, np.array([1], np.int32), types="float32")

OTHER_POINTS = [[0, 0], [0, 3], [1, 0], [2, 2], [3, 4]]
for axis in (0, 1, -1):
    row("SparseConcat", [Given(POINTS, "int64"), Given(OTHER_POINTS[:3], "int64")], [R((5,)), R((3,))],
        [Given(SHAPE, "int64"), Given(SHAPE, "int64")], types=f"{NUMBERS} bool" if axis else "float32", concat_dim=axis)
row("SparseConcat", [Given(POINTS[::-1], "int64"), R((0, 2), 0, 0, "int64")], [R((5,)), R((0,))],
    [Given(SHAPE, "int64"), Given([4, 9], "int64")], types="float32", concat_dim=1)
row("SparseConcat", [R((0, 2), 0, 0, "int64")] * 2, [R((0,))] * 2, [Given([0, 3], "int64"), Given([2, 3], "int64")],
    types="float32", concat_dim=0)
for begin, size in (([0, 0], [3, 3]), ([1, 1], [9, 9]), ([0, 2], [2, 0]), ([4, 0], [2, 2]), ([9, 9], [1, 1])):
    row("SparseSlice", Given(POINTS, "int64"), R((5,)), Given(SHAPE, "int64"), Given(begin, "int64"),
        Given(size, "int64"), types=f"{NUMBERS} bool" if begin == [0, 0] else "float32")
row("SparseSlice", R((0, 2), 0, 0, "int64"), R((0,)), Given(SHAPE, "int64"), Given([1, 1], "int64"),
    Given([2, 2], "int64"), types="float32")
for points in (POINTS, [[0, 1], [2, 0], [0, 3], [0, 0], [0, 2]], [[3, 1]] * 5, POINTS[::-1]):
    row("SparseSoftmax", Given(points, "int64"), R((5,)), Given(SHAPE, "int64"), types="float32 float64")
row("SparseSoftmax", Given([[0, 0, 1], [0, 0, 2], [0, 1, 0], [1, 1, 1]], "int64"),
    Given([1.0, float("inf"), float("nan"), -float("inf")]), Given([2, 2, 3], "int64"), types="float32")
row("SparseSoftmax", R((0, 2), 0, 0, "int64"), R((0,)), Given(SHAPE, "int64"), types="float32")
for threshold in (0.0, 0.7):
    row("SparseAdd", Given(POINTS, "int64"), R((5,)), Given(SHAPE, "int64"), Given(OTHER_POINTS, "int64"), R((5,)),
        Given(SHAPE, "int64"), Given(threshold), types="float32 float64 int8 int16 int32 int64")
row("SparseAdd", Given(POINTS, "int64"), R((5,)), Given(SHAPE, "int64"), Given(OTHER_POINTS, "int64"), R((5,)),
    Given(SHAPE, "int64"), Given(0.5, "float32"), types="complex64")
for one, other in ((0, 5), (5, 0), (0, 0), (1, 1)):
    row("SparseAdd", Given(np.reshape(POINTS[:one], (one, 2)), "int64"), R((one,)), Given(SHAPE, "int64"),
        Given(np.reshape(POINTS[:other], (other, 2)), "int64"), R((other,)), Given(SHAPE, "int64"), Given(0.0),
        types="float32")
