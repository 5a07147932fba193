"""Rows of matrix products, convolutions, pooling, losses and normalizations."""

from __future__ import annotations

import numpy as np
from op_row import COMPLEXES, FLOATS, WIDE_FLOATS, Given, Random, row

R = Random
SUMS = 3e-5  # sums of some hundred terms in another order

for left, right, a, b in (((5, 3), (3, 7), False, False), ((3, 5), (3, 7), True, False), ((5, 3), (7, 3), False, True),
                          ((3, 5), (7, 3), True, True)):
    row("MatMul", R(left), R(right), types=f"{FLOATS} int32 int64 {COMPLEXES}", transpose_a=a, transpose_b=b,
        tolerance=SUMS)
row("MatMul", R((0, 3)), R((3, 7)), types="float32")
row("MatMul", R((5, 0)), R((0, 7)), types="float32")
row("MatMul", R((1, 1)), R((1, 1)), types="float32")
row("SparseMatMul", R((5, 3), type="float32"), R((7, 3), type="bfloat16"), types="float32", transpose_b=True,
    tolerance=SUMS)
row("BatchMatMul BatchMatMulV2", R((2, 5, 3)), R((2, 3, 7)), types=f"{FLOATS} int32 int64 {COMPLEXES}", tolerance=SUMS)
row("BatchMatMulV2", R((4, 1, 3, 5)), R((2, 7, 3)), types=f"float32 {COMPLEXES}", adj_x=True, adj_y=True,
    tolerance=SUMS)
row("BatchMatMulV3", R((4, 1, 5, 3)), R((2, 3, 7)), types="float32", Tout="float32", tolerance=SUMS)
row("BatchMatMulV3", R((2, 5, 3), -9, 9), R((2, 3, 7), -9, 9), types="int8", Tout="int32")
for equation, dims in (("ij,jk->ik", ((5, 3), (3, 7))), ("bij,bkj->bik", ((2, 5, 3), (2, 7, 3))),
                       ("...ij,jk->...ik", ((2, 4, 5, 3), (3, 7))), ("ij->ji", ((5, 3),)), ("ii->i", ((5, 5),)),
                       ("ij->", ((5, 3),)), ("i,j->ij", ((5,), (3,))), ("abc,cde->abde", ((2, 3, 4), (4, 5, 6))),
                       ("i->ii", ((5,),)), ("iij->jji", ((3, 3, 2),)), ("ab,bc->cabca", ((2, 3), (3, 1))),
                       ("...a,b->a...ba", ((2, 3), (4,))), ("a->aaa", ((0,),))):
    row("Einsum", [R(d) for d in dims], types=f"{WIDE_FLOATS} complex64 bfloat16", equation=equation, tolerance=SUMS)
row("BiasAdd", R((2, 4, 5, 3)), R((3,)), types=f"{FLOATS} int32 complex64")
row("BiasAdd", R((2, 4, 5, 3)), R((4,)), types="float32", data_format="NCHW")
row("BiasAddV1", R((5, 3)), R((3,)))
row("BiasAddGrad", R((2, 4, 5, 3)), types=f"{FLOATS} int32 complex64", tolerance=SUMS)
row("BiasAddGrad", R((2, 4, 5, 3)), types="float32", data_format="NCHW", tolerance=SUMS)

row("Softmax LogSoftmax", R((5, 7), -9, 9))
row("Softmax LogSoftmax", R((5, 0)), types="float32")
row("Softmax LogSoftmax", R((1, 1)), types="float32")
row("SoftmaxCrossEntropyWithLogits", R((5, 7), -9, 9), R((5, 7), 0, 1))
row("SoftmaxCrossEntropyWithLogits", R((5, 7)), R((1, 7), 0, 1), types="float32")
MASKED = Given([[0, -np.inf, 1], [1, 2, -np.inf], [3, 1, 2]])
row("SoftmaxCrossEntropyWithLogits", MASKED, Given([[1, 0, 0], [0, 0, 1], [0.5, 0, 0.5]]), types=FLOATS)
row("SparseSoftmaxCrossEntropyWithLogits", MASKED, Given([0, 2, 1], "int32"), types=FLOATS)
row("SparseSoftmaxCrossEntropyWithLogits", R((5, 7), -9, 9), R((5,), 0, 6, "int32"))
row("SparseSoftmaxCrossEntropyWithLogits", R((5, 7), -9, 9), R((5,), 0, 6, "int64"))

for size in ((2, 7, 9, 3), (1, 4, 4, 3)):
    for padding in ("SAME", "VALID"):
        row("Conv2D", R(size), R((3, 2, 3, 5)), types="float32 float64", tolerance=SUMS, strides=[1, 2, 1, 1],
            padding=padding)
row("Conv2D", R((2, 7, 9, 3)), R((3, 3, 3, 4)), types=FLOATS, strides=[1, 1, 1, 1], padding="SAME", tolerance=SUMS)
row("Conv2D", R((2, 9, 9, 4)), R((3, 3, 2, 6)), types="float32", strides=[1, 1, 1, 1], padding="SAME", tolerance=SUMS)
row("Conv2D", R((2, 9, 9, 4)), R((3, 3, 4, 6)), types="float32", strides=[1, 1, 1, 1], padding="VALID",
    dilations=[1, 2, 2, 1], tolerance=SUMS)
