"""Pads whose rows are whole runs of memory: axes behind the last padded one are joined with it.

    p = u8[9,9,48] pad(x, 0), padding=1_1x1_1x0_0
                                        =>     p = u8[9,9,48] reshape(u8[9,432] pad(u8[7,336] reshape(x), 0), 1_1x48_48)

A loop over a row then has one condition at either end, and copies long runs between. It is done where both values are
stored anyway, the pad a kernel of its own: what a fusion computes is better indexed by the axes that it has.
"""

from __future__ import annotations

import math

from ...runtime.sizes import is_symbolic
from ..ir.module import Computation, Instruction, Module, make
from ..ops import Pad
from ..options import Options
from .fusion_plan import is_loop_like
from .rules.rule import reshaped

_FEWEST_ROWS = 16  # so that there are tasks enough without parts of rows


def collapse_pads(module: Module, options: Options) -> Module:
    """The module with pads of fewer axes."""
    return module.map_computations(_collapsed_pads)


def _collapsed_pads(computation: Computation) -> Computation:
    if not computation.has_op(Pad):
        return computation
    users, done = computation.users, dict[Instruction, Instruction]()
    for old in computation.instructions:
        done[old] = new = old.with_operands([done[o] for o in old.operands])
        if isinstance(old.op, Pad) and not any(map(is_loop_like, users[old])):
            done[old] = _collapsed(new) or new
    return computation.mapped(done)


def _collapsed(pad: Instruction) -> Instruction | None:
    op = pad.op
    if not isinstance(op, Pad) or is_symbolic(pad.shape.dims) or is_symbolic(pad.operands[0].shape.dims):
        return None
    value, number = pad.operands
    padded = [k for k, amounts in enumerate(zip(op.low, op.high, op.interior)) if any(amounts)]
    last = padded[-1] if padded else 0
    run, rows = math.prod(value.shape.dims[last + 1 :]), math.prod(pad.shape.dims[:last])
    if not padded or run <= 1 or op.interior[last] or rows < _FEWEST_ROWS or is_loop_like(value):
        return None
    dims = (*value.shape.dims[:last], value.shape.dims[last] * run)
    low, high = ((*amounts[:last], amounts[last] * run) for amounts in (op.low, op.high))
    joined = Pad(low, high, op.interior[: last + 1])
    result = make(joined, reshaped(value, dims), number, metadata=pad.metadata)
    return reshaped(result, pad.shape.dims)
