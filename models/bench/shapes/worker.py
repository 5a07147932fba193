"""One engine on one case, in a process of its own; the last line that it prints is the outcome as JSON.

python -m tfbridge.models.bench.shapes.worker CASE ENGINE THREADS SECONDS full|quick
"""

from __future__ import annotations

import dataclasses
import json
import sys

from ..worker import limit_threads

MAX_REASON = 300  # characters


def main(case: str, engine: str, threads: str, seconds: str, size: str) -> None:
    limit_threads(int(threads))
    from ..engines import ENGINES  # late: TensorFlow makes its threads for the CPUs that there are
    from .case import Outcome, Scale
    from .cases import CASES

    ENGINES[engine].load()
    scale = Scale(int(threads), float(seconds), size == "quick")
    try:
        outcome = CASES[case].measure(engine, scale)
    except Exception as error:  # whatever an engine raises is what it did
        outcome = Outcome(failure=f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON])
    print("\n" + json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
