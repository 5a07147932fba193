"""Arithmetic and memory traffic of a kernel launch, counted from the IR: the terms of a roofline.

Flops: two per term of a contraction, one per element of an arithmetic operation (whatever it costs: an
exponential counts as one), one per element that a reduction takes in and operation of its computation. Bytes: every
input once and every output once, cached or not; of an input that is only sliced or gathered
from, and of an output that is updated in place, the part that is touched. Both are of one launch: a loop launches a
kernel in every step, and the profile counts the launches.
"""

from __future__ import annotations

from ..ir.module import Computation, Instruction
from ..ops import Fusion
from ..ops.fusion import as_computation


def flops(instruction: Instruction) -> int:
    """Operations on numbers of an instruction, those inside of a fusion too."""
    return instruction.op.flops(instruction)


def moved_bytes(instruction: Instruction) -> int:
    """Bytes that an instruction's kernel must read and write."""
    computation = _computation(instruction)
    updated = dict(instruction.op.in_place_operands(instruction))
    reads = sum(
        _read_bytes(p, computation) for k, p in enumerate(computation.parameters) if k not in updated.values()
    )
    return reads + sum(
        instruction.op.updated_bytes(instruction) if k in updated else leaf.bytes
        for k, leaf in enumerate(instruction.shape.leaves())
    )


def _computation(instruction: Instruction) -> Computation:
    return instruction.op.computation if isinstance(instruction.op, Fusion) else as_computation(instruction)


def _read_bytes(parameter: Instruction, computation: Computation) -> int:
    """Bytes of a parameter that are read: all, unless every reader takes a part."""
    readers = [i for i in computation.instructions if parameter in i.operands]
    whole = sum(leaf.bytes for leaf in parameter.shape.leaves())
    if not readers or any(not i.op.reads_part or parameter in i.operands[1:] for i in readers):
        return whole
    return min(whole, sum(i.shape.bytes for i in readers))
