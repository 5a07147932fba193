"""A line on the terminal, and only there, while a call waits long for its code."""

from __future__ import annotations

import io
import os
import sys
import time

import pytest
from tfbridge.bridge.cluster import compile_progress

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, expected: str) -> str:
    """What a compilation writes that lasts until it has written what is expected."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(compile_progress, "SECONDS", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    with compile_progress.shown("dense [1], 12 ops"):
        until = time.monotonic() + 20
        while expected not in stream.getvalue() and time.monotonic() < until:
            time.sleep(0.02)
    return stream.getvalue()


def test_a_long_compilation_shows_a_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = output(monkeypatch, Terminal(), "tfbridge compiles dense [1], 12 ops")
    assert "tfbridge compiles dense [1], 12 ops" in text
    assert text.endswith("\x1b[2K"), "the line is erased"


def test_a_short_one_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with compile_progress.shown("dense, 12 ops"):
        pass
    assert stream.getvalue() == ""


def test_files_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_progress.threading, "Timer", lambda *_: pytest.fail("a line"))
    assert output(monkeypatch, io.StringIO(), "") == ""


def test_one_line_at_a_time_and_the_next_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with compile_progress.shown("outer"), compile_progress.shown("inner"):
        assert compile_progress._line_in_use.locked()
    with pytest.raises(KeyError), compile_progress.shown("fails"):
        raise KeyError
    assert not compile_progress._line_in_use.locked()
