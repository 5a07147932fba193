"""How the interpreter behaves while code is compiled, and after it."""

from __future__ import annotations

import gc
import sys

import pytest
from tfbridge.runtime.threads import python_settings


def test_the_collector_runs_again_after_the_last_pause() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), python_settings.compiling():
        with python_settings.compiling():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with python_settings.compiling():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_take_turns_as_before_after_the_last_one() -> None:
    before = sys.getswitchinterval()
    with python_settings.compiling():
        with python_settings.compiling():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
