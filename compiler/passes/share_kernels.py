"""Fusions that differ in numbers alone get these as operands: they are one kernel then.

    a = f32[8] fusion(x), calls={ multiply(p0, broadcast(0.50)) }         a = f32[8] fusion(x, 0.50), calls=f
    b = f32[8] fusion(y), calls={ multiply(p0, broadcast(0.25)) }    =>   b = f32[8] fusion(y, 0.25), calls=f

Layers of a network in integers differ in their scales: half of the code of such a network was copies. A number is read
before the loops. Those that code generation may look at stay where they are: only operands of arithmetic move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence

from ..ir.module import Computation, Instruction, Module
from ..ops import Broadcast, Constant, Fusion, Opcode, Parameter, is_op
from ..options import Options
from .cse import fingerprint

_ARITHMETIC = (Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY, Opcode.DIVIDE)


def share_kernels(module: Module, options: Options) -> Module:
    """The module with one computation for all fusions that differ in numbers alone."""
    alike: dict[Hashable, list[tuple[Computation, list[Instruction]]]] = {}
    fused = {op.computation: None for c in module.computations() for op in _fusions(c)}
    for computation in fused:
        if numbers := _numbers(computation):
            alike.setdefault(fingerprint(computation, numbers), []).append((computation, numbers))
    shared = dict[Computation, tuple[Computation, list[Instruction]]]()
    for group in alike.values():
        columns = list(zip(*(numbers for _, numbers in group), strict=True))
        differing = [k for k, column in enumerate(columns) if len({number.op for number in column}) > 1]
        if differing:
            moved = [(computation, [numbers[k] for k in differing]) for computation, numbers in group]
            common = _with_parameters(*moved[0])
            shared |= {computation: (common, numbers) for computation, numbers in moved}
    if not shared:
        return module

    def changed(fusion: Instruction) -> Instruction | None:
        op = fusion.op
        if not isinstance(op, Fusion) or op.computation not in shared:
            return None
        common, numbers = shared[op.computation]
        constants = [Instruction(number.op, (), number.shape) for number in numbers]
        new_op = dataclasses.replace(op, computation=common)
        return dataclasses.replace(fusion, op=new_op, operands=(*fusion.operands, *constants))

    return module.rewrite_ops((Fusion,), changed)


def _fusions(computation: Computation) -> Iterator[Fusion]:
    return (i.op for i in computation.instructions if isinstance(i.op, Fusion))


def _with_parameters(computation: Computation, numbers: Sequence[Instruction]) -> Computation:
    """The computation with further parameters in the place of numbers."""
    count = len(computation.parameters)
    parameters = {
        number: Instruction(Parameter(k, number.shape), (), number.shape, f"number.{k}")
        for k, number in enumerate(numbers, count)
    }
    changed = computation.rewrite(parameters.get)
    return Computation(changed.name, changed.root, (*changed.parameters, *parameters.values()))


def _numbers(computation: Computation) -> list[Instruction]:
    """The scalar constants of a fused computation that are operands of arithmetic alone."""
    users = computation.users

    def is_arithmetic(value: Instruction) -> bool:
        return all(
            is_op(user, *_ARITHMETIC) or (isinstance(user.op, Broadcast) and is_arithmetic(user))
            for user in users[value]
        )

    return [
        i
        for i in computation.instructions
        if isinstance(i.op, Constant)
        and i.shape.is_scalar
        and i.shape.element_type.is_float
        and i is not computation.root
        and is_arithmetic(i)
    ]
