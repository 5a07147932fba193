"""The functions of the kernel libraries for dots and convolutions: one library per compute type.

Each of their functions is compiled once per machine, when code first calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ..convolution.microkernel import (
    convolution_name,
    convolution_sweep_name,
    rows_of,
    write_convolution,
    write_convolution_sweep,
    write_gradient,
    write_gradient_sweep,
)
from ..gemm.compute_types import COMPUTE_TYPES, STORED, packed_sources, sources
from ..gemm.driver import gemm_name, write_gemm
from ..gemm.gemv import gemv_name, write_gemv
from ..gemm.microkernel import max_rows, microkernel_name, vector_counts, widths, write_microkernel
from ..gemm.packing import panels_name, rows_name, write_packing, write_panels, write_rows
from ..gemm.tail_copy import tail_copy_name, write_tail_copy
from .object_emitter import emit_object
from .split_module import references, split_module

LIBRARIES = tuple(f"{kind}_{compute}" for kind in ("gemm", "conv") for compute in COMPUTE_TYPES)

_FUNCTION = re.compile(
    r"tfb_(gemm|copy|rows|panels|columns|gemv|wgemv|conv|convt)(_[a-z0-9]+)?_([fi](?:32|64)|[su][78][su][78])(?:_(\d|n|t))?"
    r"(?:_(\d)x(\d+))?"
)


def library_of(function: str) -> str:
    """The library that a function is in.

    Raises: KeyError  no library has such a function.
    """
    match = _FUNCTION.fullmatch(function)
    if match is None:
        raise KeyError(function)
    return f"{'conv' if match[1].startswith('conv') else 'gemm'}_{match[3]}"


def common_functions(target: Target) -> Iterator[str]:
    """The functions that most dots and convolutions of f32 call, the most frequent first."""
    compute, element = "f32", ElementType.F32
    counts = sorted(vector_counts(compute), reverse=True)
    yield tail_copy_name(compute)
    for vectors in counts:
        yield gemm_name(compute, vectors)
        yield panels_name(element, compute, vectors, True)
    for vectors in counts:  # blocks of many rows are cut into tiles almost as high as can be
        most = max_rows(target, compute, vectors)
        for height in range(most, most * 3 // 4, -1):
            yield from (
                microkernel_name(compute, width, height) for width in reversed(widths(target, vectors))
            )
    yield from (gemv_name(element, element, compute, transposed) for transposed in (False, True))
    yield rows_name(element, compute)
    for vectors in counts[:2]:
        yield convolution_name(compute, vectors)
        yield convolution_sweep_name(compute, vectors, vectors, rows_of(target, compute, vectors))


def emit_function(target: Target, function: str) -> tuple[str, tuple[str, ...]]:
    """(text of a module that exports one function of a library, library functions that it calls).

    Raises: KeyError  no library has such a function.
    """
    library_of(function)
    match = _FUNCTION.fullmatch(function)
    assert match is not None
    kind, source, compute, variant, width, height = match.groups()
    module = ModuleText(target)
    vectors = int(variant) if variant and variant.isdigit() else vector_counts(compute)[0]
    if vectors not in vector_counts(compute):
        raise KeyError(function)
    if height:
        for panel in (vectors,) if variant else vector_counts(compute):
            for tile, write in _microkernels(target, kind, compute, panel):
                if tile == (int(width), int(height)):
                    write(module, "internal")
    elif kind == "gemm":
        write_gemm(module, target, compute, vectors, "internal")
    elif kind in ("gemv", "wgemv"):
        weights = _source(source, compute)
        element = weights if kind == "gemv" else STORED[compute]
        write_gemv(module, target, element, weights, compute, variant == "t", "internal")
    elif kind == "conv":
        write_convolution(module, target, compute, vectors, "internal")
    elif kind == "convt":
        write_gradient(module, target, compute, vectors, "internal")
    elif kind == "copy":
        write_tail_copy(module, target, compute, "internal")
    elif kind == "rows":
        write_rows(module, target, _source(source, compute), compute, "internal")
    elif kind in ("panels", "columns"):
        write_panels(module, target, _source(source, compute), compute, vectors, kind == "panels", "internal")
    if not module.has(function):
        raise KeyError(function)
    others = {name for name in module.functions if name != function and _FUNCTION.fullmatch(name)}
    called = tuple(name for name in references(module, [function], others) if name in others)
    return split_module(module, [function], others), called


def _microkernels(
    target: Target, kind: str, compute: str, vectors: int
) -> Iterator[tuple[tuple[int, int], Callable[[ModuleText, str], None]]]:
    """The micro-kernels of a driver, `gemm`, `conv` or `convt`, for panels of so many vectors: (width in vectors,
    height) of their tiles, and what writes them into a module with some linkage."""
    for mr in range(1, (max_rows if kind == "gemm" else rows_of)(target, compute, vectors) + 1):
        for width in (vectors,) if kind == "convt" else widths(target, vectors):
            yield (width, mr), partial(_write_microkernel, target, kind, compute, vectors, width, mr)


def _write_microkernel(
    target: Target,
    kind: str,
    compute: str,
    vectors: int,
    width: int,
    mr: int,
    module: ModuleText,
    linkage: str,
) -> None:
    if kind == "conv":
        write_convolution_sweep(module, target, compute, vectors, width, mr, linkage)
    elif kind == "convt":
        write_gradient_sweep(module, target, compute, vectors, mr, linkage)
    elif kind == "gemm":
        write_microkernel(module, target, compute, width, mr, linkage)


def _source(part: str | None, compute: str) -> ElementType:
    """The element type that a function's name gives; without one, that of the sums.

    Raises: KeyError  the compute type has no such source.
    """
    suffix = f"_{STORED[compute].value}" if part is None else part
    for element in packed_sources(compute):
        if f"_{element.value}" == suffix:
            return element
    raise KeyError(suffix)


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
            for _, write in (
                *_microkernels(target, kind, compute, vectors),
                *_microkernels(target, "convt", compute, vectors),
            ):
                write(module, "")
        return module
    for vectors in vector_counts(compute):
        write_gemm(module, target, compute, vectors, "")
        for _, write in _microkernels(target, kind, compute, vectors):
            write(module, "")
        for element in packed_sources(compute):
            write_packing(module, target, element, compute, vectors, "")
    pairs = [(element, element) for element in sources(compute)]
    if compute == "f32":
        pairs += [(STORED[compute], e) for e in packed_sources(compute) if e is not STORED[compute]]
    for element, weights in pairs:
        for transposed in (False, True):
            write_gemv(module, target, element, weights, compute, transposed, "")
    return module


def build_library(target: Target, name: str) -> tuple[bytes, tuple[str, ...]]:
    """(object file, exported names) of one of LIBRARIES.

    Raises: UnsupportedError  no such library.
    """
    module = emit_library(target, name)
    exports = tuple(f for f, text in module.functions.items() if not text.startswith("define internal"))
    return emit_object(module.text(), target), exports
