"""What tests share: a quiet TensorFlow on two threads, the profiles of the random tests, auto-clustering."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Set before anything imports TensorFlow. Two threads find races and leave room for a second test process.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TFBRIDGE_COST_GUARD", "0")  # what runs must not depend on how busy the machine is
os.environ.setdefault("TFBRIDGE_COMPILE", "foreground")  # tests of the background choose that themselves

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# "quick" repeats the same examples in every run; "thorough" is for a hunt: HYPOTHESIS_PROFILE=thorough.
_CHECKS_OFF = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "quick", deadline=None, max_examples=30, derandomize=True, suppress_health_check=_CHECKS_OFF
)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=_CHECKS_OFF)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
def clustering() -> Iterator[None]:
    """Auto-clustering of clusters of any size, with statistics from zero."""
    import tfbridge  # tests of the compiler do without TensorFlow

    tfbridge.reset_stats()
    tfbridge.enable_auto_clustering(min_cluster_size=1)
    yield
    tfbridge.disable_auto_clustering()
