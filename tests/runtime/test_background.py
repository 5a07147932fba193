"""Background jobs: their results, their errors, and a fork while threads exist."""

from __future__ import annotations

import os
import threading

import pytest
from tfbridge.runtime import background


def test_result_and_error() -> None:
    here = threading.get_ident()
    assert background.submit(lambda k: (k, threading.get_ident() != here), 3).result(10) == (3, True)
    with pytest.raises(ZeroDivisionError):
        background.submit(lambda: 1 // 0).result(10)


def test_after_the_executor_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    background.submit(int).result(10)
    ended = background.ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(background, "_executor", ended)
    assert background.submit(pow, 2, 5).result(0) == 32
    with pytest.raises(ZeroDivisionError):
        background.submit(lambda: 1 // 0).result(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_threads_of_its_own() -> None:
    background.submit(int).result(10)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if background.submit(pow, 2, 5).result(10) == 32 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
