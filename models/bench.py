"""The benchmark: TensorFlow, XLA and tfbridge side by side, each in a process of its own.

    python -m tfbridge.models.bench [--workloads a,b] [--engines tf,xla,tfbridge] [--rounds N] [--threads N]
                                    [--quick] [--json]

Engines take turns, round by round, while the others sleep. Every engine's results are compared with
TensorFlow's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .bench_report import as_json, as_table
from .engines import ENGINES
from .measurement import Measurement
from .workloads import WORKLOADS

COMMAND_SECONDS = 600  # after this a worker counts as hung
REFERENCE_ENGINE = "tf"
DEFAULT_ENGINES = ("tf", "xla", "tfbridge")


@dataclass(frozen=True)
class Settings:
    """What to measure, and how long."""

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    engines: tuple[str, ...] = DEFAULT_ENGINES
    rounds: int = 7
    round_seconds: float = 0.4
    threads: int = 1
    small: bool = False


class WorkerFailed(Exception):
    """The worker's process ended before it answered."""


class Worker:
    """The process of one engine on one workload."""

    def __init__(self, engine: str, workload: str, settings: Settings, folder: Path) -> None:
        """`folder` receives what the engine writes: its error stream, its compilation cache."""
        self._errors = folder / f"{workload}.{engine}.stderr"
        # A cache of its own, empty: first calls are measured, and they compile.
        environment = os.environ | {"TFBRIDGE_CACHE_DIR": str(folder / f"{workload}.{engine}.cache"),
                                    "TF_NUM_INTRAOP_THREADS": str(settings.threads),
                                    "TF_NUM_INTEROP_THREADS": str(settings.threads),
                                    "CUDA_VISIBLE_DEVICES": "-1"}
        size = "small" if settings.small else "full"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tfbridge.models.bench_worker", engine, workload, size,
                 str(settings.threads)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read(self) -> dict[str, Any]:
        """The next answer.

        Raises: WorkerFailed: the process has ended, or gave no answer in COMMAND_SECONDS.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(COMMAND_SECONDS, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            lines = [text for text in self._errors.read_text(errors="replace").splitlines() if text.strip()]
            raise WorkerFailed(lines[-1] if lines else f"ended with status {self._process.wait()}")
        return json.loads(line)

    def ask(self, command: str, **values: Any) -> dict[str, Any]:
        """Sends a command and returns its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **values}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # read() tells why the process has ended
        return self.read()


def measure(workload: str, settings: Settings) -> list[Measurement]:
    """Runs one workload on every engine."""
    names = list(dict.fromkeys((REFERENCE_ENGINE, *settings.engines)))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        reference = str(Path(folder) / "reference.npz")
        workers = {name: stack.enter_context(Worker(name, workload, settings, Path(folder)))
                   for name in names}
        rows = {name: Measurement(name) for name in names}

        def step(name: str, command: str, **values: Any) -> dict[str, Any] | None:
            if rows[name].failure:
                return None
            try:
                return workers[name].ask(command, **values) if command else workers[name].read()
            except WorkerFailed as failure:
                rows[name].failure = str(failure)
                return None

        for name in names:  # all have been building their programs at the same time; nothing is timed before
            step(name, "")
        for name in names:
            if answer := step(name, "first", reference=reference):
                rows[name].first_call_seconds = answer["seconds"]
                rows[name].first_call_bytes = answer["bytes"]
                rows[name].error = answer["error"]
        for _ in range(settings.rounds):
            for name in settings.engines:
                if answer := step(name, "round", seconds=settings.round_seconds):
                    rows[name].round_seconds.append(answer["seconds"])
        for name in names:
            if answer := step(name, "finish"):
                rows[name].peak_bytes = answer["bytes"]
    return [rows[name] for name in settings.engines]


def run(settings: Settings) -> dict[str, list[Measurement]]:
    """Runs every workload, with a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=len(settings.workloads))
        for workload in settings.workloads:
            progress.update(task, description=f"{workload:21}")
            results[workload] = measure(workload, settings)
            progress.advance(task)
    return results


def parse(arguments: Sequence[str]) -> tuple[Settings, bool]:
    """The settings of a command line, and whether it asks for JSON."""
    parser = argparse.ArgumentParser(prog="python -m tfbridge.models.bench",
                                     description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workloads", metavar="A,B", default=",".join(WORKLOADS), help="default: all")
    parser.add_argument("--engines", metavar="A,B", default=",".join(DEFAULT_ENGINES),
                        help=f"of {', '.join(ENGINES)}; the last one is compared with the others "
                             "(default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="turns that each engine gets")
    parser.add_argument("--threads", type=int, help="threads per engine; default: all CPUs of this process")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--small", action="store_true", help="the models in the sizes that the tests use")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    values = parser.parse_args(arguments)
    settings = Settings(
        workloads=_known(parser, "workload", values.workloads, WORKLOADS),
        engines=_known(parser, "engine", values.engines, ENGINES),
        rounds=values.rounds or (3 if values.quick else 7),
        round_seconds=0.1 if values.quick else 0.4,
        threads=values.threads or usable_cpus(),
        small=values.small,
    )
    return settings, values.json


def _known(parser: argparse.ArgumentParser, kind: str, names: str, table: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in listed:
        if name not in table:
            parser.error(f"there is no {kind} {name!r}; there are: {', '.join(table)}")
    return listed


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if an engine failed or a result was wrong."""
    settings, wants_json = parse(sys.argv[1:] if arguments is None else arguments)
    results = run(settings)
    if wants_json:
        print(json.dumps(as_json(results, settings.threads), indent=2))
    else:
        console = Console()
        console.width = max(console.width, 130)
        console.print(as_table(results, settings.threads))
    rows = [(WORKLOADS[name], row) for name, found in results.items() for row in found]
    return int(any(row.failure or row.error > workload.tolerance for workload, row in rows))


if __name__ == "__main__":
    sys.exit(main())
