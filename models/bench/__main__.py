"""The benchmark: TensorFlow, XLA, tfbridge and others side by side, in processes of their own.

    python -m tfbridge.models.bench [--suite workloads|ops] [--workloads a,b] [--engines tf,xla,tfbridge|all]
                                    [--rounds N] [--threads N] [--quick] [--json] [--save FILE] [--plot FILE]
    python -m tfbridge.models.bench --suite kernels
    python -m tfbridge.models.bench --suite compile [--quick]
    python -m tfbridge.models.bench --suite aot [--workloads a,b] [--kinds f32,int8.tflite] [--target-cpu C] [--quick]
    python -m tfbridge.models.bench --suite shapes [--workloads a,b] [--engines a,b|all] [--seconds N] [--quick]

Engines take turns, round by round, while the others sleep. Every engine's results are compared with
TensorFlow's. docs/benchmark.md says what the figures mean.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...runtime.threads.processors import usable_cpus
from .aot_suite import FILE_KINDS, KINDS, MODELS
from .aot_suite import main as run_aot
from .compile_suite import main as run_compile
from .engines import ENGINES
from .kernel_suite import main as run_kernels
from .measurement import Kernel, Measurement
from .output import publish
from .plot import plot
from .report import NOT_FOR_TRAINING, SUBJECT, Results, as_json, as_table
from .roofline import Machine, measured
from .shapes.case import ANY_SHAPE, TENSORFLOW, Scale
from .shapes.cases import CASES
from .shapes.suite import main as run_shapes
from .suites import SUITES

COMMAND_SECONDS = 600  # after this a worker counts as hung
REFERENCE_ENGINE = "tf"
KERNELS = "kernels"  # the suite that runs without TensorFlow
COMPILE = "compile"  # the suite of first calls alone
SHAPES = "shapes"  # the suite of shapes that change
AOT = "aot"  # the suite of exported models
SERVER_SECONDS, QUICK_SERVER_SECONDS = 60.0, 6.0


@dataclass(frozen=True)
class Settings:
    """What to measure, and how long."""

    suite: str = "workloads"
    workloads: tuple[str, ...] = tuple(SUITES["workloads"].rows)
    engines: tuple[str, ...] = SUITES["workloads"].engines
    rounds: int = 7
    round_seconds: float = 0.4
    threads: int = 1
    small: bool = False
    target_cpu: str = ""


class WorkerFailed(Exception):
    """The worker's process ended before it answered."""


class Worker:
    """The process of an engine. It works on the workload that it was last told to open."""

    def __init__(self, engine: str, settings: Settings, folder: Path) -> None:
        """`folder` receives what the engine writes: its error stream, its compilation cache."""
        self._errors = Path(tempfile.mkstemp(".stderr", f"{engine}.", folder)[1])
        # A cache of its own, empty for the first worker: its first call is measured, and compiles.
        environment = os.environ | {
            "TFBRIDGE_CACHE_DIR": str(folder / f"{engine}.cache"),
            "TF_NUM_INTRAOP_THREADS": str(settings.threads),
            "TF_NUM_INTEROP_THREADS": str(settings.threads),
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        size = "small" if settings.small else "full"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tfbridge.models.bench.worker",
                    engine,
                    settings.suite,
                    size,
                    str(settings.threads),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )

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

    def send(self, command: str, **values: object) -> None:
        """Sends a command; read() gets its answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # read() tells why the process has ended
            self._process.stdin.write(json.dumps({"command": command, **values}) + "\n")
            self._process.stdin.flush()

    def ask(self, command: str, **values: object) -> dict[str, Any]:
        """Sends a command and returns its answer."""
        self.send(command, **values)
        return self.read()


class Workers:
    """The processes of the engines that measure a workload, or every workload of a suite that shares them."""

    def __init__(self, settings: Settings, folder: Path, stack: ExitStack) -> None:
        self.settings, self.folder = settings, folder
        self._stack = stack
        self._running: dict[str, Worker] = {}

    def start(self, engine: str) -> Worker:
        """A new process, which ends with the stack."""
        return self._stack.enter_context(Worker(engine, self.settings, self.folder))

    def opened(self, engine: str, workload: str) -> Worker:
        """The engine's process, with the workload that it opens now."""
        if engine not in self._running:
            self._running[engine] = self.start(engine)
        self._running[engine].send("open", workload=workload)
        return self._running[engine]

    def forget(self, engine: str) -> None:
        """The next workload gets a new process of this engine."""
        self._running.pop(engine, None)


