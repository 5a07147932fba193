"""Text generation: a decoder whose key/value cache grows with every token, and one whose cache has a fixed size."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...program import Program
from .case import Callee, Outcome, Scale, beside_specialised, checksum, compilations
from .layers import MASKED, Weights, attention, normalized

VOCABULARY, WIDTH, HEADS, BLOCKS, MAX_LENGTH = 1000, 256, 4, 4, 512
LENGTHS = (3, 37, 101, 199, 256, 317, 450, 511)  # of the growing cache, of which single steps are compared
CACHE = (BLOCKS, 2, MAX_LENGTH, WIDTH)
TOKENS = tf.TensorSpec([None], tf.int32)
TOKEN = tf.TensorSpec([1], tf.int32)


class Decoder:
    """The weights of a decoder, and its ways to be called. Caches are f32[BLOCKS, 2, length, WIDTH]."""

    def __init__(self) -> None:
        self.weights = weights = Weights()
        self.tokens, self.positions = weights(VOCABULARY, WIDTH), weights(MAX_LENGTH, WIDTH)
        self.blocks = [
            (
                weights(WIDTH, 3 * WIDTH),
                weights(WIDTH, WIDTH),
                weights(WIDTH, 4 * WIDTH),
                weights(4 * WIDTH, WIDTH),
            )
            for _ in range(BLOCKS)
        ]

    def _run(
        self,
        tokens: tf.Tensor,
        start: tf.Tensor,
        bias: tf.Tensor,
        extend: Callable[[int, tf.Tensor], tf.Tensor],
    ) -> tuple:
        positions = start + tf.range(tf.shape(tokens)[0])
        x = normalized(tf.gather(self.tokens, tokens) + tf.gather(self.positions, positions))[None]
        caches = []
        for number, (inputs, outputs, up, down) in enumerate(self.blocks):
            queries, keys, values = tf.split(tf.matmul(x, inputs), 3, axis=-1)
            cache = extend(number, tf.concat([keys, values], 0))
            mixed = attention(queries, cache[:1], cache[1:], HEADS, bias)
            x = normalized(x + tf.matmul(mixed, outputs))
            x = normalized(x + tf.matmul(tf.nn.gelu(tf.matmul(x, up)), down))
            caches.append(cache)
        return tf.matmul(x[0, -1:], self.tokens, transpose_b=True), tf.stack(caches)

    def growing_step(self, token: tf.Tensor, cache: tf.Tensor) -> tuple:
        """One token; the cache becomes one longer."""
        return self._run(
            token, tf.shape(cache)[2], tf.zeros([]), lambda block, new: tf.concat([cache[block], new], 1)
        )

    def prefill(self, tokens: tf.Tensor) -> tuple:
        """A prompt, and the cache of MAX_LENGTH that it fills."""
        count = tf.shape(tokens)[0]
        after = tf.range(count)[None, :] > tf.range(count)[:, None]
        logits, cache = self._run(
            tokens, tf.zeros([], tf.int32), tf.cast(after, tf.float32) * MASKED, lambda block, new: new
        )
        return logits, tf.ensure_shape(
            tf.pad(cache, [[0, 0], [0, 0], [0, MAX_LENGTH - count], [0, 0]]), CACHE
        )

    def fixed_step(self, token: tf.Tensor, position: tf.Tensor, cache: tf.Tensor) -> tuple:
        """One token at a position of the cache."""
        places = tf.range(MAX_LENGTH)
        here = (places == position)[None, :, None]
        return self._run(
            token,
            position,
            tf.cast(places > position, tf.float32) * MASKED,
            lambda block, new: tf.where(here, new, cache[block]),
        )


def _outcome(engine: str, seconds: list[float], results: list[float]) -> Outcome:
    values: dict[str, float | None] = {
        "first s": seconds[0],
        "later s": statistics.median(seconds[1:]),
        "slowest later s": max(seconds[1:]),
    }
    return Outcome(values | compilations(engine), seconds, results)


def growing_cache(engine: str, scale: Scale) -> Outcome:
    """Generations of as many tokens each; the cache grows by concatenation from nothing."""
    decoder = Decoder()
    signature = [TOKEN, tf.TensorSpec([BLOCKS, 2, None, WIDTH], tf.float32)]
    step = Program(decoder.growing_step, (), decoder.weights.variables, signature=signature)
    callee = Callee(engine, step, scale.threads)
    random, seconds, results = np.random.default_rng(1), [], []
    for _ in range(scale.count(4, 3)):
        (cache,) = callee.inputs([np.zeros((BLOCKS, 2, 0, WIDTH), np.float32)])
        total = 0.0
        for number in random.integers(0, VOCABULARY, scale.count(MAX_LENGTH, 8)):
            call, (logits, cache) = callee.timed(*callee.inputs([np.array([number], np.int32)]), cache)
            total += call
        seconds.append(total)
        results.append(checksum([logits]))
    outcome = _outcome(engine, seconds, results)
    shares = []
    for length in LENGTHS[: scale.count(len(LENGTHS), 1)]:
        arrays = [
            random.integers(0, VOCABULARY, 1).astype(np.int32),
            random.standard_normal((BLOCKS, 2, length, WIDTH), dtype=np.float32),
        ]
        of_generic, of_specialised, _ = beside_specialised(callee, engine, step, arrays, scale)
        shares.append(of_specialised / of_generic)
    outcome.values["specialised / generic"] = statistics.geometric_mean(shares)
    return outcome


def fixed_cache(engine: str, scale: Scale) -> Outcome:
    """Generations after prompts of different lengths, in a cache of MAX_LENGTH."""
    decoder = Decoder()
    variables = decoder.weights.variables
    prefill = Callee(engine, Program(decoder.prefill, (), variables, signature=[TOKENS]), scale.threads)
    signature = [TOKEN, tf.TensorSpec([], tf.int32), tf.TensorSpec(CACHE, tf.float32)]
    step = Callee(engine, Program(decoder.fixed_step, (), variables, signature=signature), scale.threads)
    random, seconds, results = np.random.default_rng(1), [], []
    for length in random.permutation(np.arange(8, 257))[: scale.count(24, 5)]:
        prompt = random.integers(0, VOCABULARY, length).astype(np.int32)
        total, (logits, cache) = prefill.timed(*prefill.inputs([prompt]))
        for position in range(length, length + scale.count(64, 4)):
            token = random.integers(0, VOCABULARY, 1).astype(np.int32)
            call, (logits, cache) = step.timed(*step.inputs([token, np.array(position, np.int32)]), cache)
            total += call
        seconds.append(total)
        results.append(checksum([logits]))
    return _outcome(engine, seconds, results)
