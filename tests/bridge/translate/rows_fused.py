"""Rows of what TensorFlow's own graph rewrites put together, on CPUs with oneDNN and on others."""

from __future__ import annotations

import tensorflow as tf
from op_row import Random, row

R = Random
SUMS = 3e-5  # sums of some hundred terms in another order
CONVOLUTION = {"strides": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
SOLID = {"strides": [1, 2, 1, 1, 1], "dilations": [1, 1, 1, 1, 1], "data_format": "NDHWC"}
SCALES = R((4,), 0.5, 1.5, "float32")

for activation in ("Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "LeakyRelu", "GeluExact", "GeluApproximate"):
    row("_FusedMatMul", R((5, 3)), R((3, 7)), [R((7,))], types="float32", tolerance=SUMS,
        fused_ops=["BiasAdd", activation])
row("_FusedMatMul", R((3, 5)), R((7, 3)), [R((7,)), R((5, 7))], types="float32", tolerance=SUMS, transpose_a=True,
    transpose_b=True, fused_ops=["BiasAdd", "Add"],
    reference=lambda a, b, rest: tf.matmul(a, b, True, True) + rest[0] + rest[1])
for activation in ("Relu", "Relu6", "Elu", "LeakyRelu", "_FusedHardSwish", "Mish"):
    row("_FusedConv2D", R((2, 5, 7, 3)), R((3, 3, 3, 4)), [R((4,))], [], types="float32", tolerance=SUMS,
        fused_ops=["BiasAdd", activation], leakyrelu_alpha=0.3, num_args=1, **CONVOLUTION)
row("_FusedConv2D", R((2, 5, 7, 3)), R((3, 3, 3, 4)), [R((4,)), R((2, 5, 7, 4))], [], types="float32", tolerance=SUMS,
    fused_ops=["BiasAdd", "Add", "Relu"], num_args=2, **CONVOLUTION)
row("_FusedConv2D", R((2, 5, 7, 3)), R((3, 3, 3, 4)), [R((4,)), R((4,)), R((4,)), R((4,), 0.5, 1.5)], [],
    types="float32", tolerance=SUMS, fused_ops=["FusedBatchNorm", "Relu"], epsilon=1e-3, num_args=4,
    **CONVOLUTION)
for activation in ("Relu6", "_FusedHardSwish"):
    row("_FusedDepthwiseConv2dNative", R((2, 5, 7, 3)), R((3, 3, 3, 1)), [R((3,))], types="float32", tolerance=SUMS,
        fused_ops=["BiasAdd", activation], **CONVOLUTION)
row("_FusedConv3D", R((2, 4, 5, 3, 2)), R((2, 3, 1, 2, 4)), [R((4,))], types="float32", tolerance=SUMS,
    fused_ops=["BiasAdd", "Elu"], padding="SAME", **SOLID)
row("_FusedConv3D", R((2, 4, 5, 3, 2)), R((2, 3, 1, 2, 4)), [], types="float32", tolerance=SUMS, fused_ops=[],
    padding="VALID", padding_list=[0, 0, 1, 2, 1, 1, 0, 1, 0, 0], **SOLID)
row("_MklFusedBatchMatMulV2", R((2, 3, 5, 4)), R((2, 3, 7, 4)), [R(()), R((2, 1, 1, 7))], types="float32",
    tolerance=SUMS, adj_y=True, fused_ops=["Mul", "Add"])
row("_MklSwish _MklFusedMish", R((3, 5), -30, 30), types="float32")
row("_MklLayerNorm", R((3, 5, 7)), R((7,)), R((7,)), types="float32", tolerance=SUMS, epsilon=1e-3)
for fused_ops in ([], ["LeakyRelu"]):
    row("_MklFusedInstanceNorm", R((2, 5, 7, 3)), R((1, 1, 1, 3)), R((1, 1, 1, 3)), types="float32", tolerance=SUMS,
        epsilon=1e-3, fused_ops=fused_ops, reduction_axes=[1, 2])
row("_MklFusedInstanceNorm", R((2, 3, 5, 7)), R((1, 3, 1, 1)), R((1, 3, 1, 1)), types="float32", tolerance=SUMS,
    epsilon=1e-3, fused_ops=["Relu"], reduction_axes=[2, 3])
for side in ([], [R((2, 5, 7, 4))]):
    row("_FusedBatchNormEx", R((2, 5, 7, 4)), SCALES, SCALES, SCALES, SCALES, side, types="float32", tolerance=SUMS,
        outputs=1, epsilon=1e-3, activation_mode="Relu", is_training=False, reference=lambda x, *rest: tf.nn.relu(
            tf.math.add_n([tf.compat.v1.nn.fused_batch_norm(x, *rest[:4], 1e-3, is_training=False)[0], *rest[4]])))
row("_UnaryOpsComposition", R((3, 5)), types="float32 float64", op_names=["Sqrt", "Tanh", "Relu6"])
