"""Tests of the pauses of Python's garbage collector."""

from __future__ import annotations

import gc

import pytest
from tfbridge.runtime import collector


def test_the_collector_runs_again_after_the_last_pause() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
