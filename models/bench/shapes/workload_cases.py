"""The workloads of the benchmark with a batch of unknown size, and their first calls."""

from __future__ import annotations

import statistics
import time

import numpy as np
import tensorflow as tf
import tfbridge

from ...program import Program
from ..engines import ENGINES
from ..workloads import WORKLOADS
from .case import Callee, Outcome, Scale, checksum, compilations

NEW_CALLS = 20
WARM_CALLS = 20
WAIT_SECONDS = 120.0


def _built(workload: str, scale: Scale) -> Program:
    row = WORKLOADS[workload]
    return row.build_small() if scale.quick else row.build()


def generic_against_specialised(workload: str, engine: str, scale: Scale) -> Outcome:
    """The first calls of a new batch size, and calls of code for that size alone.

    The former run what serves any batch size where there is such code: TensorFlow, or code for unknown sizes.
    """
    program = _built(workload, scale)
    arrays = program.arrays
    program.signature = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in arrays]
    callee = Callee(engine, program, scale.threads)
    inputs = callee.inputs(arrays)
    for _ in range(WARM_CALLS):
        callee.timed(*inputs)
    tfbridge.wait_for_compilation(WAIT_SECONDS)
    new = [np.resize(array, (len(array) + 1, *array.shape[1:])) for array in arrays]
    calls, outputs = zip(*(callee.timed(*callee.inputs(new)) for _ in range(NEW_CALLS)))
    static = Program(program.function, new, program.captured, program.updated)
    # What is given to jit is compiled in its first call; the flag leaves that to the background.
    specialist = Callee("tfbridge" if engine == "tfbridge-auto" else engine, static, scale.threads)
    inputs = specialist.inputs(new)
    specialised = statistics.median(
        [specialist.timed(*inputs)[0] for _ in range(2 * WARM_CALLS)][WARM_CALLS:]
    )
    generic = statistics.median(calls)
    values: dict[str, float | None] = {
        "first ms": 1e3 * calls[0],
        "first 20 ms": 1e3 * sum(calls),
        "p50 of 20 ms": 1e3 * generic,
        "specialised ms": 1e3 * specialised,
        "p50 / specialised": generic / specialised,
    }
    return Outcome(values | compilations(engine), list(calls), [checksum(outputs[-1])])


def first_call(workload: str, engine: str, scale: Scale) -> Outcome:
    """From the function to its first result, in a process that has imported the engine and built the model."""
    program = _built(workload, scale)
    start = ENGINES[engine].prepare(program, scale.threads)
    begin = time.perf_counter()
    results = tf.nest.flatten(start()(*program.inputs))
    np.asarray(results[0])
    seconds = time.perf_counter() - begin
    return Outcome({"first call s": seconds, **compilations(engine)}, [seconds], [checksum(results)])
