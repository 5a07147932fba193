"""The kernel of dynamic-update-slice: writes the update into the operand's buffer, which it shares with the result."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, Int, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.sizes import is_symbolic, larger
from ...ir.element_types import ElementType
from ...ir.module import Instruction
from ...options import Options
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import load, single
from ..codegen.parallel_for import KERNEL_PARAMETERS

_PARALLEL_BYTES = 1 << 18
_WORD_BYTES = (1, 2, 4, 8)


def emit_dynamic_update_slice(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelInfo:
    """Writes the kernel. A task is one part of the update that is contiguous in both arrays."""
    operand, update, *starts = (o.shape for o in instruction.operands)
    size = operand.element_type.item_bytes
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    source = f.pointer("buffers").load_ptr()
    result = (f.pointer("buffers") + 8 * (1 + len(starts))).load_ptr()
    first = f.i64(0)
    for axis, start in enumerate(starts):
        room = operand.dims[axis] - update.dims[axis]
        if room:
            index = _start(f, axis + 1, start.element_type, room)
            first += index * (operand.strides[axis] * size)
    target_start = result + first
    outer = update.rank
    while outer and (outer == update.rank or update.dims[outer] == operand.dims[outer]):
        outer -= 1
    part_bytes = math.prod(update.dims[outer:]) * size
    tasks = math.prod(update.dims[:outer]) if part_bytes else 0
    with f.loop(f.integer("low"), f.integer("high")) as task:
        offset, rest = f.i64(0), task.index
        for axis in reversed(range(outer)):
            index = rest % update.dims[axis] if axis else rest
            offset += index * (operand.strides[axis] * size)
            rest = rest // update.dims[axis]
        part, output = source + task.index * part_bytes, target_start + offset
        if part_bytes in _WORD_BYTES:
            output.store(part.load(f"i{8 * part_bytes}", 1), 1)
        else:
            f.call("memcpy", "ptr", [output, part, part_bytes])
    f.ret()
    moved = 2 * update.bytes
    return KernelInfo(
        module.define("update_slice", f),
        tasks,
        larger(1, _PARALLEL_BYTES // larger(part_bytes, 1)),
        is_symbolic([moved]) or moved > 2 * _PARALLEL_BYTES and tasks > 1,
        bytes=moved,
        must_alias=((0, 0),),
    )


def _start(f: Function, buffer: int, t: ElementType, room: int) -> Int:
    """A start, clamped to 0..room."""
    value = single(load(f, t, (f.pointer("buffers") + 8 * buffer).load_ptr(), 1))
    if t.is_unsigned:
        return Int.of(f, value.cast("zext", "i64").call("umin", room))
    return Int.of(f, value.cast("sext", "i64")).maximum(0).minimum(room)
