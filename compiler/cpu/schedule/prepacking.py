"""Right operands of matrix products and kernels of convolutions that are packed before the product: constants when
compiling, what a loop does not change before the loop.

Changed are products that would pack that operand in every call, and those that would read panels of it where it lies:
in far too many pages, of which only the panel's columns are wanted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ...ir.literal import Literal
from ...ir.module import Instruction
from ...ops import Dot, Fusion
from ..codegen.kernel_info import KernelPlan
from ..convolution.problem import ConvolutionProblem
from ..gemm.blocking import (
    CLOCK_GHZ,
    PARALLEL_US,
    TASK_US,
    GemmProblem,
    PackedLayout,
    pack_b_reference,
    packed_b_layout,
    packed_vectors,
    parts,
    plan_gemm,
)
from ..gemm.compute_types import COMPUTE_TYPES, SIZES
from ..gemm.microkernel import PACK, P
from ..gemm.packing import PANELS_AT_ONCE, use_panels
from ..gemm.unrolled import MOST_PRODUCTS
from ..output_fusion import contraction_of, gemm_problem, raw_type

LEAST_BYTES_KEPT = 32 << 10  # of what is kept packed beside the operand itself
# Products of so few rows lose much to packing; those of more rows a few percent, which is worth so much memory in all.
FEW_ROWS_KEPT, MOST_ROWS_KEPT, MOST_BYTES_KEPT = 64, 256, 64 << 20
Axes = tuple[tuple[int, int], ...]  # (size, stride in elements), slowest first


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Where the elements of a product's right matrix lie: one matrix for each index of `batch`, its rows counted along
    `depth`, from `offset` elements on."""

    element_type: ElementType
    offset: int
    batch: Axes
    depth: Axes
    columns: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Packing:
    """Operand `number` of an instruction as the right matrix of a product with `rows` rows, and the layout in which it
    is read without packing, in panels of `vectors` vectors."""

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
    """How the right operand of an instruction's product is packed; None where nothing is gained."""
    if isinstance(instruction.op, Fusion):
        product = contraction_of(instruction.op.computation)
        if product is None or any(o.opcode != "parameter" for o in product.operands):
            return None
        right = product.operands[1] if len(product.operands) == 2 else None
        if (
            right is None
            or sum(i.operands.count(right) for i in instruction.op.computation.instructions) != 1
        ):
            return None
        number = instruction.op.computation.parameters.index(right)
    else:
        product, number = instruction, 1
    result_type = raw_type(product.shape.element_type)
    problem: GemmProblem | ConvolutionProblem | None
    if isinstance(product.op, Dot):
        try:
            problem = gemm_problem(product, result_type)
        except UnsupportedError:
            return None
    else:
        from ..convolution.emit import packable

        problem = packable(product, result_type, target)
    if problem is None:
        return None
    if isinstance(problem, GemmProblem):
        return _of_product(number, problem, target)
    return _of_convolution(number, problem, target)


def pays_for_memory(packing: Packing, kept_bytes: int) -> bool:
    """Whether to pack in every call costs enough for the packed operand to be kept beside the operand, as `kept_bytes`
    are already."""
    few = packing.rows <= FEW_ROWS_KEPT
    return packing.bytes >= LEAST_BYTES_KEPT and (
        few or packing.rows <= MOST_ROWS_KEPT and kept_bytes + packing.bytes <= MOST_BYTES_KEPT
    )


