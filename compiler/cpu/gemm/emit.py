"""Matrix multiplication: from a problem (sizes, strides, types) to a kernel in a module.

C[b, m, n] = sum_k A[b, m, k] * B[b, k, n]. The kernel of one shape is a stub: it splits [0, tasks) into
blocks of batch, rows and columns and calls one block function for each, with its parameters in a constant
array. The block function comes from a kernel library compiled once per machine (gemm/microkernel.py, gemv.py),
or, for complex numbers and rare result types, is written into the module (gemm/naive.py).

Tiny products are written out (gemm/unrolled.py). A product that is one column, or whose C is contiguous along m,
is computed transposed: C' = B' A'.
"""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from .blocking import (
    PARALLEL_US,
    TASK_US,
    Blocking,
    GemmProblem,
    PackedLayout,
    microseconds_of,
    pack_b_reference,
    packed_b_layout,
    parts,
    plan_gemm,
)
from .gemv import write_gemv
from .gemv_split_k import emit_by_depth
from .microkernel import (
    BLOCK_PARAMETERS,
    PACKED,
    P,
    declare_block,
    max_rows,
    parameter_table,
    sweep_name,
    sweep_table,
    write_gemm,
    write_sweep,
)
from .naive import write_simple
from .packing import use_panels, use_rows
from .unrolled import emit_tiny

__all__ = ["GemmProblem", "KernelPlan", "PackedLayout", "emit_gemm", "pack_b_reference", "packed_b_layout"]


def emit_gemm(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    epilogue: str | None = None,
    b_packed: bool = False,
    buffers: tuple[int, int, int, int] = (0, 1, 2, 3),
) -> KernelPlan:
    """Writes the kernel of a problem. `buffers`: where A, B, C and scratch stand among the kernel's buffers.

    `epilogue` names a function of the module, `void (ptr context, ptr buffers, i64 batch, i64 row_low,
    i64 row_high, i64 col_low, i64 col_high)`, called once for every finished block of C. With `b_packed` the
    buffer of B has the layout of packed_b_layout. The library is added to the module's, or its functions that
    are needed are written into a module that embeds them. Scratch is not read when scratch_bytes is 0.

    Raises: UnsupportedError  element types that no kernel computes.
    """
    strides = problem.c_strides
    column = problem.n == 1 or (strides[-1] != 1 and strides[-2] == 1)
    swapped = column and problem.m > 1 and not b_packed
    where = buffers
    if swapped:
        problem = problem.transposed()
        where = (buffers[1], buffers[0], *buffers[2:])
        epilogue = epilogue and _swapped_epilogue(module, epilogue)
    tiny = None if b_packed else emit_tiny(module, target, problem, epilogue, where)
    if tiny is not None:
        return tiny
    blocking = plan_gemm(problem, target, b_packed)
    compute, embed = blocking.compute, module.embed_libraries
    sweeps = {(width, mr): sweep_name(compute, width, mr) for width, mr in blocking.tiles} if compute else {}
    pack_a = pack_b = "null"
    if compute is None:
        write_simple(module, target, problem.element_type, problem.result_type)
    elif blocking.vectors == 0:
        if embed:
            write_gemv(module, target, problem.element_type, compute, "internal")
        else:
            declare_block(module, target, blocking.function)
        if blocking.task_depth:
            return emit_by_depth(module, target, problem, blocking, where, epilogue)
    else:
        if blocking.packs_a:
            pack_a = f"@{use_rows(module, target, problem.element_type, compute)}"
        if blocking.packs_b:
            pack_b = "@" + use_panels(
                module, target, problem.element_type, compute, blocking.vectors, problem.b_strides[-1]
            )
        if embed:
            write_gemm(module, target, compute, blocking.vectors, "internal")
            for width, mr in blocking.tiles:
                write_sweep(module, target, compute, width, mr, "internal")
        else:
            declare_block(module, target, blocking.function, sweeps)
    row_tasks = parts(problem.m, blocking.task_rows)
    col_tasks = parts(problem.n, blocking.task_cols)
    tasks = math.prod(problem.batch) * row_tasks * col_tasks
    table = None
    if compute is not None and blocking.vectors:
        table = sweep_table(target, blocking.vectors, max_rows(target, compute, blocking.vectors), sweeps)
    stub = _stub(module, table, problem, blocking, where, pack_a, pack_b, epilogue, row_tasks, col_tasks)
    microseconds = microseconds_of(problem, target)
    grain = max(1, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))) if tasks else 1
    parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelPlan(
        module.define("gemm", stub),
        tasks=tasks,
        grain=min(grain, max(tasks, 1)),
        parallel=parallel,
        scratch_bytes=blocking.scratch_bytes,
        flops=problem.flops,
        bytes=problem.bytes,
    )


