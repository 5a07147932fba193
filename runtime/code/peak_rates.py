"""What a machine does at most, and what a kernel takes at least by it: the terms of a roofline."""

from __future__ import annotations

import dataclasses

from ..llvm.target import Target
from .artifact import KernelRecord


@dataclasses.dataclass(frozen=True)
class PeakRates:
    """Operations, and bytes moved within caches of `cache_bytes` and beyond, of one thread.

    Units: flops and bytes, per second (`s`), or per `cycle` of a machine that is not here.
    """

    flops: float
    cached_bytes: float
    bytes: float
    cache_bytes: int
    unit: str = "s"

    def least(self, kernel: KernelRecord) -> float:
        """The time that a launch takes at least."""
        rate = self.cached_bytes if kernel.bytes <= self.cache_bytes else self.bytes
        return max(kernel.flops / self.flops, kernel.bytes / rate)


def rates_per_cycle(target: Target) -> PeakRates:
    """Those of a usual core of a target: two vector instructions a cycle, one load of a vector from its caches, and an
    eighth of that from memory."""
    lanes = target.lanes(32)
    operations = lanes * (2 if target.has_fma else 1) * (2 if lanes > 1 else 1)
    return PeakRates(operations, target.vector_bytes, target.vector_bytes / 8, target.l2_bytes, "cycle")
