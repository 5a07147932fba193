"""One engine on one workload, in a process of its own: commands and answers are lines of JSON.

    python -m tfbridge.models.bench_worker ENGINE WORKLOAD full|small THREADS

`{"command": "first", "reference": FILE}` makes the first call and two more; TensorFlow's own engine then
writes its results to FILE, the others compare theirs with it. `{"command": "round", "seconds": S}` measures.
`{"command": "finish"}` ends. While it waits for a command the process sleeps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

STEPS = 3  # calls before results are compared: variables have been updated more than once
WARM_UP_SECONDS = 0.3


def limit_threads(threads: int) -> None:
    """Binds the process to the first `threads` of its CPUs, so that no engine's thread pool can use more."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def serve(engine: str, workload: str, size: str, commands: TextIO, answers: TextIO) -> None:
    """Builds the program and answers commands until `finish`."""
    import numpy as np
    import tensorflow as tf

    from .engines import ENGINES
    from .measurement import ResidentMemory, Stopwatch
    from .workloads import WORKLOADS, relative_error

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    def wait(result: Any) -> None:
        tf.nest.flatten(result)[0].numpy()

    row = WORKLOADS[workload]
    program = row.build_small() if size == "small" else row.build()
    memory = ResidentMemory()
    memory.restart_peak()
    answer(ready=True)
    for line in commands:
        command = json.loads(line)
        if command["command"] == "first":
            start = time.perf_counter()
            function = ENGINES[engine](program.function)
            wait(function(*program.inputs))
            seconds = time.perf_counter() - start
            first_call_bytes = memory.peak_bytes()
            results = program.run(function, STEPS - 1)
            reference = Path(command["reference"])
            if engine == "tf":
                with reference.open("wb") as file:
                    np.savez(file, *results)
            with np.load(reference) as wanted:
                error = relative_error(results, list(wanted.values()))
            stopwatch = Stopwatch(function, program.inputs, wait)
            stopwatch.warm_up(WARM_UP_SECONDS)
            memory.restart_peak()
            answer(seconds=seconds, error=error, bytes=first_call_bytes)
        elif command["command"] == "round":
            answer(seconds=stopwatch.round(command["seconds"]))
        else:
            answer(bytes=memory.peak_bytes())
            return


def main(arguments: list[str]) -> None:
    engine, workload, size, threads = arguments
    limit_threads(int(threads))
    # Answers keep standard output to themselves; whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(engine, workload, size, sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