def _swapped_epilogue(module: ModuleText, epilogue: str) -> str:
    """An epilogue that gets rows for columns and calls the given one."""
    f = Function(
        module,
        "SELF",
        [
            ("ptr", "ctx"),
            ("ptr", "buffers"),
            ("i64", "batch"),
            ("i64", "col_low"),
            ("i64", "col_high"),
            ("i64", "row_low"),
            ("i64", "row_high"),
        ],
    )
    f.call(
        epilogue,
        "void",
        [f[n] for n in ("ctx", "buffers", "batch", "row_low", "row_high", "col_low", "col_high")],
    )
    f.ret()
    return module.define("swapped_epilogue", f)


def _stub(
    module: ModuleText,
    table: tuple[str, str] | None,
    problem: GemmProblem,
    blocking: Blocking,
    where: tuple[int, int, int, int],
    pack_a: str,
    pack_b: str,
    epilogue: str | None,
    row_tasks: int,
    col_tasks: int,
) -> Function:
    name = parameter_table(module, blocking.parameters, table)
    f = Function(
        module,
        "SELF",
        [("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid")],
        attributes=GLUE,
    )
    a, b, c = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in where[:3])
    scratch = Value("ptr", "null")
    if blocking.scratch_bytes:
        base = f.load("ptr", f.offset(f["buffers"], where[3], "ptr"), 8)
        scratch = f.offset(base, f.mul(f["tid"], blocking.scratch_bytes))
    p = blocking.parameters
    sizes = problem.element_type.item_bytes, problem.result_type.item_bytes
    packed = p[P.B_MODE] == PACKED and blocking.vectors > 0
    b_batch = (
        _packed_batch_strides(problem, p[P.B_PANEL], blocking)
        if packed
        else [s * sizes[0] for s in problem.b_strides[:-2]]
    )

    def task(t: Value, _: list[Value]) -> None:
        col = f.mul(f.remainder(t, col_tasks), blocking.task_cols)
        row = f.mul(f.remainder(f.divide(t, col_tasks), row_tasks), blocking.task_rows)
        batch = f.divide(t, col_tasks * row_tasks)
        at_a, at_b, at_c = (
            f.mul(row, p[P.A_ROW]),
            f.mul(col, p[P.B_COL]),
            f.add(f.mul(row, p[P.C_ROW]), f.mul(col, p[P.C_COL])),
        )
        left: Value | int = batch
        for axis in reversed(range(len(problem.batch))):
            index = f.remainder(left, problem.batch[axis]) if axis else left
            left = f.divide(left, problem.batch[axis])
            at_a = f.add(at_a, f.mul(index, problem.a_strides[axis] * sizes[0]))
            at_b = f.add(at_b, f.mul(index, b_batch[axis]))
            at_c = f.add(at_c, f.mul(index, problem.c_strides[axis] * sizes[1]))
        rows = f.minimum(blocking.task_rows, f.sub(problem.m, row))
        cols = f.minimum(blocking.task_cols, f.sub(problem.n, col))
        arguments = [
            f.offset(a, at_a),
            f.offset(b, at_b),
            f.offset(c, at_c),
            scratch,
            Value("ptr", f"@{name}"),
            Value("ptr", pack_a),
            Value("ptr", pack_b),
            Value("ptr", f"@{epilogue}" if epilogue else "null"),
            f["ctx"],
            f["buffers"],
            *map(i64, (batch, row, rows, col, cols)),
        ]
        assert len(arguments) == len(BLOCK_PARAMETERS)
        f.do(f"call void @{blocking.function}({', '.join(map(str, arguments))})")

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    return f


def _packed_batch_strides(problem: GemmProblem, panel_bytes: int, blocking: Blocking) -> list[int]:
    """Byte strides of the batch axes of a packed B; 0 along an axis that B does not have."""
    columns = panel_bytes // blocking.parameters[P.B_COL]
    step = panel_bytes * parts(problem.n, columns)
    strides = []
    for dim, stride in zip(reversed(problem.batch), reversed(problem.b_strides[:-2]), strict=True):
        strides.append(step if stride else 0)
        step *= dim if stride else 1
    return strides[::-1]
