"""Makes a fork of the process safe while other threads hold locks, import modules or compile.

The child of a fork has one thread, and memory as it was. So before the fork no other thread may be where it would leave
something unfinished: in an import, in LLVM, under a lock that protects a few steps (`lock`). The fork waits for that,
but no longer than `_PATIENCE_SECONDS`. It does not wait for whole compilations: the locks that are held for as long as
one takes (`long_lock`) are free in the child, which compiles again what other threads of the parent were compiling.
"""

from __future__ import annotations

import _imp
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias

Lock: TypeAlias = "threading.RLock"
_PATIENCE_SECONDS = 10.0
_RETRY_SECONDS = 5e-4

_short: weakref.WeakSet[Lock] = weakref.WeakSet()
_long: weakref.WeakSet[Lock] = weakref.WeakSet()
_native: list[tuple[Callable[[], object], Callable[[], object]]] = []
_in_child: list[Callable[[], object]] = []
_entering = threading.RLock()
_inside: set[object] = set()  # one for each thread in `uninterrupted`
_releases: list[Callable[[], object]] = []  # of the locks that the fork under way holds, the last one first


def lock() -> Lock:
    """A reentrant lock for a few steps without waiting: a fork holds it."""
    return _added(_short, threading.RLock())


def long_lock() -> Lock:
    """A reentrant lock for work that takes long: free in the child, unless the thread that forks has it."""
    return _added(_long, threading.RLock())


def adopt(one: Lock) -> None:
    """Adds a reentrant lock of another library, as `lock`."""
    _added(_short, one)


def _added(locks: weakref.WeakSet[Lock], one: Lock) -> Lock:
    with _entering:  # a fork that goes through the locks has it
        locks.add(one)
    return one


def around(hold: Callable[[], object], release: Callable[[], object]) -> None:
    """Adds functions that hold a lock of native code, in which nobody waits, and release it."""
    _native.append((hold, release))


def in_child(function: Callable[[], object]) -> Callable[[], object]:
    """Adds a function that drops, in the child, what threads of the parent would have finished."""
    _in_child.append(function)
    return function


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Within, no fork happens: for calls into libraries that have locks of their own."""
    here = object()
    with _entering:
        _inside.add(here)
    try:
        yield
    finally:
        _inside.discard(here)


def _before() -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(sys._current_frames()) > 1 and not _hold(end) and time.monotonic() < end:
        _release()
        time.sleep(_RETRY_SECONDS)
    for hold, release in _native:
        hold()
        _releases.append(release)


def _hold(end: float) -> bool:
    """Takes the locks; returns whether it has all of them."""
    if _others_import() or not _take(_entering):
        return False
    while _inside and time.monotonic() < end:  # nobody else enters
        time.sleep(_RETRY_SECONDS)
    taken = [_take(one) for one in tuple(_short)]
    _import_lock("acquire_lock")
    _releases.append(lambda: _import_lock("release_lock"))
    return all(taken) and not _others_import()


def _take(one: Lock) -> bool:
    is_mine = one.acquire(timeout=10 * _RETRY_SECONDS)
    if is_mine:
        _releases.append(one.release)
    return is_mine


def _others_import() -> bool:
    """Whether another thread is in an import: the child would wait for its end, for ever."""
    me = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        at: FrameType | None = frame if ident != me else None
        while at is not None:
            if at.f_code.co_filename == "<frozen importlib._bootstrap>":
                return True
            at = at.f_back
    return False


def _import_lock(name: str) -> None:
    getattr(_imp, name)()


def _release() -> None:
    while _releases:
        _releases.pop()()


def _child() -> None:
    _release()
    _inside.clear()
    one: Any  # of CPython's RLock
    for one in (_entering, *_short, *_long):
        if not one._is_owned():
            one._at_fork_reinit()
    for function in _in_child:
        function()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_child)
