"""Replaces calls by the computations that they call.

    inc { x = f32[4] parameter(0)  ROOT y = f32[4] add(x, x) }           y = f32[4] add(a, a)
    ENTRY e { ...  ROOT c = f32[4] call(a), to_apply=inc }        =>     ROOT ...

A map of a computation of elementwise ops becomes those ops on the arrays. Fusions that a module comes with are taken
apart: they were made for another machine, or by an earlier run.
"""

from __future__ import annotations

import dataclasses

from ..ir.module import Computation, Instruction, Module, make
from ..ops import Broadcast, Call, Constant, Fusion, GetTupleElement, Map, Parameter, Tuple
from ..options import Options


def inline_calls(module: Module, options: Options) -> Module:
    """The module without calls, and without maps of elementwise computations."""
    return module.rewrite_ops([Call, Fusion, Map], _inline)


def _inline(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not op.calling:
        return None
    if isinstance(op, Call):
        return inlined(op.to_apply, instruction)
    if isinstance(op, Fusion):
        return inlined(op.computation, instruction)
    if isinstance(op, Map) and all(_maps(i) for i in op.to_apply.instructions):
        return _applied_to_arrays(op.to_apply, instruction)
    return None


def inlined(callee: Computation, call: Instruction) -> Instruction:
    """The callee's root, on the call's operands. Instructions with side effects come with it, in order, in a tuple."""
    metadata = dataclasses.replace(call.metadata, extra=()) if call.metadata.extra else call.metadata
    done: dict[Instruction, Instruction] = {}
    for old in callee.instructions:
        if isinstance(old.op, Parameter):
            done[old] = call.operands[old.op.number]
        else:
            new = old.with_operands([done[o] for o in old.operands])
            done[old] = dataclasses.replace(new, metadata=metadata) if not new.metadata.op_name else new
    effects = [done[i] for i in callee.effects()]
    if not effects:
        return done[callee.root]
    return make(GetTupleElement(len(effects)), make(Tuple(), *effects, done[callee.root]), name=call.name)


def _maps(instruction: Instruction) -> bool:
    return instruction.op.is_elementwise or isinstance(instruction.op, (Parameter, Constant))


def _applied_to_arrays(callee: Computation, call: Instruction) -> Instruction:
    """The callee's root, applied to arrays instead of scalars."""
    dims = call.shape.dims
    done: dict[Instruction, Instruction] = {}
    for old in callee.instructions:
        if isinstance(old.op, Parameter):
            done[old] = call.operands[old.op.number]
        elif isinstance(old.op, Constant):
            done[old] = make(Broadcast(dims, ()), old) if dims else old
        else:
            done[old] = make(old.op, *(done[o] for o in old.operands), name=old.name, metadata=call.metadata)
    return done[callee.root]
