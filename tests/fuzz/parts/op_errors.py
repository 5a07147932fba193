"""Operands that an op does not allow: rows of the table of ops with one operand or attribute changed.

The outcome, a value or an error of some type, is to be TensorFlow's, eager or as a function, by the decorator and under
the flag. TensorFlow's side runs in a process of its own, which some kernels end.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import tfbridge

from ..op_cases import Outcome, broken, case_of, is_same, outcome, words
from ..part import Difference, Part

_TESTS = Path(__file__).parents[2]
# Ops of which one operand is a function of another one: with another value, kernels differ from each other, or write
# beyond their results.
_RELATED_OPERANDS = frozenset(
    (
        "AvgPoolGrad",
        "AvgPool3DGrad",
        *(
            f"MaxPool{d}{grad}{version}"
            for d in ("", "3D")
            for grad in ("Grad", "GradGrad")
            for version in ("", "V2")
        ),
    )
)


class _Plain:
    """The process that has TensorFlow's outcomes, started anew when a kernel has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def outcomes(self, source: str, anew: bool = False) -> list[Outcome] | None:
        """The outcomes, eager and as a function; None where a kernel ended the process. anew: in a new one, in which
        memory that nobody wrote has other contents."""
        if anew:
            self._end()
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fuzz.op_cases"],
                cwd=_TESTS,
                env=os.environ | ({"MALLOC_PERTURB_": "165"} if anew else {}),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(source, self._process.stdin)
            found: list[Outcome] = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._end()
            return None
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Errors(Part):
    suffix = ".py"
    units = ()  # one operand differs from a row of the table: there is nothing to leave out
    memory_mib = 32768
    seconds = 60.0
    quick = 20

    def __init__(self) -> None:
        self._plain = _Plain()

    def make(self, seed: int) -> str:
        return case_of(seed)

    def check(self, text: str) -> str:
        expected = self._plain.outcomes(text)
        if expected is None:
            return "rejected"
        op = text.removeprefix("# ").partition(",")[0]
        if op in _RELATED_OPERANDS and not any(isinstance(one, str) for one in expected):
            return "undefined"
        for engine in ("jit", "flag") if zlib.crc32(text.encode()) % 4 == 0 else ("jit",):
            tfbridge.reset_stats()
            if engine == "flag":
                tfbridge.enable_auto_clustering(min_cluster_size=1)
            try:
                found = outcome(text, engine)
            finally:
                tfbridge.disable_auto_clustering()
            try:
                self._compare(engine, found, expected)
            except Difference:
                again = self._plain.outcomes(text, anew=True)
                if again is None or not all(map(is_same, again, expected)):
                    return "undefined"  # a kernel that reads what it has not written
                raise
        return "error" if isinstance(expected[1], str) else "value"

    def _compare(self, engine: str, found: Outcome, expected: list[Outcome]) -> None:
        """Raises: Difference  what was found is neither of TensorFlow's outcomes, or a translation failed."""
        failed = broken(tfbridge.stats()["ops_left_out"])
        if failed:
            raise Difference(f"{engine}: {failed}; TensorFlow: {words(expected[1])}")
        is_undefined = (
            isinstance(expected[0], list) and isinstance(expected[1], list) and not is_same(*expected)
        )
        if not is_undefined and not any(is_same(found, one) for one in expected):
            raise Difference(f"{engine}: {words(found)}; TensorFlow: {words(expected[1])}")


PART = _Errors()