class Turns:
    """The engines on one workload, asked one after another. One that fails is asked no more."""

    def __init__(self, workload: str, workers: Workers) -> None:
        self._workload, self._workers, self._settings = workload, workers, workers.settings
        self._suite = SUITES[self._settings.suite]
        self._reference = str(workers.folder / "reference.npz")
        kind = self._suite.rows[workload].kind
        engines = self._settings.engines
        self.names = [
            name
            for name in dict.fromkeys((REFERENCE_ENGINE, *engines))
            if name not in ENGINES or kind == "inference" or ENGINES[name].training
        ]
        self.rows = {name: Measurement(name) for name in dict.fromkeys((*self.names, *engines))}
        for name in self.rows.keys() - set(self.names):
            self.rows[name].failure = NOT_FOR_TRAINING
        self._asked = {name: workers.opened(name, workload) for name in self.names}
        self._later = (
            workers.start(SUBJECT) if SUBJECT in self.names and not self._suite.one_process else None
        )
        if self._later is not None:
            self._later.send("open", workload=workload)

    def _step(self, name: str, command: str, **values: object) -> dict[str, Any] | None:
        if self.rows[name].failure:
            return None
        try:
            return self._asked[name].ask(command, **values) if command else self._asked[name].read()
        except WorkerFailed as failure:
            self.rows[name].failure = str(failure)
            self._workers.forget(name)
            return None

    def first_calls(self) -> None:
        for (
            name
        ) in self.names:  # all have been building their programs at the same time; nothing is timed before
            self._step(name, "")
        if self._later is not None:
            with suppress(WorkerFailed):
                self._later.read()
        for name in self.names:
            if answer := self._step(name, "first", reference=self._reference):
                self.rows[name].error = answer["error"]
                if not self._suite.one_process:
                    self.rows[name].first_call_seconds = answer["seconds"]
                    if answer["tracing"] is not None:
                        self.rows[name].tracing_seconds = answer["tracing"]
                    self.rows[name].first_call_bytes = answer["bytes"]

    def rounds(self) -> None:
        for _ in range(self._settings.rounds):
            for name in self._settings.engines:
                if answer := self._step(name, "round", seconds=self._settings.round_seconds):
                    row = self.rows[name]
                    row.round_seconds.append(answer["seconds"])
                    row.least_seconds = min(answer["least"], row.least_seconds, key=lambda s: (s != s, s))

    def peaks(self) -> None:
        """Peaks of memory, where a process has done nothing else before."""
        for name in () if self._suite.one_process else self.names:
            if answer := self._step(name, "peak"):
                self.rows[name].peak_bytes = answer["bytes"]

    def warm_start(self) -> None:
        """The first call of one more process of tfbridge, which finds the code of the first one; then its profile."""
        if self._later is None or self.rows[SUBJECT].failure:
            return
        row = self.rows[SUBJECT]
        with suppress(WorkerFailed):  # some of it runs in TensorFlow: there is no roofline
            row.warm_first_call_seconds = self._later.ask("first", reference=self._reference)["seconds"]
            answer = self._later.ask("profile")
            row.footprint_bytes = answer["footprint_bytes"]
            row.kernels = [Kernel(*values) for values in answer["kernels"]]


def measure(workload: str, settings: Settings, shared: Workers | None = None) -> list[Measurement]:
    """Runs one workload on every engine, in processes of its own unless there are shared ones."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        turns = Turns(workload, shared or Workers(settings, Path(folder), stack))
        turns.first_calls()
        turns.rounds()
        turns.peaks()
        turns.warm_start()
    return [turns.rows[name] for name in settings.engines]


def run(settings: Settings) -> dict[str, list[Measurement]]:
    """Runs every workload, with a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = {}
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as stack,
    ):
        shared = Workers(settings, Path(folder), stack) if SUITES[settings.suite].one_process else None
        task = progress.add_task("starting", total=len(settings.workloads))
        for workload in settings.workloads:
            progress.update(task, description=f"{workload:24}")
            results[workload] = measure(workload, settings, shared)
            progress.advance(task)
    return results


@dataclass(frozen=True)
class Output:
    """Where results go: JSON instead of a table, a file of JSON, a picture of the ratios."""

    json: bool = False
    save: Path | None = None
    plot: Path | None = None


