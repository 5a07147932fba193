"""Rows of non-maximum suppression, combined and soft."""

from __future__ import annotations

import numpy as np
from op_row import Given, Known, Random, row

R = Random
_RANDOM = np.random.default_rng(7)


def boxes(*dims: int) -> Given:
    """Boxes that overlap in part."""
    corners = _RANDOM.uniform(0, 2, (*dims, 2))
    return Given(np.concatenate([corners, corners + _RANDOM.uniform(-0.2, 1.5, (*dims, 2))], -1))


for most in (3, 40):
    for threshold, least in ((0.5, -1.0), (0.2, 0.3)):
        row("NonMaxSuppressionV4", boxes(31), R((31,), 0, 1), Known(most, "int32"), Given(threshold), Given(least),
            types="float32", pad_to_max_output_size=True)
        for sigma in (0.0, 0.4):
            row("NonMaxSuppressionV5", boxes(31), R((31,), 0, 1), Known(most, "int32"), Given(threshold), Given(least),
                Given(sigma), types="float32", pad_to_max_output_size=True)
row("NonMaxSuppressionV4", boxes(0), R((0,), 0, 1), Known(3, "int32"), Given(0.5), Given(0.0), types="float32",
    pad_to_max_output_size=True)
for count, most in ((31, 3), (31, 40), (1, 5), (0, 3), (7, 0)):  # as many as are chosen
    limits = Known(most, "int32"), Given(0.4)
    row("NonMaxSuppression", boxes(count), R((count,), 0, 1), limits[0], types="float32", iou_threshold=0.4)
    row("NonMaxSuppressionV2", boxes(count), R((count,), 0, 1), *limits, types="float32")
    for least in (-1.0, 0.5, 2.0):
        row("NonMaxSuppressionV3 NonMaxSuppressionV4", boxes(count), R((count,), 0, 1), *limits, Given(least),
            types="float32")
    row("NonMaxSuppressionV5", boxes(count), R((count,), 0, 1), *limits, Given(0.3), Given(0.5), types="float32")
    for least in (-1.0, 0.5, 2.0):
        row("NonMaxSuppressionWithOverlaps", R((count, count), 0, 1), R((count,), 0, 1), limits[0], Given(0.7),
            Given(least), types="float32")
for classes, total, pad in ((1, 5, False), (3, 7, False), (3, 20, True), (3, 40, False)):
    row("CombinedNonMaxSuppression", boxes(2, 13, classes), R((2, 13, 3), 0, 1), Known(4, "int32"),
        Known(total, "int32"), Known(0.4, "float32"), Known(0.3, "float32"), types="float32", pad_per_class=pad,
        clip_boxes=True)
