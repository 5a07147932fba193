"""Post-training quantisation: accuracy of trained models, exports that run, refusals of bad calibration sets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.compiler.errors import ShapeError, UnsupportedError

RNG = np.random.default_rng(3)


def _shapes_dataset(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of a horizontal bar, a vertical bar, a cross or a square, anywhere."""
    images = RNG.normal(0, 0.3, (count, 16, 16, 1)).astype(np.float32)
    labels = RNG.integers(0, 4, count)
    for image, label in zip(images[..., 0], labels):
        y, x = RNG.integers(3, 12, 2)
        if label in (0, 2):
            image[y, x - 3 : x + 4] += 1
        if label in (1, 2):
            image[y - 3 : y + 4, x] += 1
        if label == 3:
            image[y - 2 : y + 3, x - 2 : x + 3] += 1
            image[y - 1 : y + 2, x - 1 : x + 2] -= 1
    return images, labels


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, np.ndarray, np.ndarray]:
    """A network of all kinds of layers, trained for a moment, and images that it has not seen."""
    keras.utils.set_random_seed(2)
    layers, inputs = keras.layers, keras.Input((16, 16, 1))
    x = layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(inputs)
    x = layers.ReLU(6.0)(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    y = layers.Conv2D(16, 1)(x)
    x = layers.Add()([layers.BatchNormalization(momentum=0.9)(layers.Conv2D(16, 3, padding="same")(y)), y])
    x = layers.Activation("swish")(x)
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    outputs = layers.Dense(4)(layers.Dense(30, activation="tanh")(x))
    model = keras.Model(inputs, outputs, name="shapes")
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(*_shapes_dataset(2048), epochs=8, batch_size=64, verbose=0)
    return model, *_shapes_dataset(512)


SPEC = (tf.TensorSpec((64, 16, 16, 1), tf.float32, "images"),)


@pytest.mark.parametrize("method", ["min-max", "percentile", "mse"])
def test_accuracy_of_a_trained_network(
    trained: tuple[keras.Model, np.ndarray, np.ndarray], method: str
) -> None:
    model, images, labels = trained
    function = tfbridge.aot.quantize(
        model, *SPEC, calibration={"images": images[:256]}, calibration_method=method
    )
    assert len(function.report.layers) == 6 and not function.report.kept
    assert {layer.kind for layer in function.report.layers} == {"convolution", "depthwise", "dense"}
    batches = np.split(images, 8)
    found = np.concatenate([np.asarray(function(batch)) for batch in batches])
    wanted = np.concatenate([model(batch).numpy() for batch in batches])
    right = [(values.argmax(1) == labels).mean() for values in (found, wanted)]
    assert right[1] > 0.9 and right[0] > right[1] - 0.01
    error = np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean())
    assert 0 < error < 0.05
    assert all(layer.signal_to_noise > 15 for layer in function.report.layers)


def test_runs_inside_a_tf_function(trained: tuple[keras.Model, np.ndarray, np.ndarray]) -> None:
    model, images, _ = trained
    function = tfbridge.aot.quantize(model, *SPEC, calibration=[[b] for b in np.split(images, 8)])
    inside = tf.function(lambda x: tf.argmax(function(x), 1))(images[:64])
    np.testing.assert_array_equal(inside, np.asarray(function(images[:64])).argmax(1))


def test_layers_that_stay(trained: tuple[keras.Model, np.ndarray, np.ndarray]) -> None:
    model, images, _ = trained
    report = tfbridge.aot.quantize(
        model, *SPEC, calibration={"images": images}, keep_float=("first", "last", "*depthwise*")
    ).report
    assert len(report.layers) == 3 and len(report.kept) == 3
    assert [layer.signal_to_noise for layer in report.worst] == sorted(
        layer.signal_to_noise for layer in report.layers
    )
    assert "dB" in str(report)


