"""Ahead-of-time compilation: a TensorFlow function becomes an object and a header for programs without TensorFlow.

The names are loaded when first asked for, so that the command can say how it is used without loading TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import Compiled, compile
    from .quantization import quantize_function as quantize

__all__ = ["Compiled", "compile", "quantize"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "quantize":
        from .quantization import quantize_function

        return quantize_function
    from . import build

    return getattr(build, name)
