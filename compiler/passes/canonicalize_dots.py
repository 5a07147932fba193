"""Makes every matrix product one of rows and columns: where axes of an operand do not lie in one run, it is transposed.

    dot(x[b,i,j], y[j,k,i])  over i, j     becomes     dot(x, transpose(y) [i,j,k])

Factors of two types, of products and of convolutions, are converted to one that holds both.
"""

from __future__ import annotations

import dataclasses

from ..cpu.output_fusion import columns_run, contracting_run
from ..ir import Instruction, Module, make
from ..ops import Convert, Convolution, Dot, Transpose
from ..options import Options
from ..types import ElementType


def canonicalize_dots(module: Module, options: Options) -> Module:
    """Converts operands of different types to one; transposes operands of dots whose contracting axes, or free axes on
    the right, are no single run in memory."""
    def change(instruction: Instruction) -> Instruction:
        same = _one_type(instruction)
        return _change(same) or same

    return module.map_computations(lambda computation: computation.rewrite(change))


def _one_type(instruction: Instruction) -> Instruction:
    op = instruction.op
    if not isinstance(op, (Dot, Convolution)):
        return instruction
    types = {o.shape.element_type for o in instruction.operands}
    if len(types) == 1:
        return instruction
    result = instruction.shape.element_type
    wide = result if result.bits > 32 else ElementType.F32
    return dataclasses.replace(instruction, op=dataclasses.replace(op, preferred_type=result), operands=tuple(
        make(Convert(wide), o, metadata=instruction.metadata) for o in instruction.operands))


def _change(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, Dot):
        return None
    lhs, rhs = instruction.operands
    if contracting_run(op, lhs.shape, rhs.shape) is not None and columns_run(op, rhs.shape) is not None:
        return None
    left = (*op.lhs_batch, *op.lhs_free(lhs.shape.rank), *op.lhs_contracting)
    right = (*op.rhs_batch, *op.rhs_contracting, *op.rhs_free(rhs.shape.rank))
    batch, contracting = len(op.lhs_batch), len(op.lhs_contracting)
    free = lhs.shape.rank - batch - contracting
    canonical = dataclasses.replace(
        op, lhs_batch=tuple(range(batch)), rhs_batch=tuple(range(batch)),
        lhs_contracting=tuple(range(batch + free, lhs.shape.rank)),
        rhs_contracting=tuple(range(batch, batch + contracting)))
    return dataclasses.replace(instruction, op=canonical, operands=(
        make(Transpose(left), lhs, metadata=instruction.metadata),
        make(Transpose(right), rhs, metadata=instruction.metadata)))
