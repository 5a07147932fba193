"""The engines that the benchmark compares: how each turns a plain function into one that is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tfbridge

Function = Callable[..., Any]
_FACE = tfbridge.jit, tfbridge.enable_auto_clustering  # loads the bridge now: first calls are measured without imports


def tensorflow(function: Function) -> Function:
    """TensorFlow's own executor."""
    return tf.function(function)


def xla(function: Function) -> Function:
    """XLA, as TensorFlow ships it."""
    return tf.function(function, jit_compile=True)


def decorated(function: Function) -> Function:
    """tfbridge, through its decorator."""
    return tfbridge.jit(function)


def clustered(function: Function) -> Function:
    """tfbridge, through auto-clustering of an ordinary tf.function."""
    tfbridge.enable_auto_clustering()
    return tf.function(function)


ENGINES: dict[str, Callable[[Function], Function]] = {
    "tf": tensorflow,
    "xla": xla,
    "tfbridge": decorated,
    "tfbridge-auto": clustered,
}
