"""Whether compiled code's results are the evaluator's, up to a tolerance in units of the last place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tfbridge.compiler.evaluator.evaluate import nested as nested_value
from tfbridge.compiler.ir.element_types import element_type_of
from tfbridge.compiler.ir.shape import Shape


def leaves(value: Any) -> list[np.ndarray]:
    """The arrays of a nested tuple."""
    return (
        [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [np.asarray(value)]
    )


def nested(shapes: Sequence[Shape], arrays: Sequence[np.ndarray]) -> list[Any]:
    """Flat arrays as arguments of these shapes, tuples nested."""
    rest = iter(arrays)
    return [nested_value(shape, rest) for shape in shapes]


def difference(found: np.ndarray, wanted: np.ndarray, ulps: float = 0.0, scale: float = 0.0) -> str:
    """What differs, empty when nothing does.

    `ulps` 0: bit for bit, NaN and denormals aside. Else that many units of the last place of the wanted value, or of
    `scale` where that is larger; where the wanted value is below the smallest normal number, 0 is right too.
    """
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"is {found.dtype}{list(found.shape)}, wanted {wanted.dtype}{list(wanted.shape)}"
    if found.size == 0:
        return ""
    wanted = np.require(wanted, requirements="C")
    if np.iscomplexobj(found):
        real = found.real.dtype
        parts = [np.stack([x.real, x.imag]).astype(real) for x in (found, wanted)]
        finite = np.abs(parts[1][np.isfinite(parts[1])])
        same = _same(parts[0], parts[1], ulps, max(scale, float(finite.max(initial=0)))).all(0)
    else:
        same = _same(found, wanted, ulps, scale)
    if same.all():
        return ""
    places = np.argwhere(~same)
    first = tuple(places[0])
    return (
        f"{len(places)} of {found.size} differ, first at {list(map(int, first))}: "
        f"{found[first]!r}, wanted {wanted[first]!r}"
    )


def _bits(x: np.ndarray) -> np.ndarray:
    return np.require(x, requirements="C").view(f"u{x.itemsize}")


def _are_denormal(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where both are zero or denormal and have one sign: what works on bits keeps denormals, arithmetic does not."""
    if found.dtype not in (np.float32, np.float64, ml_dtypes.bfloat16):
        return np.zeros(found.shape, bool)
    tiny = ml_dtypes.finfo(found.dtype).tiny
    return (abs(found) < tiny) & (abs(wanted) < tiny) & (np.signbit(found) == np.signbit(wanted))


def _same(found: np.ndarray, wanted: np.ndarray, ulps: float, scale: float) -> np.ndarray:
    if found.dtype.kind in "biu" or element_type_of(found.dtype).is_small_integer:
        return found == wanted
    with np.errstate(all="ignore"):
        same = (
            (_bits(found) == _bits(wanted))
            | ((found != found) & (wanted != wanted))
            | _are_denormal(found, wanted)
        )
        if not ulps:
            return same
        info = ml_dtypes.finfo(found.dtype)
        f, w = found.astype(np.float64), wanted.astype(np.float64)
        size = np.maximum(np.maximum(np.abs(w), scale), float(info.tiny))
        unit = np.exp2(np.frexp(size)[1] - 1.0 - info.nmant)
        near = np.abs(f - w) <= ulps * unit
        return same | (f == w) | near | ((np.abs(w) < float(info.tiny)) & (f == 0))
