"""Rows of ops that move blocks of space, take patches, roll and reverse."""

from __future__ import annotations

import numpy as np
from op_row import FLOATS, NUMBERS, REALS, Given, Random, row

R = Random
EVERY = f"{NUMBERS} bool"


def table(*rows: tuple[int, int]) -> np.ndarray:
    """Paddings."""
    return np.array(rows, np.int32)


row("SpaceToBatchND", R((2, 3, 6, 3)), np.array([2, 3], np.int32), table((1, 0), (0, 3)), types=EVERY)
row("SpaceToBatchND", R((2, 6)), np.array([3], np.int32), table((0, 0)), types="float32")
row("BatchToSpaceND", R((12, 2, 3, 3)), np.array([2, 3], np.int32), table((1, 0), (0, 2)), types=EVERY)
row("SpaceToBatch", R((2, 4, 5, 3)), table((0, 0), (0, 1)), types="float32 int32", block_size=2)
row("BatchToSpace", R((8, 2, 3, 3)), table((0, 0), (0, 1)), types="float32 int32", block_size=2)
row("SpaceToDepth", R((2, 4, 6, 3)), types=f"{REALS} bool", block_size=2)
row("DepthToSpace", R((2, 4, 6, 12)), types=f"{REALS} bool", block_size=2)
for padding in ("SAME", "VALID"):
    row("ExtractImagePatches", R((2, 7, 9, 3)), types=REALS, ksizes=[1, 3, 2, 1], strides=[1, 2, 3, 1],
        rates=[1, 2, 1, 1], padding=padding)
    row("ExtractVolumePatches", R((2, 5, 7, 6, 2)), types=f"{FLOATS} int32", ksizes=[1, 2, 3, 2, 1],
        strides=[1, 1, 2, 3, 1], padding=padding)
row("Roll", R((5, 7)), Given([2, -3], "int32"), np.array([0, 1], np.int32), types=EVERY)
row("Roll", R((5, 1, 7)), Given(-9, "int64"), np.array(-1, np.int32), types="float32")
row("ReverseSequence", R((3, 5, 2)), Given([0, 3, 5], "int32"), types=EVERY, seq_dim=1, batch_dim=0)
row("ReverseSequence", R((5, 2, 3)), Given([1, 3, 5], "int64"), types="float32", seq_dim=0, batch_dim=2)
row("Reverse", R((5, 3, 2)), np.array([True, False, True]), types=EVERY)
for mode in ("REFLECT", "SYMMETRIC"):
    row("MirrorPadGrad", R((9, 6)), table((1, 3), (2, 0)), types=NUMBERS, mode=mode)
row("DataFormatDimMap", Given([[0, -1], [2, 3]]), types="int32 int64", src_format="NHWC", dst_format="NCHW")
row("DataFormatVecPermute", R((4,)), types="int32 int64", src_format="NHWC", dst_format="NCHW")
row("DataFormatVecPermute", R((2, 2)), types="int32", src_format="NHWC", dst_format="NCHW")
row("DataFormatVecPermute", R((4, 2)), types="int32", src_format="NCHW", dst_format="NHWC")
row("EnsureShape", R((5, 3)), types=EVERY, shape=(None, 3))
row("DeepCopy", R((5, 3)), types=REALS)
row("ToBool", R((), 0, 1), types="float32 float64 int32 int64 int8 int16 uint8 bool")
row("ToBool", R((0, 3)), types="float32")
row("UnravelIndex", Given([0, 7, 29]), np.array([2, 3, 5], np.int32), types="int32")
row("UnravelIndex", Given(17), np.array([2, 3, 5], np.int64), types="int64")
