"""`python -m tfbridge report SCRIPT [ARGUMENTS]`: runs a program under auto-clustering and prints what was compiled."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import time
from collections.abc import Sequence

from ...runtime import statistics
from ..options import flags
from . import report_files
from .auto_clustering import enable_auto_clustering
from .run_report import run_report


def main(arguments: Sequence[str]) -> int:
    """Runs the program in this process, then prints the report; returns the program's exit code.

    An exception of the program is raised after the report is printed.
    """
    parser = argparse.ArgumentParser(
        prog="tfbridge report",
        description="Runs a Python program as with TFBRIDGE_AUTO_JIT=1. At its end, prints the clusters that were "
        "compiled in its process, the ops that ran in TensorFlow, with the reasons, and what to change. "
        "TFBRIDGE_REPORT=folder writes the same to files, of any program.",
    )
    parser.add_argument("script", help="the program's file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the program")
    chosen = parser.parse_args(arguments)
    enable_auto_clustering(jit_compile=flags.values()["AUTO_JIT"] == 2)
    statistics.reset_stats()
    start = time.time()
    sys.argv = [chosen.script, *chosen.arguments]
    if folder := flags.values()["REPORT"]:
        report_files.start(folder)
    sys.path[0] = os.path.dirname(os.path.abspath(chosen.script))
    try:
        runpy.run_path(chosen.script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):  # as Python does
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    finally:
        sys.stdout.flush()
        print(f"\n{run_report(start)}")
    return 0
