"""The processors that a process may use, with control groups of all kinds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tfbridge.runtime.threads import processors

V1, V2 = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/\n", {f"{V2}/cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {f"{V2}/cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {}, math.inf),
        (
            "0::/pod/app\n",
            {f"{V2}/pod/app/cpu.max": "max 100000\n", f"{V2}/pod/cpu.max": "50000 100000\n"},
            0.5,
        ),
        (
            "0::/pod/app\n",
            {f"{V2}/pod/app/cpu.max": "150000 100000\n", f"{V2}/pod/cpu.max": "400000 100000\n"},
            1.5,
        ),
        ("0::/../other\n", {f"{V2}/cpu.max": "300000 100000\n"}, 3.0),
        (
            "5:memory:/x\n4:cpu,cpuacct:/x\n",
            {f"{V1}/x/cpu.cfs_quota_us": "250000", f"{V1}/x/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        (
            "4:cpu,cpuacct:/docker/of-the-host\n",
            {f"{V1}/cpu.cfs_quota_us": "400000", f"{V1}/cpu.cfs_period_us": "100000"},
            4.0,
        ),
        (
            "4:cpuacct,cpu:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000"},
            2.0,
        ),
        ("4:cpu:/\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, math.inf),
        ("4:cpuset:/\n", {"sys/fs/cgroup/cpuset/cpu.cfs_quota_us": "1"}, math.inf),
        ("0::/\n", {f"{V2}/cpu.max": "what is this"}, math.inf),
        ("0::/\n", {f"{V2}/cpu.max": "100000 0"}, math.inf),
        ("no line of that form\n", {}, math.inf),
    ],
)
def test_quota(groups: str, files: dict[str, str], quota: float, tmp_path: Path) -> None:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processors.quota(tmp_path) == quota


def test_no_control_groups(tmp_path: Path) -> None:
    assert processors.quota(tmp_path) == math.inf


@pytest.mark.parametrize(
    ("affine", "quota", "usable"),
    [(64, math.inf, 64), (64, 2.0, 2), (64, 2.5, 3), (64, 0.1, 1), (2, 16.0, 2), (128, 128.0, 128)],
)
def test_usable(affine: int, quota: float, usable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "affine_cpus", lambda: affine)
    monkeypatch.setattr(processors, "quota", lambda: quota)
    processors._quota.cache_clear()
    try:
        assert processors.usable_cpus() == usable
    finally:
        processors._quota.cache_clear()
