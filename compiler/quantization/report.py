"""What quantisation changed: the error of every layer and of the results, as data and as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..ir.element_types import ElementType
from ..ir.module import Instruction
from .layers import Layer
from .rewrite import Quantized


@dataclasses.dataclass(frozen=True)
class LayerError:
    """A quantised layer. weights_type: in which its weights are stored. low, high: the range of what it reads, where
    that is in 8 bits. signal_to_noise: of its result on the samples; None where there are none.

    Units: signal_to_noise in dB, infinite where nothing differs.
    """

    name: str
    kind: str
    weights: tuple[int, ...]
    weights_type: str
    low: float | None
    high: float | None
    signal_to_noise: float | None


@dataclasses.dataclass(frozen=True)
class ResultError:
    """A result of the function. same_class: the share of rows whose largest number is at the same place; None where
    rows are no classes.

    Units: signal_to_noise in dB; largest_difference as the result.
    """

    signal_to_noise: float
    largest_difference: float
    same_class: float | None


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """What quantisation changed, on the samples of the calibration. `kept`: layers that stay in f32."""

    scheme: str
    samples: int
    layers: tuple[LayerError, ...]
    kept: tuple[str, ...]
    results: tuple[ResultError, ...]

    @property
    def worst(self) -> list[LayerError]:
        """The layers, those with the largest error first."""
        return sorted(
            self.layers,
            key=lambda layer: math.inf if layer.signal_to_noise is None else layer.signal_to_noise,
        )

    def to_json(self) -> dict[str, object]:
        """As NAME.json has it."""
        return dataclasses.asdict(
            self,
            dict_factory=lambda pairs: {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in pairs
            },
        )

    def __str__(self) -> str:
        lines = [
            f"{len(self.layers)} layers in {self.scheme}, {len(self.kept)} in f32; {self.samples} samples"
        ]
        for number, result in enumerate(self.results):
            same = "" if result.same_class is None else f", {result.same_class:.1%} same class"
            lines.append(
                f"result {number}: {result.signal_to_noise:.1f} dB, differs by at most "
                f"{result.largest_difference:.3g}{same}"
            )
        lines += [
            f"  {layer.signal_to_noise:6.1f} dB  {layer.kind:11}  {layer.name}"
            for layer in self.worst[:5]
            if layer.signal_to_noise is not None
        ]
        return "\n".join(lines)


class Comparison:
    """Sums of squares of values and of their differences, over all samples."""

    def __init__(self, names: Sequence[str]) -> None:
        self.layers = [_Error() for _ in names]
        self.results: list[_Error] = []
        self.samples = 0

    def add(
        self,
        results: Sequence[np.ndarray],
        new_results: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        new_values: Sequence[np.ndarray],
    ) -> None:
        """One sample: results and values of layers, without and with quantisation."""
        self.samples += 1
        self.results = self.results or [_Error() for _ in results]
        for error, old, new in zip(
            (*self.layers, *self.results), (*values, *results), (*new_values, *new_results)
        ):
            error.add(old, new)


class _Error:
    def __init__(self) -> None:
        self.signal = self.noise = self.largest = 0.0
        self.rows = self.same = 0

    def add(self, old: np.ndarray, new: np.ndarray) -> None:
        if old.dtype.kind not in "fiu" or not old.size:
            return
        a, b = old.astype(np.float64), new.astype(np.float64)
        self.signal += float((a * a).sum())
        self.noise += float(((a - b) ** 2).sum())
        self.largest = max(self.largest, float(np.abs(a - b).max()))
        if a.ndim == 2 and a.shape[1] > 1:
            self.rows += len(a)
            self.same += int((a.argmax(1) == b.argmax(1)).sum())

    @property
    def decibels(self) -> float:
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def describe(
    layers: Sequence[Layer],
    weights_types: Sequence[ElementType],
    types: Mapping[Instruction, Quantized],
    comparison: Comparison,
    kept: Sequence[str],
    scheme: str,
) -> QuantizationReport:
    """The report of a quantised module."""

    def of(layer: Layer, weights_type: ElementType, error: _Error) -> LayerError:
        low, high = types[layer.source].bounds if types else (None, None)
        decibels = error.decibels if comparison.samples else None
        return LayerError(
            layer.name, layer.kind, layer.weights.shape, weights_type.value, low, high, decibels
        )

    return QuantizationReport(
        scheme,
        comparison.samples,
        tuple(map(of, layers, weights_types, comparison.layers)),
        tuple(kept),
        tuple(
            ResultError(e.decibels, e.largest, e.same / e.rows if e.rows else None)
            for e in comparison.results
        ),
    )
