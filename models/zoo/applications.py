"""Image models of keras.applications, one of each family: inference and a training step, with TensorFlow and compiled.

`python -m tfbridge.models.zoo.applications [NAME ...]` prints for each model, at a small input size: the largest error
of the results against plain TensorFlow's, what TensorFlow's own results change by when images and weights change in
their last bits, and the share of ops and of flops inside clusters. Deep networks with the statistics of small batches
magnify rounding, so a step of training is compared in float64 as well: there nothing wrong hides behind rounding.

`python -m tfbridge.models.zoo.applications --document docs/applications.md [NAME ...]` makes the document's rows anew.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ... import disable_auto_clustering, enable_auto_clustering, options, reset_stats, stats
from ...bridge.clustering.reports import recent_reports
from ..program import Array, Program, tensors

# The smallest sides that the applications take, or a little more.
SIDES = {
    "VGG16": 32,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "ResNet50": 64,
    "EfficientNetB0": 64,
    "ConvNeXtTiny": 64,
    "DenseNet121": 64,
    "Xception": 71,
    "InceptionV3": 75,
    "NASNetMobile": 64,
}
_SHARE = 0.95  # of ops and flops inside clusters, at least
_ERROR = {"float32": 1e-4, "float64": 1e-12}  # of the largest magnitude of a result; or
_NOISE = 8.0  # that many times what the last bits of images and weights change; but
_VISIBLE = 1e-3  # what they change in the double precision of a model must be less: else nothing was compared
_NUDGES = 2

Make = Callable[..., Program]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One program of one model, run both ways.

    `error` and `noise` are relative to the largest magnitude of each result, `ops` and `flops` shares inside clusters.
    """

    model: str
    program: str
    dtype: str
    error: float
    noise: float
    ops: float
    flops: float
    clusters: int
    fallbacks: int
    compile_seconds: float
    left_out: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the results are TensorFlow's, up to rounding."""
        seen = self.dtype != "float64" or self.noise < _VISIBLE
        return seen and self.error <= max(_ERROR[self.dtype], _NOISE * self.noise)

    @property
    def is_compiled(self) -> bool:
        """Whether nearly all of it ran in compiled code."""
        return min(self.ops, self.flops) >= _SHARE and not self.fallbacks

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        verdict = ("equal" if self.is_right else "DIFFERENT") + ("" if self.is_compiled else ", NOT COMPILED")
        return (
            self.model,
            self.program,
            self.dtype,
            f"{self.error:.1e}",
            f"{self.noise:.1e}",
            f"{self.ops:.1%}",
            f"{self.flops:.1%}",
            str(self.clusters),
            str(self.fallbacks),
            f"{self.compile_seconds:.1f}",
            verdict,
        )

    def __str__(self) -> str:
        return "\n".join([_aligned(self.cells), *(f"    left out: {reason}" for reason in self.left_out)])


COLUMNS = (
    "model",
    "program",
    "type",
    "error",
    "rounding",
    "ops",
    "flops",
    "clusters",
    "fallbacks",
    "first call s",
    "results",
)


def _aligned(cells: Sequence[str]) -> str:
    return (
        "".join(f"{cell:{width}}" for cell, width in zip(cells, (18, 11, 9)))
        + "".join(f"{cell:>{len(title) + 4}}" for cell, title in zip(cells[3:-1], COLUMNS[3:-1]))
        + f"  {cells[-1]}"
    )


def inference(name: str, dtype: str = "float32", batch: int = 2, classes: int = 10) -> Program:
    """Inference of `keras.applications.<name>` on random images."""
    model, images = _model(name, dtype, batch, classes)
    return Program(lambda x: model(x, training=False), [images], tensors(model.variables))


