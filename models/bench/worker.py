"""One engine in a process of its own: commands and answers are lines of JSON.

    python -m tfbridge.models.bench.worker ENGINE SUITE full|small THREADS

`{"command": "open", "workload": NAME}` takes the place of the workload before.
`{"command": "first", "reference": FILE}` makes the first call and, when code is there, two more; TensorFlow's own
engine tells how much of the first call was tracing, and writes its results to FILE; the others compare theirs with it.
`{"command": "round", "seconds": S}` measures. `{"command": "profile"}` tells what the compiled code is made of,
`{"command": "peak"}` the peak of memory. While it waits for a command the process sleeps; it ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .session import Session


def limit_threads(threads: int) -> None:
    """Binds the process to the first `threads` of its CPUs, so that no engine's thread pool can use more."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def main(arguments: list[str]) -> None:
    engine, suite, size, threads = arguments
    limit_threads(int(threads))
    from .session import Session  # late: TensorFlow makes its threads for the CPUs that there are

    # Answers keep standard output to themselves; whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Session(engine, suite, size, int(threads)), sys.stdin, answers)


def serve(session: Session, commands: TextIO, answers: TextIO) -> None:
    """Answers commands until there are no more."""
    for line in commands:
        values = json.loads(line)
        print(json.dumps(getattr(session, values.pop("command"))(**values)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
