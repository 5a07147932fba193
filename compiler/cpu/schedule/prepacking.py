"""Prepacking: right operands of dots and kernels of convolutions that are packed before the instruction runs.

Dots are prepacked that would pack the operand in every call, and those that would read panels of it in place, from many
pages of which only the panel's columns are used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr
from ....runtime.llvm.target import Target
from ....runtime.sizes import estimate
from ...analysis.convolution_problem import ConvolutionProblem, axes_of
from ...analysis.gemm_problem import GemmProblem, gemm_problem
from ...analysis.output_view import raw_type
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ...ir.literal import Literal
from ...ir.module import Instruction
from ...ops import Dot, Fusion, Parameter
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..convolution.blocking import packable, packed_kernel
from ..gemm.blocking import PackedLayout, pack_b_reference, packed_b_layout, plan_gemm
from ..gemm.compute_types import COMPUTE_TYPES, SIZES
from ..gemm.driver import PACK, P
from ..gemm.packing import PANELS_AT_ONCE, use_panels
from ..gemm.tasks import CLOCK_GHZ, PARALLEL_US, TASK_US, packed_vectors, parts
from ..gemm.unrolled import MAX_PRODUCTS
from ..output_fusion import contraction_of

MIN_PACKED_BYTES = 32 << 10  # of an operand that is stored packed as well
# Contractions of few rows lose much without prepacking; those of more rows a few percent, which is worth
# MAX_PACKED_BYTES for all of them together.
FEW_ROWS, MAX_ROWS, MAX_PACKED_BYTES = 64, 256, 64 << 20
Axes = tuple[tuple[int, int], ...]  # (size, stride in elements), slowest first


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Where the elements of a contraction's right matrix lie.

    There is one matrix for each index of `batch`, its rows counted along `depth`, from `offset` elements on.
    """

    element_type: ElementType
    offset: int
    batch: Axes
    depth: Axes
    columns: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Packing:
    """Operand `number` of an instruction as the right matrix of a contraction with `rows` rows.

    The packed layout has panels of `vectors` vectors.
    """

    number: int
    rows: int
    matrix: Matrix
    layout: PackedLayout
    compute: str
    vectors: int

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the same operand is packed in the same way."""
        return self.matrix, self.layout

    @property
    def bytes(self) -> int:
        """Of the packed operand."""
        return math.prod(self.layout.shape) * self.layout.element_type.item_bytes


def packing_of(instruction: Instruction, target: Target) -> Packing | None:
    """How the right operand of an instruction's contraction is packed; None where nothing is gained."""
    operand = _right_operand(instruction)
    if operand is None:
        return None
    contraction, number = operand
    result_type = raw_type(contraction)
    if isinstance(contraction.op, Dot):
        try:
            return _of_dot(number, gemm_problem(contraction, result_type), target)
        except UnsupportedError:
            return None
    problem = packable(contraction, result_type, target)
    if isinstance(problem, GemmProblem):  # a convolution of single elements
        return _of_dot(number, problem, target)
    return None if problem is None else _of_convolution(number, problem, target)


def _right_operand(instruction: Instruction) -> tuple[Instruction, int] | None:
    """The contraction, and the number of the instruction's operand that it alone reads as its right operand."""
    if not isinstance(instruction.op, Fusion):
        return instruction, 1
    computation = instruction.op.computation
    contraction = contraction_of(computation)
    if contraction is None or not all(isinstance(o.op, Parameter) for o in contraction.operands):
        return None
    right = contraction.operands[1] if len(contraction.operands) == 2 else None
    if right is None or sum(i.operands.count(right) for i in computation.instructions) != 1:
        return None
    return contraction, computation.parameters.index(right)


def pays_for_memory(packing: Packing, packed_bytes: int) -> bool:
    """Whether the packed operand is worth its memory, where other operands take `packed_bytes` already."""
    if packing.bytes < MIN_PACKED_BYTES:
        return False
    return packing.rows <= FEW_ROWS or (
        packing.rows <= MAX_ROWS and packed_bytes + packing.bytes <= MAX_PACKED_BYTES
    )


def _of_dot(number: int, problem: GemmProblem, target: Target) -> Packing | None:
    layout = packed_b_layout(problem, target)
    if (
        layout is None
        or layout.element_type.item_bytes != problem.b_type.item_bytes
        or estimate(problem.m * problem.n * problem.k) <= MAX_PRODUCTS
    ):
        return None
    blocking = plan_gemm(problem, target, False)
    if blocking.compute is None or blocking.parameters[P.B_MODE] != PACK and problem.n <= layout.columns:
        return None
    batch = tuple((size, s) for size, s in zip(problem.batch, problem.b_strides[:-2], strict=True) if s)
    matrix = Matrix(
        problem.element_type,
        0,
        batch,
        ((problem.k, problem.b_strides[-2]),),
        (problem.n, problem.b_strides[-1]),
    )
    vectors = packed_vectors(target, blocking.compute, problem.n)
    return Packing(number, estimate(problem.m), matrix, layout, blocking.compute, vectors)


def _of_convolution(number: int, problem: ConvolutionProblem, target: Target) -> Packing | None:
    packed = packed_kernel(problem, target)
    if packed is None or packed[0].element_type.item_bytes != problem.kernel_type.item_bytes:
        return None
    layout, blocking = packed
    window = ((a.window, a.kernel_stride) for a in axes_of(problem))
    batch = ((problem.groups, problem.kernel_group),) if problem.groups > 1 else ()
    depth = _joined((*window, (problem.in_channels, problem.kernel_input)))
    matrix = Matrix(
        problem.kernel_type,
        problem.kernel_offset,
        batch,
        depth,
        (problem.out_channels, problem.kernel_output),
    )
    return Packing(
        number,
        estimate(problem.batch * problem.positions),
        matrix,
        layout,
        blocking.compute,
        blocking.vectors,
    )


