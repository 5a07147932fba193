"""Epilogues: a fused computation evaluated on a block of a matrix product's or convolution's result, right
after it."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ...errors import InternalError
from ...ir.module import Computation
from .access_analysis import Loops
from .affine import Affine, Atom
from .loop_fusion import FusionKernel

EPILOGUE_PARAMETERS = (
    ("ptr", "ctx"),
    ("ptr", "buffers"),
    ("i64", "batch"),
    ("i64", "row_low"),
    ("i64", "row_high"),
    ("i64", "col_low"),
    ("i64", "col_high"),
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
    roots = computation.root.operands if computation.root.opcode == "tuple" else (computation.root,)
    kernel = FusionKernel(module, target, computation, list(roots))
    for output, buffer in zip(kernel.outputs, output_buffers, strict=True):
        output.buffer = buffer
    kernel.settle(_view_loops(kernel.dims, view))
    f = Function(module, "SELF", EPILOGUE_PARAMETERS)
    nest = kernel.start(f, parameter_buffers)
    batch, row = (Atom(name, 0, extent - 1) for name, extent in zip(("batch", "row"), view))
    nest.bind(batch, f["batch"], 0)

    def columns() -> None:
        variables = [Affine.of(batch), Affine.of(row)]
        if kernel.vectorised:
            kernel.pieces(nest.depth, variables, f["col_low"], f["col_high"], 0, view[2])
        else:
            column = Atom("column", 0, view[2] - 1)
            nest.loop(
                nest.depth,
                f["col_low"],
                f["col_high"],
                1,
                column,
                lambda *_: kernel.level([*variables, Affine.of(column)], Affine.number(0)),
            )

    nest.loop(0, f["row_low"], f["row_high"], 1, row, lambda *_: columns())
    nest.finish()
    f.ret()
    return module.define("epilogue", f)


def is_made_of(whole: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether every axis of `whole` is made of whole neighbouring axes of dims; those of size 1 do not count."""
    rest = [d for d in dims if d != 1]
    for extent in (d for d in whole if d != 1):
        size = 1
        while size < extent and rest:
            size *= rest.pop(0)
        if size != extent:
            return False
    return not rest


def _view_loops(dims: Sequence[int], view: tuple[int, int, int]) -> Loops:
    """Loops over batch, rows and columns, each made of whole neighbouring axes."""
    digits: list[tuple[tuple[int, int, int, int], ...]] = [()] * len(dims)
    loop, step = 2, 1
    for axis in range(len(dims) - 1, -1, -1):
        while loop and step == view[loop] and dims[axis] > 1:
            loop, step = loop - 1, 1
        digits[axis] = ((loop, step, dims[axis], 1),) if dims[axis] > 1 else ()
        step *= dims[axis]
        if step > view[loop]:
            raise InternalError(
                f"epilogue: axes {list(dims)} are not whole parts of batch, rows, columns {view}"
            )
    return Loops(view, tuple(digits))
