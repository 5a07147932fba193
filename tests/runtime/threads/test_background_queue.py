"""The background queue: order, replacement, cancelling, shares, waiting, errors, and the child of a fork."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable

import pytest
from tfbridge.runtime.threads import background, cpu_clock
from tfbridge.runtime.threads.background import BackgroundQueue, Request
from tfbridge.runtime.threads.compile_threads import Job


def held(queue: BackgroundQueue) -> threading.Event:
    """Keeps the queue's thread busy until the event is set."""
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        done.wait(30)

    queue.request(Request("holder", 0, work, 1.0))
    assert begun.wait(30)
    return done


def noted(ran: list[object], what: object) -> Callable[[], None]:
    return lambda: ran.append(what)


def await_finished(queue: BackgroundQueue, count: int) -> None:
    """Waits without being a waiter of the queue, for which it would do everything."""
    end = time.monotonic() + 30
    while queue.finished < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_most_urgent_request_runs_first() -> None:
    queue, ran = BackgroundQueue(), []
    done = held(queue)
    for key, priority in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        queue.request(Request("owner", key, noted(ran, key), priority))
    queue.request(Request("owner", "a", noted(ran, "a, later"), 9.0))
    assert queue.is_waiting("owner", "b") and not queue.is_waiting("owner", "d")
    done.set()
    assert queue.wait(30)
    assert ran == ["a, later", "b", "c"]
    assert queue.finished == 4


def test_what_does_not_pay_yet_is_left_until_somebody_waits() -> None:
    queue, ran = BackgroundQueue(), []
    for key in ("a", "b"):
        queue.request(Request("owner", key, noted(ran, key), 0.0))
    assert queue.is_waiting("owner", "a") and not queue.has_owner("owner")
    queue.request(Request("other", 0, noted(ran, "other"), background.PAYS))
    await_finished(queue, 1)
    queue.raise_priority("owner", "b", math.inf)
    queue.raise_priority("owner", "b", 0.0)
    queue.raise_priority("owner", "c", math.inf)
    await_finished(queue, 2)
    assert ran == ["other", "b"] and queue.is_waiting("owner", "a")
    assert queue.wait(30)
    assert ran == ["other", "b", "a"]


def test_an_owner_that_goes_cancels_its_requests() -> None:
    queue, ran = BackgroundQueue(), []
    done = held(queue)
    queue.request(Request("one", 0, noted(ran, "one"), 1.0))
    queue.request(Request("other", 0, noted(ran, "other"), 1.0))
    assert queue.has_owner("one") and queue.has_owner("holder")
    queue.cancel("one")
    assert not queue.has_owner("one") and queue.has_owner("other")
    done.set()
    assert queue.wait(30)
    assert ran == ["other"]


def test_what_is_being_run_is_not_requested_again() -> None:
    queue = BackgroundQueue()
    done = held(queue)
    queue.request(Request("holder", 0, lambda: pytest.fail("it ran twice"), 1.0))
    done.set()
    assert queue.wait(30)
    assert queue.finished == 1


def test_the_least_urgent_of_too_many_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_REQUESTS", 2)
    queue, ran = BackgroundQueue(), []
    done = held(queue)
    for key, priority in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        queue.request(Request("owner", key, noted(ran, key), priority))
    done.set()
    assert queue.wait(30)
    assert ran == ["c", "a"]


def test_an_error_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    queue, ran = BackgroundQueue(), []
    with caplog.at_level(logging.WARNING, "tfbridge"):
        queue.request(Request("owner", 0, lambda: 1 / 0, 2.0))
        queue.request(Request("owner", 1, noted(ran, "after"), 1.0))
        assert queue.wait(30)
    assert ran == ["after"]
    assert "this is a bug in tfbridge" in caplog.text


def test_the_share_delays_the_next_request_unless_someone_waits() -> None:
    queue, ran = BackgroundQueue(), []
    queue.request(Request("owner", 0, lambda: cpu_clock.add(3600.0), 1.0, share=0.5))
    while not queue.finished:
        time.sleep(0.001)
    queue.request(Request("owner", 1, noted(ran, "next"), 1.0))
    assert not queue._is_idle(0.1) and not ran
    assert queue.wait(30)
    assert ran == ["next"]
    assert queue.cpu_seconds >= 3600


def test_wait_has_a_timeout() -> None:
    queue = BackgroundQueue()
    done = held(queue)
    assert not queue.wait(0.05)
    done.set()
    assert queue.wait(30)


def test_the_work_knows_where_it_runs() -> None:
    here: list[bool] = []
    background.process.request(Request("owner", 0, lambda: here.append(background.is_here()), 1.0))
    assert background.wait_for_compilation(30)
    assert here == [True] and not background.is_here()


def test_the_work_knows_whether_it_is_urgent() -> None:
    urgent: list[bool] = []
    for priority in (1.0, math.inf, 2.0):
        request = Request("owner", 0, lambda: urgent.append(background.is_urgent_here()), priority)
        background.process.request(request)
        assert background.wait_for_compilation(30)
    assert urgent == [False, True, False] and not background.is_urgent_here()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_child_begins_with_an_empty_queue() -> None:
    done = held(background.process)
    background.process.request(Request("owner", 0, lambda: None, 1.0))
    child = os.fork()
    if not child:
        ran: list[str] = []
        is_empty = not background.process.is_waiting("owner", 0)
        background.process.request(Request("child", 0, noted(ran, "child"), 1.0))
        os._exit(0 if is_empty and background.wait_for_compilation(30) and ran else 1)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    assert background.wait_for_compilation(30)


def test_the_clock_counts_work_of_other_threads() -> None:
    def busy() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    job, begin = Job(busy), cpu_clock.seconds()
    thread = threading.Thread(target=job.run)
    thread.start()
    thread.join()
    assert cpu_clock.seconds() - begin < 0.05
    job.result()
    job.result()
    assert 0.05 <= cpu_clock.seconds() - begin < 0.1


def test_the_thread_rests_once_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_REST_SECONDS", 0.05)
    ran: list[object] = []
    rested = threading.Semaphore(0)

    def rest() -> None:
        ran.append("rest")
        rested.release()

    queue = BackgroundQueue(at_rest=rest)
    for _ in range(2):
        done = held(queue)
        queue.request(Request("owner", "a", noted(ran, "a"), 1.0))
        done.set()
        assert rested.acquire(timeout=30)
    assert ran == ["a", "rest", "a", "rest"]
    assert not rested.acquire(timeout=0.2)
    assert queue.wait(30)
