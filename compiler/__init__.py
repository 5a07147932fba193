"""The compiler: tensor IR in, machine code out; knows nothing of TensorFlow.

The names below are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .builder.computation_builder import ComputationBuilder, Operand
    from .client.client import LocalClient
    from .client.communication_checks import CommunicationError, register_custom_call, unregister_custom_call
    from .client.executable import Executable
    from .client.global_data import GlobalData
    from .errors import (
        BudgetError,
        CompilerError,
        InternalError,
        LimitError,
        ParseError,
        ShapeError,
        UnsupportedError,
    )
    from .evaluator.evaluate import evaluate
    from .hlo_text.parser import parse_hlo
    from .ir.element_types import ElementType
    from .ir.layout import Layout, PaddingValue
    from .ir.literal import Literal
    from .ir.module import Computation, Instruction, Metadata, Module
    from .ir.shape import TOKEN, Shape, array
    from .ir.verifier import verify
    from .limits import DEFAULT_LIMITS, Limits
    from .ops import ConvolutionDims, Window
    from .options import Options
    from .passes.pipeline import run_pipeline
    from .stablehlo_text.parser import parse_stablehlo

_MODULES = {
    "builder.computation_builder": ("ComputationBuilder", "Operand"),
    "client.client": ("LocalClient",),
    "client.executable": ("Executable",),
    "client.communication_checks": ("CommunicationError", "register_custom_call", "unregister_custom_call"),
    "errors": (
        "BudgetError",
        "CompilerError",
        "InternalError",
        "LimitError",
        "ParseError",
        "ShapeError",
        "UnsupportedError",
    ),
    "evaluator.evaluate": ("evaluate",),
    "client.global_data": ("GlobalData",),
    "hlo_text.parser": ("parse_hlo",),
    "stablehlo_text.parser": ("parse_stablehlo",),
    "ir.module": ("Computation", "Instruction", "Metadata", "Module"),
    "ir.layout": ("Layout", "PaddingValue"),
    "limits": ("DEFAULT_LIMITS", "Limits"),
    "ir.literal": ("Literal",),
    "ops": ("ConvolutionDims", "Window"),
    "options": ("Options",),
    "passes.pipeline": ("run_pipeline",),
    "ir.shape": ("TOKEN", "Shape", "array"),
    "ir.element_types": ("ElementType",),
    "ir.verifier": ("verify",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

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
    "parse_stablehlo",
    "register_custom_call",
    "run_pipeline",
    "unregister_custom_call",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULE_OF[name]}", __name__)
    if name == "Module":
        importlib.import_module(".hlo_text.printer", __name__)  # `str` of a module is HLO text
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
