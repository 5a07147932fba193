"""The process at the other end of `compile_workers`: jobs by standard input, answers by standard output.

A message is its length (u64) and a pickle. A job is (module, function, args); an answer is (True, value) or
(False, exception). The end of the input ends the process, so no worker outlives its parent.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import traceback
from typing import Any

LENGTH = struct.Struct("<Q")


def write_message(descriptor: int, message: Any) -> None:
    """Writes one message whole.

    Raises: BrokenPipeError  nobody reads.
    """
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    rest = memoryview(LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest):]


def read_message(descriptor: int) -> Any:
    """Reads one message.

    Raises: EOFError  the other side is gone.
    """
    return pickle.loads(_read(descriptor, LENGTH.unpack(_read(descriptor, LENGTH.size))[0]))


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _answer(job: tuple[str, str, tuple[Any, ...]]) -> tuple[bool, Any]:
    module, function, args = job
    try:
        return True, getattr(importlib.import_module(module), function)(*args)
    except Exception as error:
        error.add_note("in a compile worker:\n" + "".join(traceback.format_tb(error.__traceback__)))
        return False, error


def main() -> None:
    """Answers jobs until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a job prints must not get between the answers
    while True:
        try:
            job = read_message(0)
        except EOFError:
            return
        try:
            answer = _answer(job)
            write_message(answers, answer)
        except BrokenPipeError:
            return
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            reason = f"the answer cannot be pickled: {error}; it was {answer[1]!r}"
            write_message(answers, (False, RuntimeError(reason)))


if __name__ == "__main__":
    main()
