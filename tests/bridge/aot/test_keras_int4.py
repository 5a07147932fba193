"""Layers that Keras has quantised to four bits: as accurate as in TensorFlow, and their weights stay packed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from keras.quantizers import Int4QuantizationConfig

RNG = np.random.default_rng(2)
LAYERS = {
    "dense": lambda: keras.layers.Dense(301, activation="relu"),
    "einsum": lambda: keras.layers.EinsumDense("abc,cd->abd", (None, 320), bias_axes="d"),
    "einsum-of-two-axes": lambda: keras.layers.EinsumDense("abc,cde->abde", (None, 8, 40)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("block_size", [-1, 32, 100, 128])
@pytest.mark.parametrize("rows", [1, 7])
def test_layers(name: str, block_size: int, rows: int, tmp_path: Path) -> None:
    keras.utils.set_random_seed(6)
    model = keras.Sequential([keras.Input((rows, 256)), LAYERS[name]()])
    model.quantize("int4", config=Int4QuantizationConfig(block_size=block_size))
    x = RNG.normal(size=(1, rows, 256)).astype(np.float32)
    wanted = model(x).numpy()
    np.testing.assert_allclose(tfbridge.jit(lambda x: model(x), strict=True)(x), wanted, rtol=1e-4, atol=1e-4)

    spec, options = tf.TensorSpec(x.shape), {"large_constants": "file", "extras": ["test"]}
    made = tfbridge.aot.compile(model, spec, name="layer", out_dir=tmp_path, **options)
    scales = 5 * 320 * (1 if block_size < 0 else -(-256 // block_size))
    assert made.constants_bytes < 256 * 160 + scales + 4096
    assert made.temp_bytes < 16 * 320 * rows + 8192
    program = tmp_path / "program"
    command = ["cc", "-O1", str(made.extra_files[0]), str(made.object_file), "-lm", "-o", str(program)]
    subprocess.run(command, check=True, cwd=tmp_path)
    subprocess.run([str(program)], check=True, cwd=tmp_path)


def test_rows_of_blocks_in_any_order() -> None:
    """As GPTQ leaves them: neighbours are of different blocks."""
    keras.utils.set_random_seed(6)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(33)])
    model.quantize("int4", config=Int4QuantizationConfig(block_size=16))
    layer = model.layers[-1]
    layer.g_idx.assign(RNG.permutation(layer.g_idx.numpy()))
    x = RNG.normal(size=(3, 64)).astype(np.float32)
    wanted = model(x).numpy()
    np.testing.assert_allclose(tfbridge.jit(lambda x: model(x), strict=True)(x), wanted, rtol=1e-4, atol=1e-4)
