"""Ahead-of-time compilation: a TensorFlow function becomes an object and a header for programs without TensorFlow.

The names are loaded when first asked for, so that the command can say how it is used without loading TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import compile
    from .quantization import quantize_function as quantize
    from .writers.files import Compiled

__all__ = ["Compiled", "compile", "quantize"]
_HOMES = {
    "Compiled": (".writers.files", "Compiled"),
    "compile": (".build", "compile"),
    "quantize": (".quantization", "quantize_function"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module, __name__), attribute)
