"""Calls whose code is compiled in the background, with an empty cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tfbridge


@pytest.fixture
def in_background(tmp_path: Path) -> Iterator[None]:
    assert tfbridge.wait_for_compilation(120)
    tfbridge.reset_stats()
    with tfbridge.options(compile="background", cache_dir=str(tmp_path)):
        yield
    tfbridge.disable_auto_clustering()
    assert tfbridge.wait_for_compilation(120)
