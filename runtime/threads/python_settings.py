"""How the interpreter behaves while functions are traced and compiled: it collects no garbage, and its threads take
turns quickly."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from . import forking

_TURN_SECONDS = 5e-4

_lock = forking.lock()
_compiling = 0  # under way
_collected, _turn_seconds = False, 0.0  # before


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Within, in any number of threads at once, nothing is collected, for much is made that lives on to the end of the
    work: a sixth of its time. Background threads, which need the interpreter's lock between two calls of LLVM, get it
    sooner: a twentieth."""
    global _compiling, _collected, _turn_seconds
    with _lock:
        if not _compiling:
            _collected, _turn_seconds = gc.isenabled(), sys.getswitchinterval()
            gc.disable()
            sys.setswitchinterval(min(_TURN_SECONDS, _turn_seconds))
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if not _compiling:
                _restore()


def _restore() -> None:
    if _collected:
        gc.enable()
    sys.setswitchinterval(_turn_seconds)


@forking.in_child
def _forget() -> None:
    """In a forked child: the threads that compile are the parent's."""
    global _compiling
    if _compiling:
        _restore()
    _compiling = 0
