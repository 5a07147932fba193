"""Equal instructions, and equal computations, kept once.

b = f32[4] exponential(a)                              b = f32[4] exponential(a)
c = f32[4] exponential(a)                     =>       d = f32[4] add(b, b)
d = f32[4] add(b, c)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from ..ir.module import Computation, Instruction, Module
from ..ops import Parameter
from ..options import Options


def cse(module: Module, options: Options) -> Module:
    """The module with one instruction for each value and one computation for each function.

    Computations come callees first, so that two instructions that call equal computations are equal too.
    """
    first: dict[Hashable, Computation] = {}

    def share(computation: Computation) -> Computation:
        shared = _share_instructions(computation)
        return shared if computation is module.entry else first.setdefault(fingerprint(shared), shared)

    return module.map_computations(share)


def _share_instructions(computation: Computation) -> Computation:
    first: dict[Hashable, Instruction] = {}

    def share(instruction: Instruction) -> Instruction | None:
        if isinstance(instruction.op, Parameter) or instruction.has_side_effect:
            return None
        return first.setdefault((instruction.op, instruction.shape, instruction.operands), instruction)

    return computation.rewrite(share)


def fingerprint(computation: Computation, any_of: Collection[Instruction] = ()) -> Hashable:
    """Equal for computations that have the same instructions, names and metadata aside, and call the same ones; the
    ops of `any_of` may be any of their type."""
    number = {instruction: n for n, instruction in enumerate(computation.instructions)}
    return number[computation.root], tuple(
        (type(i.op) if i in any_of else i.op, i.shape, tuple(number[o] for o in i.operands))
        for i in computation.instructions
    )