row("Conv2D", R((2, 9, 9, 4)), R((3, 3, 4, 6)), types="float32", strides=[1, 2, 2, 1], padding="EXPLICIT",
    explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0], tolerance=SUMS)
row("Conv", R((2, 7, 9, 4)), R((3, 2, 4, 6)), types=WIDE_FLOATS, strides=[1, 2, 1, 1], padding="SAME",
    tolerance=SUMS)
row("Conv", R((2, 5, 7, 6, 3)), R((2, 3, 3, 3, 4)), types="float32", strides=[1, 1, 2, 1, 1], padding="VALID",
    tolerance=SUMS)
row("Conv2DBackpropInput", np.array([2, 7, 9, 3], np.int32), R((3, 2, 3, 5)), R((2, 4, 9, 5)), types=WIDE_FLOATS,
    strides=[1, 2, 1, 1], padding="SAME", tolerance=SUMS)
row("Conv2DBackpropInput", np.array([2, 9, 9, 3], np.int32), R((3, 3, 3, 5)), R((2, 4, 4, 5)), types="float32",
    strides=[1, 2, 2, 1], padding="VALID", tolerance=SUMS)
row("Conv2DBackpropFilter", R((2, 7, 9, 3)), np.array([3, 2, 3, 5], np.int32), R((2, 4, 9, 5)), types=WIDE_FLOATS,
    strides=[1, 2, 1, 1], padding="SAME", tolerance=1e-4)
row("Conv2DBackpropFilter", R((2, 9, 9, 3)), np.array([3, 3, 3, 5], np.int32), R((2, 4, 4, 5)), types="float32",
    strides=[1, 2, 2, 1], padding="VALID", tolerance=1e-4)
row("DepthwiseConv2dNative", R((2, 7, 9, 3)), R((3, 2, 3, 2)), types=WIDE_FLOATS, strides=[1, 2, 2, 1], padding="SAME",
    tolerance=SUMS)
row("DepthwiseConv2dNativeBackpropInput", np.array([2, 7, 9, 3], np.int32), R((3, 2, 3, 2)), R((2, 4, 5, 6)),
    types=WIDE_FLOATS, strides=[1, 2, 2, 1], padding="SAME", tolerance=SUMS)
row("DepthwiseConv2dNativeBackpropFilter", R((2, 7, 9, 3)), np.array([3, 2, 3, 2], np.int32), R((2, 4, 5, 6)),
    types=WIDE_FLOATS, strides=[1, 2, 2, 1], padding="SAME", tolerance=1e-4)
row("Conv3D", R((2, 5, 7, 6, 3)), R((2, 3, 3, 3, 4)), types=WIDE_FLOATS, strides=[1, 1, 2, 1, 1], padding="SAME",
    tolerance=SUMS)
row("Conv3DBackpropInputV2", np.array([2, 5, 7, 6, 3], np.int32), R((2, 3, 3, 3, 4)), R((2, 5, 4, 6, 4)),
    types=WIDE_FLOATS, strides=[1, 1, 2, 1, 1], padding="SAME", tolerance=1e-4)
row("Conv3DBackpropFilterV2", R((2, 5, 7, 6, 3)), np.array([2, 3, 3, 3, 4], np.int32), R((2, 5, 4, 6, 4)),
    types=WIDE_FLOATS, strides=[1, 1, 2, 1, 1], padding="SAME", tolerance=1e-4)

for padding in ("SAME", "VALID"):
    window = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": padding}
    height, width = (4, 9) if padding == "SAME" else (3, 8)
    row("MaxPool AvgPool", R((2, 7, 9, 3)), types=FLOATS, **window)
    row("MaxPoolGrad", R((2, 7, 9, 3)), R((2, height, width, 3)), R((2, height, width, 3)), types=FLOATS, **window)
    row("AvgPoolGrad", np.array([2, 7, 9, 3], np.int32), R((2, height, width, 3)), types=FLOATS, **window)
    cube = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
    depth, height, width = (5, 4, 6) if padding == "SAME" else (4, 3, 5)
    row("MaxPool3D AvgPool3D", R((2, 5, 7, 6, 3)), types=WIDE_FLOATS, **cube)
    row("AvgPool3DGrad", np.array([2, 5, 7, 6, 3], np.int32), R((2, depth, height, width, 3)), types=WIDE_FLOATS,
        **cube)
