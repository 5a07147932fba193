"""The roofline: the least time that the work of compiled code takes on this machine, which is measured for it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterable

from .measurement import Kernel

FOOTPRINTS = tuple(1 << k for k in (16, 18, 20, 22, 24, 26, 29))


@dataclasses.dataclass(frozen=True)
class Machine:
    """Peak speeds of some threads together.

    Units: floating-point operations and bytes per second; `bandwidth` pairs a footprint in bytes with the bytes read
    and written per second by copies within it.
    """

    threads: int
    flops_per_second: float
    bandwidth: tuple[tuple[int, float], ...]

    def bytes_per_second(self, footprint: int) -> float:
        """The bandwidth of the largest measured footprint that this one holds; of the smallest below that."""
        sizes = [size for size, _ in self.bandwidth]
        at = max(0, bisect_left(sizes, footprint + 1) - 1)
        return self.bandwidth[at][1]

    def least_seconds(self, kernels: Iterable[Kernel], footprint: int) -> float:
        """The time of kernels that run one after another, each at one of its two limits."""
        speed = self.bytes_per_second(footprint)
        return sum(max(kernel.flops / self.flops_per_second, kernel.bytes / speed) for kernel in kernels)


def measured(threads: int) -> Machine:
    """This machine, measured in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tfbridge.compiler.cpu.machine_peak",
        str(threads),
        *map(str, FOOTPRINTS),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peaks = json.loads(done.stdout)
    return Machine(threads, peaks["flops_per_second"], tuple(zip(FOOTPRINTS, peaks["bytes_per_second"])))
