"""Instructions on constants replaced by their value.

    a = s32[2] constant({1, 2})                            c = s32[2] constant({2, 4})
    c = s32[2] add(a, a)                          =>

Nothing grows: broadcasts and iotas stay, and a value larger than its operands is folded only when it is
small.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..evaluator import apply_computation
from ..ir import Instruction, Module
from ..literal import Literal
from ..ops import (
    Broadcast,
    Cholesky,
    Constant,
    Convolution,
    Dot,
    Fft,
    Iota,
    OptimizationBarrier,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    TriangularSolve,
    While,
)
from ..options import Options

MOST_BYTES = 1 << 20
"""Largest operands and value that are folded: beyond, the evaluator is slower than running the
instruction."""
MOST_BYTES_OF_LOOPS = 1 << 12
"""The same for ops that do more than touch each element once."""
SMALL_BYTES = 256
"""A value up to this size may be larger than its operands."""

_LOOPS = (Cholesky, Convolution, Dot, Fft, ReduceWindow, Scatter, SelectAndScatter, Sort, TriangularSolve)


def fold_constants(module: Module, options: Options) -> Module:
    """The module with instructions on constants evaluated."""
    return module.map_computations(lambda computation: computation.rewrite(_fold))


def _fold(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if (
        not instruction.operands
        or not isinstance(instruction.operands[0].op, Constant)
        or not all(isinstance(o.op, Constant) for o in instruction.operands)
        or isinstance(op, (Broadcast, Iota, OptimizationBarrier, While))
        or instruction.has_side_effect
        or not instruction.shape.is_array
    ):
        return None
    given, made = sum(o.shape.bytes for o in instruction.operands), instruction.shape.bytes
    most = (
        MOST_BYTES_OF_LOOPS if isinstance(op, _LOOPS) or next(op.called(), None) is not None else MOST_BYTES
    )
    if max(given, made) > most or made > max(given, SMALL_BYTES):
        return None
    value = evaluate_op(instruction)
    return dataclasses.replace(
        instruction, op=Constant(Literal(value, instruction.shape.element_type)), operands=()
    )


def evaluate_op(instruction: Instruction) -> Any:
    """The value of an instruction whose operands are constants."""
    operands = [o.op.reference() for o in instruction.operands]
    with np.errstate(all="ignore"):
        if next(instruction.op.called(), None) is not None:
            return instruction.op.reference(*operands, call=apply_computation)
        return instruction.op.reference(*operands)
