"""CPU seconds of a piece of work: of the thread that does it, and of the threads and processes that did parts of it."""

from __future__ import annotations

import threading
import time


class _Elsewhere(threading.local):
    seconds = 0.0


_elsewhere = _Elsewhere()


def seconds() -> float:
    """CPU seconds of this thread so far, with those that were added; the difference of two is the cost of work."""
    return time.thread_time() + _elsewhere.seconds


def add(seconds: float) -> None:
    """Adds CPU seconds that another thread or process took for this one."""
    _elsewhere.seconds += seconds
