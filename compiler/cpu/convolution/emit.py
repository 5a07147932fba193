"""Convolution: from an instruction to a kernel in a module."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...ir.shape import Shape
from ...ops import Convolution
from ..codegen.kernel_info import KernelPlan
from ..gemm.emit import GemmProblem, emit_gemm
from .backward_weights import emit_gradient
from .depthwise import emit_depthwise
from .implicit_gemm import axes_of, emit_convolution_gemm, features_before_positions
from .naive import write_simple_convolution
from .problem import ConvolutionProblem, convolution_problem
from .small_output_channels import emit_few_outputs

CLOCK_GHZ = 3.0  # assumed for estimates of time
TASK_US = 20.0
ROWS_OF_IMAGE = 128  # that every image has at least where each is a matrix product of its own


def convolution_view(product: Instruction) -> tuple[int, int, int]:
    """The result as [batch, rows, columns], whole axes each, as the epilogue sees it.

    With the features last, everything else is rows, but for the images of a batch where each is a matrix product; with
    the positions behind the features, they are the columns.
    """
    op, dims = product.op, product.shape.dims
    assert isinstance(op, Convolution)
    last = len(dims) - 1
    matrices = (
        _as_gemm(convolution_problem(product, product.shape.element_type)) if product.shape.elements else None
    )
    if matrices is not None and matrices.batch:
        return matrices.batch[0], matrices.m, matrices.n
    if math.prod(dims[op.dims.output_feature + 1 :]) == 1:
        return 1, math.prod(dims[: op.dims.output_feature]), dims[op.dims.output_feature]
    problem = convolution_problem(product, product.shape.element_type)
    if features_before_positions(problem):
        return problem.batch, problem.groups * problem.outputs, problem.positions
    return 1, math.prod(dims[:last]), dims[last]


def emit_convolution(
    module: ModuleText,
    target: Target,
    product: Instruction,
    raw: Shape,
    epilogue: str | None,
    b_packed: bool = False,
) -> KernelPlan:
    """Writes the kernel of a convolution whose sums are stored as `raw`.

    Its buffers are input, kernel, result, scratch and those of the epilogue. With `b_packed` the kernel comes as
    `packable` says.
    `epilogue` names a function with EPILOGUE_PARAMETERS, called once for every part of the view when it is stored.
    Raises: UnsupportedError  element types that no kernel computes.
    """
    op = product.op
    assert isinstance(op, Convolution)
    problem = convolution_problem(product, raw.element_type)
    view = convolution_view(product)
    moved = sum(o.shape.bytes for o in product.operands) + raw.bytes
    product_of_rows = _as_gemm(problem) if raw.elements else None
    if product_of_rows is not None:
        return emit_gemm(module, target, product_of_rows, epilogue, b_packed)
    if b_packed:
        packed = emit_convolution_gemm(module, target, problem, moved, epilogue, True)
        assert packed is not None
        return packed
    for emit in (emit_depthwise, emit_gradient, emit_few_outputs, emit_convolution_gemm):
        plan = emit(module, target, problem, moved, epilogue) if raw.elements else None
        if plan is not None:
            return plan
    names: list[int | str] = [0] * raw.rank
    names[op.dims.output_batch], names[op.dims.output_feature] = "batch", "feature"
    for number, axis in enumerate(op.dims.output_spatial):
        names[axis] = number
    symbol = write_simple_convolution(module, target, problem, list(zip(raw.dims, names)), view, epilogue)
    tasks = view[0] * view[1] if view[2] else 0
    microseconds = problem.flops / (CLOCK_GHZ * 1e3)
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    return KernelPlan(symbol, tasks, grain, tasks > 1 and microseconds > 2 * TASK_US, 0, problem.flops, moved)


def packable(
    product: Instruction, result_type: ElementType, target: Target
) -> GemmProblem | ConvolutionProblem | None:
    """What takes a convolution's kernel packed beforehand: a matrix product (packed_b_layout), or a convolution as one
    (packed_kernel); None where another form computes it."""
    if not product.shape.elements:
        return None
    problem = convolution_problem(product, result_type)
    matrices = _as_gemm(problem)
    if matrices is not None:
        return matrices
    if (
        problem.groups > 1
        or problem.outputs <= target.lanes(result_type.bits)
        or (problem.input_batch == 1 and problem.input_feature != 1)
    ):
        return None
    return problem


def _as_gemm(problem: ConvolutionProblem) -> GemmProblem | None:
    """The matrix product that a convolution is where its window has one element, or sees a run of the input: one
    product, or one for each image."""
    axes = axes_of(problem)
    if (
        problem.groups > 1
        or problem.kernel_offset
        or problem.output_feature != 1
        or problem.kernel_type is not problem.input_type
        or any(a.has_border or a.pad for a in axes)
    ):
        return None
    rows, k = 1, 1
    batch: tuple[int, ...] = ()
    batch_stride = 0
    row_stride = next(
        (a.input_stride * a.stride for a in reversed(axes) if a.output > 1), problem.input_batch
    )
    for a in reversed(axes):
        stride = a.input_stride * a.stride
        if a.output > 1 and stride == row_stride * rows and (a.window == 1 or rows == 1):
            rows *= a.output
        elif a.output > 1 and a is axes[0] and a.window == 1 and rows >= ROWS_OF_IMAGE:
            batch, batch_stride = (a.output,), stride
        elif a.output > 1:
            return None
    # What is summed: (size, stride in the input, stride in the kernel), the nearest first.
    summed = sorted(
        (
            (problem.inputs, problem.input_feature, problem.kernel_input),
            *((a.window, a.input_stride * a.window_dilation, a.kernel_stride) for a in problem.axes),
        ),
        key=lambda s: s[1],
    )
    summed = [s for s in summed if s[0] != 1] or [(1, 1, 1)]
    _, near, near_kernel = summed[0]
    for size, stride, kernel_stride in summed:
        if (stride, kernel_stride) != (near * k, near_kernel * k):
            return None
        k *= size
    return GemmProblem(
        problem.input_type,
        problem.result_type,
        batch,
        rows,
        problem.outputs,
        k,
        (*(batch and (batch_stride,)), row_stride, near),
        (*(batch and (0,)), near_kernel, problem.kernel_output),
        (*(batch and (rows * problem.outputs,)), problem.outputs, 1),
    )


__all__ = ["convolution_view", "emit_convolution", "packable"]
