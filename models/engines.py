"""The engines that the benchmark compares: how each turns a program into something that is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import tensorflow as tf
import tfbridge

from . import inference_engines
from .program import Program

Function = Callable[..., Any]
Start = Callable[[], Function]
_FACE = tfbridge.jit, tfbridge.enable_auto_clustering  # loads the bridge now: first calls are measured without imports


@dataclass(frozen=True)
class Engine:
    """One row: how an engine gets a program ready.

    `prepare(program, threads)` does what a user does ahead of time, such as converting a model to a file; what it
    returns is called once to get the function to be measured, which takes and returns arrays (NumPy's) or tensors.
    `distribution`: the package that must be installed. `training`: it can run programs that update variables.
    """

    prepare: Callable[[Program, int], Start]
    family: Literal["tensorflow", "tfbridge", "inference"]
    arrays: bool = False
    training: bool = True
    distribution: str = "tensorflow"

    @property
    def is_installed(self) -> bool:
        try:
            version(self.distribution)
        except PackageNotFoundError:
            return False
        return True


def _wrapper(wrap: Callable[[Function], Function]) -> Callable[[Program, int], Start]:
    """An engine that wraps the program's function and needs nothing ahead of time."""
    return lambda program, threads: partial(wrap, program.function)


def _clustered(function: Function) -> Function:
    """tfbridge, through auto-clustering of an ordinary tf.function."""
    tfbridge.enable_auto_clustering()
    return tf.function(function)


def _native(function: Function) -> Function:
    """tfbridge, called on NumPy arrays past TensorFlow."""
    return tfbridge.jit(function).native


_INFERENCE = {"family": "inference", "arrays": True, "training": False}
ENGINES: dict[str, Engine] = {
    "tf": Engine(_wrapper(tf.function), "tensorflow"),
    "xla": Engine(_wrapper(partial(tf.function, jit_compile=True)), "tensorflow"),
    "openvino": Engine(inference_engines.openvino, **_INFERENCE, distribution="openvino"),  # type: ignore[arg-type]
    "onnxruntime": Engine(inference_engines.onnxruntime, **_INFERENCE, distribution="tf2onnx"),  # type: ignore[arg-type]
    "litert": Engine(inference_engines.litert, **_INFERENCE, distribution="ai-edge-litert"),  # type: ignore[arg-type]
    "tfbridge": Engine(_wrapper(tfbridge.jit), "tfbridge"),
    "tfbridge-auto": Engine(_wrapper(_clustered), "tfbridge"),
    "tfbridge-native": Engine(_wrapper(_native), "tfbridge", arrays=True, training=False),
}
