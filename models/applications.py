"""Image models of keras.applications, one of each family: inference and a training step, with TensorFlow and compiled.

`python -m tfbridge.models.applications [NAME ...]` prints for each model, at a small input size: the largest error of
the results against plain TensorFlow's, what TensorFlow's own results change by when the input changes in its last
bits (deep networks with batch statistics magnify rounding), and the share of ops and of flops inside clusters.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from .. import disable_auto_clustering, enable_auto_clustering, reset_stats, stats
from ..bridge import auto
from .program import Array, Program, tensors

# The smallest sides that the applications take, or a little more.
SIDES = {"VGG16": 32, "MobileNetV2": 64, "MobileNetV3Small": 64, "ResNet50": 64, "EfficientNetB0": 64,
         "ConvNeXtTiny": 64, "DenseNet121": 64, "Xception": 71, "InceptionV3": 75, "NASNetMobile": 64}
_SHARE = 0.95  # of ops and flops inside clusters, at least
_ERROR = 1e-4  # of the largest magnitude of a result; or
_NOISE = 8.0  # that many times what the input's last bits change


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One program of one model, run both ways.

    `error` and `noise` are relative to the largest magnitude of each result, `ops` and `flops` shares inside clusters.
    """

    model: str
    program: str
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
        return self.error <= max(_ERROR, _NOISE * self.noise)

    @property
    def is_compiled(self) -> bool:
        """Whether nearly all of it ran in compiled code."""
        return min(self.ops, self.flops) >= _SHARE and not self.fallbacks

    def __str__(self) -> str:
        text = (f"{self.model:18}{self.program:11}{self.error:9.1e}{self.noise:9.1e}{self.ops:9.1%}{self.flops:9.1%}"
                f"{self.clusters:9}{self.fallbacks:10}{self.compile_seconds:9.1f}"
                f"  {'equal' if self.is_right else 'DIFFERENT'}{'' if self.is_compiled else ', NOT COMPILED'}")
        return "\n".join([text, *(f"    left out: {reason}" for reason in self.left_out)])


HEADER = (f"{'model':18}{'program':11}{'error':>9}{'noise':>9}{'ops':>9}{'flops':>9}{'clusters':>9}{'fallbacks':>10}"
          f"{'compile s':>9}")


def inference(name: str, batch: int = 2, classes: int = 10) -> Program:
    """Inference of `keras.applications.<name>` on random images."""
    model, images = _model(name, batch, classes)
    return Program(lambda x: model(x, training=False), [images], tensors(model.variables))


def training(name: str, batch: int = 4, classes: int = 10) -> Program:
    """One step of gradient descent; returns the loss and the changes of all weights."""
    model, images = _model(name, batch, classes)
    labels = np.arange(batch) % classes
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = cross_entropy(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_weights)
        for weight, gradient in zip(model.trainable_weights, gradients):
            weight.assign_sub(0.01 * gradient)
        return [loss, *gradients]

    return Program(step, [images, labels], tensors(model.variables), tensors(model.non_trainable_weights))


def _model(name: str, batch: int, classes: int) -> tuple[keras.Model, Array]:
    keras.utils.set_random_seed(1)
    side = SIDES[name]
    model = getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=classes,
                                              classifier_activation=None)
    images = np.random.default_rng(1).standard_normal((batch, side, side, 3), dtype=np.float32)
    return model, images


def compare(name: str, make: Callable[[str], Program]) -> Outcome:
    """Runs a program of a model with TensorFlow, and under auto-clustering."""
    program = make(name)
    initial = program.state()
    plain = tf.function(program.function)
    wanted = program.run(plain)
    flops = _flops(plain.get_concrete_function(*program.inputs).graph)
    program.restore(initial)
    nudged = [np.nextafter(x, np.float32(9)) if x.dtype == np.float32 else x for x in program.arrays]
    noise = _error(program.run(plain, inputs=[tf.constant(x) for x in nudged]), wanted)
    program.restore(initial)
    reset_stats()
    before = set(map(id, auto.reports()))
    enable_auto_clustering()
    try:
        start = time.perf_counter()
        found = program.run(tf.function(program.function))
        seconds = time.perf_counter() - start
    finally:
        disable_auto_clustering()
    reports = [r for r in auto.reports() if id(r) not in before]
    inside = sum(c.op_count for r in reports for c in r.clusters)
    left = {n: f"{op} {n}: {why}" for r in reports for n, (op, why) in r.left_out.items()}
    outside = sum(flops.get(n, 0) for n in left)
    return Outcome(name, make.__name__, _error(found, wanted), noise, inside / max(inside + len(left), 1),
                   1 - outside / max(sum(flops.values()), 1), sum(len(r.clusters) for r in reports),
                   stats()["fallbacks"], seconds, tuple(left.values())[:8])


def _flops(graph: tf.Graph) -> dict[str, int]:
    """What TensorFlow's profiler counts for every node of a graph."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    found: dict[str, int] = {}

    def visit(node: object) -> None:
        found[node.name] = node.float_ops  # type: ignore[attr-defined]
        for child in node.children:  # type: ignore[attr-defined]
            visit(child)

    for child in profile.children:
        visit(child)
    return {name: count for name, count in found.items() if count}


def _error(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference, relative to the largest magnitude of each array but at least a millionth of all."""
    floor = 1e-6 * max(float(np.abs(w).max(initial=0)) for w in wanted)
    return max(float(np.abs(f.astype("f8") - w).max(initial=0)) / max(float(np.abs(w).max(initial=0)), floor, 1e-30)
               for f, w in zip(found, wanted, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a result differs, or less than nearly all is compiled."""
    parser = argparse.ArgumentParser(prog="python -m tfbridge.models.applications", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(SIDES)}")
    names = parser.parse_args(arguments).names or list(SIDES)
    unknown = sorted(set(names) - SIDES.keys())
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(SIDES)}")
    print(HEADER)
    right = True
    for name in names:
        for make in (inference, training):
            outcome = compare(name, make)
            right &= outcome.is_right and outcome.is_compiled
            print(outcome, flush=True)
        keras.backend.clear_session()
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
