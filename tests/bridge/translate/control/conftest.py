"""What the tests of loops and branches share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tfbridge


@pytest.fixture
def clustering() -> Iterator[None]:
    """Auto-clustering, which a test enables when it has TensorFlow's own results, ends with the test."""
    yield
    tfbridge.disable_auto_clustering()
