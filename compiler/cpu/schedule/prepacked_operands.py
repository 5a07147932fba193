"""Operands of contractions that are read packed.

A constant is packed when compiling; an invariant argument once, before the entry is called; an operand that a loop does
not change in the preheader of the outermost such loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....runtime.code.artifact import Packed
from ...ir.module import Instruction, make
from ...ops import Constant, Copy
from .aliasing import LogicalBuffer
from .buffer import Buffer
from .prepacking import Packing, emit_packing, packed_literal, pays_for_memory
from .scope import Context, EnclosingLoop, Scope
from .thunks import KernelThunk, PrepackThunk


def packed_operand(scope: Scope, instruction: Instruction) -> tuple[int, Buffer] | None:
    """The number of an operand that is packed before the instruction runs, and the packed buffer."""
    packing = scope.context.packings.of(instruction, scope.context.target)
    if packing is None:
        return None
    operand = instruction.operands[packing.number]
    (value,) = scope.values.aliasing.buffers[operand]
    if isinstance(value.instruction.op, Constant):
        literal = list(value.instruction.op.literal.leaves())[value.leaf]
        return packing.number, scope.context.constants.buffer(packed_literal(literal, packing))
    source = scope.values.assigned[value]
    if _is_packed_argument(scope, source, packing):
        return packing.number, _packed_argument(scope, source, operand, packing)
    loop = _outermost_invariant_loop(scope, source)
    return None if loop is None else (packing.number, _packed_before(scope, loop, source, operand, packing))


def is_known_before(context: Context, value: LogicalBuffer, assigned: Mapping[LogicalBuffer, Buffer]) -> bool:
    """Whether a value is one that can be packed before the computation runs."""
    buffer, loops = assigned.get(value), context.loops
    is_invariant = buffer in context.packed_arguments.invariant or loops and buffer in loops[-1].invariant
    return isinstance(value.instruction.op, Constant) or bool(buffer and is_invariant)


def is_only_read_packed(scope: Scope, constant: Instruction) -> bool:
    """Whether all instructions that read a constant read it packed."""
    users, order = scope.users.get(constant, ()), scope.values.order
    if constant.shape.is_tuple or order.last_read.get(LogicalBuffer(constant, 0), -1) >= len(
        order.instructions
    ):
        return False
    packings = scope.context.packings
    return bool(users) and all(
        (packing := packings.of(user, scope.context.target)) is not None
        and user.operands.count(constant) == 1
        and user.operands[packing.number] is constant
        for user in users
    )


def _is_packed_argument(scope: Scope, source: Buffer, packing: Packing) -> bool:
    arguments = scope.context.packed_arguments
    if source not in arguments.invariant:
        return False
    packed_bytes = sum(b.bytes for b in arguments.buffers.values())
    return (source, packing.key) in arguments.buffers or pays_for_memory(packing, packed_bytes)


def _packed_argument(scope: Scope, source: Buffer, operand: Instruction, packing: Packing) -> Buffer:
    """The buffer of an argument that is packed before the entry is called."""
    arguments = scope.context.packed_arguments
    buffer = arguments.buffers.get((source, packing.key))
    if buffer is None:
        buffer = Buffer("packed", packing.bytes, len(arguments.buffers))
        arguments.buffers[source, packing.key] = buffer
        arguments.thunks.append(PrepackThunk(_pack(scope, source, buffer, operand, packing)))
        arguments.packed.append(Packed(source.index, packing.bytes, repr(packing.key)))
    return buffer


def _outermost_invariant_loop(scope: Scope, source: Buffer) -> EnclosingLoop | None:
    """The outermost of the loops around that, like all loops inside it, do not change a buffer."""
    outermost = None
    for loop in reversed(scope.context.loops):
        if source not in loop.invariant:
            break
        outermost = loop
    return outermost


def _packed_before(
    scope: Scope, loop: EnclosingLoop, source: Buffer, operand: Instruction, packing: Packing
) -> Buffer:
    """The buffer of an operand that is packed before a loop."""
    buffer = loop.packed.get((source, packing.key))
    if buffer is None:
        buffer = loop.packed[source, packing.key] = scope.context.temporary(packing.bytes)
        loop.preheader.append(_pack(scope, source, buffer, operand, packing))
    return buffer


def _pack(
    scope: Scope, source: Buffer, target: Buffer, operand: Instruction, packing: Packing
) -> KernelThunk:
    context = scope.context
    kernel = context.kernels.written(emit_packing(context.kernels.text, context.target, packing))
    return KernelThunk(kernel, (source, target), make(Copy(), operand, name=f"{operand.name}.packed"))
