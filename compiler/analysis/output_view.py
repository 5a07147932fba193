"""The result of a contraction as batch, rows and columns, as its kernel computes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.sizes import estimate
from ..errors import UnsupportedError
from ..ir.element_types import ElementType, accumulator_of
from ..ir.module import Instruction
from ..ops import Convolution, Dot, Reshape, Transpose
from .convolution_problem import as_gemm, convolution_problem, features_before_positions
from .gemm_problem import gemm_problem


def raw_type(contraction: Instruction) -> ElementType:
    """The type in which a contraction is summed and stored before it is rounded."""
    type_ = contraction.shape.element_type
    if type_.is_float:
        return accumulator_of([type_, *(o.shape.element_type for o in contraction.operands)])
    return ElementType.S32 if type_.is_integer and type_.bits < 32 else type_


def output_view(contraction: Instruction) -> tuple[int, int, int]:
    """The result of a contraction as [batch, rows, columns].

    Raises: UnsupportedError  axes that do not collapse to rows and columns.
    """
    if not isinstance(contraction.op, Dot):
        return convolution_view(contraction)
    problem = gemm_problem(contraction, contraction.shape.element_type)
    return math.prod(problem.batch), problem.m, problem.n


def transposed_strides(contraction: Instruction, root: Instruction) -> tuple[int, ...] | None:
    """The strides with which the kernel of a dot stores its result in the place of `root`, which is the result
    transposed, and perhaps reshaped. None where `root` is anything else, sums are not stored as they are, columns
    would not stay in one piece, or rows that are multiplied as one matrix would be several.
    """
    while isinstance(root.op, Reshape):
        (root,) = root.operands
    if not isinstance(root.op, Transpose) or root.operands[0] is not contraction:
        return None
    type_, axes, last = contraction.shape.element_type, root.op.dimensions, contraction.shape.rank - 1
    if not isinstance(contraction.op, Dot) or raw_type(contraction) is not type_:
        return None
    if axes[last] != last or estimate(contraction.shape.dims[last]) == 1:
        return None
    strides = [0] * len(axes)
    for axis, stride in zip(axes, root.shape.strides):
        strides[axis] = stride
    try:
        plain, transposed = (gemm_problem(contraction, type_, s) for s in (None, strides))
    except UnsupportedError:
        return None
    return tuple(strides) if len(transposed.batch) == len(plain.batch) else None


def convolution_view(convolution: Instruction) -> tuple[int, int, int]:
    """The result as [batch, rows, columns], whole axes each, as the epilogue sees it.

    With the features last, everything else is rows, but for the images of a batch where each is a GEMM; with the
    positions after the features, they are the columns.
    """
    op, dims = convolution.op, convolution.shape.dims
    assert isinstance(op, Convolution)
    last = len(dims) - 1
    problem = convolution_problem(convolution, convolution.shape.element_type)
    gemm = as_gemm(problem) if convolution.shape.elements else None
    if gemm is not None and gemm.batch:
        return gemm.batch[0], gemm.m, gemm.n
    if math.prod(dims[op.dims.output_feature + 1 :]) == 1:
        return 1, math.prod(dims[: op.dims.output_feature]), dims[op.dims.output_feature]
    if features_before_positions(problem):
        return problem.batch, problem.groups * problem.out_channels, problem.positions
    return 1, math.prod(dims[:last]), dims[last]


def is_collapse_of(whole: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether every axis of `whole` is a product of adjacent axes of `dims`; axes of size 1 are ignored."""
    rest = [d for d in dims if d != 1]
    for extent in (d for d in whole if d != 1):
        size = 1
        while size != extent and rest:
            size *= rest.pop(0)
        if size != extent:
            return False
    return not rest
