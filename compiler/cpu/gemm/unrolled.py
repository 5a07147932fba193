"""Matrix products so small that a call would cost more than the arithmetic: written out, one batch after the other."""

from __future__ import annotations

import math

from ....runtime.llvm.addressing import Int, Ptr
from ....runtime.llvm.ir_builder import Function, ModuleText, vector_type
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import VectorValue
from ...analysis.gemm_problem import GemmProblem
from ..codegen.kernel_info import KernelInfo
from ..codegen.memory_types import memory_type
from ..codegen.parallel_for import KERNEL_PARAMETERS
from .compute_types import Compute, compute_of
from .tasks import PARALLEL_US, TASK_US

MAX_PRODUCTS = 128  # of one batch
BATCH_NS, PRODUCT_NS = 4.0, 0.15  # estimates


def emit_unrolled(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    epilogue: str | None,
    buffers: tuple[int, int, int, int],
) -> KernelInfo | None:
    """Writes the kernel of a problem as emit_gemm does; None where the problem is not so small. A task is one batch."""
    compute = compute_of(problem.element_type, problem.result_type, problem.quads)
    batches = math.prod(problem.batch)
    if compute is None or not is_tiny(problem) or batches == 0:
        return None
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    context, table = f.pointers("context", "buffers")
    a, b, c = (table.at(number, "ptr").load_ptr() for number in buffers[:3])
    axes = _merged_batch_axes(problem)
    with f.loop(f.integer("low"), f.integer("high")) as task:
        offsets = _batch_offsets(task.index, axes)
        _Product(f, Compute(target, compute), problem, (a, b, c), offsets).write()
        if epilogue:
            f.call(epilogue, "void", [context, table, task.index, 0, problem.m, 0, problem.n])
    f.ret()
    microseconds = batches * (BATCH_NS + problem.m * problem.n * problem.k * PRODUCT_NS) / 1e3
    grain = max(1, min(batches, math.ceil(TASK_US * batches / microseconds)))
    parallel = batches > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelInfo(module.define("gemm", f), batches, grain, parallel, 0, problem.flops, problem.bytes)


def is_tiny(problem: GemmProblem) -> bool:
    """Whether one batch of a product is so small that it is written out."""
    return 0 < problem.m * problem.n * problem.k <= MAX_PRODUCTS


def _merged_batch_axes(problem: GemmProblem) -> list[tuple[int, int, int, int]]:
    """(size, stride in A, in B, in C) of the batch axes, neighbours as one where they lie so."""
    axes: list[tuple[int, int, int, int]] = []
    for size, a, b, c in zip(problem.batch, problem.a_strides, problem.b_strides, problem.c_strides):
        if size == 1:
            continue
        if axes and axes[-1][1:] == (a * size, b * size, c * size):
            axes[-1] = (axes[-1][0] * size, a, b, c)
        else:
            axes.append((size, a, b, c))
    return axes or [(1, 0, 0, 0)]


def _batch_offsets(t: Int, axes: list[tuple[int, int, int, int]]) -> list[Int]:
    """Elements from the starts of A, B and C to those of batch t."""
    offsets = [t * 0] * 3
    for number, (size, *strides) in enumerate(reversed(axes)):
        index = t if number == len(axes) - 1 else t % size
        t = t // size
        offsets = [at + index * stride for at, stride in zip(offsets, strides)]
    return offsets


class _Product:
    """One batch: columns in pieces of a vector, of half a vector, ..., rows one by one."""

    def __init__(
        self,
        f: Function,
        compute: Compute,
        problem: GemmProblem,
        bases: tuple[Ptr, Ptr, Ptr],
        offsets: list[Int],
    ) -> None:
        self.f, self.compute, self.problem = f, compute, problem
        self.storage = memory_type(problem.element_type), memory_type(problem.b_type)
        types = (*self.storage, compute.type)
        self.a, self.b, self.c = (base.at(n, type_) for base, n, type_ in zip(bases, offsets, types))
        self.a_row, self.a_k = problem.a_strides[-2:]
        self.b_k, self.b_col = problem.b_strides[-2:]
        self.c_row, self.c_col = problem.c_strides[-2:]

    def write(self) -> None:
        """All columns."""
        column, n = 0, self.problem.n
        while column < n:
            lanes = min(self.compute.lanes, 1 << ((n - column).bit_length() - 1))
            self._columns(column, lanes)
            column += lanes

    def _columns(self, column: int, lanes: int) -> None:
        compute, problem = self.compute, self.problem
        rows_of_b = [self._row_of_b(k, column, lanes) for k in range(problem.k)]
        for m in range(problem.m):
            total = self.f.zero(vector_type(compute.type, lanes))
            for k, row in enumerate(rows_of_b):
                offset = m * self.a_row + k * self.a_k
                x = compute.load(self.a.at(offset, self.storage[0]), problem.element_type, 1)
                total = compute.multiply_add(x.splat(lanes), row, total)
            self._store(total, m * self.c_row + column * self.c_col)

    def _row_of_b(self, k: int, column: int, lanes: int) -> VectorValue:
        first, (_, storage), element = k * self.b_k + column * self.b_col, self.storage, self.problem.b_type
        if self.b_col == 1 or lanes == 1:
            return self.compute.load(self.b.at(first, storage), element, lanes)
        vector = self.f.poison(vector_type(self.compute.type, lanes))
        for j in range(lanes):
            one = self.compute.load(self.b.at(first + j * self.b_col, storage), element, 1)
            vector = vector.insert(one, j)
        return vector

    def _store(self, total: VectorValue, offset: int) -> None:
        type_ = self.compute.type
        if self.c_col == 1 or total.lanes == 1:
            self.c.at(offset, type_).store(total)
            return
        for j in range(total.lanes):
            value = total.extract(j)
            self.c.at(offset + j * self.c_col, type_).store(value)
