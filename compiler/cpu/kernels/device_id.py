"""The kernels of replica-id and partition-id: a number of the run context."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.run_context import OFFSETS
from ...ir.module import Instruction
from ...options import Options
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS

_FIELDS = {"replica-id": "replica_id", "partition-id": "partition_id"}


def emit_device_number(
    module: ModuleText, target: Target, instruction: Instruction, options: Options
) -> KernelPlan:
    """Writes the kernel."""
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    result = f.load("ptr", f["buffers"], 8)
    f.store(f.load("i32", f.offset(f["context"], OFFSETS[_FIELDS[instruction.opcode]]), 4), result, 4)
    f.ret()
    return KernelPlan(module.define("device", f), 1, bytes=4)
