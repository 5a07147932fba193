"""Runs the cases, each engine in a process of its own with an empty cache, and prints what came out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from ..output import publish
from .case import Case, Outcome, Scale
from .cases import CASES
from .report import Results, as_json, is_wrong, print_tables

MAX_SECONDS = 3600  # after this a process counts as hung
XLA_LOG = "device_compilation_profiler"  # the source file of TensorFlow that logs XLA's compilations
REFERENCE = "tf"


def run_case(case: Case, engine: str, scale: Scale) -> Outcome:
    """The outcome of one engine on one case."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TFBRIDGE_CACHE_DIR": folder,
            "TFBRIDGE_AUTO_JIT": str(int(engine == "tfbridge-auto")),
            "TF_NUM_INTRAOP_THREADS": str(scale.threads),
            "TF_NUM_INTEROP_THREADS": str(scale.threads),
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_VMODULE": f"{XLA_LOG}=1",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        size = "quick" if scale.quick else "full"
        arguments = [case.name, engine, str(scale.threads), str(scale.seconds), size]
        command = [sys.executable, "-m", f"{__package__}.worker", *arguments]
        errors = Path(folder) / "stderr"
        with errors.open("wb") as file:
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=file, env=environment, timeout=MAX_SECONDS
                )
            except subprocess.TimeoutExpired:
                return Outcome(failure=f"took more than {MAX_SECONDS} s")
        log = errors.read_text(errors="replace").splitlines()
    if done.returncode:
        return Outcome(
            failure=next((line for line in reversed(log) if line.strip()), f"status {done.returncode}")
        )
    outcome = Outcome(**json.loads(done.stdout.splitlines()[-1]))
    if engine == "xla" and not outcome.failure:
        outcome.values["compilations"] = sum(XLA_LOG in line and "] Compiled " in line for line in log)
    return outcome


def run(cases: Sequence[Case], engines: Sequence[str], scale: Scale) -> Results:
    """All outcomes, with a progress bar on standard error."""
    jobs = [
        (case, engine)
        for case in cases
        for engine in dict.fromkeys((REFERENCE, *engines))
        if engine in case.engines
    ]
    results: Results = {}
    console = Console(stderr=True)
    for case, engine in track(jobs, "cases of changing shapes", console=console, transient=True):
        results.setdefault(case.name, {})[engine] = run_case(case, engine, scale)
    return results


def main(
    names: Sequence[str], engines: Sequence[str], scale: Scale, as_json_text: bool, save: Path | None
) -> int:
    """Measures and prints; 1 if TensorFlow or tfbridge failed or a result was wrong."""
    results = run([CASES[name] for name in names], engines, scale)
    publish(as_json(results, scale), lambda: print_tables(results, scale), as_json_text, save)
    return int(is_wrong(results))
