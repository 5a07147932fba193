"""Weights of 4 bits: the error that their scales allow, odd sizes, convolutions, exports, refusals."""

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
from tfbridge.compiler.ops.block_scaled_dot import packed, unpacked
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.quantization.options import QuantizationOptions
from tfbridge.compiler.quantization.quantize import quantize
from tfbridge.compiler.quantization.weights import quantize_blocks

RNG = np.random.default_rng(5)


def floats(*dims: int) -> np.ndarray:
    return RNG.normal(size=dims).astype(np.float32)


@pytest.mark.parametrize("columns", [1, 2, 7, 32])
def test_two_to_a_byte(columns: int) -> None:
    integers = RNG.integers(-8, 8, (5, columns)).astype(np.int8)
    stored = packed(integers)
    assert stored.shape == (5, (columns + 1) // 2) and stored.dtype == np.int8
    np.testing.assert_array_equal(unpacked(stored, columns), integers)
    ours, _, _ = keras.quantizers.pack_int4(tf.constant(integers), axis=-1)
    np.testing.assert_array_equal(stored, ours)


def test_no_block_is_worse_than_with_the_largest_weight_as_its_scale() -> None:
    weights = floats(70, 9) * np.exp(floats(70, 9))
    weights[:, 3] = 0
    integers, scales = quantize_blocks(weights, 16)
    assert integers.min() >= -8 and integers.max() <= 7 and scales.shape == (5, 9)
    for block in range(5):
        rows = slice(16 * block, 16 * block + 16)
        largest = np.abs(weights[rows]).max(0)
        error = ((integers[rows] * scales[block] - weights[rows]) ** 2).sum(0)
        rounded = np.rint(weights[rows] / np.maximum(largest / 7, 1e-30)) * largest / 7
        assert (error <= ((rounded - weights[rows]) ** 2).sum(0) * (1 + 1e-4) + 1e-12).all()


SIZES = [
    (1, 64, 32, 64),
    (1, 65, 33, 64),
    (1, 3, 1, 64),
    (1, 7, 5, 3),
    (3, 130, 70, 32),
    (2, 100, 10, 1),
    (64, 33, 129, 8),
    (5, 40, 12, 1000),
]


@pytest.mark.parametrize("m, k, n, size", SIZES)
def test_error_is_that_of_the_format(m: int, k: int, n: int, size: int) -> None:
    """Half a step for each weight, a step being at most a seventh of the largest one of its block."""
    weights, bias, x = floats(k, n), floats(n), floats(m, k)
    function = tfbridge.aot.quantize(
        lambda x: tf.nn.relu(x @ weights + bias),
        tf.TensorSpec((m, k)),
        quantize="int4-weights",
        block_size=size,
    )
    bound = np.zeros((m, n))
    for low in range(0, k, size):
        rows = slice(low, low + size)
        norm = np.linalg.norm(x[:, rows], axis=1, keepdims=True)
        bound += norm * np.sqrt(min(size, k - low)) * np.abs(weights[rows]).max(0) / 14
    error = np.abs(np.asarray(function(x)) - np.maximum(x @ weights + bias, 0))
    assert (error <= bound * (1 + 1e-4) + 1e-4).all()


@pytest.mark.parametrize("m, k, n, size", SIZES)
def test_same_numbers_as_the_evaluator(m: int, k: int, n: int, size: int) -> None:
    weights, x = floats(k, n), floats(m, k)
    frozen = freeze(lambda x: tf.tanh(x @ weights), (tf.TensorSpec((m, k)),), "serving_default", {})
    options = QuantizationOptions("int4-weights", block_size=size)
    module, _ = quantize(frozen.functions[0].module, [], native(), options)
    (compiled,) = native().compile(module, DEFAULT_OPTIONS).execute([x])
    (reference,) = evaluate(module, [x])
    np.testing.assert_allclose(compiled, reference, rtol=1e-4, atol=1e-5)


def test_layers_of_all_kinds() -> None:
    """Dense layers and convolutions of single elements have 4 bits, other convolutions 8."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((9, 9, 8)),
            layers.Conv2D(33, 1, activation="relu"),
            layers.Conv2D(16, 1, strides=2),
            layers.Conv2D(16, 3, padding="same"),
            layers.DepthwiseConv2D(3),
            layers.Reshape((9, 16)),
            layers.EinsumDense("abc,cd->abd", (None, 24), bias_axes="d"),
            layers.Dense(5),
        ]
    )
    x = floats(8, 2, 9, 9, 8)
    spec = tf.TensorSpec((2, 9, 9, 8))
    function = tfbridge.aot.quantize(
        model, spec, quantize="int4-weights", calibration=[[a] for a in x], block_size=8
    )
    assert [layer.weights_type for layer in function.report.layers] == ["s4", "s8", "s8", "s8", "s4", "s4"]
    for layer in function.report.layers:
        assert layer.signal_to_noise is not None and layer.signal_to_noise > 15
    found, wanted = np.asarray(function(x[0])), model(x[0]).numpy()
    assert 0 < np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean()) < 0.2


@pytest.mark.parametrize("columns, size", [(24, 8), (33, 8), (7, 64), (1, 1)])
@pytest.mark.parametrize("scheme, levels", [("int4-weights", 14), ("int8-weights", 254), ("float16", 2048)])
def test_tables(columns: int, size: int, scheme: str, levels: int, tmp_path: Path) -> None:
    """Rows are gathered as they are stored."""
    table = floats(300, columns)
    numbers = RNG.integers(0, 300, (2, 5)).astype(np.int32)
    spec, options = tf.TensorSpec((2, 5), tf.int32), {"quantize": scheme, "block_size": size}
    function = tfbridge.aot.quantize(lambda x: tf.gather(table, x), spec, **options)
    (layer,) = function.report.layers
    assert layer.kind == "embedding"
    error = np.abs(np.asarray(function(numbers)) - table[numbers])
    largest = np.abs(table[numbers]).max(-1, keepdims=True)
    # A smaller scale than that of the largest element rounds this one, as far as it is better for the others.
    assert (error <= largest / levels * (np.sqrt(min(size, columns)) if levels == 14 else 1) + 1e-6).all()
    options |= {"name": "table", "out_dir": tmp_path, "large_constants": "file"}
    made = tfbridge.aot.compile(lambda x: tf.gather(table, x), spec, **options)
    assert made.temp_bytes < 4096
    bits = {"int4-weights": 4 + 32 / min(size, columns), "int8-weights": 8 + 32 / columns, "float16": 16}[
        scheme
    ]
    assert made.constants_bytes <= 300 * (columns * bits / 8 + 4.5) + 1024


def test_size_of_an_export(tmp_path: Path) -> None:
    weights = floats(256, 300)
    bytes_ = {}
    for scheme, options in {"f32": {}, "int4": {"quantize": "int4-weights", "block_size": 64}}.items():
        made = tfbridge.aot.compile(
            lambda x: x @ weights,
            tf.TensorSpec((1, 256)),
            name="dense",
            out_dir=tmp_path / scheme,
            large_constants="file",
            extras=["test"],
            **options,
        )
        bytes_[scheme] = made.constants_bytes
        assert made.temp_bytes < 4096  # the weights are never there in f32
        program = tmp_path / scheme / "test"
        command = ["cc", "-O1", str(made.extra_files[0]), str(made.object_file), "-lm", "-o", str(program)]
        subprocess.run(command, check=True, cwd=tmp_path / scheme)
        subprocess.run([str(program)], check=True, cwd=tmp_path / scheme)
    assert bytes_["int4"] <= bytes_["f32"] * (1 / 8 + 1 / 64) + 128


def test_refusals() -> None:
    weights = floats(8, 3)

    def refused(match: str, **options: object) -> None:
        with pytest.raises(ValueError, match=match):
            tfbridge.aot.quantize(lambda x: x @ weights, tf.TensorSpec((1, 8)), **options)

    refused("block_size: 0 rows", quantize="int4-weights", block_size=0)
    refused("block_size: -4 rows", quantize="int4-weights", block_size=-4)
    refused("'int4' is none of int8, int8-weights, int4-weights", quantize="int4")
