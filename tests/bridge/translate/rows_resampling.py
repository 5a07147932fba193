"""Rows of images resampled, cropped, transformed and dilated."""

from __future__ import annotations

import numpy as np
from op_row import FLOATS, TYPE, WIDE_FLOATS, Given, Known, Random, row

R = Random
IMAGES = R((2, 5, 7, 3), -9, 9)
BLENDS = 5e-5  # weights to some places of a table
SIZES = ((11, 4), (5, 7), (1, 1), (2, 13))

for height, width in SIZES:
    size = np.array([height, width], np.int32)
    for half, align in ((False, False), (True, False), (False, True)):
        options = {"half_pixel_centers": half, "align_corners": align}
        row("ResizeBicubic", IMAGES, size, types=f"{FLOATS} uint8 int32", tolerance=BLENDS, **options)
        row("ResizeBicubicGrad", R((2, height, width, 3), type="float32"), IMAGES, types="float32", tolerance=BLENDS,
            **options)
        row("ResizeBicubicGrad", R((2, height, width, 3), type="float32"), IMAGES, types="float64", tolerance=1.0,
            **options)  # TensorFlow's products are of f32
    row("ResizeArea", IMAGES, size, types=f"{WIDE_FLOATS} uint8", tolerance=BLENDS)
    row("ResizeArea", IMAGES, size, types="float32", tolerance=BLENDS, align_corners=True)
    scale = Known([height / 5, width / 7], "float32")
    for kernel in ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"):
        for antialias in (False, True):
            row("ScaleAndTranslate", IMAGES, size, scale, Known([0.0, 0.3], "float32"), types="float32",
                kernel_type=kernel, antialias=antialias, tolerance=BLENDS)
    row("ScaleAndTranslateGrad", R((2, height, width, 3), type="float32"), IMAGES, scale, Known([0.0, 0.3], "float32"),
        types="float32", kernel_type="lanczos3", antialias=True, tolerance=BLENDS)

BOXES = Given([[0, 0, 1, 1], [0.2, 0.9, 0.7, 0.1], [-0.2, 0.1, 1.3, 0.8], [0.5, 0.5, 0.5, 0.5]], "float32")
OWNER = Given([0, 1, 1, 0], "int32")
for method in ("bilinear", "nearest"):
    for crop in ((4, 5), (1, 3)):
        row("CropAndResize", IMAGES, BOXES, OWNER, np.array(crop, np.int32), types=f"{FLOATS} uint8 int32",
            method=method, extrapolation_value=2.5, tolerance=BLENDS)
        row("CropAndResizeGradImage", R((4, *crop, 3), type="float32"), BOXES, OWNER, Known([2, 5, 7, 3], "int32"),
            types="float32 float16", T=TYPE, method=method, tolerance=BLENDS)
        row("CropAndResizeGradImage", R((4, *crop, 3), type="float32"), BOXES, OWNER, Known([2, 5, 7, 3], "int32"),
            types="float64", T=TYPE, method=method, tolerance=0.5)  # sums in float64 of products in float32
    row("CropAndResizeGradBoxes", R((4, 4, 5, 3), type="float32"), IMAGES, BOXES, OWNER, types="float32",
        method="bilinear", tolerance=2e-4)

TURN = [[0.9, 0.3, -1.0, -0.2, 1.1, 0.5, 0.0, 0.0], [1.3, 0.1, 0.4, 0.2, 0.7, -3.0, 0.01, 0.02]]
for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
    for interpolation in ("NEAREST", "BILINEAR"):
        row("ImageProjectiveTransformV3", R((2, 5, 7, 3)), Given(TURN, "float32"), Known([6, 8], "int32"),
            Known(1.5, "float32"), types="float32 float64 uint8 int32" if interpolation == "NEAREST" else "float32",
            interpolation=interpolation, fill_mode=mode, tolerance=2e-4)
        row("ImageProjectiveTransformV2", R((2, 5, 7, 3)), Given(TURN[:1], "float32"), Known([6, 8], "int32"),
            types="float32", interpolation=interpolation, fill_mode=mode, tolerance=2e-4)

for padding in ("SAME", "VALID"):
    for strides, rates in (([1, 1, 1, 1], [1, 1, 1, 1]), ([1, 2, 1, 1], [1, 1, 2, 1])):
        options = {"strides": strides, "rates": rates, "padding": padding}
        row("Dilation2D", R((2, 7, 9, 3)), R((2, 3, 3)), types=f"{FLOATS} int32", **options)
        out = {"SAME": (7 if strides[1] == 1 else 4, 9), "VALID": (6 if strides[1] == 1 else 3,
                                                                   7 if rates[2] == 1 else 5)}[padding]
        row("Dilation2DBackpropInput Dilation2DBackpropFilter", R((2, 7, 9, 3)), R((2, 3, 3)), R((2, *out, 3)),
            types=WIDE_FLOATS, **options)
