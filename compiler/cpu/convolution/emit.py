"""Convolution: from an instruction to a kernel in a module."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate, is_symbolic
from ...analysis.convolution_problem import (
    as_gemm,
    convolution_problem,
    plain_problem,
)
from ...analysis.output_view import convolution_view
from ...ir.module import Instruction
from ...ir.shape import Shape
from ...ops import Convolution
from ..codegen.kernel_info import NO_SLICES, KernelInfo, Slices
from ..gemm.emit import emit_gemm
from ..gemm.tasks import CLOCK_GHZ, TASK_US, symbolic_grain
from ..gemm.tile_end import TileEnd
from .backward_weights import emit_backward_weights
from .byte_windows import emit_byte_windows
from .depthwise import emit_depthwise
from .implicit_gemm import emit_convolution_gemm
from .naive import write_naive_convolution
from .small_output_channels import emit_small_output_channels


def emit_convolution(
    module: ModuleText,
    target: Target,
    convolution: Instruction,
    raw: Shape,
    epilogue: str | None,
    b_packed: bool = False,
    keeps_result: bool = True,
    end: TileEnd | None = None,
    slices: Slices = NO_SLICES,
) -> KernelInfo:
    """Writes the kernel of a convolution whose sums are stored as `raw`, or kept for the epilogue alone.

    Its buffers are input, kernel, result, scratch and those of the epilogue. With `b_packed` the kernel comes as
    `packable` says (blocking.py). `epilogue` names a function with EPILOGUE_PARAMETERS, called once for every part of
    the view when it is stored. `end`: as emit_gemm has it, of a convolution that is a product. `slices`: as in
    KernelVariant.
    Raises: UnsupportedError  element types that no kernel computes.
    """
    problem = convolution_problem(convolution, raw.element_type)
    bytes_ = sum(o.shape.bytes for o in convolution.operands) + raw.bytes
    if not raw.elements:
        return _emit_naive(module, target, convolution, raw, bytes_, epilogue)
    gemm = as_gemm(problem)
    if gemm is not None:
        return emit_gemm(
            module,
            target,
            gemm,
            epilogue,
            b_packed,
            keeps_result=keeps_result,
            end=end,
            slices=slices,
        )
    if b_packed:
        packed = emit_convolution_gemm(module, target, problem, bytes_, epilogue, True, keeps_result, slices)
        assert packed is not None
        return packed
    for emit_windowed in (emit_byte_windows, emit_depthwise):
        windowed = emit_windowed(module, target, problem, bytes_, epilogue, keeps_result)
        if windowed is not None:
            return windowed
    for emit in (emit_backward_weights, emit_small_output_channels):
        plan = emit(module, target, problem, bytes_, epilogue)
        if plan is not None:
            return plan
    by_rows = emit_convolution_gemm(module, target, problem, bytes_, epilogue, slices=slices)
    return by_rows or _emit_naive(module, target, convolution, raw, bytes_, epilogue)


def _emit_naive(
    module: ModuleText,
    target: Target,
    convolution: Instruction,
    raw: Shape,
    bytes_: int,
    epilogue: str | None,
) -> KernelInfo:
    """Writes the kernel for any order of axes, and for results without elements."""
    op, problem = convolution.op, plain_problem(convolution, raw.element_type)
    assert isinstance(op, Convolution)
    meanings: list[int | str] = [0] * raw.rank
    meanings[op.dims.output_batch], meanings[op.dims.output_feature] = "batch", "feature"
    for number, axis in enumerate(op.dims.output_spatial):
        meanings[axis] = number
    view = convolution_view(convolution)
    dims = list(zip(raw.dims, meanings))
    symbol = module.define(
        "convolution", write_naive_convolution(module, target, problem, dims, view, epilogue)
    )
    tasks = view[0] * view[1] if view[2] else 0
    microseconds = estimate(problem.flops) / (CLOCK_GHZ * 1e3)
    if is_symbolic([tasks, problem.flops]):
        grain, is_parallel = symbolic_grain(problem.flops, tasks, microseconds), True
    else:
        grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
        is_parallel = tasks > 1 and microseconds > 2 * TASK_US
    return KernelInfo(symbol, tasks, grain, is_parallel, 0, problem.flops, bytes_)
