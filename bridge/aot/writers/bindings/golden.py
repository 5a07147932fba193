"""Examples of a model's runs as one file of bytes, and where in it the arrays lie: for the tests of bindings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import Array, arrays_of
from ..export import SMALL_FLOATS, Export
from ..model import Entry

# How numbers are compared, by NumPy dtype; others are equal bit by bit.
_PARTS = {"float32": "f32", "complex64": "f32", "float64": "f64", "complex128": "f64"}


@dataclasses.dataclass(frozen=True)
class Values:
    """The values of an array in the file. kind: how they are compared with others: `bits`, or as numbers that are close
    to them, `f32`, `f64` or `small` (the bits of whose exponent and fraction follow).

    Units: offset and size are bytes; tolerance is a part of a number of 1 or more.
    """

    array: Array
    offset: int
    size: int
    kind: str = "bits"
    small: tuple[int, int] = (0, 0)
    tolerance: float = 0.0


@dataclasses.dataclass(frozen=True)
class GoldenRun:
    """A run of a function. `sizes`: those that change, by their places."""

    entry: Entry
    sizes: Mapping[int, int]
    arguments: Sequence[Values]
    results: Sequence[Values]


def golden(export: Export) -> tuple[bytes, list[GoldenRun]]:
    """(the file, the runs). Arrays without elements are left out."""
    data = bytearray()
    runs: list[GoldenRun] = []
    for entry, examples in zip(export.model.entries, export.examples, strict=True):
        arrays = arrays_of(export.model, entry)
        words = {word: [a for a in arrays if a.word == word] for word in ("arg", "result")}
        for example in examples:
            arguments = _place(data, words["arg"], example.arguments)
            results = [_compared(export, v) for v in _place(data, words["result"], example.results)]
            runs.append(GoldenRun(entry, example.sizes, arguments, results))
    return bytes(data), runs


def _place(data: bytearray, arrays: Sequence[Array], values: Sequence[np.ndarray]) -> list[Values]:
    """Adds arrays to the file."""
    values_of_arrays = []
    for array, value in zip(arrays, values, strict=True):
        if value.size:
            values_of_arrays.append(Values(array, len(data), value.nbytes))
            data += np.ascontiguousarray(value).tobytes()
    return values_of_arrays


def _compared(export: Export, values: Values) -> Values:
    dtype = values.array.spec.dtype
    tolerance = export.tolerance(dtype)
    if dtype in SMALL_FLOATS:
        return dataclasses.replace(values, kind="small", small=SMALL_FLOATS[dtype], tolerance=tolerance)
    if dtype in _PARTS:
        return dataclasses.replace(values, kind=_PARTS[dtype], tolerance=tolerance)
    return values
