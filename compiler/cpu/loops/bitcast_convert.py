"""bitcast-convert between types of different widths: in memory the bytes stay as they are."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ...ir.module import Computation
from ..codegen.kernel_info import KernelPlan
from .loop_fusion import KERNEL_PARAMETERS


def emit_reinterpret(module: ModuleText, computation: Computation) -> KernelPlan:
    """Writes the kernel of one bitcast-convert of a parameter to another width.

    Raises: UnsupportedError  a type that does not fill its bytes.
    """
    (operand,) = computation.root.operands
    for shape in (operand.shape, computation.root.shape):
        t = shape.element_type
        if t is ElementType.PRED or t.bits < 8:
            raise UnsupportedError(f"bitcast-convert: {shape} has elements that do not fill their bytes")
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    source = f.load("ptr", f["buffers"], 8)
    target = f.load("ptr", f.offset(f["buffers"], 1, "ptr"), 8)
    size = computation.root.shape.bytes
    name = module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    f.do(f"call void @{name}({', '.join(map(str, (target, source, i64(size), Value('i1', 'false'))))})")
    f.ret()
    return KernelPlan(module.define("reinterpret", f), 1 if size else 0, bytes=2 * size)
