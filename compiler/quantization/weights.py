"""Weights in narrower types: integers of 8 bits with a scale for each output feature, of 4 bits with one for each block
of rows besides, and floats."""

from __future__ import annotations

import numpy as np

from ..ir.element_types import ElementType, float_info

LARGEST_WEIGHT = 127
SMALLEST_SCALE = 1e-12
_LEAST, _MOST = -8, 7  # of 4 bits
# Of the scale with which the largest weight is exact: smaller ones, with which it is not, are better for the others.
_SHARES = (1.0, 7 / 8, 0.94, 0.82, 0.76, 0.7)


def quantize_weights(
    weights: np.ndarray, channel_axis: int, most: int = LARGEST_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """(weights as s8 of at most this size, the scale of each output feature), symmetric around zero."""
    others = tuple(a for a in range(weights.ndim) if a != channel_axis)
    largest = np.abs(weights).max(axis=others)
    scales = np.maximum(largest / most, SMALLEST_SCALE).astype(np.float32)
    shape = [1] * weights.ndim
    shape[channel_axis] = -1
    return np.rint(weights / scales.reshape(shape)).astype(np.int8), scales


def quantize_blocks(weights: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """(weights as integers of 4 bits, the scales of blocks of so many rows): the scales whose squared error is least.

    Shapes: (k, n) -> s8 (k, n), f32 (blocks, n)
    """
    rows, columns = weights.shape
    blocks = -(-rows // block_size)
    whole = np.pad(weights, ((0, blocks * block_size - rows), (0, 0))).reshape(blocks, block_size, columns)
    largest = np.maximum(np.abs(whole).max(axis=1, keepdims=True) / _MOST, SMALLEST_SCALE).astype(np.float32)
    best = np.full(largest.shape, np.inf, np.float32)
    scales, integers = largest, np.zeros(whole.shape, np.int8)
    for share in _SHARES:
        scale = largest * np.float32(share)
        rounded = np.clip(np.rint(whole / scale), _LEAST, _MOST)
        error = ((rounded * scale - whole) ** 2).sum(axis=1, keepdims=True)
        is_better = error < best
        best = np.where(is_better, error, best)
        scales = np.where(is_better, scale, scales)
        integers = np.where(is_better, rounded.astype(np.int8), integers)
    return integers.reshape(-1, columns)[:rows], scales.reshape(blocks, columns)


def as_stored(weights: np.ndarray, kind: ElementType) -> np.ndarray:
    """Weights in a narrower type of floats, the largest ones as its largest number."""
    largest = float(float_info(kind.dtype).max)
    result: np.ndarray = np.clip(weights, -largest, largest).astype(kind.dtype)
    return result
