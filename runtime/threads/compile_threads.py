"""Threads for work that may go on beside the interpreter: LLVM compiles without its lock, on all CPUs but the caller's.

Who wants a job's result before a thread has begun it runs it: a caller that waits works too, and while it does not wait
the threads leave it a CPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from . import cpu_clock, forking, interrupts, processors

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_executor: ThreadPoolExecutor | None = None
_lock = forking.lock()


class Job(Future[Result]):
    """A function that runs once: in the first thread that has time for it, or that asks for its result."""

    def __init__(self, function: Callable[[], Result]) -> None:
        super().__init__()
        self._function: Callable[[], Result] | None = function
        self._begun = threading.Lock()
        self._cpu_seconds, self._thread = 0.0, 0  # what it took, and of which thread

    def run(self) -> None:
        """Runs the function unless that has begun."""
        if not self._begun.acquire(blocking=False):
            return
        function, self._function = self._function, None
        assert function is not None
        begin, self._thread = cpu_clock.seconds(), threading.get_ident()
        try:
            value = function()
        except BaseException as error:
            self._cpu_seconds = cpu_clock.seconds() - begin
            self.set_exception(error)
        else:
            self._cpu_seconds = cpu_clock.seconds() - begin
            self.set_result(value)

    def result(self, timeout: float | None = None) -> Result:
        self.run()
        if not self.done():
            interrupts.wait(lambda seconds: not futures.wait([self], seconds).not_done, timeout)
        if self._thread != threading.get_ident():  # the first one who asks had it done
            cpu_clock.add(self._cpu_seconds)
            self._cpu_seconds = 0.0
        return super().result(None if timeout is None else 0)


def result(future: Future[Result], timeout: float | None = None) -> Result:
    """A future's result; Ctrl-C ends the waiting. Raises: TimeoutError  it takes longer."""
    if isinstance(future, Job):
        value: Result = future.result(timeout)
        return value
    interrupts.wait(lambda seconds: not futures.wait([future], seconds).not_done, timeout)
    return future.result(None if timeout is None else 0)


def submit(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Job[Result]:
    """A job for the process's compile threads.

    When the interpreter ends and takes no more jobs, it runs when its result is asked for.
    """
    job = Job(partial(function, *args, **kwargs))
    start(job)
    return job


def start(*jobs: Job[Result]) -> None:
    """Lets the compile threads run jobs, if the interpreter does not end."""
    for job in jobs:
        with contextlib.suppress(RuntimeError):
            _threads().submit(job.run)


def run(jobs: Iterable[object]) -> None:
    """Runs those of the jobs that no thread has begun."""
    for job in jobs:
        interrupts.check()
        if isinstance(job, Job):
            job.run()


def start_in_sequence(jobs: Iterable[Job[Result]]) -> None:
    """Lets the compile threads run jobs one after another, each behind those that wait then; the remaining
    ones do not run when the interpreter ends."""
    remaining = iter(jobs)

    def run_next() -> None:
        job = next(remaining, None)
        if job is not None:
            job.run()
            with contextlib.suppress(RuntimeError):
                _threads().submit(run_next)

    with contextlib.suppress(RuntimeError):
        _threads().submit(run_next)


def _threads() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(max(1, processors.usable_cpus() - 1), "tfbridge-background")
        return _executor


@forking.in_child
def _forget() -> None:
    """In a forked child: the threads are the parent's."""
    global _executor
    _executor = None
