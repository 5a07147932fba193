"""Random valid programs: native code against the evaluator, with all passes and with some left out."""

from __future__ import annotations

import re

import numpy as np
from random_graphs import drawn_module
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.errors import CompilerError
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.pipeline import CPU_PASSES

from ..compare import compiled_and_compared, rejected
from ..part import Part

_NEEDED = {"inline_calls", "expand_maps", "expand_rng", "canonicalize_dots"}
"""Passes without which modules do not compile: kernels rely on them."""
_LEFT_OUT = sorted({p.__name__ for p in CPU_PASSES} - _NEEDED)
_HEADER = re.compile(r"// without: ([\w ]*), threads: (\d+)\n")


class Programs(Part):
    """A case is HLO text; its first line, a comment, names the passes that are left out."""

    suffix = ".hlo"
    quick = 20
    is_valid = True

    def make(self, seed: int) -> str:
        """A graph of exact ops, small or large."""
        rng = np.random.default_rng(seed)
        module = drawn_module(rng)
        without = list(rng.choice(_LEFT_OUT, rng.integers(1, 3), replace=False)) if rng.random() < 0.5 else []
        return f"// without: {' '.join(without)}, threads: {rng.integers(1, 3)}\n{module}"

    def check(self, text: str) -> str:
        """Every program is accepted, and native code gives the evaluator's very values."""
        header = _HEADER.match(text)
        without, threads = (header[1].split(), int(header[2])) if header else ([], 0)
        try:
            module = parse_hlo(text)
        except CompilerError as error:
            return rejected(error)
        return compiled_and_compared(module, Options(threads=threads, disabled_passes=frozenset(without)))


PART = Programs()
