"""Runs with much temporary memory: as many at once as there are processors, the others in the order in which they came;
none waits for ever, and other runs do not wait."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_threads import in_threads
from run_python import run_python
from tfbridge.runtime.code import support_library
from tfbridge.runtime.run_context import RunContext
from tfbridge.runtime.threads import admission, futex, processors

pytestmark = pytest.mark.skipif(not futex.is_supported(), reason="nothing waits on this platform")

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 4)
PLACES = processors.usable_cpus()
LARGE = admission.MIN_BYTES


def run(entry: Callable[..., int], temp_bytes: int, feeds: int | None = None) -> int:
    """One run of a Python function as an entry."""
    context = RunContext(feeds=feeds)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    return support_library.run_function()(address, ctypes.addressof(context), None, None, temp_bytes)


class Busy:
    """Runs in threads that go on until they are told to end."""

    def __init__(self) -> None:
        self.began, self._ends, self._threads = [], {}, []

    def start(self, name: object) -> None:
        """Starts a thread with a large run."""
        self._ends[name] = threading.Event()

        def work(*_: object) -> int:
            self.began.append(name)
            return 0 if self._ends[name].wait(timeout=30) else 1

        entry = ENTRY(work)
        self._threads.append(threading.Thread(target=lambda: run(entry, LARGE)))
        self._threads[-1].start()

    def end(self, name: object) -> None:
        """Lets a run end."""
        self._ends[name].set()

    def wait_until(self, began: int) -> None:
        """Waits until so many runs have begun, and a while longer, in which no other does."""
        end = time.monotonic() + 30
        while len(self.began) < began and time.monotonic() < end:
            time.sleep(1e-3)
        time.sleep(0.05)
        assert len(self.began) == began

    def finish(self) -> None:
        """Lets all end."""
        for event in self._ends.values():
            event.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def busy() -> Iterator[Busy]:
    """As many large runs as there are processors."""
    runs = Busy()
    for number in range(PLACES):
        runs.start(number)
    runs.wait_until(PLACES)
    yield runs
    runs.finish()


def test_the_first_that_came_is_the_next(busy: Busy) -> None:
    for name in "abc":
        busy.start(name)
        time.sleep(0.05)
    busy.wait_until(PLACES)
    for number, (name, ended) in enumerate(zip("abc", (0, "a", "b")), PLACES + 1):
        busy.end(ended)
        busy.wait_until(number)
        assert busy.began[-1] == name


def test_small_runs_and_those_that_call_the_host_do_not_wait(busy: Busy) -> None:
    entry = ENTRY(lambda *_: 5)
    assert run(entry, LARGE - 1) == 5
    assert run(entry, 0) == 5
    assert run(entry, LARGE, feeds=1) == 5


def test_many_threads() -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def work(*_: object) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(1e-4)
        with lock:
            at_once -= 1
        return 0

    entry = ENTRY(work)
    in_threads(70, lambda _: [run(entry, LARGE) for _ in range(20)])  # more threads than groups
    assert most <= PLACES


def test_out_of_memory_and_errors_leave() -> None:
    failing = ENTRY(lambda *_: 3)
    for _ in range(PLACES + 1):
        assert run(failing, LARGE) == 3
        assert run(failing, 1 << 60) == -12


def test_fork_while_runs_wait() -> None:
    """The child has no run, and so none to wait for."""
    folders = [str(folder) for folder in Path(__file__).resolve().parents[:3]]
    done = run_python(
        f"import sys\nsys.path[:0] = {[str(Path(__file__).parent), *folders]!r}\n"
        """
import os
from test_admission import ENTRY, LARGE, PLACES, Busy, run
runs = Busy()
for number in range(PLACES + 2): runs.start(number)
runs.wait_until(PLACES)
child = os.fork()
if child == 0:
    os._exit(run(ENTRY(lambda *_: 7), LARGE))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
runs.finish()
assert len(runs.began) == PLACES + 2
""",
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
