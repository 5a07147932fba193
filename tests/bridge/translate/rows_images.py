"""Rows of image ops."""

from __future__ import annotations

import numpy as np
from op_row import FLOATS, REALS, WIDE_FLOATS, Given, Random, row

R = Random


def size(height: int, width: int) -> np.ndarray:
    """A constant image size."""
    return np.array([height, width], np.int32)


IMAGE, COLOURS = R((2, 5, 7, 3), 0, 9), R((2, 5, 7, 3), 0, 1)
for corners, centres in ((False, False), (True, False), (False, True)):
    for to in ((8, 3), (5, 7), (1, 1), (3, 13)):
        kinds = REALS if to == (8, 3) and not corners else "float32"
        options = {"align_corners": corners, "half_pixel_centers": centres}
        row("ResizeBilinear ResizeNearestNeighbor", IMAGE, size(*to), types=kinds, **options)
        row("ResizeBilinearGrad", R((2, *to, 3), type="float32"), R((2, 5, 7, 3)), types="float32", **options)
        row("ResizeBilinearGrad", R((2, *to, 3), type="float32"), R((2, 5, 7, 3)), types="float64", tolerance=1,
            **options)  # TensorFlow multiplies weights and gradients in f32
        row("ResizeNearestNeighborGrad", R((2, *to, 3)), size(5, 7), types=WIDE_FLOATS, **options)
row("RGBToHSV HSVToRGB", COLOURS)
row("RGBToHSV", Given([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0.2]]), types=WIDE_FLOATS)
row("AdjustHue", COLOURS, Given(0.3, "float32"), types="float32 float16")
row("AdjustHue", COLOURS, Given(-0.7, "float32"), types="float32")
row("AdjustSaturation", COLOURS, Given(1.7, "float32"), types="float32 float16")
row("AdjustContrastv2", COLOURS, Given(1.7, "float32"), types="float32 float16")
row("LRN", R((2, 4, 3, 7)), types=FLOATS, depth_radius=2, alpha=0.2, beta=0.6)
row("LRNGrad", R((2, 4, 3, 7)), R((2, 4, 3, 7)), R((2, 4, 3, 7)), types="float32", depth_radius=2, alpha=0.2, beta=0.6)

BOXES = Given([[[0.1, 0.2, 0.6, 0.9], [-0.5, 0.1, 0.5, 1.5], [0.3, 0.3, 0.3, 0.8], [0.9, 0, 0.2, 1]],
               [[0, 0, 1, 1], [0.4, 0.5, 0.8, 0.6], [1.2, 0.1, 1.6, 0.8], [0.5, -0.2, 0.7, 0.1]]], "float32")
for depth in (1, 3, 4):
    row("DrawBoundingBoxes", R((2, 9, 11, depth)), BOXES, types="float32 float16")
    row("DrawBoundingBoxesV2", R((2, 9, 11, depth)), BOXES, R((3, 4), 0, 1, "float32"), types="float32 float16")
row("DrawBoundingBoxesV2", R((2, 9, 11, 3)), BOXES, Given(np.zeros((0, 4)), "float32"), types="float32")
row("DrawBoundingBoxesV2", R((2, 9, 11, 3)), Given(np.zeros((2, 0, 4)), "float32"), R((3, 4), 0, 1, "float32"),
    types="float32")
