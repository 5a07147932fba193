"""The suite `aot`: exported models beside LiteRT, on one thread, in f32 and in 8-bit integers.

Every row has a process of its own. The exported object is linked to a shared library with the system's C compiler; it
and LiteRT's interpreter (with XNNPACK) take turns, a call each, on the same input, which is set beforehand. Weights are
random, with statistics of normalisations that keep values in range; both sides quantise with the same samples, or, in
the kinds `f32.tflite` and `int8.tflite`, what LiteRT runs is exported. Where the exported code is for a processor
without AVX-512, LiteRT takes its kernels for one, too.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tfbridge
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ...bridge.tf_internals.symbols import with_constant_variables
from ...compiler.client.platforms import native
from ...runtime.llvm.target import host
from .litert_kernels import hide_avx512
from .output import publish
from .worker import limit_threads

KINDS = ("f32", "int8")
FILE_KINDS = {f"{kind}.tflite": kind for kind in KINDS}
"""Kinds of LiteRT's file that are exported in the place of the Keras model."""
SAMPLES = 16
SECONDS = 8.0
_AVX512_BYTES = 64
_WRAPPER = """
#include "model.h"
static model_model model;
static char memory[MODEL_MEMORY_BYTES];
void start(void) { model_init(&model, memory); }
int run(void) { return model_run(&model); }
void *argument(void) { return model_arg0(&model); }
const void *result(void) { return model_result0(&model); }
"""


def _application(name: str, size: int, **options: object) -> Callable[[], keras.Model]:
    build = getattr(keras.applications, name)
    return lambda: build(input_shape=(size, size, 3), weights=None, **options)


def _keyword_spotter() -> keras.Model:
    """The depthwise-separable network of MLPerf Tiny: 49 frames of 10 features, 12 words."""
    layers = keras.layers

    def activated(x: tf.Tensor) -> tf.Tensor:
        return layers.ReLU()(layers.BatchNormalization()(x))

    inputs = keras.Input((49, 10, 1))
    x = activated(layers.Conv2D(64, (10, 4), strides=2, padding="same")(inputs))
    for _ in range(4):
        x = activated(layers.DepthwiseConv2D(3, padding="same")(x))
        x = activated(layers.Conv2D(64, 1)(x))
    return keras.Model(inputs, layers.Dense(12, "softmax")(layers.GlobalAveragePooling2D()(x)))


def _lstm() -> keras.Model:
    """Two layers of 128 units over 49 frames of 40 features."""
    inputs = keras.Input((49, 40))
    x = keras.layers.LSTM(128, return_sequences=True)(inputs)
    return keras.Model(inputs, keras.layers.Dense(12)(keras.layers.LSTM(128)(x)))