def test_export(trained: tuple[keras.Model, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    model, images, _ = trained
    np.savez(tmp_path / "samples.npz", images=images)
    sizes = {}
    for scheme, options in {
        "f32": {},
        "int8": {"quantize": "int8", "calibration": tmp_path / "samples.npz"},
    }.items():
        made = tfbridge.aot.compile(
            model, *SPEC, out_dir=tmp_path / scheme, large_constants="file", extras=["test"], **options
        )
        sizes[scheme] = made.constants_bytes
        (test,) = made.extra_files
        program = tmp_path / scheme / "test"
        command = ["cc", "-O1", str(test), str(made.object_file), "-lm", "-o", str(program)]
        subprocess.run(command, check=True, cwd=tmp_path / scheme)
        subprocess.run([str(program)], check=True, cwd=tmp_path / scheme)
    assert sizes["int8"] < sizes["f32"] / 3
    described = json.loads((tmp_path / "int8" / "shapes.json").read_text())["quantization"]
    assert len(described[0]["layers"]) == 6 and described[0]["results"][0]["same_class"] > 0.98


def test_values_saturate() -> None:
    """What is far outside of the calibration's range becomes the nearest number inside."""
    weights = tf.constant(RNG.normal(size=(8, 3)).astype(np.float32))
    samples = RNG.uniform(-1, 1, (16, 1, 8)).astype(np.float32)
    function = tfbridge.aot.quantize(
        lambda x: x @ weights,
        tf.TensorSpec((1, 8)),
        calibration=[[s] for s in samples],
        calibration_method="min-max",
    )
    far = np.full((1, 8), 1e9, np.float32)
    np.testing.assert_allclose(function(far), np.full((1, 8), samples.max()) @ weights, atol=0.1)
    assert np.isfinite(np.asarray(function(np.full((1, 8), np.nan, np.float32)))).all()


@pytest.mark.parametrize("k", [2, 3, 4, 5, 64])
@pytest.mark.parametrize("low", [-1.0, 0.0, 0.5])
def test_sums_of_every_length(k: int, low: float) -> None:
    weights = tf.constant(RNG.normal(size=(k, 7)).astype(np.float32))
    samples = RNG.uniform(low, 1, (20, 5, k)).astype(np.float32)
    function = tfbridge.aot.quantize(
        lambda x: x @ weights + 2.0, tf.TensorSpec((5, k)), calibration=[[s] for s in samples]
    )
    for sample in samples:
        wanted = sample @ weights.numpy() + 2
        np.testing.assert_allclose(function(sample), wanted, atol=0.02 * np.abs(wanted).max() + 0.01)


@pytest.mark.parametrize(
    "scheme, part, error", [("int8-weights", 0.3, 0.05), ("float16", 0.52, 0.005), ("bfloat16", 0.52, 0.03)]
)
def test_stored_weights(
    trained: tuple[keras.Model, np.ndarray, np.ndarray],
    tmp_path: Path,
    scheme: str,
    part: float,
    error: float,
) -> None:
    model, images, _ = trained
    made = tfbridge.aot.compile(model, *SPEC, out_dir=tmp_path, large_constants="file", quantize=scheme)
    whole = tfbridge.aot.compile(model, *SPEC, out_dir=tmp_path / "f32", large_constants="file")
    assert made.constants_bytes < whole.constants_bytes * part
    assert made.temp_bytes < whole.temp_bytes * 1.1
    assert made.quantization[0].samples == 0 and made.quantization[0].layers[0].signal_to_noise is None
    function = tfbridge.aot.quantize(model, *SPEC, quantize=scheme, calibration={"images": images})
    found, wanted = np.asarray(function(images[:64])), model(images[:64]).numpy()
    assert 0 < np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean()) < error
    assert function.report.worst[0].signal_to_noise > 20


def test_refusals(trained: tuple[keras.Model, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    model, images, _ = trained

    def refused(
        match: str, calibration: object, kind: type[Exception] = ShapeError, **options: object
    ) -> None:
        with pytest.raises(kind, match=match):
            tfbridge.aot.quantize(model, *SPEC, calibration=calibration, **options)

    refused("arrays are named 'pictures'; 'images' are wanted", {"pictures": images})
    refused("images is \\[512, 8\\]; samples of \\[64, 16, 16, 1\\]", {"images": images[:, 0, :8, 0]})
    refused("1 samples; ranges need 4", {"images": images[:64]})
    refused(
        "images of sample 2 has NaN",
        {"images": np.where(np.arange(512)[:, None, None, None] == 130, np.nan, images)},
    )
    refused("'int3' is none of int8, int8-weights", {"images": images}, ValueError, quantize="int3")
    refused("'median' is none of", {"images": images}, ValueError, calibration_method="median")
    refused("none of 6 layers", {"images": images}, keep_float=("*",))
    with pytest.raises(ValueError, match="needs a calibration set"):
        tfbridge.aot.compile(model, *SPEC, out_dir=tmp_path, quantize="int8")


def test_sizes_that_change_are_refused(tmp_path: Path) -> None:
    weights = tf.constant(RNG.normal(size=(8, 3)).astype(np.float32))
    with pytest.raises(UnsupportedError, match="has sizes that change"):
        tfbridge.aot.compile(
            lambda x: x @ weights,
            tf.TensorSpec((None, 8)),
            feeds={"x": "?x8"},
            out_dir=tmp_path,
            quantize="float16",
        )


def _swish_network(moved: bool = False) -> tf.Module:
    """A swish between two layers, and one whose values are the results, as they are or `moved`."""
    module, random = tf.Module(), np.random.default_rng(5)
    first, second = (random.normal(0, 0.3, dims).astype(np.float32) for dims in ((48, 64), (64, 40)))

    def call(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.silu(tf.nn.silu(x @ first) @ second)
        return tf.transpose(tf.reshape(y, (40, 8, 5))) if moved else y

    module.call = tf.function(call)
    return module


def test_expensive_activations_are_tables() -> None:
    samples = [[RNG.normal(size=(40, 48)).astype(np.float32)] for _ in range(8)]
    for moved in (False, True):
        function = _swish_network(moved).call
        quantized = tfbridge.aot.quantize(function, tf.TensorSpec((40, 48)), calibration=samples)
        expected = np.asarray(function(samples[0][0]))
        result = np.asarray(quantized(samples[0][0]))
        noise = ((result - expected) ** 2).mean() / (expected**2).mean()
        assert noise < 10**-3.2  # 32 dB; 8 bits have 40 for each of three roundings
        assert np.unique(result).size > 1000  # results are not rounded


def test_sigmoid_saturates() -> None:
    """The range of what a flat function reads does without its tails; its results keep their extremes."""
    weights = RNG.normal(0, 1, (64, 32)).astype(np.float32)
    function = tf.function(lambda x: tf.reduce_mean(tf.sigmoid(x @ weights), 1))
    samples = [[RNG.normal(size=(64, 64)).astype(np.float32)] for _ in range(4)]
    quantized = tfbridge.aot.quantize(function, tf.TensorSpec((64, 64)), calibration=samples)
    x = samples[1][0]
    result, expected = np.asarray(quantized(x)), np.asarray(function(x))
    assert ((result - expected) ** 2).mean() < 10**-4.5 * (expected**2).mean()
