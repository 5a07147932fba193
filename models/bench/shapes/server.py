"""A model server: threads call a SavedModel, each call with another number of texts of another length."""

from __future__ import annotations

import itertools
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from ...program import Array, Program
from ..engines import ENGINES
from ..measurement import ResidentMemory
from .case import Callee, Outcome, Scale, checksum, compilations, percentiles
from .layers import MASKED, Weights, attention, normalized

MAX_BATCH, MIN_LENGTH, MAX_LENGTH = 64, 8, 128
VOCABULARY, WIDTH, HEADS, BLOCKS = 1000, 128, 4, 3
THREADS = 8
EARLY_SECONDS = 10.0


def encoder() -> Program:
    """A small BERT. Shapes: s32[None, None] ids, s32[None, None] mask -> f32[None, WIDTH], the first tokens."""
    weights = Weights()
    tokens, positions = weights(VOCABULARY, WIDTH), weights(MAX_LENGTH, WIDTH)
    blocks = [
        (
            weights(WIDTH, 3 * WIDTH),
            weights(WIDTH, WIDTH),
            weights(WIDTH, 4 * WIDTH),
            weights(4 * WIDTH, WIDTH),
        )
        for _ in range(BLOCKS)
    ]

    def encode(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        x = normalized(tf.gather(tokens, ids) + positions[: tf.shape(ids)[1]])
        bias = (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * MASKED
        for inputs, outputs, up, down in blocks:
            queries, keys, values = tf.split(tf.matmul(x, inputs), 3, axis=-1)
            x = normalized(x + tf.matmul(attention(queries, keys, values, HEADS, bias), outputs))
            x = normalized(x + tf.matmul(tf.nn.gelu(tf.matmul(x, up)), down))
        return x[:, 0]

    signature = [tf.TensorSpec([None, None], tf.int32)] * 2
    return Program(encode, (), weights.variables, signature=signature)


def request(random: np.random.Generator) -> tuple[Array, Array]:
    """Ids and mask of some texts, padded to the longest."""
    batch, length = random.integers(1, MAX_BATCH + 1), random.integers(MIN_LENGTH, MAX_LENGTH + 1)
    lengths = random.integers(1, length + 1, batch)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    ids = random.integers(1, VOCABULARY, (batch, length)) * mask
    return ids.astype(np.int32), mask.astype(np.int32)


def _loaded(engine: str, scale: Scale) -> Callee:
    """The model from a SavedModel. An engine for inference converts it; TensorFlow and the flag call it as it is."""
    program = encoder()
    if ENGINES[engine].arrays:
        return Callee(engine, program, scale.threads)
    with tempfile.TemporaryDirectory() as folder:
        program.save(folder)
        model = tf.saved_model.load(folder)
    program.function, program.model = model.call, model  # which holds the variables
    callee = Callee(engine, program, scale.threads)
    if engine in ("tf", "tfbridge-auto"):
        callee.function = model.call
    return callee


def server(engine: str, scale: Scale) -> Outcome:
    """Throughput at first and later, latency, compilations, memory."""
    callee, memory = _loaded(engine, scale), ResidentMemory()
    start = time.perf_counter()

    def serve(thread: int) -> list[tuple[float, float]]:
        random, calls = np.random.default_rng(thread), []
        while time.perf_counter() < start + scale.seconds:
            inputs = callee.inputs(request(random))
            seconds, _ = callee.timed(*inputs)
            calls.append((time.perf_counter() - start, seconds))
        return calls

    with ThreadPoolExecutor(THREADS) as pool:
        calls = list(itertools.chain.from_iterable(pool.map(serve, range(THREADS))))
    growth = memory.growth_bytes()
    early = min(EARLY_SECONDS, scale.seconds / 2)
    ends, seconds = zip(*calls)
    before = sum(end <= early for end in ends)
    values = (
        {"calls/s at first": before / early, "calls/s later": (len(calls) - before) / (max(ends) - early)}
        | percentiles(seconds)
        | {"growth MiB": growth / (1 << 20)}
        | compilations(engine)
    )
    random = np.random.default_rng(THREADS)
    checked = [checksum(callee.timed(*callee.inputs(request(random)))[1]) for _ in range(2)]
    return Outcome(values, results=checked)
