"""Python's garbage collector, which is held back while much is made that lives on to the end of the work."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses = 0  # under way
_was_enabled = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Within, in any number of threads at once, nothing is collected: a sixth of the time that compiling takes."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_enabled:
                gc.enable()


def _forget() -> None:
    """In a forked child: the threads that compile are the parent's."""
    global _lock, _pauses
    if _pauses and _was_enabled:
        gc.enable()
    _lock, _pauses = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
