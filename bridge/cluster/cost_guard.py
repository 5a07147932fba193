"""Never slower: compiled code is measured against TensorFlow's own run of the same nodes before it is used.

The benchmark takes longer than many a first call, because TensorFlow has to make a function of the nodes. So it runs
after the code has run a few times: a cluster that is called once is never measured. Code that ends before a launch of
TensorFlow's nodes could is used unmeasured. The measurement is stored beside the code in the disk cache, for other
processes.
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

RUNS_BEFORE_BENCHMARK = 3
_MIN_SECONDS = 300e-6  # a launch of TensorFlow's function takes a good part of that
_LONG_SECONDS = 0.1  # a run that takes longer is not repeated
_MARGIN = 1.2  # TensorFlow must be that much faster: timings on a busy machine differ as much
_REPEATS = 3  # timed runs; the fastest counts

Original = Callable[[list[tf.Tensor]], list[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The time of compiled code and of TensorFlow for the same nodes and inputs; 0 seconds: not measured."""

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


def benchmark(
    executable: Executable, original: Original, inputs: list[tf.Tensor], cache: disk_cache.DiskCache
) -> Measurement:
    """The measurement of code for these inputs: the stored one, or a new one."""
    earlier = stored_measurement(executable, cache)
    if earlier is not None:
        return earlier
    measurement = _measure(executable, original, inputs)
    if measurement.tensorflow_seconds:
        _store(executable, measurement, cache)
    return measurement


def _measure(executable: Executable, original: Original, inputs: list[tf.Tensor]) -> Measurement:
    arrays, frame = [tensor.numpy() for tensor in inputs], Frame(executable)
    is_packed = prepacked_weights.is_cached(executable)

    def run_compiled() -> Sequence[object]:
        return executable.execute(arrays, frame, is_packed)

    try:
        if is_packed:
            executable.execute(arrays, frame)
        compiled = _fastest(run_compiled)
        if compiled < _MIN_SECONDS:
            return Measurement(compiled, 0.0)
        original(inputs)  # makes the function
        measurement = Measurement(compiled, _fastest(lambda: original(inputs)))
        if measurement.is_slower:  # once more, in case that something else kept the machine busy
            again = _fastest(run_compiled)
            measurement = Measurement(min(compiled, again), measurement.tensorflow_seconds)
    except (ExecutionError, tf.errors.OpError):  # the call itself reports it
        return Measurement(0.0, 0.0)
    return measurement


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


def stored_measurement(executable: Executable, cache: disk_cache.DiskCache) -> Measurement | None:
    """The measurement of an earlier process; None when there is none."""
    if not executable.artifact.fingerprint or (artifact := cache.load(_name(executable))) is None:
        return None
    try:
        compiled, tensorflow = json.loads(artifact.constants)
        return Measurement(float(compiled), float(tensorflow))
    except (ValueError, TypeError):
        return None


def _store(executable: Executable, measurement: Measurement, cache: disk_cache.DiskCache) -> None:
    if executable.artifact.fingerprint:
        seconds = json.dumps([measurement.compiled_seconds, measurement.tensorflow_seconds]).encode()
        cache.store(Artifact(b"", "", (), (), constants=seconds, fingerprint=_name(executable)))
