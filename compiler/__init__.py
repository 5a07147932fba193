"""The compiler: tensor IR in, machine code out; knows nothing of TensorFlow.

The names below are loaded when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import ComputationBuilder, Operand
    from .client import Executable, LocalClient
    from .communication import CommunicationError, register_custom_call, unregister_custom_call
    from .errors import (
        BudgetError,
        CompilerError,
        InternalError,
        LimitError,
        ParseError,
        ShapeError,
        UnsupportedError,
    )
    from .evaluator import evaluate
    from .global_data import GlobalData
    from .hlo_text import parse_hlo
    from .ir import Computation, Instruction, Metadata, Module
    from .layout import Layout, PaddingValue
    from .limits import DEFAULT_LIMITS, Limits
    from .literal import Literal
    from .ops import ConvolutionDims, Window
    from .options import Options
    from .passes.pipeline import run_pipeline
    from .shape import TOKEN, Shape, array
    from .types import ElementType
    from .verifier import verify

_PLACES = {
    "builder": ("ComputationBuilder", "Operand"),
    "client": ("Executable", "LocalClient"),
    "communication": ("CommunicationError", "register_custom_call", "unregister_custom_call"),
    "errors": ("BudgetError", "CompilerError", "InternalError", "LimitError", "ParseError", "ShapeError",
               "UnsupportedError"),
    "evaluator": ("evaluate",),
    "global_data": ("GlobalData",),
    "hlo_text": ("parse_hlo",),
    "ir": ("Computation", "Instruction", "Metadata", "Module"),
    "layout": ("Layout", "PaddingValue"),
    "limits": ("DEFAULT_LIMITS", "Limits"),
    "literal": ("Literal",),
    "ops": ("ConvolutionDims", "Window"),
    "options": ("Options",),
    "passes.pipeline": ("run_pipeline",),
    "shape": ("TOKEN", "Shape", "array"),
    "types": ("ElementType",),
    "verifier": ("verify",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "DEFAULT_LIMITS",
    "TOKEN",
    "BudgetError",
    "CommunicationError",
    "CompilerError",
    "Computation",
    "ComputationBuilder",
    "ConvolutionDims",
    "ElementType",
    "Executable",
    "GlobalData",
    "Instruction",
    "InternalError",
    "Layout",
    "LimitError",
    "Limits",
    "Literal",
    "LocalClient",
    "Metadata",
    "Module",
    "Operand",
    "Options",
    "PaddingValue",
    "ParseError",
    "Shape",
    "ShapeError",
    "UnsupportedError",
    "Window",
    "array",
    "evaluate",
    "parse_hlo",
    "register_custom_call",
    "run_pipeline",
    "unregister_custom_call",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