def training(name: str, dtype: str = "float32", batch: int = 4, classes: int = 10) -> Program:
    """One step of gradient descent; returns the loss and all gradients, and updates all weights."""
    model, images = _model(name, dtype, batch, classes)
    labels = np.arange(batch) % classes
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype=dtype)

    def step(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = cross_entropy(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_weights)
        for weight, gradient in zip(model.trainable_weights, gradients):
            weight.assign_sub(tf.cast(0.01, dtype) * gradient)
        return [loss, *gradients]

    return Program(step, [images, labels], tensors(model.variables), tensors(model.variables))


PROGRAMS: tuple[tuple[Make, str], ...] = (
    (inference, "float32"),
    (training, "float32"),
    (training, "float64"),
)


def _model(name: str, dtype: str, batch: int, classes: int) -> tuple[keras.Model, Array]:
    keras.utils.set_random_seed(1)
    side = SIDES[name]
    with _floats(dtype):
        model = getattr(keras.applications, name)(
            weights=None, input_shape=(side, side, 3), classes=classes, classifier_activation=None
        )
    images = np.random.default_rng(1).standard_normal((batch, side, side, 3))
    return model, images.astype(dtype)


@contextlib.contextmanager
def _floats(dtype: str) -> Iterator[None]:
    """Layers made inside compute in this type."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)


def compare(name: str, make: Make, dtype: str = "float32") -> Outcome:
    """Runs a program of a model with TensorFlow, and under auto-clustering."""
    program = make(name, dtype)
    initial = program.state()
    plain = tf.function(program.function)
    expected = program.run(plain)
    flops = _flops(plain.get_concrete_function(*program.inputs).graph)
    noise = _noise(program, plain, initial, expected)
    program.restore(initial)
    reset_stats()
    before = recent_reports()
    enable_auto_clustering()
    try:
        start = time.perf_counter()
        with options(compile="foreground"):
            results = program.run(tf.function(program.function))
        seconds = time.perf_counter() - start
    finally:
        disable_auto_clustering()
    reports = recent_reports(before)
    inside = sum(c.op_count for r in reports for c in r.clusters)
    left = {n: f"{op} {n}: {why}" for r in reports for n, (op, why) in r.unclustered.items()}
    outside = sum(flops.get(n, 0) for n in left)
    return Outcome(
        name,
        make.__name__,
        dtype,
        _error(results, expected),
        noise,
        inside / max(inside + len(left), 1),
        1 - outside / max(sum(flops.values()), 1),
        sum(len(r.clusters) for r in reports),
        stats()["fallbacks"],
        seconds,
        tuple(left.values())[:8],
    )


def _noise(
    program: Program, plain: Callable[..., object], initial: Sequence[Array], expected: Sequence[Array]
) -> float:
    """The largest error of TensorFlow's own results for images and weights that differ in their last bits."""
    random = np.random.default_rng(2)

    def nudged(value: Array) -> Array:
        if value.dtype.kind != "f":
            return value
        return (value * (1 + np.finfo(value.dtype).eps * random.choice((-1, 0, 1), value.shape))).astype(
            value.dtype
        )

    noise = 0.0
    for _ in range(_NUDGES):
        program.restore([nudged(value) for value in initial])
        noise = max(
            noise,
            _error(program.run(plain, inputs=[tf.constant(nudged(x)) for x in program.arrays]), expected),
        )
    return noise


def _flops(graph: tf.Graph) -> dict[str, int]:
    """What TensorFlow's profiler counts for every node of a graph."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    flops: dict[str, int] = {}

    def visit(node: tf.compat.v1.profiler.GraphNodeProto) -> None:
        flops[node.name] = node.float_ops
        for child in node.children:
            visit(child)

    for child in profile.children:
        visit(child)
    return {name: count for name, count in flops.items() if count}


def _error(results: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference, relative to the largest magnitude of each array but at least a millionth of all.

    Infinite where one is not finite.
    """
    floor = 1e-6 * max(float(np.abs(w).max(initial=0)) for w in expected)
    errors = [
        float(np.abs(f.astype("f8") - w).max(initial=0)) / max(float(np.abs(w).max(initial=0)), floor, 1e-30)
        for f, w in zip(results, expected, strict=True)
    ]
    return float(np.max(np.nan_to_num(errors, nan=np.inf)))


Told = tuple[
    tuple[str, ...], tuple[str, ...]
]  # what the document has of an outcome: its row, the ops left out


def document(entries: Iterable[Told]) -> str:
    """The document of these outcomes, in the order of `SIDES` and `PROGRAMS`."""
    rows_of = ((name, make.__name__, dtype) for name, (make, dtype) in product(SIDES, PROGRAMS))
    order: dict[tuple[str, ...], int] = {row: k for k, row in enumerate(rows_of)}
    entries = sorted(entries, key=lambda one: order[one[0][:3]])
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(cells for cells, _ in entries)]
    lines = [
        _HEADER,
        "",
        *("| " + " | ".join(cells) + " |" for cells in rows),
        "",
        "## Ops that TensorFlow runs",
        "",
    ]
    lines += [
        f"* {', '.join(cells[:3])}: {reason}" for cells, left_out in entries for reason in left_out
    ] or ["None."]
    return "\n".join(lines) + "\n"


def read_document(text: str) -> list[Told]:
    """What the document tells."""
    rows = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)[2:]
    left_out = re.findall(r"^\* (\w+), (\w+), (\w+): (.+)$", text, re.MULTILINE)
    return [
        (cells, tuple(reason for *key, reason in left_out if tuple(key) == cells[:3]))
        for cells in (tuple(row.split(" | ")) for row in rows)
    ]


_HEADER = """<!-- Made by python -m tfbridge.models.zoo.applications --document docs/applications.md -->
# Models of keras.applications

One model of each family of `keras.applications`, with random weights: inference of two images and one step of
gradient descent on four, under auto-clustering and with plain TensorFlow. The images are as small as the models take
them. `python -m tfbridge.models.zoo.applications [NAME ...]` prints the same table; it ends with an error when a result
differs, or when less than 95 % of the ops or of the flops are compiled.

* *error*: the largest difference from TensorFlow's results (the predictions; the loss, all gradients and all updated
  variables), relative to the largest magnitude in each array.
* *rounding*: how far TensorFlow's own results move, measured the same way, when images and weights change in their last
  bits. An error may be 8 times that. Deep networks with batch statistics of few images magnify rounding until float32
  gradients tell little, and a relu or a maximum that is nearly undecided falls either way; the step in float64, where
  the same magnification starts from 1e-16, is what shows that every op is right.
* *ops*, *flops*: the share inside clusters; flops as TensorFlow's profiler counts them.
* *first call*: tracing and compiling with an empty cache in memory, on a machine that did other work as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a result differs, or less than nearly all is compiled."""
    parser = argparse.ArgumentParser(prog="python -m tfbridge.models.zoo.applications", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(SIDES)}")
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="replace the rows of these models in it"
    )
    options = parser.parse_args(arguments)
    names = options.names or list(SIDES)
    unknown = sorted(set(names) - SIDES.keys())
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(SIDES)}")
    print(_aligned(COLUMNS))
    outcomes = []
    for name in names:
        for make, dtype in PROGRAMS:
            outcomes.append(compare(name, make, dtype))
            print(outcomes[-1], flush=True)
            keras.backend.clear_session()
    if options.document is not None:
        before = read_document(options.document.read_text()) if options.document.exists() else []
        kept = [one for one in before if one[0][0] not in names]
        options.document.write_text(document([*kept, *((o.cells, o.left_out) for o in outcomes)]))
    return int(not all(o.is_right and o.is_compiled for o in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
