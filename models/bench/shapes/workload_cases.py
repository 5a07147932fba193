"""The workloads of the benchmark with a batch of unknown size, and their first calls."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf
import tfbridge

from ...program import Array, Program
from ..engines import ENGINES
from ..workloads import WORKLOADS
from .case import Callee, Outcome, Scale, beside_specialised, checksum, compilations

NEW_CALLS = 20
WARM_CALLS = 20
WAIT_SECONDS = 120.0


def _built(workload: str, scale: Scale) -> Program:
    row = WORKLOADS[workload]
    return row.build_small() if scale.quick else row.build()


def generic_against_specialised(workload: str, engine: str, scale: Scale) -> Outcome:
    """The first calls of a new batch size, and those of a further one, in turns with code for that size alone.

    The former run what serves a batch size that nobody has seen: TensorFlow. The latter run what serves any batch size,
    where there is such code.
    """
    program = _built(workload, scale)
    program.signature = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in program.arrays]
    generic = Callee(engine, program, scale.threads)

    def inputs(more: int) -> list[Array]:
        return [np.resize(array, (len(array) + more, *array.shape[1:])) for array in program.arrays]

    def calls(more: int, number: int) -> list[float]:
        values = generic.inputs(inputs(more))
        return [generic.timed(*values)[0] for _ in range(number)]

    calls(0, WARM_CALLS)
    tfbridge.wait_for_compilation(WAIT_SECONDS)
    first = calls(1, NEW_CALLS)
    tfbridge.wait_for_compilation(WAIT_SECONDS)
    of_generic, of_specialised, results = beside_specialised(generic, engine, program, inputs(2), scale)
    figures: dict[str, float | None] = {
        "first ms": 1e3 * first[0],
        "first 20 ms": 1e3 * sum(first),
        "generic ms": 1e3 * of_generic,
        "specialised ms": 1e3 * of_specialised,
        "specialised / generic": of_specialised / of_generic,
    }
    return Outcome(figures | compilations(engine), first, [checksum(results)])


def first_call(workload: str, engine: str, scale: Scale) -> Outcome:
    """From the function to its first result, in a process that has imported the engine and built the model."""
    program = _built(workload, scale)
    start = ENGINES[engine].prepare(program, scale.threads)
    begin = time.perf_counter()
    results = tf.nest.flatten(start()(*program.inputs))
    np.asarray(results[0])
    seconds = time.perf_counter() - begin
    return Outcome({"first call s": seconds, **compilations(engine)}, [seconds], [checksum(results)])
