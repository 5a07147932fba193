"""Cuts large reductions to few results in two, so that threads can share them.

    s = reduce(x[65536,16], 0) over {0}

becomes

    p = reduce(reshape(x)[64,1024,16], 0) over {1};  s = reduce(p, 0) over {0}

The tree does not depend on the number of threads: results are the same on every machine.
"""

from __future__ import annotations

import dataclasses

from ...runtime.sizes import Size, estimate, factors_of, is_symbolic
from ..ir.literal import Literal
from ..ir.module import Instruction, Module, make
from ..ops import Broadcast, Constant, Reduce, Reshape, Transpose, reducer_kind
from ..ops.reduce import neutral_number
from ..options import Options

_LARGE = 1 << 18  # elements
_MAX_PARTS = 64
_ENOUGH_TASKS = 16
_COLUMNS_PER_TASK = 128


def split_reductions(module: Module, options: Options) -> Module:
    """Reductions of a known kind whose results give too few tasks, in two steps."""
    return module.rewrite_ops([Reduce], _split)


def _split(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, Reduce) or len(instruction.operands) != 2:
        return None
    operand, init = instruction.operands
    kind = reducer_kind(op.to_apply)
    t = operand.shape.element_type
    if kind is None or estimate(operand.shape.elements) < _LARGE or (t.is_float and t.bits < 32):
        return None
    is_row = _fastest_axis(operand) in op.dimensions
    results = estimate(instruction.shape.elements)
    if (results if is_row else results / _COLUMNS_PER_TASK) >= _ENOUGH_TASKS:
        return None
    dims = operand.shape.dims
    axis = max(op.dimensions, key=lambda a: (estimate(parts_of(dims[a])) >= _ENOUGH_TASKS, -a))
    parts = parts_of(dims[axis])
    if estimate(parts) < 2 or parts == dims[axis] == operand.shape.elements:
        return None
    if is_symbolic([parts]) and estimate(operand.shape.elements) < _ENOUGH_TASKS * results * estimate(parts):
        return None
    cut = make(Reshape((*dims[:axis], parts, dims[axis] // parts, *dims[axis + 1 :])), operand)
    moved = tuple(sorted(a + 1 if a >= axis else a for a in op.dimensions))
    neutral = make(Constant(Literal(neutral_number(kind, t), t)))
    first = make(Reduce(moved, op.to_apply), cut, neutral, metadata=instruction.metadata)
    result_axis = axis - sum(a < axis for a in op.dimensions)
    second = make(Reduce((result_axis,), op.to_apply), first, init)
    return dataclasses.replace(second, name=instruction.name, metadata=instruction.metadata)


def _fastest_axis(value: Instruction) -> int:
    """The axis along which a value's elements, or those that they are computed from, are neighbours in memory."""
    order = tuple(range(value.shape.rank))
    source: Instruction | None = value
    while source is not None and (isinstance(source.op, Transpose) or source.op.is_elementwise):
        if isinstance(source.op, Transpose):
            order = tuple(order[source.op.dimensions.index(a)] for a in range(len(order)))
        arrays = (o for o in source.operands if o.shape.rank == len(order))
        source = next((o for o in arrays if not isinstance(o.op, Broadcast | Constant)), None)
    return order[-1]


def parts_of(dim: int) -> int:
    """The largest divisor of a dim that is at most 64, and leaves more than one element per part where it
    can. Of a size known at run time only, one of its symbols that is typically at most 64."""
    if isinstance(dim, Size):
        return max((f for f in factors_of(dim) if estimate(f) <= _MAX_PARTS), key=estimate, default=1)
    return next((k for k in range(min(_MAX_PARTS, max(dim // 2, 1)), 0, -1) if dim % k == 0), 1)