def _of_product(number: int, problem: GemmProblem, target: Target) -> Packing | None:
    layout = packed_b_layout(problem, target)
    if (
        layout is None
        or layout.element_type.item_bytes != problem.element_type.item_bytes
        or problem.m * problem.n * problem.k <= MOST_PRODUCTS
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
    return Packing(number, problem.m, matrix, layout, blocking.compute, vectors)


def _of_convolution(number: int, problem: ConvolutionProblem, target: Target) -> Packing | None:
    from ..convolution.implicit_gemm import axes_of, packed_kernel

    found = packed_kernel(problem, target)
    if found is None or found[0].element_type.item_bytes != problem.kernel_type.item_bytes:
        return None
    layout, plan = found
    window = ((a.window, a.kernel_stride) for a in axes_of(problem))
    batch = ((problem.groups, problem.kernel_group),) if problem.groups > 1 else ()
    depth = _joined((*window, (problem.inputs, problem.kernel_input)))
    matrix = Matrix(
        problem.kernel_type, problem.kernel_offset, batch, depth, (problem.outputs, problem.kernel_output)
    )
    return Packing(number, problem.batch * problem.positions, matrix, layout, plan.compute, plan.vectors)


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
    """A constant operand, packed."""
    matrix, layout, size = packing.matrix, packing.layout, literal.array.itemsize
    axes = (*matrix.batch, *matrix.depth, matrix.columns)
    b = np.lib.stride_tricks.as_strided(
        literal.array.reshape(-1)[matrix.offset :],
        [size for size, _ in axes],
        [stride * size for _, stride in axes],
        writeable=False,
    )
    return Literal(
        pack_b_reference(b.reshape(*layout.shape[:-3], layout.shape[-2], matrix.columns[0]), layout),
        layout.element_type,
    )


def emit_packing(module: ModuleText, target: Target, packing: Packing) -> KernelPlan:
    """Writes the kernel that packs an operand: its buffers are the operand and the packed one."""
    matrix, compute, vectors = packing.matrix, packing.compute, packing.vectors
    element = matrix.element_type
    pack = use_panels(module, target, element, compute, vectors, matrix.columns[1])
    size, row_bytes = element.item_bytes, packing.layout.columns * SIZES[COMPUTE_TYPES[compute]]
    outer, (run, run_stride) = matrix.depth[:-1], matrix.depth[-1]
    runs = math.prod(size for size, _ in outer)
    # Panels of one run of rows go side by side; else the parts of a panel do not follow each other.
    panels = PANELS_AT_ONCE if runs == 1 else 1
    (width, column_stride), columns = matrix.columns, panels * packing.layout.columns
    groups, panel_bytes = parts(width, columns), runs * run * row_bytes
    f = Function(
        module, "SELF", [("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid")]
    )
    source, target_at = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(2))

    def place(index: Value | int, axes: Axes) -> Value | int:
        """Offset in bytes of an index that counts along axes."""
        at: Value | int = 0
        for dim, stride in reversed(axes):
            at = f.add(at, f.mul(f.remainder(index, dim), stride * size))
            index = f.divide(index, dim)
        return at

    def task(number: Value, _: list[Value]) -> None:
        column, batch = f.mul(f.remainder(number, groups), columns), f.divide(number, groups)
        at = f.add(place(batch, matrix.batch), f.mul(column, column_stride * size))
        at = f.add(at, matrix.offset * size)
        panel = f.add(
            f.mul(f.remainder(number, groups), panels * panel_bytes),
            f.mul(batch, parts(width, packing.layout.columns) * panel_bytes),
        )

        def part(number: Value | int, _: list[Value]) -> None:
            f.do(
                f"call void @{pack}("
                f"{f.offset(source, f.add(at, place(number, outer)))}, "
                f"{f.offset(target_at, f.add(panel, f.mul(number, run * row_bytes)))}, {i64(run)}, "
                f"{i64(f.minimum(columns, f.sub(width, column)))}, {i64(run_stride * size)}, "
                f"{i64(column_stride * size)})"
            )

        if runs == 1:
            part(0, [])
        else:
            f.loop(0, runs, 1, part)

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    tasks = groups * math.prod(size for size, _ in matrix.batch)
    microseconds = packing.bytes / 5 / (CLOCK_GHZ * 1e3)
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    return KernelPlan(
        module.define("pack", f),
        tasks,
        grain,
        tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US,
        bytes=2 * packing.bytes,
    )
