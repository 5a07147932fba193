"""Values of types of at most 8 bits, and those of wider types beside which a conversion to them rounds or overflows."""

from __future__ import annotations

import functools

import numpy as np
from cases import limits
from tfbridge.compiler.ir.element_types import ARRAYS, ElementType
from tfbridge.compiler.ops import numeric

ALL = sorted(ARRAYS, key=lambda t: t.value)
NARROW = [t for t in ALL if 1 < t.bits <= 8]
FLOATS = [t for t in NARROW if t.is_float]


@functools.cache
def every(t: ElementType) -> np.ndarray:
    """All values of a type, in the order of their encodings."""
    return numeric.from_bit_pattern(np.arange(1 << t.bits, dtype=np.uint8), t.dtype)


def every_pair(t: ElementType) -> list[np.ndarray]:
    values = every(t)
    return [np.repeat(values, values.size), np.tile(values, values.size)]


def some(t: ElementType, *dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(every(t), dims)


def number(t: ElementType, value: float) -> np.ndarray:
    """A scalar, rounded to the type."""
    return numeric.narrow(np.asarray(value, np.float64), t.dtype)


@functools.cache
def wide_values(t: ElementType) -> np.ndarray:
    """Numbers of a type of more than 8 bits: all of 16 bits, else those beside which a narrow type rounds, saturates or
    overflows."""
    if t is ElementType.PRED or t.is_complex:
        return np.array([0, 1, 2.5, -3, np.inf, np.nan]).astype(t.dtype)
    if t.item_bytes == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(t.dtype)
    if t.is_integer:
        low, high = limits(t)
        powers = {s * 2**b + d for b in range(t.bits + 1) for d in (-1, 0, 1) for s in (1, -1)}
        return np.array([v for v in sorted({*powers, *range(-600, 600)}) if low <= v <= high], t.dtype)
    edges = {2.0**k * d for k in range(-160, 130) for d in (1, 1.5)} | {k / 2 for k in range(600)}
    for narrow in FLOATS:
        numbers = numeric.wide(every(narrow))
        finite = np.unique(numbers[np.isfinite(numbers)])
        beyond = finite[-1] * np.array([1, 1.03125, 1.0625, 1.125, 1.25, 1.5, 2])
        edges |= {*finite, *(finite[1:] + finite[:-1]) / 2, *beyond}
    with np.errstate(over="ignore"):
        near = np.array([*edges, *(-v for v in edges)]).astype(t.dtype)
    above, below = (np.nextafter(near, t.dtype.type(end)) for end in (np.inf, -np.inf))
    return np.concatenate([near, above, below, np.array([np.inf, -np.inf, np.nan, -np.nan], t.dtype)])
