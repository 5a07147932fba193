"""Calls with shapes that were never seen before, alone and beside a shape that is warm."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ...program import Array, Program
from .case import Callee, Outcome, Scale, checksum, compilations, percentiles, sequence
from .layers import Weights, normalized

WIDTH = 64
BATCHES, MIN_LENGTH = 20, 8
WARM_SHAPE, WARM_CALLS, PAUSE_SECONDS = (4, 32), 50, 1e-3


def residual_blocks(blocks: int) -> Program:
    """Blocks of a layer and an attention without weights. Shapes: f32[None, None, WIDTH] -> f32[None, WIDTH]."""
    weights = Weights()
    layers = [weights(WIDTH, WIDTH) for _ in range(blocks)]

    def function(x: tf.Tensor) -> tf.Tensor:
        for layer in layers:
            x = normalized(tf.nn.gelu(tf.matmul(x, layer)))
            x += tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)
        return x[:, 0]

    signature = [tf.TensorSpec([None, None, WIDTH], tf.float32)]
    return Program(function, (), weights.variables, signature=signature)


def _inputs(length_step: int) -> Iterator[tuple[Array]]:
    """Inputs of different shapes."""
    random = np.random.default_rng(1)
    for number in itertools.count():
        row, column = divmod(number, BATCHES)
        dims = (1 + column, MIN_LENGTH + length_step * row, WIDTH)
        yield (random.standard_normal(dims, dtype=np.float32),)


def new_shapes(engine: str, scale: Scale) -> Outcome:
    """Every call has a new shape."""
    calls = itertools.islice(_inputs(3), scale.count(420, 24))
    return sequence(engine, residual_blocks(4), calls, scale)


def new_shapes_beside_warm(engine: str, scale: Scale) -> Outcome:
    """Latency of a warm shape, alone and while another thread brings new ones."""
    callee = Callee(engine, residual_blocks(8), scale.threads)
    random = np.random.default_rng(1)
    warm = callee.inputs([random.standard_normal((*WARM_SHAPE, WIDTH), dtype=np.float32)])
    for _ in range(WARM_CALLS):
        callee.timed(*warm)

    def latencies(seconds: float) -> list[float]:
        seconds_of_calls, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            seconds_of_calls.append(callee.timed(*warm)[0])
            time.sleep(PAUSE_SECONDS)
        return seconds_of_calls

    values = percentiles(latencies(scale.count(5, 1)), "alone ")
    stop, served = threading.Event(), 0

    def bring() -> None:
        nonlocal served
        for inputs in _inputs(1):
            if stop.is_set():
                return
            callee.timed(*callee.inputs(inputs))
            served += 1

    thread = threading.Thread(target=bring)
    thread.start()
    values |= percentiles(latencies(scale.count(15, 2)), "beside ")
    stop.set()
    thread.join()
    return Outcome(
        values | {"new shapes": served} | compilations(engine), results=[checksum(callee.timed(*warm)[1])]
    )
