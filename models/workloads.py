"""The table of workloads: what the benchmark measures and the tests compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from . import cnn, elementwise, lstm, mlp, transformer, vision
from .program import Array, Program


@dataclass(frozen=True)
class Workload:
    """One row: the program in the size that is measured, and one that a test can afford.

    Units: `flops` of one call, multiply and add counted apart, matrix products and convolutions only;
    `tolerance` relative to the largest magnitude of each output.
    """

    name: str
    kind: Literal["inference", "training"]
    build: Callable[[], Program]
    build_small: Callable[[], Program]
    flops: float = 0.0
    tolerance: float = 1e-4


_SMALL_TRANSFORMER = {"batch": 2, "length": 16, "width": 32, "heads": 2, "blocks": 2}
_SMALL_CNN = {"batch": 8, "side": 8, "filters": 8}

# A training step costs three times its forward pass: one more product for each of the two gradients.
_ROWS = (
    Workload("launch", "inference", elementwise.launch, elementwise.launch, tolerance=1e-6),
    Workload("black_scholes", "inference", elementwise.black_scholes,
             partial(elementwise.black_scholes, 1000), tolerance=1e-5),
    Workload("mlp", "inference", mlp.inference, partial(mlp.inference, 16, 64), 85.6e6, 1e-5),
    Workload("cnn", "inference", cnn.inference, partial(cnn.inference, **_SMALL_CNN), 285e6),
    Workload("lstm", "inference", lstm.inference, partial(lstm.inference, 4, 7, 8, 16), 201e6, 1e-5),
    Workload("transformer", "inference", transformer.inference,
             partial(transformer.inference, **_SMALL_TRANSFORMER), 6.98e9),
    Workload("resnet50", "inference", vision.resnet50, partial(vision.resnet50, 1, 96), 7.75e9),
    Workload("mobilenet_v2", "inference", vision.mobilenet_v2, partial(vision.mobilenet_v2, 1, 64), 0.60e9),
    Workload("mlp_training", "training", mlp.training, partial(mlp.training, 16, 64), 257e6),
    Workload("cnn_training", "training", cnn.training, partial(cnn.training, **_SMALL_CNN), 855e6),
    Workload("transformer_training", "training", transformer.training,
             partial(transformer.training, **_SMALL_TRANSFORMER), 20.9e9),
)
WORKLOADS = {row.name: row for row in _ROWS}


def relative_error(found: list[Array], wanted: list[Array]) -> float:
    """The largest difference of any element, relative to the largest magnitude in its array.

    A variable that has hardly moved from zero is compared with 1e-3 instead of with itself. A difference in
    number, shape or type of the arrays, or in where they are not finite, is an infinite error.
    """
    if len(found) != len(wanted):
        return np.inf
    return max((_array_error(one, other) for one, other in zip(found, wanted)), default=0.0)


def _array_error(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return np.inf
    if not np.issubdtype(wanted.dtype, np.floating):
        return 0.0 if np.array_equal(found, wanted) else np.inf
    if not wanted.size:
        return 0.0
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    difference = np.abs(found[finite].astype(np.float64) - wanted[finite])
    return float(difference.max() / max(np.abs(wanted[finite]).max(), 1e-3))
