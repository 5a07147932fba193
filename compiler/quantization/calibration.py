"""Observes values on samples, and chooses the ranges that their 8 bits cover."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..client.platforms import Platform
from ..errors import ShapeError
from ..ir.module import Instruction, Module
from ..options import DEFAULT_OPTIONS
from .loops import with_values

PERCENTILE = 99.99
State = tuple[int, int | None, np.ndarray]
"""Numbers of a parameter and of the result that is its next value, if there is one; the first value."""
Function = Callable[[np.ndarray], np.ndarray]
_BINS = 2048
_TAILS = 0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2
_TAILS_OF_FUNCTIONS = 3e-2, 0.1, 0.3  # which may be flat there
_FEWEST_LEVELS = 1e-30  # a range that is one number


@dataclasses.dataclass
class Observed:
    """The values that one instruction had: their bounds and a histogram of what lies between."""

    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, values: np.ndarray) -> None:
        """More values. The bins have equal widths over the bounds; where these grow, they are counted into new ones."""
        if not values.size:
            return
        low, high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if (low, high) != (self.low, self.high):
            old = np.linspace(self.low, self.high, _BINS + 1)
            centers = (old[:-1] + old[1:]) / 2
            self.counts = np.histogram(centers, _BINS, (low, high), weights=self.counts)[0].astype(np.int64)
            self.low, self.high = low, high
        if high > low:
            self.counts += np.histogram(values, _BINS, (low, high))[0]

    def range(self, method: str, functions: Sequence[Function] = ()) -> tuple[float, float]:
        """The bounds that 8 bits shall cover, zero among them. By the method `mse` the error is that of `functions` of
        the values, where there are some."""
        if method == "min-max" or not self.counts.any():
            return self.low, self.high
        if method == "percentile":
            return self._without_tails(1 - PERCENTILE / 100)
        if not functions:
            return min((self._without_tails(tail) for tail in _TAILS), key=self._squared_error)
        both = itertools.product((*_TAILS, *_TAILS_OF_FUNCTIONS), repeat=2)
        return self._least_error_of(functions, dict.fromkeys(self._without_tails(*tails) for tails in both))

    def _without_tails(self, share: float, upper_share: float | None = None) -> tuple[float, float]:
        """The bounds without the outermost values, a share of all on either side; zero stays inside."""
        upper_share = share if upper_share is None else upper_share
        edges = np.linspace(self.low, self.high, _BINS + 1)
        below = np.cumsum(self.counts) / self.counts.sum()
        low = edges[int(np.searchsorted(below, share, side="right"))]
        high = edges[min(int(np.searchsorted(below, 1 - upper_share)) + 1, _BINS)]
        return min(float(low), 0.0), max(float(high), 0.0)

    def _squared_error(self, bounds: tuple[float, float]) -> float:
        edges = np.linspace(self.low, self.high, _BINS + 1)
        centers = (edges[:-1] + edges[1:]) / 2
        step = max((bounds[1] - bounds[0]) / 255, _FEWEST_LEVELS)
        # Rounding inside, the distance to the bounds outside.
        error = np.where(
            (centers < bounds[0]) | (centers > bounds[1]),
            (centers - np.clip(centers, *bounds)) ** 2,
            step * step / 12,
        )
        return float((error * self.counts).sum())

    def _least_error_of(
        self, functions: Sequence[Function], candidates: Iterable[tuple[float, float]]
    ) -> tuple[float, float]:
        """The bounds with which results of the functions have the least squared error."""
        edges = np.linspace(self.low, self.high, _BINS + 1)
        centers = ((edges[:-1] + edges[1:]) / 2).astype(np.float32)
        wanted = [f(centers) for f in functions]

        def error(bounds: tuple[float, float]) -> float:
            step = max((bounds[1] - bounds[0]) / 255, _FEWEST_LEVELS)
            total = 0.0
            for share in (-0.4, -0.2, 0.2, 0.4):  # levels at any distance from the values, on both sides
                rounded = np.clip(centers + step * share, *bounds).astype(np.float32)
                total += sum(
                    float(((f(rounded) - exact) ** 2 * self.counts).sum())
                    for f, exact in zip(functions, wanted)
                )
            return total

        return min(candidates, key=error)


def observe(
    platform: Platform,
    module: Module,
    values: Sequence[Instruction],
    samples: Iterable[Sequence[np.ndarray]],
    states: Sequence[State] = (),
) -> Iterable[tuple[list[np.ndarray], list[np.ndarray]]]:
    """(results, values) of each sample, which is a list of arguments. `states` are parameters
    that a sample does not have.

    Raises: ShapeError  a sample whose arrays do not fit the parameters.
    """
    compiled = platform.compile(with_values(module, values), DEFAULT_OPTIONS)
    shapes = module.entry.parameter_shapes
    sampled = [k for k in range(len(shapes)) if k not in {parameter for parameter, _, _ in states}]
    now = {parameter: value for parameter, _, value in states}
    for number, sample in enumerate(samples):
        if len(sample) != len(sampled):
            raise ShapeError(f"sample {number} has {len(sample)} arrays, {len(sampled)} are wanted")
        arguments = dict(now)
        for k, array in zip(sampled, sample):
            fitting = np.asarray(array, shapes[k].element_type.dtype)
            if fitting.shape != shapes[k].dims:
                raise ShapeError(
                    f"sample {number}: argument {k} is {list(fitting.shape)}, {shapes[k]} is wanted"
                )
            arguments[k] = fitting
        results = [np.array(r) for r in compiled.execute([arguments[k] for k in range(len(shapes))])]
        now.update({parameter: results[result] for parameter, result, _ in states if result is not None})
        count = len(results) - len(values)
        yield results[:count], results[count:]
