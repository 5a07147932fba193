"""The table of workloads: what the benchmark measures and the tests compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from ..program import Array, Program
from ..zoo import bert, cnn, dlrm, elementwise, gpt, loops, lstm, mlp, recurrent, transformer, vision


@dataclass(frozen=True)
class Workload:
    """One row: the program in the size that is measured, and one that a test can afford.

    `quick`: part of a short run. `big`: even its small size takes many seconds, and no test runs it. `one_shape`: the
    inputs cannot have fewer rows.
    Units: `tolerance` relative to the largest magnitude of each output.
    """

    name: str
    kind: Literal["inference", "training"]
    build: Callable[[], Program]
    build_small: Callable[[], Program]
    tolerance: float = 1e-4
    quick: bool = False
    big: bool = False
    one_shape: bool = False


_SMALL_TRANSFORMER = {"batch": 2, "length": 16, "width": 32, "heads": 2, "blocks": 2}
_SMALL_CNN = {"batch": 8, "side": 8, "filters": 8}


def _vision(name: str, application: str, small_side: int, big: bool = True, quick: bool = False) -> Workload:
    return Workload(
        name,
        "inference",
        partial(vision.program, application),
        partial(vision.program, application, 1, small_side),
        quick=quick,
        big=big,
    )


_ROWS = (
    Workload("launch", "inference", elementwise.launch, elementwise.launch, 1e-6, quick=True),
    Workload(
        "black_scholes",
        "inference",
        elementwise.black_scholes,
        partial(elementwise.black_scholes, 1000),
        1e-5,
        quick=True,
    ),
    Workload(
        "layernorm_gelu_softmax",
        "inference",
        elementwise.layernorm_gelu_softmax,
        partial(elementwise.layernorm_gelu_softmax, 7, 50),
        1e-5,
        quick=True,
        one_shape=True,
    ),
    Workload("mlp", "inference", mlp.inference, partial(mlp.inference, 16, 64), 1e-5, quick=True),
    Workload("bert_base", "inference", bert.inference, partial(bert.inference, 2, 16, 32, 2, 2, 100)),
    Workload(
        "encoder",
        "inference",
        partial(transformer.inference, 8, 64, 256),
        partial(transformer.inference, **_SMALL_TRANSFORMER),
        quick=True,
    ),
    Workload(
        "gpt_decode",
        "inference",
        gpt.decode,
        partial(gpt.decode, 2, 32, 2, 12, 50),
        1e-5,
        quick=True,
        one_shape=True,
    ),
    Workload("lstm", "inference", lstm.inference, partial(lstm.inference, 4, 7, 8, 16), 1e-5),
    Workload(
        "dlrm", "inference", dlrm.inference, partial(dlrm.inference, 6, 4, 50, 8, 5, (16,), (16,)), 1e-5
    ),
    _vision("resnet50", "ResNet50", 96, big=False),
    _vision("mobilenet_v2", "MobileNetV2", 64, big=False, quick=True),
    _vision("efficientnet_b0", "EfficientNetB0", 64),
    _vision("densenet121", "DenseNet121", 64),
    _vision("convnext_tiny", "ConvNeXtTiny", 64),
    Workload("mlp_training", "training", mlp.training, partial(mlp.training, 16, 64), quick=True),
    Workload("cnn_training", "training", cnn.training, partial(cnn.training, **_SMALL_CNN)),
    Workload(
        "transformer_training",
        "training",
        partial(transformer.training, 8, 64, 128),
        partial(transformer.training, **_SMALL_TRANSFORMER),
    ),
    Workload(
        "scalar_loop", "inference", loops.scalar, partial(loops.scalar, 10), 1e-5, quick=True, one_shape=True
    ),
    Workload(
        "autograph_break", "inference", loops.leaving, partial(loops.leaving, 200, 8), 1e-3, one_shape=True
    ),
    Workload("keras_lstm", "inference", recurrent.lstm, partial(recurrent.lstm, 3, 5, 4, 6), 1e-5),
    Workload(
        "keras_bidirectional_gru",
        "inference",
        recurrent.bidirectional_gru,
        partial(recurrent.bidirectional_gru, 3, 5, 4, 6),
        1e-5,
    ),
)
WORKLOADS = {row.name: row for row in _ROWS}


def relative_error(results: list[Array], expected: list[Array]) -> float:
    """The largest difference of any element, relative to the largest magnitude in its array.

    A variable that has hardly moved from zero is compared with 1e-3 instead of with itself. A difference in
    number, shape or type of the arrays, or in where they are not finite, is an infinite error.
    """
    if len(results) != len(expected):
        return np.inf
    return max((_array_error(one, other) for one, other in zip(results, expected)), default=0.0)


def _array_error(result: Array, expected: Array) -> float:
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return np.inf
    if not np.issubdtype(expected.dtype, np.inexact):
        return 0.0 if np.array_equal(result, expected) else np.inf
    if not expected.size:
        return 0.0
    finite = np.isfinite(expected)
    if not np.array_equal(result[~finite], expected[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    difference = np.abs(result[finite].astype(wide) - expected[finite])
    return float(difference.max() / max(np.abs(expected[finite]).max(), 1e-3))
