"""Functions of bytes as tables of their 256 results.

    q = u8[n]  x = f32[n] convert(q)  y = f32[n] logistic(x * 0.1)  r = u8[n] convert(y * 255)
                                       =>     r = u8[n] table-lookup(q), table={...}

The table has what the instructions' references compute, so that results are those of the evaluator: the code that
it replaces is as exact but for functions that approximate (`logistic`), which may round another way next to a half.
It takes their place where they cost more than a lookup (`Options.lookup_cycles`). Where lookups are good at whole
registers of bytes alone (`Options.looks_up_registers`), barriers make loops of them that do nothing else.
"""

from __future__ import annotations

import numpy as np

from ...runtime.sizes import estimate, heuristic
from ..ir.module import Computation, Instruction, Module, make
from ..ops import OptimizationBarrier, TableLookup
from ..ops.table_lookup import BYTES, ENTRIES
from ..options import Options
from .unary_functions import arguments_of, chain, cost, evaluated

_LEAST_CYCLES = 512  # of all elements, that a table is to save


def tabulate(module: Module, options: Options) -> Module:
    """The module with lookups in the entry and in bodies, conditions and branches, not in computations that are called
    for elements."""
    called_for_elements = {
        c
        for computation in module.computations()
        for i in computation.instructions
        if i.op.calling and not i.op.is_control_flow
        for c in i.op.called()
    }
    skipped = {c.name for c in called_for_elements}
    return module.map_computations(lambda c: c if c.name in skipped else _tabulated(c, options))


def _is_bytes(value: Instruction) -> bool:
    return value.shape.is_array and value.shape.element_type in BYTES


@heuristic()
def _tabulated(computation: Computation, options: Options) -> Computation:
    if sum(map(_is_bytes, computation.instructions)) < 2:
        return computation
    arguments, users = arguments_of(computation, _is_bytes), computation.users
    lookups: dict[Instruction, tuple[Instruction, TableLookup]] = {}
    inner: set[Instruction] = set()  # values that results of tables alone depend on
    for i, argument in reversed(arguments.items()):
        if (
            i is not computation.root
            and users[i]
            and all(arguments.get(u) is argument and (u in inner or _is_bytes(u)) for u in users[i])
        ):
            inner.add(i)
            continue
        if not _is_bytes(i) or isinstance(i.op, TableLookup):
            continue
        members = chain(i, argument)
        saved = 0 if members is None else cost(members, users) - options.lookup_cycles
        if members is None or saved <= 0 or saved * estimate(i.shape.elements) < _LEAST_CYCLES:
            continue
        lookups[i] = argument, TableLookup(_table(members, argument), i.shape.element_type)
    return _with_lookups(computation, lookups, options.looks_up_registers) if lookups else computation


def _table(members: list[Instruction], argument: Instruction) -> tuple[int, ...]:
    """The results of a chain for all bytes, in the order of their bits."""
    every = np.arange(ENTRIES, dtype=np.uint8).view(argument.shape.element_type.dtype)
    return tuple(map(int, evaluated(members, argument, every)))


def _with_lookups(
    computation: Computation, lookups: dict[Instruction, tuple[Instruction, TableLookup]], is_apart: bool
) -> Computation:
    """The computation with lookups for some instructions, between barriers where these are to be loops of their own."""
    done: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        if old not in lookups:
            done[old] = old.with_operands([done[o] for o in old.operands])
            continue
        argument, op = lookups[old]
        value = done[argument]
        if is_apart:
            value = make(OptimizationBarrier(), value, metadata=argument.metadata)
        value = make(op, value, name=old.name, metadata=old.metadata)
        done[old] = make(OptimizationBarrier(), value, metadata=old.metadata) if is_apart else value
    return computation.mapped(done)
