"""What the compiler's tests share: no artifact comes from an earlier run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tfbridge.runtime.code import disk_cache


@pytest.fixture(scope="session", autouse=True)
def no_disk_cache() -> Iterator[None]:
    """The process's disk cache is off."""
    before = disk_cache.default()
    disk_cache.configure(enabled=False)
    yield
    disk_cache._process = before
