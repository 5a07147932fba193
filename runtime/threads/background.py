"""One thread of the process for work that nobody waits for: the most urgent request first, within a share of CPU time.

The queue knows nothing of what the requests do. The thread is a daemon, started by the first request: the interpreter
ends without waiting for it. The child of a fork begins with an empty queue.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable

from ..memory import free_memory
from . import cpu_clock, forking, interrupts, python_settings

_SECONDS_AT_EXIT = 60.0
MAX_REQUESTS = 1024  # that wait; beyond, the least urgent are dropped
_REST_SECONDS = 1.0  # without work, until the thread has a rest: calls that began before are over
PAYS = 1.0  # the least priority of what is worth its cost

_log = logging.getLogger("tfbridge")


@dataclasses.dataclass
class Request:
    """Work that waits. The owner drops all of its requests at once.

    priority: infinite for what calls are slow without; below PAYS for what would cost more than it saves so far, which
        is done only while somebody waits for everything. share: of one processor's time, above 0, that requests like
        this one may take on average.
    """

    owner: Hashable
    key: Hashable
    work: Callable[[], object]
    priority: float
    share: float = 1.0


class BackgroundQueue:
    """Requests by owner and key, and the thread that takes the one of highest priority.

    at_rest: what the thread does when it has worked and nothing is left to do for a second.
    """

    def __init__(self, at_rest: Callable[[], None] | None = None) -> None:
        self._at_rest = at_rest
        self._lock = forking.lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[tuple[Hashable, Hashable], Request] = {}
        self._running: tuple[Hashable, Hashable] | None = None
        self._is_urgent = False  # what is being run
        self._thread: threading.Thread | None = None
        self._waiters = 0  # threads that want everything done: the thread does not pause
        self._resume_at = 0.0  # of the monotonic clock: when the share allows the next request
        self.cpu_seconds = 0.0
        self.finished = 0

    def request(self, request: Request) -> None:
        """Adds a request, in the place of one of the same owner and key; not while that is being run."""
        name = request.owner, request.key
        with self._changed:
            if name == self._running:
                return
            self._waiting[name] = request
            if len(self._waiting) > MAX_REQUESTS:
                del self._waiting[min(self._waiting, key=lambda n: self._waiting[n].priority)]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfbridge-background", daemon=True)
                self._thread.start()
            if (
                self._waiters or request.priority >= PAYS
            ):  # else the thread would only take time from the caller
                self._changed.notify_all()

    def cancel(self, owner: Hashable) -> None:
        """Drops the requests of an owner. One that is being run goes on."""
        with self._changed:
            for name in [name for name in self._waiting if name[0] == owner]:
                del self._waiting[name]
            self._changed.notify_all()

    def drop(self) -> None:
        """Drops all requests. One that is being run goes on."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def raise_priority(self, owner: Hashable, key: Hashable, priority: float) -> None:
        """Makes a request that waits more urgent."""
        with self._changed:
            request = self._waiting.get((owner, key))
            if request is not None and priority > request.priority:
                request.priority = priority
                self._changed.notify_all()

    def is_waiting(self, owner: Hashable, key: Hashable) -> bool:
        """Whether a request waits or is being run."""
        return (owner, key) in self._waiting or (owner, key) == self._running

    def has_owner(self, owner: Hashable) -> bool:
        """Whether a request of an owner that pays waits or is being run."""
        with self._lock:
            paying = (name for name, request in self._waiting.items() if request.priority >= PAYS)
            return (self._running or (None,))[0] == owner or any(name[0] == owner for name in paying)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no request waits or is being run, meanwhile without regard to shares; false when that took
        longer than `timeout` seconds. Ctrl-C ends it."""
        with self._changed:
            self._waiters += 1
            self._changed.notify_all()
        try:
            interrupts.wait(self._is_idle, timeout)
            return self._is_idle(0)
        finally:
            with self._changed:
                self._waiters -= 1

    def _is_idle(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._running is None, seconds)

    def _run(self) -> None:
        while True:
            request = self._next(_REST_SECONDS if self._at_rest else None)
            if request is None:
                assert self._at_rest is not None
                self._at_rest()
                request = self._next()
                assert request is not None
            begin, cpu = time.monotonic(), cpu_clock.seconds()
            try:
                with python_settings.switching_quickly():
                    request.work()
            except Exception as error:
                if not is_interpreter_ending():
                    _log.warning("background work failed; this is a bug in tfbridge", exc_info=error)
            finally:
                cpu = cpu_clock.seconds() - cpu
                with self._changed:
                    self._running = None
                    self.cpu_seconds += cpu
                    self.finished += 1
                    self._resume_at = begin + cpu / request.share
                    self._changed.notify_all()
            del request  # and what its work keeps alive

    def _next(self, seconds: float | None = None) -> Request | None:
        """Takes the most urgent request, when there is one and the share allows it; None after so many seconds in which
        there is none."""
        with self._changed:
            end = None if seconds is None else time.monotonic() + seconds
            while True:
                pause = 0.0 if self._waiters else self._resume_at - time.monotonic()
                name = max(self._waiting, key=lambda n: self._waiting[n].priority, default=None)
                if name is None or not (self._waiters or self._waiting[name].priority >= PAYS):
                    if end is not None and time.monotonic() >= end:
                        return None
                    self._changed.wait(None if end is None else end - time.monotonic())
                elif pause > 0:
                    self._changed.wait(pause)
                else:
                    request = self._waiting.pop(name)
                    self._running, self._is_urgent = name, request.priority == math.inf
                    return request

    def is_here(self) -> bool:
        """Whether the caller is in the queue's thread."""
        return threading.current_thread() is self._thread

    def is_urgent_here(self) -> bool:
        """Whether the caller is in the queue's thread, in a request of infinite priority."""
        return self.is_here() and self._is_urgent


process = BackgroundQueue(at_rest=free_memory.give_back)
preparations = BackgroundQueue()  # what is to be ready before code is


def is_interpreter_ending() -> bool:
    """Whether the main thread has ended. Errors mean nothing then: threads cannot be started."""
    # The main thread counts as alive while it waits for threads of executors; newer versions of Python tell.
    return getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive()


def is_here() -> bool:
    """Whether the caller does what nobody waits for."""
    return process.is_here()


def is_urgent_here() -> bool:
    """Whether the caller does what nobody waits for, but calls are slow without."""
    return process.is_urgent_here()


@atexit.register
def _finish_preparation() -> None:
    """Before the interpreter ends: a preparation runs Python within native code, which cannot be left halfway."""
    preparations.drop()
    preparations.wait(_SECONDS_AT_EXIT)


@forking.in_child
def _forget() -> None:
    """In a forked child: the thread is the parent's, which serves its requests."""
    global process, preparations
    process, preparations = BackgroundQueue(free_memory.give_back), BackgroundQueue()


def wait_for_compilation(timeout: float | None = None) -> bool:
    """Waits until no code is being compiled in the background, or waits to be. Ctrl-C ends it.

    What has no code yet because its calls took little time so far has it then. Keys that TensorFlow serves because code
    for them would not pay are not waited for.

    >>> import tfbridge
    >>> tfbridge.wait_for_compilation(timeout=60)
    True

    Units: timeout is in seconds; returns false when it is over.
    """
    end = None if timeout is None else time.monotonic() + timeout
    return preparations.wait(timeout) and process.wait(end and max(0.0, end - time.monotonic()))
