"""How the interpreter behaves while functions are traced and compiled: it collects no garbage, and its threads
switch quickly."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from . import forking

_SWITCH_SECONDS = 5e-4

_lock = forking.lock()
_compiling = _switching = 0  # under way
_collected, _switch_seconds = False, 0.0  # before


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Within, in any number of threads at once, nothing is collected, for most objects live on to the end of the
    work: a sixth of its time. Background threads, which need the interpreter's lock between two calls of LLVM, get it
    sooner: a twentieth."""
    global _compiling, _collected
    with _lock:
        if not _compiling:
            _collected = gc.isenabled()
            gc.disable()
        _compiling += 1
    try:
        with switching_quickly():
            yield
    finally:
        with _lock:
            _compiling -= 1
            if not _compiling:
                _restore_collection()


@contextlib.contextmanager
def switching_quickly() -> Iterator[None]:
    """Within, threads get the interpreter's lock from one that works soon: a call beside work in the background."""
    global _switching, _switch_seconds
    with _lock:
        if not _switching:
            _switch_seconds = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_SECONDS, _switch_seconds))
        _switching += 1
    try:
        yield
    finally:
        with _lock:
            _switching -= 1
            if not _switching:
                sys.setswitchinterval(_switch_seconds)


def _restore_collection() -> None:
    if _collected:
        gc.enable()


@forking.in_child
def _forget() -> None:
    """In a forked child: the threads that compile are the parent's."""
    global _compiling, _switching
    if _compiling:
        _restore_collection()
    if _switching:
        sys.setswitchinterval(_switch_seconds)
    _compiling = _switching = 0
