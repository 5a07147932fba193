"""The kernel of dynamic-update-slice: writes the update into the operand's buffer, which it shares with the result."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...ir.module import Instruction
from ...options import Options
from ..codegen.kernel_info import KernelPlan

_PARALLEL_BYTES = 1 << 18
_WORD_BYTES = (1, 2, 4, 8)


def emit_dynamic_update_slice(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel. A task is one run of the update that is contiguous in both arrays."""
    operand, update, *starts = (o.shape for o in instruction.operands)
    size = operand.element_type.item_bytes
    f = Function(
        module,
        "SELF",
        (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread")),
    )
    source = f.load("ptr", f["buffers"], 8)
    result = f.load("ptr", f.offset(f["buffers"], 8 * (1 + len(starts))), 8)
    at: Value | int = 0
    for axis, start in enumerate(starts):
        room = operand.dims[axis] - update.dims[axis]
        if room:
            index = _start(f, axis + 1, start.element_type.bits, start.element_type.is_unsigned, room)
            at = f.add(at, f.mul(index, operand.strides[axis] * size))
    target_start = f.offset(result, at)
    outer = update.rank
    while outer and (outer == update.rank or update.dims[outer] == operand.dims[outer]):
        outer -= 1
    run_bytes = math.prod(update.dims[outer:]) * size
    tasks = math.prod(update.dims[:outer]) if run_bytes else 0

    def run(task: Value, _: list[Value]) -> None:
        place: Value | int = 0
        rest: Value | int = task
        for axis in reversed(range(outer)):
            place = f.add(
                place,
                f.mul(f.remainder(rest, update.dims[axis]) if axis else rest, operand.strides[axis] * size),
            )
            rest = f.divide(rest, update.dims[axis])
        here, there = f.offset(source, f.mul(task, run_bytes)), f.offset(target_start, place)
        if run_bytes in _WORD_BYTES:
            f.store(f.load(f"i{8 * run_bytes}", here), there)
        else:
            f.call("memcpy", "ptr", [there, here, i64(run_bytes)])

    f.loop(f["low"], f["high"], 1, run)
    f.ret()
    moved = 2 * update.bytes
    return KernelPlan(
        module.define("update_slice", f),
        tasks,
        max(1, _PARALLEL_BYTES // max(run_bytes, 1)),
        moved > 2 * _PARALLEL_BYTES and tasks > 1,
        bytes=moved,
        initial=((0, 0),),
    )


def _start(f: Function, buffer: int, bits: int, unsigned: bool, room: int) -> Value:
    """A start, clamped to 0..room."""
    value = f.load(f"i{max(bits, 8)}", f.load("ptr", f.offset(f["buffers"], 8 * buffer), 8))
    if unsigned:
        wide = f.cast("zext", value, "i64")
        return f.intrinsic("umin", "i64", [wide, i64(room)])
    wide = f.cast("sext", value, "i64")
    return f.intrinsic("smin", "i64", [f.intrinsic("smax", "i64", [wide, i64(0)]), i64(room)])
