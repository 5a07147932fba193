"""Instructions on constants replaced by their value.

    a = s32[2] constant({1, 2})                            c = s32[2] constant({2, 4})
    c = s32[2] add(a, a)                          =>

The module does not grow: broadcasts and iotas are not folded for themselves, and a value larger than the constants that
it is computed of is folded only when it is small.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ...runtime.code import float_mode
from ...runtime.sizes import Size, is_symbolic
from ..evaluator.evaluator import apply_computation
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, Value
from ..ir.shape import Shape
from ..ops import Broadcast, Constant, Convolution, Iota, Op, OptimizationBarrier, While, Window
from ..options import Options

MAX_BYTES = 1 << 20
"""Largest operands and value that are folded: beyond, the evaluator is slower than running the
instruction."""
MAX_BYTES_OF_LOOPS = 1 << 12
"""The same for ops that do more than touch each element once."""
SMALL_BYTES = 256
"""A value up to this size may be larger than its operands."""


def fold_constants(module: Module, options: Options) -> Module:
    """The module with instructions on constants evaluated."""
    return module.map_computations(lambda computation: computation.rewrite(_fold))


def _fold(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if (
        not instruction.operands
        or not all(map(_is_known, instruction.operands))
        or isinstance(op, (Broadcast, Iota, OptimizationBarrier, While))
        or instruction.has_side_effect
        or not instruction.shape.is_array
        or _has_size(op)
        or any(map(_has_loop, op.called()))
    ):
        return None
    constants = {o if isinstance(o.op, Constant) else o.operands[0] for o in instruction.operands}
    constant_bytes, result_bytes = sum(c.shape.bytes for c in constants), instruction.shape.bytes
    operand_bytes = sum(o.shape.bytes for o in instruction.operands)
    limit = MAX_BYTES_OF_LOOPS if _is_slow(op) else MAX_BYTES
    if max(operand_bytes, result_bytes) > limit or result_bytes > max(constant_bytes, SMALL_BYTES):
        return None
    window = getattr(op, "window", None)
    if window is not None and not _is_small(window, instruction.operands[0].shape, op):
        return None
    value = evaluate_op(instruction)
    return dataclasses.replace(
        instruction, op=Constant(Literal(value, instruction.shape.element_type)), operands=()
    )


def _is_known(value: Instruction) -> bool:
    """Whether a value is a constant, or one broadcast to sizes that are known."""
    if isinstance(value.op, Broadcast):
        return isinstance(value.operands[0].op, Constant) and not is_symbolic(value.shape.dims)
    return isinstance(value.op, Constant)


def _has_size(value: object) -> bool:
    """Whether a size that is known at run time only is among an op's attributes."""
    if isinstance(value, tuple):
        return any(map(_has_size, value))
    if isinstance(value, Op | Window):
        return any(map(_has_size, vars(value).values()))
    return isinstance(value, Size)


def _is_slow(op: Op) -> bool:
    """Whether the reference does more than touch each element once."""
    return op.is_contraction or op.inner_rank > 0 or next(op.called(), None) is not None


def _is_small(window: Window, operand: Shape, op: Op) -> bool:
    """Whether the elements of a window, and the array with its padding, are few."""
    spatial = (
        [operand.dims[a] for a in op.dims.input_spatial] if isinstance(op, Convolution) else operand.dims
    )
    return (
        math.prod(window.size) <= MAX_BYTES_OF_LOOPS
        and math.prod(window.padded(spatial)) <= MAX_BYTES_OF_LOOPS
    )


def _has_loop(computation: Computation) -> bool:
    """Whether there is a loop in it, which may run for ever."""
    return any(
        isinstance(i.op, While) or any(map(_has_loop, i.op.called())) for i in computation.instructions
    )


def evaluate_op(instruction: Instruction) -> Value:
    """The value of an instruction on constants, or constants broadcast, as compiled code computes it."""
    operands = [o.op.reference(*(inner.op.reference() for inner in o.operands)) for o in instruction.operands]
    with np.errstate(all="ignore"), float_mode.of_runs():
        if next(instruction.op.called(), None) is not None:
            return instruction.op.reference(*operands, call=apply_computation)
        return instruction.op.reference(*operands)
