"""Convolutions of a number of images that is known at run time only: the kernel of one image, for each of them.

The kernel of one image finds its buffers in a table of its own, in which input and result are those of the image; in
front of the table stand the number of the image and the address of the whole table, for the epilogue.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.sizes import is_symbolic
from ...analysis.convolution_problem import ConvolutionProblem
from ...analysis.output_view import convolution_view
from ...errors import UnsupportedError
from ...ir.module import Instruction
from ...ops import Convolution
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..loops.epilogue import EPILOGUE_PARAMETERS
from .blocking import CLOCK_GHZ, TASK_US

_TABLE = 2  # slots before the buffers: the whole table, the image
_BUFFERS = 4  # input, weights, result, scratch; others are the epilogue's
_FLOPS_A_CYCLE = 16.0

Emit = Callable[[ConvolutionProblem, str | None], KernelInfo | None]


def is_of_any_batch(problem: ConvolutionProblem) -> bool:
    """Whether the number of images is the one size that is known at run time only."""
    sizes = (s for axis in problem.axes for s in (axis.input, axis.window, axis.output))
    return is_symbolic([problem.batch]) and not is_symbolic(
        (*sizes, problem.groups, problem.in_channels, problem.out_channels)
    )


def emit_by_image(
    module: ModuleText,
    target: Target,
    convolution: Instruction,
    problem: ConvolutionProblem,
    epilogue: str | None,
    emit: Emit,
) -> KernelInfo:
    """Writes the kernel of a convolution: `emit` writes that of one image.

    Raises: UnsupportedError  images are not the outermost axis, or no kernel is for them.
    """
    op = convolution.op
    assert isinstance(op, Convolution)
    if op.dims.output_batch or op.batch_groups > 1:
        raise UnsupportedError(
            "convolution: images that are not the outermost axis, as many as the run time says"
        )
    one = dataclasses.replace(problem, batch=1)
    inner = emit(one, epilogue and _epilogue(module, convolution, problem, epilogue))
    if inner is None:
        raise UnsupportedError("convolution: no kernel is for as many images as the run time says")
    f = Function(module, "SELF", KERNEL_PARAMETERS, attributes=DRIVER_ATTRIBUTES)
    whole = f.pointer("buffers")
    table = f.stack_slot(f"[{_TABLE + _BUFFERS} x i64]")
    table.store(whole)
    own = table + 8 * _TABLE
    f.call("memcpy", "ptr", [own, whole, 8 * _BUFFERS])
    image_bytes = {
        0: problem.input_batch * problem.input_type.item_bytes,
        2: problem.output_batch * problem.result_type.item_bytes,
    }
    with f.loop(f.integer("low"), f.integer("high")) as task:
        image, number = task.index // inner.tasks, task.index % inner.tasks
        (table + 8).store(image)
        for at, size in image_bytes.items():
            own.at(at, "ptr").store(whole.at(at, "ptr").load_ptr() + image * size)
        f.call(f.symbol(inner.symbol), "void", [f["context"], own, number, number + 1, f["thread"]])
    f.ret()
    microseconds = one.flops / (CLOCK_GHZ * 1e3 * _FLOPS_A_CYCLE) / inner.tasks
    return dataclasses.replace(
        inner,
        symbol=module.define("images", f),
        tasks=problem.batch * inner.tasks,
        grain=max(1, math.ceil(TASK_US / max(microseconds, 1e-3))),
        parallel=target.threads > 1,
    )


def _epilogue(
    module: ModuleText, convolution: Instruction, problem: ConvolutionProblem, epilogue: str
) -> str:
    """An epilogue that gets the part of one image, and calls the given one for its part of the whole view."""
    f = Function(module, "SELF", EPILOGUE_PARAMETERS)
    table = f.pointer("buffers")
    whole, image = (table + -8 * _TABLE).load_ptr(), (table + -8).load_int()
    batch, low, high = f.integers("batch", "row_low", "row_high")
    if convolution_view(convolution)[0] == 1:  # the positions of all images are rows
        low, high = (row + image * problem.positions for row in (low, high))
    else:
        batch = batch + image
    f.call(epilogue, "void", [f["context"], whole, batch, low, high, *f.integers("col_low", "col_high")])
    f.ret()
    return module.define("image_epilogue", f)
