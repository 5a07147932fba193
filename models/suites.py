"""The suites of the benchmark: tables of programs, with the engines that run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .operations import OPERATIONS
from .workloads import WORKLOADS, Workload


@dataclass(frozen=True)
class Suite:
    """Rows by name, the engines that run them unless others are asked for, and all that make sense."""

    rows: Mapping[str, Workload]
    engines: tuple[str, ...]
    all_engines: tuple[str, ...]


SUITES = {
    "workloads": Suite(WORKLOADS, ("tf", "xla", "tfbridge"),
                       ("tf", "xla", "openvino", "onnxruntime", "litert", "tfbridge-native", "tfbridge")),
    "ops": Suite(OPERATIONS, ("numpy", "xla", "tfbridge"), ("numpy", "tf", "xla", "tfbridge")),
}