def parse(arguments: Sequence[str]) -> tuple[Settings, Output]:
    """The settings of a command line, and where it wants the results."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbridge.models.bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--suite",
        choices=(*SUITES, KERNELS, COMPILE, SHAPES, AOT),
        default="workloads",
        help="default: %(default)s",
    )
    parser.add_argument("--workloads", metavar="A,B", help="rows of the suite; default: all")
    parser.add_argument(
        "--engines",
        metavar="A,B",
        help=f"of {', '.join(ENGINES)}, or all that are installed; {SUBJECT}, or else the last one, "
        "is compared with the others",
    )
    parser.add_argument("--rounds", type=int, help="turns that each engine gets")
    parser.add_argument("--threads", type=int, help="threads per engine; default: all CPUs of this process")
    parser.add_argument("--seconds", type=float, help="of the server in the suite shapes; default: 60")
    parser.add_argument(
        "--kinds",
        metavar="A,B",
        help="of the suite aot: f32, int8, f32.tflite, int8.tflite; default: the first two",
    )
    parser.add_argument(
        "--target-cpu",
        default="",
        metavar="C",
        help="of the suite aot, such as x86-64-v3; default: this machine",
    )
    parser.add_argument("--quick", action="store_true", help="some of the workloads, 3 short rounds")
    parser.add_argument("--small", action="store_true", help="the programs in the sizes that the tests use")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--save", metavar="FILE", type=Path, help="write JSON there")
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the ratios there (PNG, needs matplotlib)"
    )
    values = parser.parse_args(arguments)
    output = Output(values.json, values.save, values.plot)
    threads = values.threads or usable_cpus()
    if values.suite in (KERNELS, COMPILE):
        return Settings(values.suite, threads=threads, small=values.quick), output
    if values.suite == SHAPES:
        return _shapes(parser, values, threads), output
    if values.suite == AOT:
        return Settings(
            AOT,
            _known(parser, "workload", values.workloads or "", MODELS),
            _known(parser, "kind", values.kinds or ",".join(KINDS), (*KINDS, *FILE_KINDS)),
            target_cpu=values.target_cpu,
            small=values.quick,
        ), output
    suite = SUITES[values.suite]
    quick = [name for name, row in suite.rows.items() if row.quick] if values.quick else []
    engines = values.engines or ",".join(suite.engines)
    if engines == "all":
        engines = ",".join(name for name in suite.all_engines if ENGINES[name].is_installed)
    return Settings(
        suite=values.suite,
        workloads=_known(parser, "workload", values.workloads or ",".join(quick or suite.rows), suite.rows),
        engines=_known(parser, "engine", engines, ENGINES),
        rounds=values.rounds or (3 if values.quick else 7),
        round_seconds=0.1 if values.quick else suite.round_seconds,
        threads=threads,
        small=values.small,
    ), output


def _shapes(parser: argparse.ArgumentParser, values: argparse.Namespace, threads: int) -> Settings:
    """The settings of the suite of shapes that change, whose workloads are its cases or tables of them."""
    tables = dict.fromkeys(case.table for case in CASES.values())
    named = _known(parser, "workload", values.workloads or ",".join(tables), (*tables, *CASES))
    engines = values.engines or ",".join(TENSORFLOW)
    if engines == "all":
        engines = ",".join(name for name in ANY_SHAPE if ENGINES[name].is_installed)
    return Settings(
        SHAPES,
        tuple(
            name
            for name, case in CASES.items()
            if name in named or case.table in named and (case.quick or not values.quick)
        ),
        _known(parser, "engine", engines, ANY_SHAPE),
        round_seconds=values.seconds or (QUICK_SERVER_SECONDS if values.quick else SERVER_SECONDS),
        threads=threads,
        small=values.quick,
    )


def _known(parser: argparse.ArgumentParser, kind: str, names: str, table: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in listed:
        if name not in table:
            parser.error(f"there is no {kind} {name!r}; there are: {', '.join(table)}")
    return listed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if tfbridge or TensorFlow failed, or a result was wrong."""
    settings, output = parse(sys.argv[1:] if arguments is None else arguments)
    if settings.suite == KERNELS:
        return run_kernels(settings.threads, output.json, output.save)
    if settings.suite == COMPILE:
        return run_compile(settings.threads, output.json, output.save, settings.small)
    if settings.suite == AOT:
        return run_aot(
            settings.workloads,
            settings.engines,
            settings.target_cpu,
            output.json,
            output.save,
            settings.small,
        )
    if settings.suite == SHAPES:
        scale = Scale(settings.threads, settings.round_seconds, settings.small)
        return run_shapes(settings.workloads, settings.engines, scale, output.json, output.save)
    machine = measured(settings.threads)
    results = run(settings)
    publish(
        as_json(results, settings.suite, machine),
        lambda: _print_table(results, settings, machine),
        output.json,
        output.save,
    )
    if output.plot:
        plot(results, settings.suite, output.plot)
    return int(
        any(
            map(
                _is_wrong,
                (
                    (SUITES[settings.suite].rows[name].tolerance, row)
                    for name, rows in results.items()
                    for row in rows
                ),
            )
        )
    )


def _print_table(results: Results, settings: Settings, machine: Machine) -> None:
    console = Console()
    console.width = max(console.width, 150 + 25 * max(0, len(settings.engines) - 3))
    console.print(as_table(results, settings.suite, machine))


def _is_wrong(case: tuple[float, Measurement]) -> bool:
    """Whether an engine that must run the workload does not, or any that does gives a wrong result."""
    tolerance, row = case
    may_fail = (
        row.engine in ENGINES and ENGINES[row.engine].family == "inference" or row.failure == NOT_FOR_TRAINING
    )
    return row.error > tolerance or bool(row.failure) and not may_fail


if __name__ == "__main__":
    sys.exit(main())
