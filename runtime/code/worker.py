"""The process at the other end of `worker_pool`: jobs by standard input, answers by standard output.

A message is its length (u64) and its bytes. A job is a pickle of (module, function, args), which comes from the parent.
An answer is plain data, for what compiled a hostile program may not be trusted: a byte that tells its kind, then bytes
as they are, or JSON. The end of the input ends the process, so no worker outlives its parent.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import select
import struct
import time
import traceback

LENGTH = struct.Struct("<Q")
BYTES, VALUE, ERROR = (
    b"b",
    b"v",
    b"e",
)  # kinds of answers: the last two are JSON, an error [module, name, args, note]


def write_message(descriptor: int, body: bytes, deadline: float | None = None) -> None:
    """Writes one message whole. With a deadline, of the monotonic clock, the descriptor must not block.

    Raises: BrokenPipeError  nobody reads. TimeoutError  the deadline is over.
    """
    rest = memoryview(LENGTH.pack(len(body)) + body)
    while rest:
        _wait(descriptor, select.POLLOUT, deadline)
        rest = rest[os.write(descriptor, rest) :]


def read_message(descriptor: int, deadline: float | None = None) -> bytes:
    """Reads one message.

    Raises: EOFError  the other side is gone. TimeoutError  the deadline, of the monotonic clock, is over.
    """
    return _read(descriptor, LENGTH.unpack(_read(descriptor, LENGTH.size, deadline))[0], deadline)


def _wait(descriptor: int, event: int, deadline: float | None) -> None:
    if deadline is None:
        return
    poll = select.poll()  # a descriptor may have any number
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _read(descriptor: int, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        _wait(descriptor, select.POLLIN, deadline)
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _answer(job: tuple[str, str, tuple[object, ...]]) -> bytes:
    module, function, args = job
    try:
        value = getattr(importlib.import_module(module), function)(*args)
        return BYTES + value if isinstance(value, bytes) else VALUE + json.dumps(value).encode()
    except Exception as error:
        note = "in a compile worker:\n" + "".join(traceback.format_tb(error.__traceback__))
        parts = [type(error).__module__, type(error).__name__, [str(part) for part in error.args], note]
        return ERROR + json.dumps(parts).encode()


def main() -> None:
    """Answers jobs until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a job prints must not get between the answers
    while True:
        try:
            write_message(answers, _answer(pickle.loads(read_message(0))))
        except (EOFError, BrokenPipeError):
            return
