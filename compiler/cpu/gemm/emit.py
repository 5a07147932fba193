"""Matrix multiplication: from a problem (sizes, strides, types) to a kernel in a module.

C[b, m, n] = sum_k A[b, m, k] * B[b, k, n]. The kernel of one shape splits [0, tasks) into
blocks of batch, rows and columns and calls one block function for each, with its parameters in a constant
array. The block function comes from a kernel library compiled once per machine (gemm/driver.py, gemv.py),
or, for complex numbers and rare result types, is written into the module (gemm/naive.py).

Tiny products are written out (gemm/unrolled.py). A product that is one column, or whose C is contiguous along m,
is computed transposed: C' = B' A'.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ....runtime.llvm.addressing import Int, Ptr
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.sizes import ceiling, is_multiple, is_symbolic
from ...analysis.gemm_problem import GemmProblem
from ..codegen.kernel_info import NO_SLICES, KernelInfo, Slices
from ..codegen.parallel_for import KERNEL_PARAMETERS
from ..codegen.result_window import move_window, window_rows
from ..codegen.run_time_sizes import largest_size
from .blocking import Blocking, PackedLayout, pack_b_reference, packed_b_layout, plan_gemm
from .byte_rows import sums_across, write_byte_rows
from .driver import PACKED, P, declare_block, parameter_table, write_gemm
from .gemv import gemv_name, write_gemv
from .gemv_split_k import emit_split_k
from .microkernel import (
    declare_microkernels,
    max_rows,
    microkernel_name,
    microkernel_table,
    write_microkernel,
)
from .naive import write_naive
from .packing import use_panels, use_rows
from .tasks import PARALLEL_US, TASK_US, microseconds_of, parts, symbolic_grain
from .tile_end import TileEnd, ends_tiles
from .unrolled import emit_unrolled, is_tiny
from .uses import Part, embed

_ROWS_OF_PARTIAL = 256  # of a task, where a product may be needed in part: B is packed for each of them

__all__ = ["KernelInfo", "PackedLayout", "emit_gemm", "pack_b_reference", "packed_b_layout"]


def emit_gemm(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    epilogue: str | None = None,
    b_packed: bool = False,
    buffers: tuple[int, int, int, int] = (0, 1, 2, 3),
    keeps_result: bool = True,
    is_partial: bool = False,
    depth_sizes: Sequence[int] = (),
    end: TileEnd | None = None,
    slices: Slices = NO_SLICES,
) -> KernelInfo:
    """Writes the kernel of a problem. `buffers`: where A, B, C and scratch stand among the kernel's buffers. A C that
    is not kept, because the epilogue alone reads it, may be in a window of the scratch (codegen/result_window.py).
    With `is_partial` perhaps the first rows alone are needed: tasks have few rows. `depth_sizes`: the numbers of
    buffers that are s32 scalars; the sums are over as many products as the largest of them says. `end`, in the place of
    an epilogue where `ends_in_tiles`, is done to what is stored.

    `epilogue` names a function of the module, `void (ptr context, ptr buffers, i64 batch, i64 row_low,
    i64 row_high, i64 col_low, i64 col_high)`, called once for every finished block of C. With `b_packed` the
    buffer of B has the layout of packed_b_layout. The library is added to the module's, or its functions that
    are needed are written into a module that embeds them. Scratch is not read when scratch_bytes is 0.

    Raises: UnsupportedError  element types that no kernel computes.
    """
    is_transposed = not b_packed and _is_computed_transposed(problem)
    if is_transposed:
        problem = problem.transposed()
        buffers = (buffers[1], buffers[0], *buffers[2:])
        epilogue = epilogue and _transposed_epilogue(module, epilogue)
    planned = problem if is_transposed else in_slices(problem, slices.parts)
    is_general = b_packed or problem.is_symbolic or depth_sizes or planned is not problem
    unrolled = None if is_general else emit_unrolled(module, target, problem, epilogue, buffers)
    if unrolled is not None:
        return unrolled
    row_bytes = problem.c_strides[-2] * problem.result_type.item_bytes
    is_by_rows = sums_across(target, problem.quads)
    has_whole_rows = problem.c_strides[-1] == 1 and row_bytes >= problem.n * problem.result_type.item_bytes
    has_window = (b_packed or is_by_rows and has_whole_rows) and not (keeps_result or problem.is_symbolic)
    most_rows = window_rows(target, row_bytes) if has_window else 0
    if is_partial and not is_transposed:
        most_rows = min(most_rows or _ROWS_OF_PARTIAL, _ROWS_OF_PARTIAL)
    blocking = plan_gemm(planned, target, b_packed, most_rows, bool(depth_sizes))
    if is_by_rows and blocking.compute is not None:
        function = write_byte_rows(module, target, problem, blocking.parameters, blocking.task_rows)
        blocking = dataclasses.replace(blocking, function=function)
    if end is not None:
        assert blocking.compute is not None
        low, high = end.limits(blocking.compute)
        slots = {P.FACTORS: end.factors, P.ADDED: end.added, P.LOW: low, P.HIGH: high}
        blocking = dataclasses.replace(blocking, parameters=blocking.parameters | slots)
    # Numbers of products are no part of the code where not all tasks have the same.
    varying = {P.K} if depth_sizes or blocking.task_depth else set()
    known = {slot: value for slot, value in blocking.parameters.items() if slot not in varying}
    library = _use_library(module, target, problem, blocking, known)
    if blocking.task_depth:
        return emit_split_k(module, target, problem, blocking, buffers, epilogue)
    tasks = _tasks(problem, planned, blocking, NO_SLICES if is_transposed else slices)
    window_bytes = blocking.task_rows * row_bytes if has_window and (blocking.vectors or is_by_rows) else 0
    kernel = _kernel(module, problem, blocking, library, tasks, buffers, epilogue, window_bytes, depth_sizes)
    info = _kernel_info(module.define("gemm", kernel), target, problem, blocking, tasks)
    row_tasks = _rows_of_tasks(problem, blocking, tasks, is_transposed)
    return dataclasses.replace(
        info,
        scratch_bytes=info.scratch_bytes + window_bytes,
        has_window=window_bytes > 0,
        in_order=None if is_transposed else _elements_of_tasks(problem, row_tasks),
        row_tasks=row_tasks,
    )


def in_slices(problem: GemmProblem, slices: int) -> GemmProblem:
    """How a problem is planned whose kernel computes so many slices of its rows: as a batch of them. The problem itself
    where it has no such slices."""
    if (
        problem.batch
        or is_symbolic([slices, problem.m, problem.n, problem.k])
        or slices < 2
        or problem.m % slices
    ):
        return problem
    a, b, c = ((0, *strides) for strides in (problem.a_strides, problem.b_strides, problem.c_strides))
    rows = problem.m // slices
    return dataclasses.replace(problem, batch=(slices,), m=rows, a_strides=a, b_strides=b, c_strides=c)


def ends_in_tiles(
    target: Target, problem: GemmProblem, b_packed: bool, has_depth: bool, slices: Slices = NO_SLICES
) -> bool:
    """Whether the kernel of a problem ends tiles, as a TileEnd says, before it stores them."""
    is_unrolled = not (b_packed or problem.is_symbolic or has_depth) and is_tiny(problem)
    if is_unrolled or not b_packed and _is_computed_transposed(problem) or problem.c_strides[-1] != 1:
        return False
    blocking = plan_gemm(in_slices(problem, slices.parts), target, b_packed, has_depth=has_depth)
    return blocking.vectors > 0 and blocking.task_depth == 0 and ends_tiles(blocking.compute)


def _elements_of_tasks(problem: GemmProblem, row_tasks: tuple[int, int] | None) -> tuple[int, int] | None:
    """As `KernelInfo.in_order`, where tasks compute rows so."""
    sizes = (*problem.batch, problem.m, problem.n)
    if row_tasks is None or problem.c_strides != tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes))):
        return None
    return row_tasks[0] * problem.n, row_tasks[1]


def _tasks(problem: GemmProblem, planned: GemmProblem, blocking: Blocking, slices: Slices) -> _Tasks:
    """The tasks of a problem that is planned as another one, by `in_slices`. A problem whose rows are known at run time
    only is one slice where slices are not run."""
    count, of_slice, in_chain = 1, planned.m, None
    if planned is not problem:
        count, in_chain = slices.parts, planned.m
    elif is_symbolic([slices.parts]) and not problem.batch and is_multiple(problem.m, slices.parts):
        in_chain = slices.of_slice(problem.m)
        count = slices.choose(ceiling(slices.parts, slices.at_a_time), 1)
        of_slice = slices.choose(in_chain, problem.m)
    rows, cols = parts(of_slice, blocking.task_rows), parts(problem.n, blocking.task_cols)
    return _Tasks(rows, cols, count, of_slice, in_chain)


def _rows_of_tasks(
    problem: GemmProblem, blocking: Blocking, tasks: _Tasks, is_transposed: bool
) -> tuple[int, int] | None:
    """As `KernelInfo.row_tasks`, of the product that is computed transposed or not: all blocks of a batch's matrix or
    of a slice, if there are slices, or the blocks of columns of a block of rows."""
    if problem.batch:
        return problem.n if is_transposed else problem.m, tasks.rows * tasks.cols
    if tasks.rows_in_chain is not None:
        return tasks.rows_in_chain, tasks.rows * tasks.cols
    return None if is_transposed else (blocking.task_rows, tasks.cols)


def _is_computed_transposed(problem: GemmProblem) -> bool:
    """C is one column of several rows, or contiguous along its columns."""
    strides = problem.c_strides
    if problem.weights_type is not None:
        return False
    return (problem.n == 1 or (strides[-1] != 1 and strides[-2] == 1)) and problem.m > 1


class _Tasks(NamedTuple):
    """Blocks of C's rows and of its columns, in each of the slices of a batch's matrix.

    of_slice: the rows of a slice. rows_in_chain: what these are where the kernel runs slice by slice; None where it
        never does.
    """

    rows: int
    cols: int
    slices: int
    of_slice: int
    rows_in_chain: int | None


def _kernel_info(
    symbol: str, target: Target, problem: GemmProblem, blocking: Blocking, blocks: _Tasks
) -> KernelInfo:
    microseconds = microseconds_of(problem, target)
    tasks = math.prod(problem.batch) * blocks.slices * blocks.rows * blocks.cols
    if is_symbolic([tasks, problem.flops]):
        grain = symbolic_grain(problem.flops, tasks, microseconds)
        is_parallel = target.threads > 1
    else:
        grain = max(1, math.ceil(TASK_US * tasks / max(microseconds, 1e-3))) if tasks else 1
        grain = min(grain, max(tasks, 1))
        is_parallel = tasks > 1 and target.threads > 1 and microseconds >= PARALLEL_US
    return KernelInfo(
        symbol,
        tasks=tasks,
        grain=grain,
        parallel=is_parallel,
        scratch_bytes=blocking.scratch_bytes,
        flops=problem.flops,
        bytes=problem.bytes,
    )


# -- the functions that a kernel calls


class _Library(NamedTuple):
    """Names of the packing functions, or `null`, and the table of microkernels."""

    pack_a: str
    pack_b: str
    microkernels: tuple[str, str] | None


def _use_library(
    module: ModuleText, target: Target, problem: GemmProblem, blocking: Blocking, known: dict[P, int]
) -> _Library:
    """Declares the functions that a kernel needs, or writes them into a module that embeds libraries. known: the
    parameters that it always calls them with."""
    compute = blocking.compute
    if compute is None:
        write_naive(module, target, problem.element_type, problem.result_type)
        return _Library("null", "null", None)
    if blocking.vectors == 0:
        if sums_across(target, compute):
            return _Library("null", "null", None)
        if module.embed_libraries:
            element, weights = problem.element_type, problem.b_type
            by_dots = blocking.function == gemv_name(element, weights, compute, transposed=True)
            write = partial(write_gemv, module, target, element, weights, compute, by_dots, "internal")
            embed(module, blocking.function, frozenset(), known, write)
        else:
            declare_block(module, blocking.function)
        return _Library("null", "null", None)
    return _use_driver(module, target, problem, blocking, compute, known)


def _use_driver(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    blocking: Blocking,
    compute: str,
    known: dict[P, int],
) -> _Library:
    element, b_element, vectors = problem.element_type, problem.b_type, blocking.vectors
    pack_a = pack_b = "null"
    if Part.PACK_A in blocking.parts:
        pack_a = "@" + use_rows(module, target, element, compute)
    if Part.PACK_B in blocking.parts:
        pack_b = "@" + use_panels(module, target, b_element, compute, vectors, problem.b_strides[-1])
    names = {(width, mr): microkernel_name(compute, width, mr) for width, mr in blocking.tiles}
    if module.embed_libraries:
        driver = partial(write_gemm, module, target, compute, vectors, "internal")
        embed(module, blocking.function, blocking.parts, known, driver)
        for (width, mr), name in names.items():
            tiles = partial(write_microkernel, module, target, compute, width, mr, "internal")
            embed(module, name, blocking.parts, known, tiles)
    else:
        declare_block(module, blocking.function)
        declare_microkernels(module, target, compute, names)
    table = microkernel_table(target, vectors, max_rows(target, compute, vectors), names)
    return _Library(pack_a, pack_b, table)


def _transposed_epilogue(module: ModuleText, epilogue: str) -> str:
    """An epilogue that gets rows for columns and calls the given one."""
    names = ("batch", "row_low", "row_high", "col_low", "col_high")
    parameters = [("i64", name) for name in ("batch", "col_low", "col_high", "row_low", "row_high")]
    f = Function(module, "SELF", [("ptr", "context"), ("ptr", "buffers"), *parameters])
    f.call(epilogue, "void", [*f.pointers("context", "buffers"), *f.integers(*names)])
    f.ret()
    return module.define("swapped_epilogue", f)


# -- the kernel


def _kernel(
    module: ModuleText,
    problem: GemmProblem,
    blocking: Blocking,
    library: _Library,
    tasks: _Tasks,
    buffers: tuple[int, int, int, int],
    epilogue: str | None,
    window_bytes: int,
    depth_sizes: Sequence[int],
) -> Function:
    """The kernel of a problem: calls the block function for every task."""
    f = Function(module, "SELF", KERNEL_PARAMETERS, attributes=DRIVER_ATTRIBUTES)
    context, table = f.pointers("context", "buffers")
    values: list[Int | int] = [blocking.parameters[slot] for slot in P]
    if depth_sizes:
        sizes = (table.at(number, "ptr").load_ptr() for number in depth_sizes)
        values[P.K] = largest_size(f, sizes, 0).minimum(problem.k)
    table_of_parameters = parameter_table(f, "gemm_parameters", values, library.microkernels)
    a, b, c = (table.at(number, "ptr").load_ptr() for number in buffers[:3])
    scratch, scratch_bytes = f.null, blocking.scratch_bytes + window_bytes
    if scratch_bytes:
        scratch = table.at(buffers[3], "ptr").load_ptr() + f.integer("thread") * scratch_bytes
    functions = [Ptr("ptr", text, f) for text in (library.pack_a, library.pack_b)]
    functions.append(f.symbol(epilogue) if epilogue else f.null)
    with f.loop(f.integer("low"), f.integer("high")) as task:
        t = task.index
        col = t % tasks.cols * blocking.task_cols
        row = t // tasks.cols % tasks.rows * blocking.task_rows
        batch, rows_left = t // (tasks.cols * tasks.rows), problem.m - row
        if tasks.rows_in_chain is not None:
            first = batch % tasks.slices * tasks.of_slice
            rows_left = (problem.m - first).minimum(tasks.of_slice) - row
            row, batch = row + first, batch // tasks.slices
        at_a, at_b, at_c = _offsets(problem, blocking, batch, row, col)
        rows = f.i64(blocking.task_rows).minimum(rows_left)
        cols = f.i64(blocking.task_cols).minimum(problem.n - col)
        if window_bytes:
            c = move_window(f, scratch + blocking.scratch_bytes, at_c)
        block = [a + at_a, b + at_b, c + at_c, scratch, table_of_parameters, *functions, context, table]
        with f.if_(rows > 0) if is_symbolic([tasks.of_slice]) else contextlib.nullcontext():  # the last slice
            f.call(blocking.function, "void", [*block, batch, row, rows, col, cols])
    f.ret()
    return f


def _offsets(
    problem: GemmProblem, blocking: Blocking, batch: Int, row: Int, col: Int
) -> tuple[Int, Int, Int]:
    """Bytes from the starts of A, B and C to a block of C and its rows and columns."""
    p = blocking.parameters
    a_bytes, b_bytes, c_bytes = (
        t.item_bytes for t in (problem.element_type, problem.b_type, problem.result_type)
    )
    b_strides = [s * b_bytes for s in problem.b_strides[:-2]]
    if p[P.B_MODE] == PACKED and blocking.vectors > 0:
        b_strides = _packed_batch_strides(problem, p[P.B_PANEL], blocking)
    at_a, at_b, at_c = row * p[P.A_ROW], col * p[P.B_COL], row * p[P.C_ROW] + col * p[P.C_COL]
    for axis in reversed(range(len(problem.batch))):
        index = batch % problem.batch[axis] if axis else batch
        batch = batch // problem.batch[axis]
        at_a = at_a + index * (problem.a_strides[axis] * a_bytes)
        at_b = at_b + index * b_strides[axis]
        at_c = at_c + index * (problem.c_strides[axis] * c_bytes)
    return at_a, at_b, at_c


def _packed_batch_strides(problem: GemmProblem, panel_bytes: int, blocking: Blocking) -> list[int]:
    """Byte strides of the batch axes of a packed B; 0 along an axis that B does not have."""
    columns = panel_bytes // blocking.parameters[P.B_COL]
    step = panel_bytes * parts(problem.n, columns)
    strides = []
    for dim, stride in zip(reversed(problem.batch), reversed(problem.b_strides[:-2]), strict=True):
        strides.append(step if stride else 0)
        step *= dim if stride else 1
    return strides[::-1]
