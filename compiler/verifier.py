"""The verifier: every instruction's shape inferred again, and what only a whole module shows."""

from __future__ import annotations

from .dynamic_sizes import infer_shape
from .errors import ShapeError
from .hlo_print import print_instructions
from .ir import Computation, Instruction, Module
from .ops import Parameter

_AROUND = 3


def verify(module: Module) -> Module:
    """The module, if it is well-formed.

    Raises: ShapeError  with the IR around the instruction. An op's own constraint; verify_c1: the inferred
        shape is not the instruction's; verify_c2: an operand is not defined before; verify_c3: parameters
        are not numbered in order, or one is not among the computation's.
    """
    for computation in module.computations():
        verify_computation(computation)
    return module


def verify_computation(computation: Computation) -> None:
    """Checks one computation; those that it calls are taken as they are. Raises: as `verify`."""
    known: set[Instruction] = set()
    parameters = set(computation.parameters)
    for number, parameter in enumerate(computation.parameters):
        if not isinstance(parameter.op, Parameter) or parameter.op.number != number:
            fail(computation, parameter, f"expected parameter {number} of {computation.name} (verify_c3)")
    for instruction in computation.instructions:
        if isinstance(instruction.op, Parameter) and instruction not in parameters:
            fail(computation, instruction, f"this is no parameter of {computation.name} (verify_c3)")
        for operand in instruction.operands:
            if operand not in known:
                fail(computation, instruction, f"operand {operand.name} is not defined before (verify_c2)")
        try:
            inferred = infer_shape(instruction.op, [o.shape for o in instruction.operands])
        except ShapeError as error:
            fail(computation, instruction, str(error))
        if not inferred.compatible(instruction.shape):
            fail(
                computation, instruction, f"has shape {instruction.shape}, inferred is {inferred} (verify_c1)"
            )
        known.add(instruction)


def fail(computation: Computation, instruction: Instruction, message: str) -> None:
    """Raises ShapeError: the message, then the instruction's lines of IR with the message beside it, then
    its origin."""
    lines = print_instructions(computation)
    at = next((n for n, (i, _) in enumerate(lines) if i is instruction), 0)
    shown = [f"  ... in {computation.name}:"] if at > _AROUND else [f"  in {computation.name}:"]
    for number in range(max(at - _AROUND, 0), min(at + _AROUND + 1, len(lines))):
        note = f"   <-- {message}" if number == at else ""
        shown.append(f"  {'>' if number == at else ' '} {lines[number][1]}{note}")
    metadata = instruction.metadata
    origin = [f"  from {metadata.op_type or 'node'} {metadata.op_name}"] if metadata.op_name else []
    if metadata.source_file:
        origin.append(f"  at {metadata.source_file}:{metadata.source_line}")
    raise ShapeError("\n".join([f"{instruction.opcode}: {message}", *shown, *origin]))
