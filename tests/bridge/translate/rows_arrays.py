"""Rows of ops that make, move and reshape arrays."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, INTEGERS, NUMBERS, TYPE, WIDE_FLOATS, Given, Known, Random, row

R = Random
ALL = f"{NUMBERS} bool"


def ints(*values: int) -> np.ndarray:
    """A constant of int32."""
    return np.array(values, np.int32)


def scalar(value: int) -> np.ndarray:
    """A constant int32 scalar."""
    return np.array(value, np.int32)


row("Shape Size Rank", R((5, 0, 3)), types=ALL)
row("Shape Size", R((5, 3)), types="float32", out_type="int64")
row("ShapeN", [R((5, 3)), R(())], types="float32")
row("Reshape", R((6, 5)), ints(3, -1), types=ALL)
row("Reshape", R((1,)), np.zeros(0, np.int32), types="float32")
row("Reshape", R((0, 3)), np.array([3, -1], np.int64), types="float32")
row("Reshape", R((0, 3)), ints(0, -1), types="float32")
row("Reshape", R((0, 3)), ints(1, 0, -1, 1), types="float32")
row("ExpandDims", R((5, 3)), scalar(-1), types=ALL)
row("ExpandDims", R(()), scalar(0), types="float32")
row("ExpandDims", R((5, 3)), scalar(1), types="float32")
row("Squeeze", R((1, 5, 1, 3)), types=ALL)
row("Squeeze", R((1, 5, 1, 3)), types="float32", axis=[-2])
row("Transpose", R((2, 3, 5)), ints(2, 0, 1), types=ALL)
row("Transpose", R(()), np.zeros(0, np.int32), types="float32")
row("ConjugateTranspose", R((2, 3, 5)), ints(2, 0, 1), types=f"float32 {COMPLEXES}")
row("InvertPermutation", Known([2, 0, 1]), types="int32 int64")
row("BroadcastTo", R((3, 1)), ints(2, 3, 4), types=ALL)
row("BroadcastTo", R(()), ints(0, 3), types="float32")
row("BroadcastArgs", ints(3, 1), ints(2, 1, 4), types="int32")
for shapes in (((3, 1), (2, 1, 4)), ((), (5,)), ((1, 1), (1,)), ((2, 3), (2, 3))):
    row("BroadcastGradientArgs", Known(list(shapes[0])), Known(list(shapes[1])), types="int32 int64")
row("ConcatV2", [R((5, 3)), R((5, 1)), R((5, 0))], scalar(-1), types=ALL)
row("ConcatV2", [R((2, 3)), R((5, 3))], scalar(0), types="float32")
row("Concat", scalar(1), [R((5, 3)), R((5, 1))], types=ALL)
row("ParallelConcat", [R((1, 3)), R((1, 3))], types="float32 float64 float16 bfloat16 complex64 bool",
    shape=[2, 3])
row("ConcatOffset", scalar(1), [ints(2, 3, 5), ints(2, 7, 5)], types="int32")
row("Pack", [R((5, 3)), R((5, 3))], types=ALL, axis=-1)
row("Pack", [R(()), R(())], types="float32")
row("Unpack", R((5, 3)), types=ALL, num=3, axis=-1)
row("Unpack", R((0, 3)), types="float32", num=0)
row("Split", scalar(-1), R((5, 6)), types=ALL, num_split=3)
row("SplitV", R((5, 6)), ints(1, -1, 2), scalar(1), types=ALL, num_split=3)
row("Slice", R((5, 6)), ints(1, 2), ints(3, -1), types=ALL)
row("Slice", R((5, 6)), Given([1, 2], "int32"), ints(3, 4), types="float32")
row("Slice", R((5, 6)), ints(5, 0), ints(0, 6), types="float32")


def strided(x: Random, begin: list[int], end: list[int], strides: list[int], types: str = "float32",
            **masks: int) -> None:
    """A row of StridedSlice."""
    row("StridedSlice", x, ints(*begin), ints(*end), ints(*strides), types=types,
        **masks)


strided(R((5, 6)), [1, 0], [4, 6], [1, 2], ALL)
strided(R((5, 6)), [-1, 4], [-6, 0], [-1, -2])
strided(R((5, 6, 7)), [0, 2, 0], [0, 4, 0], [1, 1, 1], ellipsis_mask=1, shrink_axis_mask=4)
strided(R((5, 6, 7)), [2, 0, 1], [3, 0, 5], [1, 1, 2], shrink_axis_mask=1, new_axis_mask=2)
strided(R((5, 6)), [3], [1], [1])
strided(R((5, 6)), [0, 0], [0, 0], [1, 1], begin_mask=3, end_mask=3)
strided(R((5, 6)), [-2, 0], [-1, 0], [1, 1], shrink_axis_mask=1, begin_mask=2, end_mask=2)
row("StridedSlice", R((5, 6)), Given([2], "int32"), Given([3], "int32"), ints(1), types="float32", shrink_axis_mask=1)
row("StridedSliceGrad", ints(5, 6), ints(1, 0), ints(4, 6), ints(1, 2), R((3, 3)), types=ALL)
row("StridedSliceGrad", ints(5, 6), ints(4, 5), ints(-6, 0), ints(-1, -2), R((5, 3)), types="float32")
row("StridedSliceGrad", ints(5, 6), ints(2, 0), ints(3, 6), ints(1, 1), R((6,)), types="float32", shrink_axis_mask=1)
row("StridedSliceGrad", ints(5, 6), ints(1, 0), Given([4, 6], "int32"), ints(1, 2), R((3, 3)), types="float32")
row("StridedSliceGrad", ints(5, 6), Given([-4], "int32"), Given([-1], "int32"), ints(2), R((2, 6)), types="float32")
row("Pad", R((5, 3)), np.array([[1, 2], [0, 4]], np.int32), types=ALL)
row("PadV2", R((5, 0)), np.array([[1, 2], [0, 4]], np.int32), R(()), types=ALL)
for mode in ("REFLECT", "SYMMETRIC"):
    row("MirrorPad", R((5, 3)), np.array([[1, 3], [0, 2]], np.int32), types=ALL, mode=mode)
row("Tile", R((5, 3)), ints(2, 3), types=ALL.replace("uint16 uint32 uint64", ""))
row("Tile", R((5, 3)), ints(0, 1), types="float32")
row("Fill", ints(5, 3), R(()), types=ALL)
row("Fill", np.zeros(0, np.int32), R(()), types="float32")
row("Empty", ints(5, 3), dtype=TYPE, init=True, types=ALL)
row("Range", Known(1), Known(8), Known(3), types=f"int32 int64 {WIDE_FLOATS}")
row("Range", Known(8), Known(1), Known(-2), types="int32 float32")
row("LinSpace", R((), -3, 0), R((), 2, 5), scalar(7))
row("LinSpace", R((), -3, 0), R((), 2, 5), scalar(1))
row("OneHot", R((5,), -1, 4, "int32"), scalar(4), R(()), R(()), types=ALL)
row("OneHot", R((2, 3), 0, 4, "int64"), scalar(4), R(()), R(()), types="float32", axis=1)
row("OneHot", R((2, 3), 0, 4, "uint8"), scalar(4), R(()), R(()), types="float32", axis=0)
row("ReverseV2", R((5, 3, 2)), ints(0, -1), types=ALL)
row("ReverseV2", R((5, 3)), np.zeros(0, np.int32), types="float32")
row("GatherV2", R((5, 3)), R((2, 4), 0, 4, "int32"), scalar(0), types=ALL)
row("GatherV2", R((2, 5, 3)), R((2, 4), 0, 4, "int64"), scalar(1), types="float32", batch_dims=1)
row("GatherV2", R((2, 5, 3)), R((), 0, 2, "int32"), scalar(-1), types="float32")
row("GatherV2", R((5, 3)), R((0,), 0, 4, "int32"), scalar(0), types="float32")
row("GatherV2", R((0, 3)), R((0,), 0, 4, "int32"), scalar(0), types="float32")
row("GatherNd", R((0, 3)), R((0, 1), 0, 4, "int32"), types="float32")
row("Gather", R((5, 3)), R((2, 4), 0, 4, "int32"), types=ALL)
for dims in ((13,), (3, 7), (2, 3, 4), (0,), (1,), (4, 0), (2, 1, 2, 1, 2), (5, 32)):
    row("Where", R(dims, -1, 1), types="int32 bool float32")
for size in (0, 1, 31):
    row("Unique UniqueWithCounts", R((size,), -3, 3), types=INTEGERS)
row("Unique UniqueWithCounts", R((13,), 0, 4), types="int32 int64", out_idx="int64")
row("UniqueV2 UniqueWithCountsV2", R((17,), -3, 3), np.zeros(0, np.int32), types="int32 int64 float32")
REPEATED = np.array([2.5, 0, -1, 2.5, np.inf, 0, 1, -np.inf, np.inf, -1, 2.5])
for values in (REPEATED, np.insert(REPEATED, [0, 4, 9, 9], np.nan), np.full(3, np.nan), REPEATED[:1], REPEATED[:0]):
    row("Unique UniqueWithCounts", Given(values), types=FLOATS)
row("Unique UniqueWithCounts", Given([0.0, -0.0, 1, -0.0]), types=FLOATS)
row("Unique UniqueWithCounts", Given([True, False, True]), types="bool")
for batch, true, samples in ((5, 1, 7), (4, 3, 9), (1, 2, 1), (0, 2, 3), (3, 2, 0)):
    row("ComputeAccidentalHits", R((batch, true), 0, 6, "int64"), R((samples,), 0, 6, "int64"), num_true=true)
for dims, own in (((7, 3), (7,)), ((5, 2, 3), (5, 2)), ((0, 3), (0,)), ((11,), (11,))):
    row("DynamicPartition", R(dims), R(own, 0, 2, "int32"), types="float32 int64", num_partitions=3)
row("Where", Given([0.0, -0.0, np.nan, np.inf, 1.0]), types="float32 float64 complex64")
row("GatherNd", R((5, 3, 2)), R((4, 2), 0, 2, "int32"), types=ALL)
row("GatherNd", R((5, 3)), R((2, 3, 1), 0, 4, "int64"), types="float32")
row("GatherNd", R((5, 3)), R((2, 0), 0, 4, "int32"), types="float32")
row("GatherNd", R((5, 3, 2)), R((4, 3, 2), -2, 6, "int32"), types="float32 int32 bool", bad_indices_policy="IGNORE")

# Checks that hold.
for dims in ((), (0, 3), (3, 5), (67,)):
    row("CheckNumerics CheckNumericsV2", R(dims), message="the values")
