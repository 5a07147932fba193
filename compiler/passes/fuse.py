"""Puts instructions that can be computed in one loop nest into fusions.

    y = tanh(x + broadcast(b))      becomes      y = fusion(x, b), kind=kLoop

Every elementwise op, index map and reduction becomes part of a fusion, alone if need be. `fusion_plan.decide` says
which instructions form a fusion, `apply` builds the fusions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.sizes import heuristic
from ..ir.module import Computation, Instruction, Module, make
from ..ops import Fusion, GetTupleElement, Parameter, Tuple
from ..options import Options
from ..progress import ordered
from .fusion_plan import FusionPlan, decide, is_scalar_constant


def fuse(module: Module, options: Options) -> Module:
    """Fusions in the entry and in bodies, conditions and branches, not in computations that are called for elements."""
    called_for_elements = {
        c
        for computation in module.computations()
        for i in computation.instructions
        if i.op.calling and not i.op.is_control_flow
        for c in i.op.called()
    }

    def change(computation: Computation) -> Computation:
        return computation if computation.name in skipped else apply(computation, decide(computation))

    skipped = {c.name for c in called_for_elements}
    return module.map_computations(change)


def apply(computation: Computation, plan: FusionPlan) -> Computation:
    """The computation with fusions for the groups of the plan. A root that only its own fusion reads is no output."""
    roots_of = {root: [root] for root in plan.groups} | {r: roots for roots in plan.merged for r in roots}
    order = {i: k for k, i in enumerate(computation.instructions)}
    done: dict[Instruction, Instruction] = {}

    def members_of(roots: list[Instruction]) -> list[Instruction]:
        return sorted({m for r in roots for m in plan.groups[r]}, key=order.__getitem__)

    inputs: dict[Instruction, list[Instruction]] = {}  # of each fusion, by its first root

    def needs(i: Instruction) -> Sequence[Instruction]:
        if i not in roots_of:
            return i.operands
        first = roots_of[i][0]
        if first not in inputs:
            members = members_of(roots_of[i])
            excluded = _inline_constants(members).union(members)
            inputs[first] = list(dict.fromkeys(o for m in members for o in m.operands if o not in excluded))
        return inputs[first]

    absorbed = {m for members in plan.groups.values() for m in members if m not in roots_of}
    needed = {computation.root}  # roots that are read outside their fusion
    for i in computation.instructions:
        if i not in absorbed and i is roots_of.get(i, [i])[0]:
            needed.update(needs(i))
    for i in ordered([*computation.parameters, *computation.effects(), computation.root], needs, "fuse"):
        if i not in roots_of:
            done[i] = i.with_operands(done[o] for o in i.operands)
        elif i not in done:
            roots = [r for r in roots_of[i] if r in needed]
            done.update(zip(roots, _fusion(roots, members_of(roots_of[i]), done)))
    return computation.mapped(done)


def _fusion(
    roots: list[Instruction], members: list[Instruction], done: dict[Instruction, Instruction]
) -> list[Instruction]:
    """The values of the roots, from one fusion of the members; `done` has the new operands."""
    within: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []
    parameters: list[Instruction] = []
    inline_constants = _inline_constants(members)
    for member in members:
        for operand in member.operands:
            if operand in within:
                continue
            if operand in inline_constants:
                within[operand] = operand
                continue
            number = len(parameters)
            parameter = Instruction(Parameter(number, operand.shape), (), operand.shape, f"p{number}")
            within[operand] = parameter
            parameters.append(parameter)
            operands.append(done[operand])
        within[member] = member.with_operands(within[o] for o in member.operands)
    root = roots[-1]
    name = root.name or root.opcode
    if len(roots) == 1:
        body = Computation(f"fused_{name}", within[root], parameters)
        return [Instruction(Fusion(kind_of(members), body), tuple(operands), root.shape, name, root.metadata)]
    body = Computation(f"fused_{name}", make(Tuple(), *(within[r] for r in roots)), parameters)
    fusion = Instruction(
        Fusion(kind_of(members), body), tuple(operands), body.root.shape, name, root.metadata
    )
    return [make(GetTupleElement(k), fusion, name=r.name, metadata=r.metadata) for k, r in enumerate(roots)]


def _inline_constants(members: list[Instruction]) -> set[Instruction]:
    """Operands that become constants inside a fusion; a contraction reads its operands from memory."""
    read = {o for m in members if m.op.is_contraction for o in m.operands}
    return {o for m in members for o in m.operands if o not in read and is_scalar_constant(o)}


@heuristic()
def kind_of(members: list[Instruction]) -> str:
    """The kind of a fusion: kOutput (starts with a contraction), kRow (reads values again after reducing them), kInput
    (ends in a reduction), else kLoop."""
    if any(m.op.is_contraction for m in members):
        return "kOutput"
    reductions = [m for m in members if m.op.is_reduction]
    if not reductions:
        return "kLoop"
    largest = max(next(iter(r.operands[0].shape.leaves())).elements for r in reductions)
    return "kRow" if members[-1].shape.is_array and members[-1].shape.elements >= largest else "kInput"
