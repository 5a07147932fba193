"""Kernels of matrix products and convolutions: compiled with the library functions that they call, and run."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import numpy as np
from guarded import guarded_copy
from tfbridge.compiler.analysis.gemm_problem import gemm_problem
from tfbridge.compiler.analysis.output_view import output_view
from tfbridge.compiler.cpu.codegen.kernel_info import KernelInfo
from tfbridge.compiler.cpu.convolution.emit import emit_convolution
from tfbridge.compiler.cpu.gemm.emit import emit_gemm
from tfbridge.compiler.cpu.loops.epilogue import EPILOGUE_PARAMETERS
from tfbridge.compiler.cpu.objects.library_functions import emit_library, library_of
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.compiler.ir.module import Instruction, make
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import Convolution, Dot, Parameter
from tfbridge.runtime.code import linker
from tfbridge.runtime.llvm.addressing import Int, Ptr
from tfbridge.runtime.llvm.ir_builder import Function, ModuleText
from tfbridge.runtime.llvm.target import Target, host
from tfbridge.runtime.run_context import RunContext

TARGET = host(2)
_TASK_ID = 1  # of all tasks: they use the second part of the scratch memory
_KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
_LIBRARY: dict[str, int] = {}  # the addresses of the library functions loaded so far


@functools.cache
def _load_library(name: str) -> None:
    """Loads a library and keeps it until the process ends."""
    module = emit_library(TARGET, name)
    exports = [f for f, text in module.functions.items() if not text.startswith("define internal")]
    _LIBRARY.update(
        linker.load(emit_object(module.text(), TARGET), exports, imports=_LIBRARY).keep().addresses
    )


def run_kernel(info: KernelInfo, module: ModuleText, arrays: Sequence[np.ndarray], threads: int = 2) -> None:
    """Runs all tasks of a kernel on its two operands and its result, and on the arrays that its epilogue uses.

    Its scratch memory lies between the result and the arrays of the epilogue (buffer 3).
    """
    for name in module.libraries:
        _load_library(library_of(name))
    text = module.text().replace(f"define internal void @{info.symbol}(", f"define void @{info.symbol}(")
    loaded = linker.load(emit_object(text, TARGET), [info.symbol], imports=_LIBRARY)
    kernel = _KERNEL(loaded.addresses[info.symbol])
    scratch, context = np.full(info.scratch_bytes * threads + 64, 0xFF, np.uint8), RunContext()
    addresses = [array.ctypes.data for array in arrays]
    addresses.insert(3, -(-scratch.ctypes.data // 64) * 64)
    buffers = (ctypes.c_void_p * len(addresses))(*addresses)
    for low in range(0, info.tasks, info.grain):
        kernel(ctypes.byref(context), buffers, low, min(low + info.grain, info.tasks), _TASK_ID)


def contraction_of(op: Dot | Convolution, *operands: np.ndarray) -> Instruction:
    """The op on parameters of these types and shapes."""
    shapes = [Shape(element_type_of(x.dtype), x.shape) for x in operands]
    return make(op, *(Instruction(Parameter(k, s), (), s, f"p{k}") for k, s in enumerate(shapes)))


def run_contraction(
    op: Dot | Convolution, lhs: np.ndarray, rhs: np.ndarray, raw: ElementType, target: Target | None = None
) -> np.ndarray:
    """The kernel's result, of the type `raw`; with a target, its code is embedded. Checks that the epilogue sees every
    element once."""
    contraction = contraction_of(op, lhs, rhs)
    module = ModuleText(target or TARGET, embed_libraries=target is not None)
    epilogue = counting_epilogue(module, output_view(contraction))
    if isinstance(op, Dot):
        info = emit_gemm(module, target or TARGET, gemm_problem(contraction, raw), epilogue)
    else:
        raw_shape = contraction.shape.with_type(raw)
        info = emit_convolution(module, target or TARGET, contraction, raw_shape, epilogue)
    result = guarded_copy(np.full(contraction.shape.dims, 77, raw.dtype))
    counts = np.zeros(contraction.shape.dims, np.int32)
    run_kernel(info, module, [guarded_copy(lhs), guarded_copy(rhs), result, counts])
    np.testing.assert_array_equal(counts, 1)
    return result


def widths_of_last_panels(lanes: int) -> tuple[int, ...]:
    """Columns of which panels leave a part: whole vectors, and others."""
    return lanes + 1, 2 * lanes, 3 * lanes, 3 * lanes + 1, 4 * lanes, 4 * lanes + 5, 5 * lanes, 6 * lanes - 1


def counting_epilogue(
    module: ModuleText, view: tuple[int, int, int], update: Callable[[Ptr, Int, Int], None] | None = None
) -> str:
    """The name of an epilogue that adds 1 to the count (i32, in buffer 4) of every element of its block.

    `view`: the result's [batch, rows, columns]. `update(buffers, element, column)` writes what else the epilogue does.
    """
    f = Function(module, "counting", EPILOGUE_PARAMETERS)
    buffers = f.pointer("buffers")
    batch, row_low, row_high, col_low, col_high = f.integers(
        "batch", "row_low", "row_high", "col_low", "col_high"
    )
    with f.loop(row_low, row_high) as rows, f.loop(col_low, col_high) as columns:
        element = (batch * view[1] + rows.index) * view[2] + columns.index
        count = buffers.at(4, "ptr").load_ptr().at(element, "i32")
        count.store(count.load("i32") + 1)
        if update:
            update(buffers, element, columns.index)
    f.ret()
    return module.add("counting", f.text())
