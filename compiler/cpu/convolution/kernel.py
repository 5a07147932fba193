"""The parts that all kernels of convolutions share: buffers, positions along axes, copies of rows, the epilogue."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ....runtime.llvm.ir_builder import Function, Index, Int, Ptr, VectorValue
from ....runtime.llvm.target import Target
from ....runtime.sizes import is_symbolic
from ...analysis.convolution_problem import Axis, ConvolutionProblem, axes_of, phases_of
from ...ir.element_types import ElementType
from ..codegen.kernel_info import KernelInfo
from ..gemm.packing import use_rows
from ..gemm.tasks import PARALLEL_US, TASK_US, symbolic_grain


def buffer(f: Function, number: int) -> Ptr:
    """The address of a buffer of the kernel: input, weights, output, scratch."""
    return f.pointer("buffers").at(number, "ptr").load_ptr()


def scratch_of_thread(f: Function, scratch_bytes: int) -> Ptr:
    """The address of the calling thread's part of the scratch memory."""
    return buffer(f, 3) + f.integer("thread") * scratch_bytes


def positions_along(number: Int, axes: Sequence[Axis]) -> Iterator[tuple[int, Axis, Int]]:
    """(number of the axis, axis, position) from the last axis to the first, for a row-major number of a position."""
    for j in reversed(range(len(axes))):
        position = number % axes[j].output if j else number
        number = number // axes[j].output
        yield j, axes[j], position


def delinearize(number: Int, sizes: Sequence[int]) -> tuple[Int, list[Int]]:
    """(the number divided by all sizes, the index along each) of a row-major number."""
    indices: list[Int] = []
    for size in reversed(sizes):
        indices.insert(0, number % size)
        number = number // size
    return number, indices


def input_position(axis: Axis, dilated: Int) -> tuple[Int, VectorValue | None]:
    """(position, whether it is one) in the input of a position in the input with holes."""
    if axis.base_dilation == 1:
        return dilated, None
    position = dilated.signed_quotient(axis.base_dilation)
    return position, (position * axis.base_dilation).equals(dilated)


def both(a: VectorValue | None, b: VectorValue | None) -> VectorValue | None:
    """Whether both conditions hold; None is a condition that always holds."""
    return a & b if a and b else a or b


def has_dense_rows(problem: ConvolutionProblem) -> bool:
    """Whether the output is [positions, features], row-major and without gaps."""
    if not problem.channels_last or len(phases_of(axes_of(problem), 0)) > 1:
        return False
    step = problem.groups * problem.out_channels
    for a in reversed(axes_of(problem)):
        if a.output != 1 and a.output_stride != step:
            return False
        step *= a.output
    return problem.groups == 1 or problem.output_group == problem.out_channels


def may_have_window(problem: ConvolutionProblem) -> bool:
    """Whether a block of the output may be in a window of the scratch (codegen/result_window.py)."""
    sizes = [problem.groups, problem.out_channels, problem.batch, *(a.output for a in problem.axes)]
    return not is_symbolic(sizes) and has_dense_rows(problem)


def copy_rows(
    f: Function,
    target: Target,
    types: tuple[ElementType, str],
    source: Ptr,
    output: Ptr,
    shape: tuple[Index, Index],
    strides: tuple[Index, Index],
    output_stride: Index,
) -> None:
    """Copies a matrix of this element type to contiguous rows of this compute type. Units: strides in bytes."""
    rows, width = shape
    name = use_rows(f.module, target, *types)
    f.call(name, "void", [source, output, rows, width, *strides, output_stride, width])


def call_epilogue(
    f: Function,
    epilogue: str | None,
    batch: Index,
    rows: tuple[Index, Index],
    columns: tuple[Index, Index],
) -> None:
    """Calls the epilogue, if there is one, for rows and columns [low, high) of its view."""
    if epilogue is not None:
        f.call(epilogue, "void", [f["context"], f["buffers"], batch, *rows, *columns])


def kernel_plan(
    f: Function,
    name: str,
    target: Target,
    problem: ConvolutionProblem,
    tasks: int,
    microseconds: float,
    bytes_: int,
    scratch_bytes: int = 0,
) -> KernelInfo:
    """How to launch a finished kernel that takes so long on one thread and moves so many bytes."""
    if is_symbolic([tasks, problem.flops]):
        grain, parallel = symbolic_grain(problem.flops, tasks, microseconds), target.threads > 1
    else:
        grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
        parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    symbol = f.module.define(name, f)
    return KernelInfo(symbol, tasks, grain, parallel, scratch_bytes, problem.flops, bytes_)
