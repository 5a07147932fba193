"""Dots whose readers transpose them, with their operands swapped.

    t = transpose(dot(x[b,i,k], y[b,j,k])), dimensions={0,2,1}    =>    t = dot(y, x)

Where keys are multiplied by queries, in attention, the softmax then runs along rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..ir.module import Computation, Instruction, Module, make
from ..ops import Constant, Dot, Parameter, Reduce, Transpose, reducer_kind
from ..options import Options


def swap_dots(module: Module, options: Options) -> Module:
    """The module with the operands of such dots swapped; their readers transpose once more, which `simplify` undoes."""
    return module.map_computations(lambda c: _swapped(c) if c.has_op(Dot) and c.has_op(Transpose) else c)


def _swapped(computation: Computation) -> Computation:
    users, root = computation.users, computation.root
    is_swapped = iter([i is not root and _is_transposed(i, users[i]) for i in computation.instructions])
    return computation.rewrite(lambda i: _with_swapped_operands(i) if next(is_swapped) else None)


def _is_transposed(dot: Instruction, readers: Sequence[Instruction]) -> bool:
    """Whether readers transpose a dot of two computed values; others may reduce it, along any axes."""
    op = dot.op
    if not isinstance(op, Dot):
        return False
    left, right = dot.operands
    if left.shape.element_type is not right.shape.element_type or isinstance(right.op, Constant | Parameter):
        return False
    order = _order(op, left.shape.rank, dot.shape.rank)
    transposes = [r for r in readers if isinstance(r.op, Transpose) and r.op.dimensions == order]
    return bool(transposes) and all(r in transposes or _is_reduction(r) for r in readers)


def _order(op: Dot, left_rank: int, rank: int) -> tuple[int, ...]:
    """The axes of a dot's result in the order of the dot with swapped operands."""
    batch = len(op.lhs_batch)
    end = batch + len(op.lhs_free(left_rank))
    return (*range(batch), *range(end, rank), *range(batch, end))


def _is_reduction(reader: Instruction) -> bool:
    """Whether it takes a transposed operand as it takes one that is not."""
    op = reader.op
    return isinstance(op, Reduce) and len(reader.operands) == 2 and reducer_kind(op.to_apply) is not None


def _with_swapped_operands(dot: Instruction) -> Instruction:
    """The same value: the dot with swapped operands, transposed."""
    op, (left, right) = dot.op, dot.operands
    assert isinstance(op, Dot)
    swapped = dataclasses.replace(
        op,
        lhs_contracting=op.rhs_contracting,
        rhs_contracting=op.lhs_contracting,
        lhs_batch=op.rhs_batch,
        rhs_batch=op.lhs_batch,
    )
    product = make(swapped, right, left, metadata=dot.metadata)
    order = _order(swapped, right.shape.rank, dot.shape.rank)
    return make(Transpose(order), product, metadata=dot.metadata)
