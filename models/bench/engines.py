"""The engines that the benchmark compares: how each turns a program into something that is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import tensorflow as tf
import tfbridge

from ..program import Program
from . import inference_engines

Function = Callable[..., Any]
Start = Callable[[], Function]


@dataclass(frozen=True)
class Engine:
    """One row: how an engine gets a program ready.

    `prepare(program, threads)` does what a user does ahead of time, such as converting a model to a file; what it
    returns is called once to get the function to be measured, which takes and returns arrays (NumPy's) or tensors.
    `distribution`: the package that must be installed. `training`: it can run programs that update variables. `uses`:
    the name in tfbridge that it calls.
    """

    prepare: Callable[[Program, int], Start]
    family: Literal["tensorflow", "numpy", "inference", "tfbridge"]
    arrays: bool = False
    training: bool = True
    distribution: str = "tensorflow"
    uses: str = ""

    def load(self) -> None:
        """Imports what the engine needs, and no more: first calls are measured without imports, and without what
        another engine starts to make ready when it is imported."""
        if self.uses:
            getattr(tfbridge, self.uses)

    @property
    def is_installed(self) -> bool:
        try:
            version(self.distribution)
        except PackageNotFoundError:
            return False
        return True


def _wrapper(wrap: Callable[..., Function], **options: object) -> Callable[[Program, int], Start]:
    """An engine that makes a tf.function of the program's function and needs nothing ahead of time."""
    return lambda program, threads: partial(
        wrap, program.function, input_signature=program.signature, **options
    )


def _clustered(function: Function, input_signature: Sequence[tf.TypeSpec] | None) -> Function:
    """tfbridge, through auto-clustering of an ordinary tf.function."""
    tfbridge.enable_auto_clustering()
    return tf.function(function, input_signature=input_signature)


def _jit(function: Function, input_signature: Sequence[tf.TypeSpec] | None) -> Any:
    """tfbridge, which takes a signature as that of a tf.function."""
    if input_signature is not None:
        function = tf.function(function, input_signature=input_signature)
    return tfbridge.jit(function)


def _native(function: Function, input_signature: Sequence[tf.TypeSpec] | None) -> Function:
    """tfbridge, called on NumPy arrays past TensorFlow."""
    return _jit(function, input_signature).native


def _numpy(program: Program, threads: int) -> Start:
    """NumPy, where the program has a form in it."""
    if program.numpy_function is None:
        raise ValueError("the program is not written in NumPy")
    function = program.numpy_function
    return lambda: function


def _inference(prepare: Callable[[Program, int], Start], distribution: str) -> Engine:
    return Engine(prepare, "inference", arrays=True, training=False, distribution=distribution)


ENGINES: dict[str, Engine] = {
    "tf": Engine(_wrapper(tf.function), "tensorflow"),
    "xla": Engine(_wrapper(tf.function, jit_compile=True), "tensorflow"),
    "numpy": Engine(_numpy, "numpy", arrays=True, training=False, distribution="numpy"),
    "openvino": _inference(inference_engines.openvino, "openvino"),
    "onnxruntime": _inference(inference_engines.onnxruntime, "tf2onnx"),
    "litert": _inference(inference_engines.litert, "ai-edge-litert"),
    "tfbridge": Engine(_wrapper(_jit), "tfbridge", uses="jit"),
    "tfbridge-auto": Engine(_wrapper(_clustered), "tfbridge", uses="enable_auto_clustering"),
    "tfbridge-native": Engine(_wrapper(_native), "tfbridge", arrays=True, training=False, uses="jit"),
}
