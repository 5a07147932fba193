"""Removes arrays that a sort only carries along, and whose results nothing uses.

    s = (f32[9], s32[9]) sort(x, i), to_apply=less         s = f32[9] sort(x), to_apply=less'
    r = f32[9] get-tuple-element(s), index=0         =>

A sort of one array is not a tuple; of numbers alone it is faster, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..ir.module import Computation, Instruction, Module, make
from ..ops import GetTupleElement, Parameter, Sort
from ..options import Options


def prune_sorts(module: Module, options: Options) -> Module:
    """The module with sorts that move only what their comparator or their users need."""
    return module.map_computations(_prune)


def _prune(computation: Computation) -> Computation:
    if not computation.has_op(Sort):
        return computation
    kept_by = {i: kept for i in computation.instructions if (kept := _needed(computation, i)) is not None}
    if not kept_by:
        return computation
    done: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        new = old.with_operands(done[o] for o in old.operands)
        if old in kept_by:
            new = _smaller(new, kept_by[old])
        elif isinstance(old.op, GetTupleElement) and old.operands[0] in kept_by:
            kept, sort = kept_by[old.operands[0]], new.operands[0]
            place = GetTupleElement(kept.index(old.op.index))
            new = make(place, sort, name=old.name, metadata=old.metadata) if len(kept) > 1 else sort
        done[old] = new
    return computation.mapped(done)


def _needed(computation: Computation, sort: Instruction) -> list[int] | None:
    """The numbers of the arrays that a sort needs; None where it is not a sort, needs all, or is used as a whole."""
    op, users = sort.op, computation.users[sort]
    if not isinstance(op, Sort) or sort is computation.root or sort.has_side_effect:
        return None
    if not sort.shape.is_tuple or not all(isinstance(u.op, GetTupleElement) for u in users):
        return None
    comparator = op.to_apply
    needed = {u.op.index for u in users if isinstance(u.op, GetTupleElement)}
    needed |= {
        k // 2 for k, p in enumerate(comparator.parameters) if comparator.users[p] or p is comparator.root
    }
    return sorted(needed) if len(needed) < len(sort.operands) else None


def _smaller(sort: Instruction, kept: Sequence[int]) -> Instruction:
    op = sort.op
    assert isinstance(op, Sort)
    smaller = dataclasses.replace(op, to_apply=_comparator(op.to_apply, kept))
    return make(smaller, *(sort.operands[k] for k in kept), name=sort.name, metadata=sort.metadata)


def _comparator(old: Computation, kept: Sequence[int]) -> Computation:
    """The comparator of the kept arrays alone."""
    numbers = [2 * k + side for k in kept for side in range(2)]
    done = {
        old.parameters[n]: make(Parameter(number, old.parameters[n].shape), name=old.parameters[n].name)
        for number, n in enumerate(numbers)
    }
    for instruction in old.instructions:
        if not isinstance(instruction.op, Parameter):
            done[instruction] = instruction.with_operands(done[o] for o in instruction.operands)
    return Computation(old.name, done[old.root], [done[old.parameters[n]] for n in numbers])