def _joined(axes: Iterable[tuple[int, int]]) -> Axes:
    """The axes, those that are one run of memory as one."""
    joined: list[tuple[int, int]] = []
    for size, stride in axes:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = joined[-1][0] * size, stride
        elif size != 1:
            joined.append((size, stride))
    return tuple(joined) or ((1, 1),)


def packed_literal(literal: Literal, packing: Packing) -> Literal:
    """A constant operand, packed; elements of the matrix may be several of the operand."""
    matrix, layout, size = packing.matrix, packing.layout, packing.matrix.element_type.item_bytes
    elements = literal.array.reshape(-1)
    if elements.itemsize != size:
        elements = elements.view(matrix.element_type.dtype)
    axes = (*matrix.batch, *matrix.depth, matrix.columns)
    b = np.lib.stride_tricks.as_strided(
        elements[matrix.offset :],
        [size for size, _ in axes],
        [stride * size for _, stride in axes],
        writeable=False,
    )
    return Literal(
        pack_b_reference(b.reshape(*layout.shape[:-3], layout.shape[-2], matrix.columns[0]), layout),
        layout.element_type,
    )


@dataclasses.dataclass(frozen=True)
class _PackingTasks:
    """How the packing of an operand is divided: a task packs `panels` panels of one matrix of the batch, run of rows by
    run of rows.

    Units: bytes, of rows and panels of the packed operand.
    """

    packing: Packing

    @property
    def row_bytes(self) -> int:
        return self.packing.layout.columns * SIZES[COMPUTE_TYPES[self.packing.compute]]

    @property
    def runs(self) -> int:
        """Runs of rows that follow each other at one stride."""
        return math.prod(size for size, _ in self.packing.matrix.depth[:-1])

    @property
    def panels(self) -> int:
        """Panels of one run go side by side; else the parts of a panel do not follow each other."""
        return PANELS_AT_ONCE if self.runs == 1 else 1

    @property
    def columns(self) -> int:
        return self.panels * self.packing.layout.columns

    @property
    def groups(self) -> int:
        """Tasks of a matrix."""
        return parts(self.packing.matrix.columns[0], self.columns)

    @property
    def panel_bytes(self) -> int:
        return self.runs * self.packing.matrix.depth[-1][0] * self.row_bytes

    @property
    def matrix_bytes(self) -> int:
        return parts(self.packing.matrix.columns[0], self.packing.layout.columns) * self.panel_bytes

    @property
    def count(self) -> int:
        return self.groups * math.prod(size for size, _ in self.packing.matrix.batch)


def emit_packing(module: ModuleText, target: Target, packing: Packing) -> KernelInfo:
    """Writes the kernel that packs an operand: its buffers are the operand and the packed one."""
    matrix, tasks = packing.matrix, _PackingTasks(packing)
    pack = use_panels(
        module, target, matrix.element_type, packing.compute, packing.vectors, matrix.columns[1]
    )
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    source, packed = (f.pointer("buffers").at(j, "ptr").load_ptr() for j in range(2))
    with f.loop(f.integer("low"), f.integer("high")) as loop:
        _write_packing_task(f, pack, tasks, loop.index, source, packed)
    f.ret()
    microseconds = packing.bytes / 5 / (CLOCK_GHZ * 1e3)
    grain = max(1, min(tasks.count, math.ceil(TASK_US * tasks.count / max(microseconds, 1e-3))))
    return KernelInfo(
        module.define("pack", f),
        tasks.count,
        grain,
        tasks.count > 1 and target.threads > 1 and microseconds >= PARALLEL_US,
        bytes=2 * packing.bytes,
    )


def _write_packing_task(
    f: Function, pack: str, tasks: _PackingTasks, task: Int, source: Ptr, packed: Ptr
) -> None:
    """The calls of the function `pack` for the task of that number."""
    matrix, size = tasks.packing.matrix, tasks.packing.matrix.element_type.item_bytes
    (width, column_stride), (run, run_stride) = matrix.columns, matrix.depth[-1]

    def byte_offset(index: Int, axes: Axes) -> Int:
        """Offset in bytes of an index that counts along axes."""
        at = f.i64(0)
        for dim, stride in reversed(axes):
            at = at + index % dim * (stride * size)
            index = index // dim
        return at

    column, batch = task % tasks.groups * tasks.columns, task // tasks.groups
    first = byte_offset(batch, matrix.batch) + column * (column_stride * size) + matrix.offset * size
    panel = task % tasks.groups * (tasks.panels * tasks.panel_bytes) + batch * tasks.matrix_bytes

    def pack_run(number: Int) -> None:
        """Packs a run of rows."""
        f.call(
            f.symbol(pack),
            "void",
            [
                source + (first + byte_offset(number, matrix.depth[:-1])),
                packed + (panel + number * (run * tasks.row_bytes)),
                run,
                f.i64(tasks.columns).minimum(width - column),
                run_stride * size,
                column_stride * size,
            ],
        )

    if tasks.runs == 1:
        pack_run(f.i64(0))
    else:
        with f.loop(0, tasks.runs) as rows:
            pack_run(rows.index)
