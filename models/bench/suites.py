"""The suites of the benchmark: tables of programs, with the engines that run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .operations import OPERATIONS
from .workloads import WORKLOADS, Workload


@dataclass(frozen=True)
class Suite:
    """Rows by name, the engines that run them unless others are asked for, and all that make sense.

    `one_process`: an engine runs all rows in one process, one after another; what only a fresh process can tell (first
    call, memory, roofline) is left out. `round_seconds`: how long an engine's turn is.
    """

    rows: Mapping[str, Workload]
    engines: tuple[str, ...]
    all_engines: tuple[str, ...]
    one_process: bool = False
    round_seconds: float = 0.4


SUITES = {
    "workloads": Suite(
        WORKLOADS,
        ("tf", "xla", "tfbridge"),
        ("tf", "xla", "openvino", "onnxruntime", "litert", "tfbridge-native", "tfbridge"),
    ),
    "ops": Suite(
        OPERATIONS,
        ("numpy", "xla", "tfbridge"),
        ("numpy", "tf", "xla", "tfbridge"),
        one_process=True,
        round_seconds=0.2,
    ),
}
