"""All that the files of an exported model are written from: the model, its code, and examples of its runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....runtime.llvm.target import Target
from ....runtime.sizes import Valuation
from .model import Entry, Model, Reference

Files = Mapping[str, "str | bytes"]
"""Contents of files, by their names in the folder of the model."""
_SEED = 20
_RUNS_OF_STATE = 3
# Floats that most languages have no type for: (bits of the exponent, bits of the fraction).
SMALL_FLOATS = {"float16": (5, 10), "bfloat16": (8, 7), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
# Differences that other orders of arithmetic make, as parts of a number of 1 or more.
_TOLERANCES = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float8_e4m3fn": 0.25,
    "float8_e5m2": 0.5,
}
_F32_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Run:
    """Arguments of a function and the results expected. `sizes`: those that change, by their places."""

    arguments: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    sizes: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Export:
    """What files are written from.

    object_bytes, constants: the code, and the weights where they lie in a file of their own. header: the text of
    NAME.h. folder: where the files go, for those that list others there.
    """

    model: Model
    object_bytes: bytes
    constants: bytes
    header: str
    target: Target
    reference: Reference
    folder: Path

    @property
    def runs_of_example(self) -> int:
        """How often an example is run, from the first state: the results expected are those of the last run."""
        return _RUNS_OF_STATE if self.model.states else 1

    @functools.cached_property
    def examples(self) -> list[list[Run]]:
        """Runs of each function, with TensorFlow's results: one, or one for each of some sizes."""
        places = {size.name: place for place, size in enumerate(self.model.sizes.listed)}
        runs: list[list[Run]] = []
        for entry, function in zip(self.model.entries, self.reference.functions, strict=True):
            runs.append([])
            for values in self.model.sizes.examples.get(entry.name, [{}]):
                arguments = _arguments(entry, values)
                sizes = {places[name]: value for name, value in values.items()}
                results = function(arguments, self.runs_of_example)
                rows = [np.array(len(results[k]), np.int32) for k in entry.sized_results]
                runs[-1].append(Run(arguments, [*results, *rows], sizes))
        return runs

    def tolerance(self, dtype: str) -> float:
        """How far numbers of a type may be from those expected, in parts of a number of 1 or more; 0: equal."""
        if "float" not in dtype and "complex" not in dtype:
            return 0.0
        return max(self.reference.tolerance or 0.0, _TOLERANCES.get(dtype, _F32_TOLERANCE))


def _arguments(entry: Entry, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Random values: normal floats, integers of 0 and 1, or all of their type where they stand for numbers."""
    random = np.random.default_rng(_SEED)
    arrays = []
    for k, spec in enumerate(entry.arguments):
        dims = tuple(map(Valuation(sizes), entry.sizes("args", k)))
        is_float = np.dtype(spec.dtype).kind in "fcV"
        limits = (0, 1) if entry.step("arg", k) is None else _limits(spec.dtype)
        values = random.standard_normal(dims) if is_float else random.integers(*limits, dims, endpoint=True)
        arrays.append(values.astype(spec.dtype))
    return arrays


def _limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
