"""The kernel libraries for matrix multiplication and convolution: one per compute type, compiled once per machine."""

from __future__ import annotations

from ..errors import UnsupportedError
from .convolution_kernels import write_convolution, write_gradient
from .emit_object import emit_object
from .gemm_elements import sources
from .gemm_kernels import vector_counts, write_gemm
from .gemm_packing import write_packing
from .gemv import write_gemv
from .llvm_text import ModuleText
from .target import Target

LIBRARIES = ("gemm_f32", "gemm_f64", "gemm_i32", "gemm_i64", "conv_f32", "conv_f64", "conv_i32", "conv_i64")


def emit_library(target: Target, name: str) -> ModuleText:
    """One of LIBRARIES: all functions of a compute type, exported.

    Raises: UnsupportedError  no such library.
    """
    if name not in LIBRARIES:
        raise UnsupportedError(f"no kernel library {name!r}; there are {', '.join(LIBRARIES)}")
    kind, compute = name.split("_")
    module = ModuleText(target)
    if kind == "conv":
        for vectors in vector_counts(compute):
            write_convolution(module, target, compute, vectors, "")
            write_gradient(module, target, compute, vectors, "")
        return module
    for vectors in vector_counts(compute):
        write_gemm(module, target, compute, vectors, "")
        for element in sources(compute):
            write_packing(module, target, element, compute, vectors, "")
    if compute.startswith("f"):
        write_gemv(module, target, compute, "")
    return module


def build_library(target: Target, name: str) -> tuple[bytes, tuple[str, ...]]:
    """(object file, exported names) of one of LIBRARIES.

    Raises: UnsupportedError  no such library.
    """
    module = emit_library(target, name)
    exports = tuple(f for f, text in module.functions.items() if not text.startswith("define internal"))
    return emit_object(module.text(), target), exports