def _transformer() -> keras.Model:
    """Two layers of an encoder of width 128 with 4 heads, over 64 positions."""
    layers = keras.layers
    inputs = x = keras.Input((64, 128))
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 32)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        wide = layers.Dense(128)(layers.Dense(512, "gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, wide]))
    return keras.Model(inputs, x)


MODELS: dict[str, Callable[[], keras.Model]] = {
    "mobilenet_v2_96": _application("MobileNetV2", 96),
    "mobilenet_v2_224": _application("MobileNetV2", 224),
    "mobilenet_v3_small": _application("MobileNetV3Small", 224, include_preprocessing=False),
    "efficientnet_b0": _application("EfficientNetB0", 224),
    "resnet50": _application("ResNet50", 224),
    "keyword_spotter": _keyword_spotter,
    "lstm": _lstm,
    "transformer": _transformer,
}
QUICK = ("keyword_spotter", "transformer")


@dataclasses.dataclass
class Row:
    """A measured row. microseconds: least and median of a call, by engine. decibels: signal to noise of the results,
    TensorFlow's of f32 being the signal, by engine.

    Units: object_bytes with weights, code_bytes of the .text section; temp_bytes of a run; file_bytes of LiteRT's
    model; seconds of the export; peak_megabytes of memory that the process took up to its end.
    """

    model: str
    kind: str
    microseconds: dict[str, tuple[float, float]]
    decibels: dict[str, float]
    object_bytes: int
    code_bytes: int
    temp_bytes: int
    file_bytes: int
    export_seconds: float
    peak_megabytes: float

    @property
    def ratio(self) -> float | None:
        """tfbridge's time in that of LiteRT; None where LiteRT does not run the model."""
        theirs = self.microseconds.get("litert")
        return self.microseconds["tfbridge"][0] / theirs[0] if theirs else None


@dataclasses.dataclass
class _Engine:
    """A model made ready: `run` computes, `result` is what it computed."""

    run: Callable[[], object]
    result: Callable[[], np.ndarray]


def build_model(name: str) -> tuple[keras.Model, np.ndarray]:
    """A model, and samples of its input: (SAMPLES, 1, ...)."""
    keras.utils.set_random_seed(1)
    random, model = np.random.default_rng(0), MODELS[name]()
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            shape = layer.moving_mean.shape
            scales = [random.uniform(0.8, 1.2, shape) for _ in range(2)]
            shifts = [random.normal(0, 0.1, shape) for _ in range(2)]
            layer.set_weights([scales[0], shifts[0], shifts[1], scales[1]][-len(layer.weights) :])
    return model, random.normal(size=(SAMPLES, 1, *model.input_shape[1:])).astype(np.float32)


def measure(name: str, kind: str, cpu: str, seconds: float, is_alone: bool = False) -> Row:
    """One row; the engines take turns. `is_alone`: without LiteRT, as where it cannot be kept to the processor's
    instructions."""
    model, samples = build_model(name)
    expected = np.asarray(model(samples[0]))
    content = _converted(model, samples, FILE_KINDS[kind]) if kind in FILE_KINDS else b""
    with tempfile.TemporaryDirectory() as folder:
        exported: list[object] = [model, tf.TensorSpec(samples.shape[1:])]
        if kind in FILE_KINDS:
            file = Path(folder) / "converted.tflite"
            file.write_bytes(content)
            exported = [file]
        start = time.perf_counter()
        options: dict[str, Any] = {"target_cpu": cpu} if cpu else {}
        if kind == "int8":
            options |= {"quantize": kind, "calibration": [[sample] for sample in samples]}
        compiled = tfbridge.aot.compile(*exported, name="model", out_dir=folder, **options)
        export_seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        engines = {"tfbridge": _linked(Path(folder), samples[0], expected.shape)}
        code_bytes = _code_bytes(compiled.object_file)
    is_alone = is_alone or not _is_litert_limited(cpu)
    if not is_alone:
        content = content or _converted(model, samples, kind)
        engines["litert"] = _interpreter(content, samples[0])
    times = {engine: list[float]() for engine in engines}
    for each in engines.values():
        each.run()
    decibels = {engine: _decibels(expected, each.result()) for engine, each in engines.items()}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for engine, each in engines.items():
            begin = time.perf_counter()
            each.run()
            times[engine].append(1e6 * (time.perf_counter() - begin))
    return Row(
        name,
        kind,
        {engine: (min(t), statistics.median(t)) for engine, t in times.items()},
        decibels,
        compiled.object_bytes,
        code_bytes,
        compiled.temp_bytes,
        0 if is_alone else len(content),
        export_seconds,
        peak,
    )


def _is_litert_limited(cpu: str) -> bool:
    """Makes LiteRT take no instructions that the exported code does not: of AVX-512 that is. False if it cannot."""
    here = host()
    lower = cpu and native().named_target(here.triple, cpu).vector_bytes < _AVX512_BYTES <= here.vector_bytes
    return not lower or hide_avx512()


def _linked(folder: Path, sample: np.ndarray, result_dims: Sequence[int]) -> _Engine:
    """The exported object in a shared library."""
    (folder / "wrapper.c").write_text(_WRAPPER)
    command = ["cc", "-O2", "-shared", "-fPIC", "wrapper.c", "model.o", "-lm", "-o", "model.so"]
    subprocess.run(command, check=True, cwd=folder)
    library = ctypes.CDLL(str(folder / "model.so"))
    library.argument.restype = library.result.restype = ctypes.c_void_p
    library.start()
    ctypes.memmove(library.argument(), sample.ctypes.data, sample.nbytes)
    count = int(np.prod(result_dims))

    def result() -> np.ndarray:
        floats = ctypes.cast(library.result(), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(floats, (count,)).reshape(result_dims).copy()

    return _Engine(library.run, result)


def _code_bytes(object_file: Path) -> int:
    """Bytes of the sections of code, as `size` of the system's tools tells; 0 without it."""
    if shutil.which("size") is None:
        return 0
    printed = subprocess.run(["size", "-A", str(object_file)], capture_output=True, text=True, check=True)
    lines = (line.split() for line in printed.stdout.splitlines())
    return sum(int(words[1]) for words in lines if words and words[0].startswith(".text"))


def _converted(model: keras.Model, samples: np.ndarray, kind: str) -> bytes:
    """LiteRT's model; of integers that computes in them and takes and returns f32."""
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(
        tf.TensorSpec(samples.shape[1:], tf.float32)
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions([with_constant_variables(function)])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if kind == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([sample] for sample in samples)
    content: bytes = converter.convert()
    return content


def _interpreter(content: bytes, sample: np.ndarray) -> _Engine:
    interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
    output = interpreter.get_output_details()[0]["index"]
    return _Engine(interpreter.invoke, lambda: interpreter.get_tensor(output))


def _decibels(expected: np.ndarray, result: np.ndarray) -> float:
    noise = float(((result.reshape(expected.shape) - expected) ** 2).mean())
    return 10 * float(np.log10((expected**2).mean() / noise)) if noise else 300.0


def _in_process(name: str, kind: str, cpu: str, seconds: float, is_alone: bool = False) -> Row:
    """A row from a process of its own; without LiteRT where its converter or interpreter ends the process."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tfbridge.models.bench.aot_suite", name, kind, cpu, str(seconds)]
    command += ["alone"] if is_alone else []
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode and not is_alone:
        return _in_process(name, kind, cpu, seconds, True)
    if done.returncode:
        raise RuntimeError(f"{name}, {kind}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main(
    names: Sequence[str],
    kinds: Sequence[str],
    cpu: str,
    as_json: bool,
    save: Path | None,
    quick: bool = False,
) -> int:
    """Measures and prints models of these names (none: all, with `quick` two) and kinds; 1 if results differ."""
    if shutil.which("cc") is None:
        print(
            "the suite aot links what it measures with the system's C compiler; there is no cc",
            file=sys.stderr,
        )
        return 2
    cases = [(kind, name) for kind in kinds for name in names or (QUICK if quick else MODELS)]
    console, seconds = Console(stderr=True), 1.0 if quick else SECONDS
    rows = [
        _in_process(name, kind, cpu, seconds)
        for kind, name in track(cases, "exported models", console=console, transient=True)
    ]
    report = [dataclasses.asdict(row) | {"ratio": row.ratio} for row in rows]
    publish(report, lambda: _print_table(rows), as_json, save)
    return int(not all(map(_is_right, rows)))


def _is_right(row: Row) -> bool:
    """Whether results are near TensorFlow's; of a file's integers it suffices that they are as near as LiteRT's."""
    least = 80.0 if row.kind.startswith("f32") else 15.0
    if row.kind in FILE_KINDS:
        least = min(least, row.decibels["litert"] - 3)
    return row.decibels["tfbridge"] > least


def _print_table(rows: list[Row]) -> None:
    table = Table(
        "kind",
        "model",
        "tfbridge us",
        "LiteRT us",
        "in LiteRT's",
        "dB",
        "LiteRT dB",
        "object\nkB",
        "of it code",
        "LiteRT\nfile kB",
        "temporary\nkB",
        "export s",
        "peak MB",
        title="exported models, one thread; least of many calls",
    )
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind]
        for row in own:
            theirs = row.microseconds.get("litert")
            sizes = (row.object_bytes, row.code_bytes, row.file_bytes, row.temp_bytes)
            table.add_row(
                kind,
                row.model,
                f"{row.microseconds['tfbridge'][0]:,.0f}",
                f"{theirs[0]:,.0f}" if theirs else "-",
                f"{row.ratio:.2f}" if row.ratio else "-",
                *(f"{row.decibels[e]:.0f}" if e in row.decibels else "-" for e in ("tfbridge", "litert")),
                *(f"{size / 1000:,.0f}" for size in sizes),
                f"{row.export_seconds:.1f}",
                f"{row.peak_megabytes:,.0f}",
            )
        if ratios := [row.ratio for row in own if row.ratio is not None]:
            mean = f"{statistics.geometric_mean(ratios):.2f}"
            table.add_row("", "geometric mean", "", "", mean, *[""] * 8)
        table.add_section()
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)


if __name__ == "__main__":
    limit_threads(1)
    asked_name, asked_kind, asked_cpu, asked_seconds, *rest = sys.argv[1:]
    row_here = measure(asked_name, asked_kind, asked_cpu, float(asked_seconds), bool(rest))
    print(json.dumps(dataclasses.asdict(row_here)))
