"""Ctrl-C while the compiler works: it reaches the user every time, and at a point where nothing is unfinished.

Python raises KeyboardInterrupt between any two steps of the main thread. Within `deferred` it is raised by `check`, or
at the end, or, when Ctrl-C comes a second time, at once. An exception that leaves a function that native code calls is
printed by ctypes and lost; `callback` has it raised again in the thread as soon as Python's code goes on there.

A limit: a compilation in a thread of TensorFlow is not ended. While the main thread waits for it in native code (in a
session's run, or a call that TensorFlow's executor runs), Python notes Ctrl-C and raises it when that returns. Another
thread cannot see that note: only a handler of the signal, or `signal.set_wakeup_fd`, which belong to the program, would
tell. What such a compilation takes is bounded by its budget (`TFBRIDGE_COMPILE_SECONDS`).
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

_POLL_SECONDS = 1e-3
_WAIT_SECONDS = 0.05

_Handler = Callable[[int, FrameType | None], object]
_handler: _Handler | None = None  # of Ctrl-C, while it is deferred
_is_whole = False  # it is deferred to the end
_pending: list[FrameType | None] = []  # where Ctrl-C came
_callbacks: set[int] = set()  # ids of functions that native code calls
_callback_code: set[CodeType] = set()
_waiting: list[type[BaseException]] = []  # the class that `word` names, alive
word = (ctypes.c_uint64 * 2)()
"""What waits to be raised: the thread, 0 for nothing, and the class. Native code raises it as its last step."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within, in the main thread, Ctrl-C waits for `check` or the end."""
    handler = _defer()
    try:
        yield
    finally:
        if handler is not None:
            _resume(handler)


def _defer(is_whole: bool = False) -> _Handler | None:
    """The handler that is to be back; None where Ctrl-C raises nothing, or waits already."""
    global _handler, _is_whole
    if threading.current_thread() is not threading.main_thread() or _handler is not None:
        return None
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # the process ignores Ctrl-C, or ends
        return None
    _pending.clear()
    _handler, _is_whole = handler, is_whole
    signal.signal(signal.SIGINT, _note)
    return handler


def _resume(handler: _Handler) -> None:
    global _handler
    _handler = None
    signal.signal(signal.SIGINT, handler)
    if _pending:
        handler(signal.SIGINT, _pending.pop())


def _note(number: int, frame: FrameType | None) -> None:
    if _pending and _handler is not None:
        _handler(number, _pending.pop())
    _pending.append(frame)


def check() -> None:
    """Raises what Ctrl-C raises if it came and waits, in the main thread: nothing is unfinished here."""
    if (
        _pending
        and _handler is not None
        and not _is_whole
        and threading.current_thread() is threading.main_thread()
    ):
        _handler(signal.SIGINT, _pending.pop())


def wait(is_over: Callable[[float], bool], seconds: float | None = None) -> None:
    """Waits until `is_over(seconds)`, which waits that long at most, is true, or for `seconds`; Ctrl-C ends it."""
    end = None if seconds is None else time.monotonic() + seconds
    while not is_over(_WAIT_SECONDS if end is None else max(0.0, min(_WAIT_SECONDS, end - time.monotonic()))):
        check()
        if end is not None and time.monotonic() >= end:
            return


def callback(
    function: Callable[..., int | None], gives: bool = False, is_whole: bool = False
) -> Callable[..., None]:
    """The function for native code to call: no interrupt is lost in it.

    It has no result, for ctypes gives anything at all when an exception leaves one. With `gives` its last argument is
    the address of a word, 0 before, that gets the value unless that is None; it stays 0 when the function was
    interrupted as it began. Ctrl-C does not end one that `is_whole`.
    """

    def call(*args: int) -> None:
        handler = _defer(is_whole)
        try:
            if not gives:
                function(*args)
            elif value := function(*args[:-1]):
                ctypes.c_uint64.from_address(args[-1]).value = value
        except BaseException as error:
            if isinstance(error, Exception):
                raise  # a bug: ctypes prints it
            raise_later(error)
        finally:
            if handler is not None:
                try:
                    _resume(handler)
                except BaseException as error:
                    raise_later(error)

    call.__name__ = function.__name__
    _callbacks.add(id(call))
    _callback_code.add(call.__code__)
    return call


def raise_later(error: BaseException) -> None:
    """Has an exception raised again in this thread when it is in no callback any more."""
    # Python takes a class, and makes the exception without arguments.
    kind = type(
        type(error).__name__,
        (type(error),),
        {"__init__": lambda self: type(error).__init__(self, *error.args), "is_raised_again": True},
    )
    _waiting[:] = [kind]
    word[:] = [threading.get_ident(), id(kind)]
    _thread.start_new_thread(_deliver, (threading.get_ident(), kind))  # at once: Ctrl-C cannot come between


def _deliver(thread: int, kind: type[BaseException]) -> None:
    """Raises it, unless native code has."""
    time.sleep(_POLL_SECONDS)  # native code calls again what was interrupted as it began
    while _is_in_callback(thread):
        time.sleep(_POLL_SECONDS)
    if word[0] and word[1] == id(kind):
        word[0] = 0
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _is_in_callback(thread: int) -> bool:
    at = sys._current_frames().get(thread)
    while at is not None and at.f_code not in _callback_code:
        at = at.f_back
    return at is not None


def _watch_unraisable() -> None:
    """Python tells `sys.unraisablehook` of an exception that left a callback, also of one as it was entered, and of one
    that was raised again in a place where it is lost, as in `__del__`."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        is_ours = id(unraisable.object) in _callbacks or hasattr(error, "is_raised_again")
        if is_ours and error is not None and not isinstance(error, Exception):
            raise_later(error)
        else:
            before(unraisable)

    _callback_code.add(hook.__code__)
    sys.unraisablehook = hook


_watch_unraisable()
