"""Never slower: compiled code is measured against TensorFlow's own run of the same nodes before it is used.

The trial takes longer than many a first call, for TensorFlow has to make a function of the nodes; so it is held when
the code has run a few times, and what is called once never pays for it. Code that is over before a launch of
TensorFlow's nodes could be is kept unmeasured. The decision is stored beside the code in the disk cache, so that
another process need not measure.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from ...runtime.code import disk_cache
from ...runtime.code.artifact import Artifact
from ...runtime.code.executable import Executable, Frame
from ...runtime.errors import ExecutionError
from ..launch import prepacked_weights

RUNS_BEFORE_TRIAL = 3
_AT_ONCE_SECONDS = 300e-6  # to hand a cluster to TensorFlow costs a good part of that
_LONG_SECONDS = 0.1  # what takes longer is not run again to measure it better
_MARGIN = 1.2  # TensorFlow must be that much faster: timings on a busy machine differ as much
_REPEATS = 3  # runs that are timed, of which the fastest counts

Original = Callable[[list[tf.Tensor]], list[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What compiled code and TensorFlow took for the same nodes and inputs; 0 seconds: not measured."""

    compiled_seconds: float
    tensorflow_seconds: float

    @property
    def is_slower(self) -> bool:
        """Whether the compiled code loses."""
        return 0 < self.tensorflow_seconds * _MARGIN < self.compiled_seconds

    def __str__(self) -> str:
        return (
            f"compiled code takes {self.compiled_seconds * 1e3:.3f} ms, TensorFlow "
            f"{self.tensorflow_seconds * 1e3:.3f} ms"
        )


def judge(
    executable: Executable, original: Original, inputs: list[tf.Tensor], cache: disk_cache.DiskCache
) -> Verdict:
    """The verdict on code for these inputs: the stored one, or one that is measured now."""
    known = stored(executable, cache)
    if known is not None:
        return known
    verdict = _measure(executable, original, inputs)
    if verdict.tensorflow_seconds:
        _store(executable, verdict, cache)
    return verdict


def _measure(executable: Executable, original: Original, inputs: list[tf.Tensor]) -> Verdict:
    arrays, frame = [tensor.numpy() for tensor in inputs], Frame(executable)
    is_packed = prepacked_weights.are_kept(executable)

    def run_compiled() -> Sequence[object]:
        return executable.execute(arrays, frame, is_packed)

    try:
        if is_packed:
            executable.execute(arrays, frame)
        compiled = _fastest(run_compiled)
        if compiled < _AT_ONCE_SECONDS:
            return Verdict(compiled, 0.0)
        original(inputs)  # makes the function
        verdict = Verdict(compiled, _fastest(lambda: original(inputs)))
        if verdict.is_slower:  # once more, in case that something else kept the machine busy
            again = _fastest(run_compiled)
            verdict = Verdict(min(compiled, again), verdict.tensorflow_seconds)
    except (ExecutionError, tf.errors.OpError):  # the call itself reports it
        return Verdict(0.0, 0.0)
    return verdict


def _fastest(run: Callable[[], Sequence[object]]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if best > _LONG_SECONDS:
            break
    return best


def _name(executable: Executable) -> str:
    return f"{executable.artifact.fingerprint} verdict"


def stored(executable: Executable, cache: disk_cache.DiskCache) -> Verdict | None:
    """The verdict that an earlier process left; None when there is none."""
    if not executable.artifact.fingerprint or (artifact := cache.load(_name(executable))) is None:
        return None
    try:
        compiled, tensorflow = json.loads(artifact.constants)
        return Verdict(float(compiled), float(tensorflow))
    except (ValueError, TypeError):
        return None


def _store(executable: Executable, verdict: Verdict, cache: disk_cache.DiskCache) -> None:
    if executable.artifact.fingerprint:
        seconds = json.dumps([verdict.compiled_seconds, verdict.tensorflow_seconds]).encode()
        cache.store(Artifact(b"", "", (), (), constants=seconds, fingerprint=_name(executable)))
