"""All-reduces that follow each other and do not need each other, as one.

    s = f32[4] all-reduce(x), to_apply=add                 both = (f32[4], f32[]) all-reduce(x, y), to_apply=add
    t = f32[] all-reduce(y), to_apply=add           =>     s = f32[4] get-tuple-element(both), index=0
                                                           t = f32[] get-tuple-element(both), index=1

The devices then synchronize once. Large arrays are not combined: their transfer takes longer than the
synchronization. Nor are those with a channel, by which devices that run other programs may take part.
"""

from __future__ import annotations

import dataclasses

from ...runtime.sizes import estimate
from ..ir.module import Computation, Instruction, Module, make
from ..ops import AllReduce, GetTupleElement
from ..options import Options
from ..progress import ordered
from .cse import fingerprint
from .expand_collectives import WHOLE_BYTES

MAX_BYTES = 1 << 20
"""Operands of one all-reduce, together."""


def combine_all_reduces(module: Module, options: Options) -> Module:
    """The module with one all-reduce where several can meet at once."""
    return module.map_computations(_combine)


@dataclasses.dataclass
class _Batch:
    number: int
    key: object
    members: list[Instruction]
    bytes: int = 0


def _combine(computation: Computation) -> Computation:
    if not computation.has_op(AllReduce):
        return computation
    batches = [b for b in _batches(computation) if len(b.members) > 1]
    if not batches:
        return computation
    batch_of = {member: (b, k) for b in batches for k, member in enumerate(b.members)}
    done: dict[Instruction, Instruction] = {}
    combined: dict[int, Instruction] = {}

    def needs(instruction: Instruction) -> list[Instruction]:
        batch, _ = batch_of.get(instruction, (None, 0))
        return [o for member in (batch.members if batch else [instruction]) for o in member.operands]

    for current in ordered(computation.instructions, needs, "combine_all_reduces"):
        batch, position = batch_of.get(current, (None, 0))
        if batch is None:
            done[current] = current.with_operands(done[o] for o in current.operands)
        else:
            if batch.number not in combined:
                combined[batch.number] = make(
                    batch.members[0].op,
                    *(done[o] for o in needs(current)),
                    name=current.name,
                    metadata=current.metadata,
                )
            done[current] = make(
                GetTupleElement(position),
                combined[batch.number],
                name=current.name,
                metadata=current.metadata,
            )
    return computation.mapped(done)


def _batches(computation: Computation) -> list[_Batch]:
    """Independent all-reduces without other side effects between them."""
    batches: list[_Batch] = []
    needs: dict[Instruction, int] = {}  # the last batch that a value depends on, 0 if none
    is_open = False
    for instruction in computation.instructions:
        last = max((needs[o] for o in instruction.operands), default=0)
        needs[instruction] = last
        if not instruction.has_side_effect:
            continue
        op, size = instruction.op, sum(estimate(o.shape.bytes) for o in instruction.operands)
        if (
            not isinstance(op, AllReduce)
            or op.channel_id
            or len(instruction.operands) != 1
            or size > WHOLE_BYTES
        ):
            is_open = False
            continue
        key = (fingerprint(op.to_apply), op.replica_groups)
        current = batches[-1] if is_open else None
        if (
            current is None
            or current.key != key
            or last >= current.number
            or current.bytes + size > MAX_BYTES
            or instruction.operands[0].shape.element_type != current.members[0].operands[0].shape.element_type
        ):
            current = _Batch(len(batches) + 1, key, [])
            batches.append(current)
            is_open = True
        current.members.append(instruction)
        current.bytes += size
        needs[instruction] = current.number
    return batches
