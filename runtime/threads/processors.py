"""How many processors this process may use: those of its affinity mask, within the quotas of its control groups.

A container with a quota (`docker run --cpus 2`, the limits of Kubernetes) sees all processors of the machine. With a
thread for each, it is stopped for most of every period, all threads at once.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (cpu.cfs_quota_us).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_GROUPS = "sys/fs/cgroup"


def usable_cpus() -> int:
    """Processors that this process may use, at least 1."""
    return int(min(affine_cpus(), _quota()))


def affine_cpus() -> int:
    """Processors that the affinity mask allows; all of the machine where there is none."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota(root: Path = _ROOT) -> float:
    """Processors' time per time that the control groups allow, infinite for no limit; `root` has `proc` and `sys`."""
    return min((q for folder in _folders(root) if (q := _quota_of(folder)) > 0), default=math.inf)


@functools.cache
def _quota() -> float:
    return max(1, math.ceil(q)) if (q := quota()) < math.inf else q


def _folders(root: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in, and of those around them, of both versions."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            hierarchy = root / _GROUPS
        elif "cpu" in controllers.split(","):
            hierarchy = root / _GROUPS / controllers
            if not hierarchy.is_dir():  # a link of that name is usual, but no more
                hierarchy = root / _GROUPS / "cpu"
        else:
            continue
        folder = hierarchy / path.lstrip("/")
        # In a container the path may be that of the host, and the group is the top of what is mounted.
        while folder != hierarchy:
            yield folder
            folder = folder.parent
        yield hierarchy


def _quota_of(folder: Path) -> float:
    """The quota of one group; 0: it has none."""
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    if not period:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    is_limited = quota.isdecimal() and period.isdecimal() and int(period) > 0  # without a limit: max, or -1
    return int(quota) / int(period) if is_limited else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
