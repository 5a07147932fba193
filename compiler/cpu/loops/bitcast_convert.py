"""bitcast-convert between types of different widths: in memory the bytes stay as they are."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ...ir.module import Computation
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS


def emit_bitcast_convert(module: ModuleText, computation: Computation) -> KernelInfo:
    """Writes the kernel of one bitcast-convert of a parameter to another width.

    Raises: UnsupportedError  a type that does not fill its bytes.
    """
    (operand,) = computation.root.operands
    for shape in (operand.shape, computation.root.shape):
        t = shape.element_type
        if t is ElementType.PRED or t.bits < 8:
            raise UnsupportedError(f"bitcast-convert: {shape} has elements that do not fill their bytes")
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    buffers = f.pointer("buffers")
    source, target = buffers.load_ptr(), buffers.at(1, "ptr").load_ptr()
    size = computation.root.shape.bytes
    f.call("memcpy", "void", [target, source, size])
    f.ret()
    return KernelInfo(module.define("bitcast_convert", f), 1 if size else 0, bytes=2 * size)