CUBE = np.random.default_rng(0).permutation(8 * 4 * 6 * 3).reshape(1, 8, 4, 6, 3)
row("MaxPool3DGrad", Given(CUBE), Given(CUBE.reshape(1, 4, 2, 2, 2, 3, 2, 3).max((2, 4, 6))), R((1, 4, 2, 3, 3)),
    types="float32", ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME")
# What TensorFlow makes of NaN in bfloat16 and in MaxPool3D differs between machines, and with and without oneDNN.
for padding in ("SAME", "VALID"):
    height, width = (4, 9) if padding == "SAME" else (3, 8)
    sizes, steps = np.array([1, 3, 2, 1], np.int32), np.array([1, 2, 1, 1], np.int32)
    window = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": padding}
    row("MaxPoolV2", R((2, 7, 9, 3)), sizes, steps, types=FLOATS, padding=padding)
    row("MaxPoolGradV2", R((2, 7, 9, 3)), R((2, height, width, 3)), R((2, height, width, 3)), sizes, steps,
        types="float32", padding=padding)
    for include in (False, True):
        row("MaxPoolWithArgmax", R((2, 7, 9, 3)), types=f"{FLOATS} int32", include_batch_in_index=include, **window)
BOARD = np.random.default_rng(0).permutation(2 * 8 * 6 * 3).reshape(2, 8, 6, 3)
POOLED = BOARD.reshape(2, 4, 2, 3, 2, 3).max((2, 4))
row("MaxPoolGradGrad", Given(BOARD), Given(POOLED), R((2, 8, 6, 3)), types=FLOATS, ksize=[1, 2, 2, 1],
    strides=[1, 2, 2, 1], padding="VALID")
row("MaxPoolGradGradV2", Given(BOARD), Given(POOLED), R((2, 8, 6, 3)), np.array([1, 2, 2, 1], np.int32),
    np.array([1, 2, 2, 1], np.int32), types="float32", padding="VALID")
row("MaxPool3DGradGrad", Given(CUBE), Given(CUBE.reshape(1, 4, 2, 2, 2, 3, 2, 3).max((2, 4, 6))), R((1, 8, 4, 6, 3)),
    types="float32", ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
HOLES = np.random.default_rng(1).standard_normal((2, 7, 9, 3))
HOLES[np.random.default_rng(2).random(HOLES.shape) < 0.3] = np.nan
HOLES[0, :4, :4], HOLES[1, 3:, 5:], HOLES[1, 0, 0] = np.nan, -np.inf, np.inf
# What TensorFlow makes of NaN in bfloat16, float16 and MaxPool3D differs between machines, and with and without oneDNN.
for padding in ("SAME", "VALID"):
    height, width = (4, 9) if padding == "SAME" else (3, 8)
    window = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": padding}
    row("MaxPool", Given(HOLES), types="float32 float64", **window)
    row("MaxPool", Given(np.nan_to_num(HOLES, posinf=9, neginf=-9)), types="bfloat16 float16", **window)
    row("MaxPoolWithArgmax", Given(HOLES), types=FLOATS, **window)
    row("MaxPoolGrad", Given(HOLES), R((2, height, width, 3)), R((2, height, width, 3)), types=FLOATS, **window)
    row("MaxPool3D", Given(np.nan_to_num(HOLES[:, None], posinf=9, neginf=-9)), types="float32 bfloat16",
        ksize=[1, 1, 3, 2, 1], strides=[1, 1, 2, 1, 1], padding=padding)
row("MaxPool", R((2, 7, 9, 3), -9, 9), types="int32 int8 uint8", ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
    padding="VALID")

VECTOR = R((3,), 0.5, 1.5, "float32")
for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
    narrow = "float32" if op != "FusedBatchNormV3" else "float32 bfloat16 float16"
    row(op, R((2, 5, 7, 3)), VECTOR, VECTOR, VECTOR, VECTOR, types=narrow, is_training=False, outputs=1)
    row(op, R((2, 5, 7, 3)), VECTOR, VECTOR, Given([], "float32"), Given([], "float32"), types=narrow, is_training=True,
        outputs=6 if op == "FusedBatchNormV3" else 5, tolerance=SUMS)
for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2"):
    for training in (True, False):
        row(op, R((2, 5, 7, 3)), R((2, 5, 7, 3)), VECTOR, VECTOR, VECTOR, types="float32", is_training=training,
            outputs=3, tolerance=1e-4)
for training in (True, False):
    row("FusedBatchNormGradV3", R((2, 5, 7, 3)), R((2, 5, 7, 3)), VECTOR, VECTOR, VECTOR, VECTOR, types="float32",
        is_training=training, outputs=3, tolerance=1e-4)
for include in (False, True):
    row("MaxPoolGradWithArgmax", R((2, 6, 8, 3)), R((2, 3, 4, 3)), R((2, 3, 4, 3), 0, 143, "int64"), types=FLOATS,
        ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", include_batch_in_index=include)

MARGIN = np.array([[0, 0], [2, 1], [0, 3], [0, 0]], np.int32)
for padding in ("SAME", "VALID"):
    for mode in ("REFLECT", "SYMMETRIC"):
        for step in (1, 2, 5):
            moves = {"strides": [1, step, step, 1], "padding": padding, "mode": mode, "tolerance": SUMS}
            row("FusedPadConv2D", R((1, 5, 7, 3)), MARGIN, R((3, 2, 3, 4)), types=WIDE_FLOATS, **moves)
            row("FusedResizeAndPadConv2D", R((1, 5, 7, 3)), np.array([8, 4], np.int32), MARGIN, R((3, 2, 3, 4)),
                types=WIDE_FLOATS, resize_align_corners=step == 2, **moves)
