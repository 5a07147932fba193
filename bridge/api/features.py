"""What this TensorFlow offers tfbridge, in words for people."""

from __future__ import annotations

from ..clustering import rewrite_graph
from ..launch import resource_variables
from ..tf_internals import symbols


def offered() -> list[str]:
    """The features that this TensorFlow has all names for."""
    return [feature for feature in symbols.FEATURES if feature not in _lost()]


def lost() -> list[str]:
    """What does not work, or works in another way, because this TensorFlow lacks names or has other objects."""
    return list(_lost().values())


def _lost() -> dict[str, str]:
    missing = {f: f"{symbols.FEATURES[f]} (missing: {', '.join(n)})" for f, n in symbols.missing().items()}
    if symbols.VARIABLES not in missing and not resource_variables.available():
        missing[symbols.VARIABLES] = symbols.FEATURES[symbols.VARIABLES]
    return missing


def compiles() -> bool:
    """Whether anything can be compiled in this TensorFlow."""
    return symbols.OP not in symbols.missing()


def register_graph_pass() -> None:
    """Registers the graph pass. Raises: TensorFlowMismatch, RuntimeError."""
    rewrite_graph.ensure_registered()
