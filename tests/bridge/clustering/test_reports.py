"""The reports of graphs that are kept."""

from __future__ import annotations

import sys

import pytest
from in_threads import in_threads
from tfbridge.bridge.clustering import reports


def test_threads_read_reports_while_others_add_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_reports", reports._reports.copy())
    interval = sys.getswitchinterval()

    def work(number: int) -> None:
        for _ in range(5000):
            if number:
                reports._reports.append(reports.Report((), {}))
            else:
                reports.recent_reports()

    sys.setswitchinterval(1e-6)
    try:
        in_threads(3, work)
    finally:
        sys.setswitchinterval(interval)
    assert len(reports.recent_reports()) == 256
