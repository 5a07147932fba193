"""Mutations of an operand: other ranks, sizes and values than an op expects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_NUMBERS = (
    -1,
    -2,
    -7,
    0,
    1,
    2,
    5,
    77,
)  # of integers: below, at and above what indices, axes and sizes may be
_FLOATS = (np.nan, -1.0, 0.0, 1.5)
_MOST_FLOATS = 4


def mutations(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(what was done, the array after it) for every mutation; each changes rank, sizes or values, not the type."""
    yield from _ranks(array)
    yield from _sizes(array)
    if array.dtype.kind in "iu":
        yield from _integers(array)
    elif array.dtype.kind == "b":
        yield "not", ~array
    elif array.size and array.size <= _MOST_FLOATS:  # a parameter, not data
        for value in _FLOATS:
            yield f"first={value}", _with_first(array, value)


def _ranks(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "new first axis", array[None]
    yield "new last axis", array[..., None]
    yield "two new axes", array[None, None]
    if array.ndim:
        yield "flat", array.ravel()
        yield "empty vector", array.ravel()[:0]
        for axis in range(array.ndim):
            if array.shape[axis]:
                yield f"without axis {axis}", array.take(0, axis)
    if array.size and array.ndim:
        yield "scalar", array.ravel()[0].reshape(())
        yield "vector of two", np.stack([array.ravel()[0]] * 2)
    if not array.ndim:
        yield "vector of two", np.stack([array, array])
        yield "empty vector", np.zeros(0, array.dtype)


def _sizes(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for axis, dim in enumerate(array.shape):
        if not dim:
            continue
        yield f"one less of axis {axis}", array.take(range(dim - 1), axis)
        yield f"one more of axis {axis}", np.concatenate([array, _another(array, axis)], axis)
        if dim > 1:
            yield f"none of axis {axis}", array.take(range(0), axis)
            yield f"one of axis {axis}", array.take([0], axis)


def _another(array: np.ndarray, axis: int) -> np.ndarray:
    """A slice like the last one; of floats with elements of its own, which keep the rank of matrices."""
    last = array.take([array.shape[axis] - 1], axis)
    if array.dtype.kind not in "fc":
        return last
    return (last + np.linspace(0.3, 0.9, last.size).reshape(last.shape) ** 2).astype(array.dtype)


def _integers(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for value in _NUMBERS:
        if value < 0 and array.dtype.kind == "u" or not array.size:
            continue
        yield f"first={value}", _with_first(array, value)
        if array.size > 1:
            yield f"all={value}", np.full_like(array, value)
            last = array.copy()
            last.reshape(-1)[-1] = value
            yield f"last={value}", last
    if array.size > 1:
        yield "reversed", array.ravel()[::-1].reshape(array.shape).copy()


def _with_first(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[0] = value
    return changed
