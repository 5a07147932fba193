"""Quantised layers inside loops: recurrent networks, and the states of streaming ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.aot.freeze import freeze
from tfbridge.compiler import evaluate
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.quantization.options import QuantizationOptions
from tfbridge.compiler.quantization.quantize import quantize

RNG = np.random.default_rng(11)
LAYERS = keras.layers
RECURRENT = {
    "lstm": lambda: [LAYERS.LSTM(24, return_sequences=True), LAYERS.LSTM(17)],
    "gru": lambda: [LAYERS.GRU(24, return_sequences=True), LAYERS.GRU(17)],
    "gru-before": lambda: [LAYERS.GRU(24, reset_after=False)],
    "bidirectional": lambda: [LAYERS.Bidirectional(LAYERS.LSTM(12))],
    "masked": lambda: [LAYERS.Masking(), LAYERS.GRU(13)],
    "cells": lambda: [LAYERS.RNN([LAYERS.LSTMCell(12), LAYERS.GRUCell(20)])],
    "unrolled": lambda: [LAYERS.LSTM(9, unroll=True)],
}
LAYERS_IN = {
    "lstm": 5,
    "gru": 5,
    "gru-before": 4,
    "bidirectional": 5,
    "masked": 3,
    "cells": 5,
    "unrolled": 12,
}


def floats(*dims: int) -> np.ndarray:
    return RNG.normal(size=dims).astype(np.float32)


def network(kind: str, steps: int = 6) -> keras.Model:
    keras.utils.set_random_seed(4)
    return keras.Sequential([keras.Input((steps, 10)), *RECURRENT[kind](), LAYERS.Dense(3)])


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize(
    "scheme, decibels", [("int8", 30), ("int8-weights", 35), ("int4-weights", 14), ("bfloat16", 35)]
)
def test_recurrent_networks(kind: str, scheme: str, decibels: float) -> None:
    model, x = network(kind), floats(32, 2, 6, 10)
    if kind == "masked":
        x[:, :, 3] = 0
    function = tfbridge.aot.quantize(
        model, tf.TensorSpec((2, 6, 10)), quantize=scheme, calibration=[[a] for a in x]
    )
    assert len(function.report.layers) == LAYERS_IN[kind] and not function.report.kept
    assert all(layer.signal_to_noise > decibels for layer in function.report.layers)
    found, wanted = np.asarray(function(x[0])), model(x[0]).numpy()
    assert 0 < np.abs(found - wanted).max() < 3 * 10 ** (-decibels / 20) * np.abs(wanted).max()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("scheme", ["int8", "int4-weights"])
def test_same_numbers_as_the_evaluator(kind: str, scheme: str) -> None:
    frozen = freeze(network(kind), (tf.TensorSpec((1, 6, 10)),), "serving_default", {})
    samples = [[x] for x in floats(8, 1, 6, 10)]
    module, _ = quantize(frozen.functions[0].module, samples, native(), QuantizationOptions(scheme))
    (compiled,) = native().compile(module, DEFAULT_OPTIONS).execute(samples[0])
    (reference,) = evaluate(module, samples[0])
    # An integer may be the next one where a value lies in the middle.
    np.testing.assert_allclose(compiled, reference, atol=0.01 * np.abs(reference).max())


def test_ranges_are_those_of_all_steps() -> None:
    """What the layer reads grows from step to step."""
    weights = tf.constant(floats(4, 3))

    def growing(x: tf.Tensor) -> tf.Tensor:
        def step(number: tf.Tensor, state: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return number + 1, state * 2.0, total + state @ weights

        return tf.while_loop(lambda number, *_: number < 5, step, (0, x, tf.zeros([1, 3])))[2]

    x = RNG.uniform(-1, 1, (8, 1, 4)).astype(np.float32)
    x[0, 0] = [1, -1, 1, 0.5]
    function = tfbridge.aot.quantize(
        growing, tf.TensorSpec((1, 4)), calibration=[[a] for a in x], calibration_method="min-max"
    )
    (layer,) = function.report.layers
    step = 32 / 255
    assert layer.low == pytest.approx(-16, abs=step) and layer.high == pytest.approx(16, abs=step)
    bound = 5 * (step / 2 * np.abs(weights.numpy()).sum(0) + 31 / 254 * np.abs(weights.numpy()).max(0))
    assert (np.abs(np.asarray(function(x[0])) - growing(x[0])) <= bound).all()


@pytest.mark.parametrize("scheme", ["int8", "int8-weights", "int4-weights", "float16"])
def test_tables_and_layers_of_a_decoding_loop(scheme: str) -> None:
    """Every step reads the embedding of another symbol, with a check of its number."""
    table, kernel, last = (tf.constant(floats(*dims) / 5) for dims in ((12, 8), (20, 12), (12, 12)))

    def decode(first: tf.Tensor) -> tf.Tensor:
        def step(
            number: tf.Tensor, symbol: tf.Tensor, h: tf.Tensor, scores: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            h = tf.tanh(tf.concat([tf.gather(table, symbol), h], 1) @ kernel)
            return number + 1, (symbol + 5) % 12, h, scores + h @ last

        zeros = tf.zeros([1, 12])
        return tf.while_loop(lambda number, *_: number < 7, step, (0, first, zeros, zeros))[3]

    samples = [[np.array([k], np.int32)] for k in range(12)]
    function = tfbridge.aot.quantize(
        decode, tf.TensorSpec((1,), tf.int32), quantize=scheme, calibration=samples
    )
    kinds = [layer.kind for layer in function.report.layers]
    assert kinds == (["dense", "dense"] if scheme == "int8" else ["embedding", "dense", "dense"])
    (result,) = function.report.results
    assert result.signal_to_noise > (8 if scheme == "int4-weights" else 25)


def test_loops_that_share_a_body_and_loops_that_never_run() -> None:
    weights = tf.constant(floats(4, 4) / 4)

    def repeated(x: tf.Tensor) -> tf.Tensor:
        def loop(x: tf.Tensor, steps: int) -> tf.Tensor:
            body = lambda number, y: (number + 1, tf.tanh(y @ weights))  # noqa: E731
            return tf.while_loop(lambda number, _: number < steps, body, (0, x))[1]

        return loop(loop(x, 3), 3) + loop(x, 0)

    x = floats(8, 1, 4)
    for scheme in ("int8", "int4-weights"):
        function = tfbridge.aot.quantize(
            repeated, tf.TensorSpec((1, 4)), quantize=scheme, calibration=[[a] for a in x]
        )
        assert len(function.report.layers) == 2
        np.testing.assert_allclose(function(x[0]), repeated(x[0]), atol=0.1)


def test_loops_without_a_known_number_of_steps_stay_in_f32() -> None:
    weights, last = tf.constant(floats(4, 4) / 4), tf.constant(floats(4, 2))

    def settling(x: tf.Tensor) -> tf.Tensor:
        return (
            tf.while_loop(
                lambda y: tf.reduce_sum(tf.abs(y)) > 0.1, lambda y: [tf.tanh(y @ weights) * 0.5], [x]
            )[0]
            @ last
        )

    x = floats(8, 1, 4)
    function = tfbridge.aot.quantize(settling, tf.TensorSpec((1, 4)), calibration=[[a] for a in x])
    assert len(function.report.layers) == 1
    np.testing.assert_allclose(function(x[0]), settling(x[0]), atol=0.01)


def test_weights_of_loops_are_stored_once_and_never_in_f32(tmp_path: Path) -> None:
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((20, 64)), LAYERS.LSTM(64)])
    samples = {"x": floats(8, 20, 64)}
    spec = tf.TensorSpec((1, 20, 64), name="x")
    options = {"name": "lstm", "large_constants": "file"}
    whole = tfbridge.aot.compile(model, spec, out_dir=tmp_path / "f32", **options)
    for scheme, part in {"int8": 0.27, "int8-weights": 0.27, "int4-weights": 0.15, "float16": 0.52}.items():
        made = tfbridge.aot.compile(
            model, spec, out_dir=tmp_path / scheme, quantize=scheme, calibration=samples, **options
        )
        tables = 3 * 1024 if scheme == "int8" else 0  # of the activations
        assert made.constants_bytes < whole.constants_bytes * part + 2048 + tables, scheme
        assert made.temp_bytes < whole.temp_bytes * 1.1, scheme


class Stream(tf.Module):
    """A GRU that keeps its state from call to call."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(8)
        self.cell = LAYERS.GRUCell(16)
        self.cell.build((1, 5))
        self.h = tf.Variable(tf.zeros((1, 16)))

    @tf.function(input_signature=[tf.TensorSpec((1, 5), tf.float32, "x")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        _, (h,) = self.cell(x, [self.h])
        self.h.assign(h)
        return h


@pytest.mark.parametrize("scheme", ["int8", "int4-weights"])
def test_streaming_cells(scheme: str, tmp_path: Path) -> None:
    """The test program runs the cell several times."""
    stream = Stream()
    made = tfbridge.aot.compile(
        stream.__call__,
        name="cell",
        out_dir=tmp_path,
        quantize=scheme,
        calibration={"x": floats(64, 5)},
        extras=["test"],
    )
    assert made.quantization[0].results[0].signal_to_noise > (30 if scheme == "int8" else 14)
    program = tmp_path / "program"
    command = ["cc", "-O1", str(made.extra_files[0]), str(made.object_file), "-lm", "-o", str(program)]
    subprocess.run(command, check=True)
    subprocess.run([str(program)], check=True)


def test_states_are_not_rounded() -> None:
    """Steps smaller than those of the 8 bits with which the product reads the state add up."""
    weights = tf.constant(np.eye(2, dtype=np.float32))

    def slow(x: tf.Tensor) -> tf.Tensor:
        def step(number: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return number + 1, state + 1e-3 + 0.0 * (state @ weights)

        return tf.while_loop(lambda number, _: number < 100, step, (0, x))[1]

    x = RNG.uniform(-1, 1, (8, 1, 2)).astype(np.float32)
    function = tfbridge.aot.quantize(slow, tf.TensorSpec((1, 2)), calibration=[[a] for a in x])
    np.testing.assert_allclose(function(x[0]), x[0] + 0.1, atol=1e-4)
