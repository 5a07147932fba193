"""Which loops a fused computation becomes: a copy of bytes, a scan, a tiled transpose, a column reduction, or plain
loops over the elements of its outputs."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ...analysis.scan_axis import cumulative_axis
from ...ir.module import Computation
from ...ops import BitcastConvert, Tuple
from ...options import Options
from ..codegen.kernel_info import PLAIN, KernelInfo, KernelVariant
from ..codegen.parallel_for import KERNEL_PARAMETERS
from .access_analysis import choose_loops
from .bitcast_convert import emit_bitcast_convert
from .column_reduction import ColumnReduction, is_column_reduction
from .indexing import is_bitcast
from .loop_fusion import FusionKernel
from .scan import Scan
from .tiled_transpose import TiledTranspose, transposed_loop

_MAX_TILED_BOUNDARIES = 4  # of concatenations in a tile, where one operand is chosen for each element


def emit_fused(
    module: ModuleText,
    target: Target,
    computation: Computation,
    options: Options,
    variant: KernelVariant = PLAIN,
) -> KernelInfo:
    """Writes the kernel of a fused computation: parameters in, the root (or, of a tuple, its parts) out.

    Raises: UnsupportedError  an op in it has no code for its elements.
    """
    if isinstance(computation.root.op, BitcastConvert) and not is_bitcast(computation.root):
        return emit_bitcast_convert(module, computation)
    roots = computation.root.operands if isinstance(computation.root.op, Tuple) else (computation.root,)
    kernel = FusionKernel(module, target, computation, list(roots), variant.slices.parts)
    if math.prod(kernel.dims) == 0:
        f = Function(module, "SELF", KERNEL_PARAMETERS)
        f.ret()
        return KernelInfo(module.define("fusion", f), 0)
    cumulative = cumulative_axis(computation.root)
    if cumulative is not None:
        return Scan(kernel, *cumulative).emit()
    kernel.set_loops(choose_loops(kernel.dims, kernel.walk, variant.slices.parts))
    kernel.sink_split_loops()
    across = transposed_loop(kernel)
    if across is not None and len(kernel.accesses.boundaries) <= _MAX_TILED_BOUNDARIES:
        kernel = TiledTranspose(kernel, across)
    elif is_column_reduction(kernel):
        kernel = ColumnReduction(kernel)
    else:
        kernel.join_short_rows()
    return kernel.emit()
