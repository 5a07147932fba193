"""Background jobs: their results, their errors, and a fork while threads exist."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait
from functools import partial

import pytest
from tfbridge.runtime import background


def test_result_and_error() -> None:
    here = threading.get_ident()
    job = background.submit(lambda k: (k, threading.get_ident() != here), 3)
    wait([job], 10)
    assert job.result(0) == (3, True)
    with pytest.raises(ZeroDivisionError):
        background.submit(lambda: 1 // 0).result(10)


def test_who_waits_runs_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_executor", background.ThreadPoolExecutor(1))
    begun, go_on = threading.Event(), threading.Event()
    first = background.submit(lambda: (begun.set(), go_on.wait(10), threading.get_ident())[2])
    begun.wait(10)
    jobs = [background.submit(threading.get_ident) for _ in range(3)]
    assert jobs[1].result(0) == threading.get_ident()
    background.run([first, *jobs])
    assert not first.done()
    assert [job.result(0) for job in jobs] == [threading.get_ident()] * 3
    go_on.set()
    assert first.result(10) != threading.get_ident()


def test_jobs_in_turn_let_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_executor", background.ThreadPoolExecutor(1))
    order: list[str] = []
    go_on = threading.Event()
    background.submit(go_on.wait, 10)
    turns = [background.Job(partial(order.append, name)) for name in "abc"]
    background.start_in_turn(turns)
    other = background.submit(order.append, "other")
    go_on.set()
    wait([*turns, other], 10)
    assert order == ["a", "other", "b", "c"]


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
