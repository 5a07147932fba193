"""Right operands of matrix products that are packed before the product: constants when compiling, what a loop does not
change before the loop.

Only products that would pack that operand in every call are changed, so nothing but the time of packing is saved.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..errors import UnsupportedError
from ..ir import Instruction
from ..literal import Literal
from ..ops import Dot, Fusion
from .gemm_elements import COMPUTE_TYPES, SIZES
from .gemm_kernels import PACK, P
from .gemm_packing import PANELS_AT_ONCE, declare_packing, panels_name, write_packing
from .gemm_plan import (
    CLOCK_GHZ,
    PARALLEL_US,
    TASK_US,
    Blocking,
    GemmProblem,
    PackedLayout,
    pack_b_reference,
    packed_b_layout,
    parts,
    plan_gemm,
)
from .gemm_tiny import MOST_PRODUCTS
from .kernel_plan import KernelPlan
from .llvm_text import Function, ModuleText, Value, i64
from .output_fusion import contraction_of, gemm_problem, raw_type
from .target import Target


@dataclasses.dataclass(frozen=True)
class Packing:
    """Operand `number` of an instruction as a product's B, and the layout in which it is read without packing."""

    number: int
    problem: GemmProblem
    layout: PackedLayout
    blocking: Blocking

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the same operand is packed in the same way."""
        return self.problem.element_type, self.batches, self.problem.b_strides, self.layout

    @property
    def bytes(self) -> int:
        """Of the packed operand."""
        return math.prod(self.layout.shape) * self.layout.element_type.item_bytes

    @property
    def batches(self) -> tuple[tuple[int, int], ...]:
        """(size, stride in elements) of the batch axes that the operand has."""
        pairs = zip(self.problem.batch, self.problem.b_strides[:-2], strict=True)
        return tuple((size, stride) for size, stride in pairs if stride)


def packing_of(instruction: Instruction, target: Target) -> Packing | None:
    """How the right operand of an instruction's product is packed; None where that would not be done in every call."""
    if isinstance(instruction.op, Fusion):
        product = contraction_of(instruction.op.computation)
        if product is None or any(o.opcode != "parameter" for o in product.operands):
            return None
        right = product.operands[1] if len(product.operands) == 2 else None
        if right is None or sum(i.operands.count(right) for i in instruction.op.computation.instructions) != 1:
            return None
        number = instruction.op.computation.parameters.index(right)
    else:
        product, number = instruction, 1
    if not isinstance(product.op, Dot):
        return None
    try:
        problem = gemm_problem(product, raw_type(product.shape.element_type))
    except UnsupportedError:
        return None
    layout = packed_b_layout(problem, target)
    if layout is None or layout.element_type.item_bytes != problem.element_type.item_bytes \
            or problem.m * problem.n * problem.k <= MOST_PRODUCTS:
        return None
    blocking = plan_gemm(problem, target, False)
    if not blocking.vectors or blocking.parameters[P.B_MODE] != PACK:
        return None
    return Packing(number, problem, layout, blocking)


def packed_literal(literal: Literal, packing: Packing) -> Literal:
    """A constant operand, packed."""
    problem, size = packing.problem, literal.array.itemsize
    batch = tuple(d if s else 1 for d, s in zip(problem.batch, problem.b_strides[:-2], strict=True))
    b = np.lib.stride_tricks.as_strided(literal.array, (*batch, problem.k, problem.n),
                                        [s * size for s in problem.b_strides], writeable=False)
    return Literal(pack_b_reference(b, packing.layout), packing.layout.element_type)


def emit_packing(module: ModuleText, target: Target, packing: Packing) -> KernelPlan:
    """Writes the kernel that packs an operand: its buffers are the operand and the packed one."""
    problem, blocking, compute = packing.problem, packing.blocking, packing.blocking.compute
    assert compute is not None
    element, vectors = problem.element_type, blocking.vectors
    if module.embed_libraries:
        write_packing(module, target, element, compute, vectors, "internal")
    else:
        declare_packing(module, element, compute, vectors)
    size, made_size = element.item_bytes, SIZES[COMPUTE_TYPES[compute]]
    columns = PANELS_AT_ONCE * packing.layout.columns
    groups, panel_bytes = parts(problem.n, columns), problem.k * packing.layout.columns * made_size
    f = Function(module, "SELF", [("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid")])
    source, target_at = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(2))

    def task(number: Value, _: list[Value]) -> None:
        column = f.mul(f.remainder(number, groups), columns)
        batch: Value | int = f.divide(number, groups)
        batch_at = f.mul(batch, parts(problem.n, packing.layout.columns) * panel_bytes)
        at = f.mul(column, problem.b_strides[-1] * size)
        for dim, stride in reversed(packing.batches):
            at = f.add(at, f.mul(f.remainder(batch, dim), stride * size))
            batch = f.divide(batch, dim)
        panel = f.mul(f.remainder(number, groups), PANELS_AT_ONCE * panel_bytes)
        f.do(f"call void @{panels_name(element, compute, vectors)}({f.offset(source, at)}, "
             f"{f.offset(target_at, f.add(batch_at, panel))}, {i64(problem.k)}, "
             f"{i64(f.minimum(columns, f.sub(problem.n, column)))}, {i64(problem.b_strides[-2] * size)}, "
             f"{i64(problem.b_strides[-1] * size)})")

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    tasks = groups * math.prod(size for size, _ in packing.batches)
    microseconds = packing.bytes / 5 / (CLOCK_GHZ * 1e3)
    grain = max(1, min(tasks, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))))
    return KernelPlan(module.define("pack", f), tasks, grain,
                      tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US, bytes=2 * packing.bytes)
