"""Threads for work that may go on beside the interpreter: LLVM compiles without its lock, as many at once as CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_executor: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def submit(function: Callable[Parameters, Result], *args: Parameters.args,
           **kwargs: Parameters.kwargs) -> Future[Result]:
    """Runs a function in one of the process's background threads; it must not wait for another such job.

    When the interpreter ends and takes no more jobs, the function runs at once.
    """
    global _executor
    try:
        with _lock:
            if _executor is None:
                count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
                _executor = ThreadPoolExecutor(count, "tfbridge-background")
            return _executor.submit(function, *args, **kwargs)
    except RuntimeError:
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def _forget() -> None:
    """In a forked child: the threads are the parent's."""
    global _executor, _lock
    _executor, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
