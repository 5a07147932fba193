"""Epilogues: a fused computation evaluated on a block of the result of a contraction, right after it."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ....runtime.sizes import surely_less
from ...errors import InternalError
from ...ir.module import Computation
from ...ops import Tuple
from .access_analysis import Loops
from .affine import Affine, Symbol
from .loop_fusion import FusionKernel

EPILOGUE_PARAMETERS = parameters(
    "ptr context, ptr buffers, i64 batch, i64 row_low, i64 row_high, i64 col_low, i64 col_high"
)


def emit_epilogue(
    module: ModuleText,
    target: Target,
    computation: Computation,
    view: tuple[int, int, int],
    parameter_buffers: Sequence[int],
    output_buffers: Sequence[int],
) -> str:
    """Writes a function that evaluates the computation's outputs on one block; returns its name.

    The outputs are seen as `view`: [batch, rows, columns], each made of whole axes. Parameter k lies in
    buffer `parameter_buffers[k]` (the raw result among them), output k in `output_buffers[k]`; an output may
    lie over a parameter that is read at the output's own index only.
    """
    roots = computation.root.operands if isinstance(computation.root.op, Tuple) else (computation.root,)
    kernel = FusionKernel(module, target, computation, list(roots))
    for output, buffer in zip(kernel.outputs, output_buffers, strict=True):
        output.buffer = buffer
    kernel.set_loops(_view_loops(kernel.dims, view))
    f = Function(module, "SELF", EPILOGUE_PARAMETERS)
    nest = kernel.start(f, parameter_buffers)
    batch, row = (Symbol(name, 0, trip_count - 1) for name, trip_count in zip(("batch", "row"), view))
    nest.bind(batch, f.integer("batch"), 0)

    def columns() -> None:
        variables = [Affine.of(batch), Affine.of(row)]
        if kernel.vectorised:
            kernel.strip_mined_loops(
                nest.depth, variables, f.integer("col_low"), f.integer("col_high"), 0, view[2]
            )
        else:
            column = Symbol("column", 0, view[2] - 1)
            nest.loop(
                nest.depth,
                f.integer("col_low"),
                f.integer("col_high"),
                1,
                column,
                lambda *_: kernel.level([*variables, Affine.of(column)], Affine.number(0)),
            )

    nest.loop(0, f.integer("row_low"), f.integer("row_high"), 1, row, lambda *_: columns())
    nest.finish()
    f.ret()
    return module.define("epilogue", f)


def _view_loops(dims: Sequence[int], view: tuple[int, int, int]) -> Loops:
    """Loops over batch, rows and columns, each made of whole neighbouring axes."""
    delinearized: list[tuple[tuple[int, int, int, int], ...]] = [()] * len(dims)
    loop, step = 2, 1
    for axis in range(len(dims) - 1, -1, -1):
        has_loop = not surely_less(dims[axis], 2)
        while loop and step == view[loop] and has_loop:
            loop, step = loop - 1, 1
        delinearized[axis] = ((loop, step, dims[axis], 1),) if has_loop else ()
        step *= dims[axis]
        if surely_less(view[loop], step):
            raise InternalError(
                f"epilogue: axes {list(dims)} are not whole parts of batch, rows, columns {view}"
            )
    return Loops(view, tuple(delinearized))
