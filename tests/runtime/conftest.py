"""Fixtures of the runtime's tests."""

from __future__ import annotations

import machine_code
import pytest
from tfbridge.runtime.code.artifact import Artifact


@pytest.fixture(scope="session")
def add_artifact() -> Artifact:
    """Two float32[8] arguments, one result; uses constants, temporary memory and libm."""
    return machine_code.add_artifact()
