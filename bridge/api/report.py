"""`python -m tfbridge report SCRIPT [ARGUMENTS]`: runs a program under auto-clustering and prints what was compiled."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Iterable, Sequence

from ...runtime import statistics
from ..options import flags
from .auto_clustering import enable_auto_clustering

_MAX_ROWS = 32


def main(arguments: Sequence[str]) -> int:
    """Runs the program in this process, then prints the report; returns the program's exit code.

    An exception of the program is raised after the report is printed.
    """
    parser = argparse.ArgumentParser(
        prog="tfbridge report",
        description="Runs a Python program as with TFBRIDGE_AUTO_JIT=1. At its end, prints the clusters that were "
        "compiled in its process and the ops that ran in TensorFlow, with the reasons.",
    )
    parser.add_argument("script", help="the program's file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the program")
    chosen = parser.parse_args(arguments)
    enable_auto_clustering(jit_compile=flags.values()["AUTO_JIT"] == 2)
    statistics.reset_stats()
    sys.argv = [chosen.script, *chosen.arguments]
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
        print(f"\n{report()}")
    return 0


def report() -> str:
    """The clusters of this process and the ops outside, as text.

    `ops` are TensorFlow ops, `seconds` what it took to compile a cluster or to load it from the disk cache. An op is
    counted for every graph that it is in; a cluster that does not compile, for every set of shapes.
    """
    stats = statistics.stats()
    outside = stats["ops_left_out"]
    lines = [
        f"tfbridge: {stats['clusters_compiled']} clusters of {stats['ops_compiled']} ops compiled, "
        f"{stats['recompiles']} compiled again for other shapes or values, {stats['fallbacks']} not compiled",
        f"{stats['disk_hits']} loaded from the disk cache; {stats['compile_seconds']:.2f} s of compilation",
        f"{stats['background_compiles']} compiled in the background, {stats['background_cpu_seconds']:.2f} s of CPU "
        f"time; {stats['served_by_tensorflow']} calls served by TensorFlow before there was code",
        f"{sum(outside.values())} ops not compiled, run by TensorFlow",
    ]
    if clusters := statistics.clusters():
        rows = [
            (c.name, f"{c.ops:,}", f"{c.kernels:,}", f"{c.seconds:.3f}", c.shapes or "no arguments")
            for c in sorted(clusters, key=lambda c: -c.seconds)
        ]
        lines += ["", *_aligned([("cluster", "ops", "kernels", "seconds", "shapes"), *rows])]
    if outside:
        counts = sorted(outside.items(), key=lambda item: -item[1])
        lines += [
            "",
            *_aligned([("ops", "not compiled because"), *((f"{n:,}", why) for why, n in counts)]),
        ]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """A head and the first rows, in columns."""
    shown = rows[: _MAX_ROWS + 1]
    widths = [max(map(len, column)) for column in zip(*shown)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more"
