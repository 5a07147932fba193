"""Makes every matrix product one of rows and columns: where axes of an operand do not lie in one run, it is transposed.

    dot(x[b,i,j], y[j,k,i])  over i, j     becomes     dot(x, transpose(y) [i,j,k])
"""

from __future__ import annotations

import dataclasses

from ..cpu.output_fusion import columns_run, contracting_run
from ..ir import Instruction, Module, make
from ..ops import Dot, Transpose
from ..options import Options


def canonicalize_dots(module: Module, options: Options) -> Module:
    """Transposes operands of dots whose contracting axes, or free axes on the right, are no single run in memory."""
    return module.map_computations(lambda computation: computation.rewrite(_change))


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
