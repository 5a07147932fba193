"""Rows of ops that divide arrays among devices, on one, and of those that hand a value on."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from op_row import NUMBERS, Content, Given, Known, Random, row, xla

R = Random
GROUPS = np.zeros((1, 1), np.int32)


def same(x: tf.Tensor, *_: object) -> tf.Tensor:
    """The first input."""
    return x


row("XlaSplitND", R((4, 6)), types=NUMBERS, N=6, num_splits=[2, 3])
row("XlaSplitND", R((3, 5)), types="float32", N=4, num_splits=[2, 2], paddings=[1, 1])
row("XlaConcatND", [R((2, 2))] * 6, types=NUMBERS, num_concats=[2, 3])
row("XlaConcatND", [R((2, 3))] * 4, types="float32", num_concats=[2, 2], paddings=[1, 1])
row("ReadVariableXlaSplitND", Content(R((3, 5))), types="float32", N=4, num_splits=[2, 2], paddings=[1, 1], T="float32")
row("AssignVariableXlaConcatND", Content(R((4, 6))), [R((2, 3))] * 4, types="float32", num_concats=[2, 2])
row("XlaSpmdFullToShardShape", R((5, 3)), types="float32", manual_sharding="", reference=same)
row("XlaSpmdShardToFullShape", R((5, 3)), types="float32", manual_sharding="", full_shape=[5, 3], reference=same)
row("XlaAllReduce", R((5, 3)), GROUPS, types="float32", reduce_op="Add", mode="CrossReplica", reference=same)
row("XlaReduceScatter", R((5, 3)), GROUPS, np.array(0, np.int32), types="float32", reduce_op="Add", reference=same)
row("XlaSetBound", Random((), 1, 9, "int32"), Known(9, "int32"), types="float32", reference=same)
row("XlaRemoveDynamicDimensionSize", R((5, 3)), np.array(1, np.int32), types="float32", reference=same)
row("PlaceholderWithDefault", R((5, 3)), types="float32 int32", shape=[5, 3])
row("FakeParam", types="float32", dtype="float32", shape=[2, 3], reference=lambda: tf.zeros([2, 3]))
row("DeviceIndex", types="float32", device_names=["GPU", "CPU"], reference=lambda: tf.constant(1))
row("ListDiff", Known([5, 3, 5, 1]), Known([3, 4]), types="int32 int64 float32")


def _less(x: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    return x < 5.0


def _more(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return x + 1.0, y * 2.0


SCALAR = tf.TensorSpec((), tf.float32)
LESS, MORE = (tf.function(f).get_concrete_function(SCALAR, SCALAR) for f in (_less, _more))


def _double(x: tf.Tensor) -> tf.Tensor:
    return x * 2.0


def _half(x: tf.Tensor) -> tf.Tensor:
    return x / 2.0


DOUBLE, HALF = (tf.function(f).get_concrete_function(SCALAR) for f in (_double, _half))
row("XlaWhile", [R(()), R(())], types="float32", cond=LESS, body=MORE, reference=xla)
for chosen in (False, True):
    row("XlaIf", Given(chosen, "bool"), [R(())], types="float32", then_branch=DOUBLE, else_branch=HALF,
        Tout=["float32"], reference=lambda condition, x: x[0] * 2.0 if condition else x[0] / 2.0)
