"""Where a node comes from: the user's file and line, and the text of the errors and reports that show it."""

from __future__ import annotations

import os
from collections.abc import Callable

import keras
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ..tf_internals.types import ConcreteFunction

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(p)) + os.sep for p in (tf.__file__, keras.__file__ or tf.__file__)
)
_OUR_LAYERS = tuple(os.path.join(_OURS, layer) + os.sep for layer in ("bridge", "compiler", "runtime"))


def place(operation: tf.Operation) -> tuple[str, int]:
    """File and line of the innermost frame that made an operation, outside TensorFlow, Keras and tfbridge."""
    for frame in reversed(list(operation.traceback or ())):
        if not frame.filename.startswith(_LIBRARIES) and not frame.filename.startswith(_OUR_LAYERS):
            return frame.filename, frame.lineno
    return "", 0


def finder(graph: tf.Graph) -> Callable[[str], tuple[str, int]]:
    """A function from node names of a live graph to file and line; unknown names give ("", 0)."""

    def find(name: str) -> tuple[str, int]:
        try:
            return place(graph.get_operation_by_name(name))
        except (KeyError, ValueError):
            return "", 0

    return find


def located(concrete: ConcreteFunction, error: UnsupportedError) -> list[str]:
    """The lines of an error, each about one op of a concrete function, with the source line of that op."""
    find = finder(concrete.graph)
    lines = []
    for line in str(error).splitlines():
        file, number = find(line.split(" ", 1)[0])
        lines.append(f"  {line}" + (f"\n    at {file}:{number}" if file else ""))
    return lines


def strict_message(name: str, concrete: ConcreteFunction, error: UnsupportedError) -> str:
    """The error of a strict function: every op that does not compile, with source line and reason."""
    return "\n".join(
        [
            f"{name}: strict=True, and these ops cannot be compiled:",
            *located(concrete, error),
            "Take them out of the function, or leave strict off: they then run in TensorFlow.",
        ]
    )
