"""The verifier: every instruction's shape inferred again, and the checks of a whole module.

It runs on everything from outside: HLO text, and modules that a client compiles. Declared shapes are not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.dynamic_dimension_inference import infer_shape, with_marks
from ..errors import CompilerError, LimitError, ShapeError
from ..hlo_text.printer import print_instructions
from ..hlo_text.scanner import Malformed, inner
from ..limits import DEFAULT_LIMITS, Limits
from ..ops import CustomCall, Op, Parameter
from .expanded_size import ExpandedSize
from .module import Computation, Instruction, Module
from .module_attributes import CHECKS, check_aliases, check_fields, operand_shapes, parse_aliases
from .shape import Shape, check_size

_AROUND = 3


def verify(module: Module, limits: Limits = DEFAULT_LIMITS) -> Module:
    """The module, if it is well-formed.

    Raises: ShapeError  with the IR around the instruction. An op's own constraint; verify_c1: the inferred
        shape is not the instruction's; verify_c2: an operand is not defined before; verify_c3: parameters
        are not numbered in order, or one is not among the computation's; verify_c4: an attribute of the module
        does not fit it; verify_c5: an attribute of an instruction does not fit its operands. LimitError  more than
        the limits allow.
    """
    expanded_size = ExpandedSize(limits)
    computations = module.computations()
    limits.check("instructions", sum(len(c.instructions) for c in computations), "instructions")
    for computation in computations:
        verify_computation(computation, limits)
        expanded_size.add(computation)
    check_fields(module)
    for name, check in CHECKS.items():
        if name in module.attributes:
            try:
                check(module, limits)
            except Malformed as error:
                raise ShapeError(f"{name}: {error} (verify_c4)") from None
    return module


def verify_computation(computation: Computation, limits: Limits = DEFAULT_LIMITS) -> None:
    """Checks one computation, without its callees. Raises: as `verify`."""
    defined: set[Instruction] = set()
    parameters = set(computation.parameters)
    for number, parameter in enumerate(computation.parameters):
        if not isinstance(parameter.op, Parameter) or parameter.op.number != number:
            fail(computation, parameter, f"expected parameter {number} of {computation.name} (verify_c3)")
    for instruction in computation.instructions:
        if isinstance(instruction.op, Parameter) and instruction not in parameters:
            fail(computation, instruction, f"this is no parameter of {computation.name} (verify_c3)")
        for operand in instruction.operands:
            if operand not in defined:
                fail(computation, instruction, f"operand {operand.name} is not defined before (verify_c2)")
        shapes = [o.shape for o in instruction.operands]
        try:
            inferred = infer_shape(instruction.op, shapes)
            check_size(inferred, limits)
            check_attributes(instruction.op, shapes)
        except LimitError:
            raise
        except CompilerError as error:
            fail(computation, instruction, str(error))
        if not inferred.compatible(instruction.shape):
            fail(
                computation, instruction, f"has shape {instruction.shape}, inferred is {inferred} (verify_c1)"
            )
        defined.add(instruction)


def declared_shape(opcode: str, declared: Shape, inferred: Shape) -> Shape:
    """The inferred shape with the declared one's layout.

    Raises: ShapeError  the two are different.
    """
    if not inferred.compatible(declared):
        raise ShapeError(f"{opcode} has shape {declared}, inferred is {inferred}")
    return with_marks(declared, inferred)


def check_attributes(op: Op, operands: Sequence[Shape]) -> None:
    """Raises: ShapeError  verify_c5: operand_layout_constraints or output_to_operand_aliasing of a custom call are not
    of its operands and result. Malformed."""
    if not isinstance(op, CustomCall):
        return
    if op.operand_layout_constraints:
        with inner("operand_layout_constraints"):
            declared = Shape.tuple(operand_shapes(op.operand_layout_constraints, operands))
        if not declared.compatible(Shape.tuple(operands)):
            raise ShapeError(
                f"custom-call: operand_layout_constraints is {declared}, the operands are "
                f"{Shape.tuple(operands)} (verify_c5)"
            )
    if op.output_to_operand_aliasing:
        aliases = parse_aliases(op.output_to_operand_aliasing)
        check_aliases("output_to_operand_aliasing", aliases, operands, op.shape)


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
