"""Pools, and images of other sizes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .operation import Operation, Result
from .registry import translates

PADDINGS = ("SAME", "VALID")


def _window(op: Operation) -> tuple[list[int], list[int], str]:
    size = [int(op.option(f"filter{axis}")) for axis in ("Height", "Width")]
    strides = [int(op.option(f"stride{axis}")) for axis in ("H", "W")]
    return size, strides, PADDINGS[int(op.option("padding"))]


@translates("AVERAGE_POOL_2D")
def average_pool(op: Operation) -> Result:
    return op.activated(tf.nn.avg_pool2d(op.number(0), *_window(op)))


@translates("L2_POOL_2D")
def l2_pool(op: Operation) -> Result:
    return op.activated(tf.sqrt(tf.nn.avg_pool2d(tf.square(op.number(0)), *_window(op))))


@translates("MAX_POOL_2D", stores=True)
def max_pool(op: Operation) -> Result:
    """The largest integers of quantised values are those of the largest numbers."""
    if op.value(0).quantization is not None and op.moves_bits() and op.limits() == (None, None):
        x = op.stored(0)
        return tf.cast(tf.nn.max_pool2d(tf.cast(x, tf.float32), *_window(op)), x.dtype)
    return op.store(op.activated(tf.nn.max_pool2d(op.number(0), *_window(op))))


@translates("RESIZE_BILINEAR")
def resize_bilinear(op: Operation) -> Result:
    return tf.raw_ops.ResizeBilinear(
        images=op.number(0),
        size=tf.constant(op.integers(1), tf.int32),
        align_corners=bool(op.option("alignCorners", False)),
        half_pixel_centers=bool(op.option("halfPixelCenters", False)),
    )


@translates("RESIZE_NEAREST_NEIGHBOR", stores=True)
def resize_nearest(op: Operation) -> Result:
    is_moved = op.moves_bits()
    result = tf.raw_ops.ResizeNearestNeighbor(
        images=op.stored(0) if is_moved else op.number(0),
        size=tf.constant(op.integers(1), tf.int32),
        align_corners=bool(op.option("alignCorners", False)),
        half_pixel_centers=bool(op.option("halfPixelCenters", False)),
    )
    return result if is_moved else op.store(result)


@translates("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(op: Operation) -> Result:
    return tf.nn.local_response_normalization(
        op.number(0),
        int(op.option("radius")),
        np.float32(op.option("bias")),
        np.float32(op.option("alpha")),
        np.float32(op.option("beta")),
    )
