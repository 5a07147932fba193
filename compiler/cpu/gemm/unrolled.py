"""Matrix products so small that a call would cost more than the arithmetic: written out, one batch after the other."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from ..codegen.memory_types import memory_type
from .blocking import PARALLEL_US, TASK_US, GemmProblem
from .compute_types import COMPUTE_TYPES, SIZES, compute_of, lanes_of, load_as, multiply_add, zero

MOST_PRODUCTS = 128  # of one batch
BATCH_NS, PRODUCT_NS = 4.0, 0.15  # estimates


def emit_tiny(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    epilogue: str | None,
    where: tuple[int, int, int, int],
) -> KernelPlan | None:
    """Writes the kernel of a problem as emit_gemm does; None where the problem is not tiny. A task is one batch."""
    compute = compute_of(problem.element_type, problem.result_type)
    products = problem.m * problem.n * problem.k
    batches = math.prod(problem.batch)
    if compute is None or not 0 < products <= MOST_PRODUCTS or batches == 0:
        return None
    f = Function(
        module, "SELF", [("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid")]
    )
    a, b, c = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in where[:3])
    axes = _merged(problem)

    def one(t: Value, _: list[Value]) -> None:
        at: list[Value | int] = [0, 0, 0]
        left: Value | int = t
        for number, (size, *strides) in enumerate(reversed(axes)):
            index = left if number == len(axes) - 1 else f.remainder(left, size)
            left = f.divide(left, size)
            at = [f.add(x, f.mul(index, s)) for x, s in zip(at, strides)]
        _multiply(f, target, problem, compute, (a, b, c), at)
        if epilogue:
            f.call(epilogue, "void", [f["ctx"], f["buffers"], t, *map(i64, (0, problem.m, 0, problem.n))])

    f.loop(f["lo"], f["hi"], 1, one)
    f.ret()
    microseconds = batches * (BATCH_NS + products * PRODUCT_NS) / 1e3
    grain = max(1, min(batches, math.ceil(TASK_US * batches / microseconds)))
    parallel = batches > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(module.define("gemm", f), batches, grain, parallel, 0, problem.flops, problem.bytes)


def _merged(problem: GemmProblem) -> list[tuple[int, int, int, int]]:
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


def _multiply(
    f: Function,
    target: Target,
    problem: GemmProblem,
    compute: str,
    bases: tuple[Value, Value, Value],
    at: list[Value | int],
) -> None:
    """One batch: columns in pieces of a vector, of half a vector, ..., rows one by one."""
    type_, storage = COMPUTE_TYPES[compute], memory_type(problem.element_type)
    a, b, c = (f.offset(base, x, t) for base, x, t in zip(bases, at, (storage, storage, type_)))
    (a_row, a_k), (b_k, b_col), (c_row, c_col) = (
        s[-2:] for s in (problem.a_strides, problem.b_strides, problem.c_strides)
    )

    def element(base: Value, offset: int) -> Value:
        return load_as(f, problem.element_type, type_, f.offset(base, offset, storage), 1)

    def row_of_b(k: int, column: int, lanes: int) -> Value:
        first = k * b_k + column * b_col
        if b_col == 1 or lanes == 1:
            return load_as(f, problem.element_type, type_, f.offset(b, first, storage), lanes)
        vector = Value(vector_type(type_, lanes), "poison")
        for j in range(lanes):
            value = element(b, first + j * b_col)
            vector = f.op(vector.type, f"insertelement {vector}, {value}, i64 {j}")
        return vector

    column = 0
    while column < problem.n:
        lanes = min(lanes_of(target, compute), 1 << ((problem.n - column).bit_length() - 1))
        rows_of_b = [row_of_b(k, column, lanes) for k in range(problem.k)]
        for m in range(problem.m):
            total = zero(vector_type(type_, lanes))
            for k, row in enumerate(rows_of_b):
                total = multiply_add(f, f.splat(element(a, m * a_row + k * a_k), lanes), row, total, target)
            to = m * c_row + column * c_col
            if c_col == 1 or lanes == 1:
                f.store(total, f.offset(c, to, type_), SIZES[type_])
                continue
            for j in range(lanes):
                f.store(f.extract(total, j), f.offset(c, to + j * c_col, type_), SIZES[type_])
        column += lanes
