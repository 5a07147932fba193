"""Few rows times a large matrix on several threads: each reads whole rows of the matrix, and the sums are added up.

y[m, n] = sum_k x[m, k] * B[k, n]. Divided by columns, every thread would read pieces of rows, which memory gives more
slowly than long runs. Each task writes sums of its own, the first one to y; then the calling thread adds the others to
y in their order, so that the result does not depend on who computed what.
"""

from __future__ import annotations

from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS, phase, run_tasks
from .blocking import Blocking, GemmProblem, parts, sums_bytes
from .compute_types import COMPUTE_TYPES, SIZES, lanes_of, load_masked, store_masked
from .microkernel import BLOCK_PARAMETERS, P, parameter_table

_BUFFERS = 4  # A, B, C and the sums of all tasks but the first


def emit_by_depth(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    blocking: Blocking,
    where: tuple[int, int, int, int],
    epilogue: str | None,
) -> KernelPlan:
    """Writes the kernel of a problem that is divided into tasks of `blocking.task_depth` rows of B. `where`: places of
    A, B, C and scratch among the kernel's buffers; `epilogue` as for emit_gemm."""
    assert blocking.compute is not None
    tasks = parts(problem.k, blocking.task_depth)
    each = sums_bytes(problem, blocking.compute)
    symbol = _tasks(module, problem, blocking, tasks, each)
    f = Function(module, "SELF", KERNEL_PARAMETERS, attributes=GLUE)
    pointers = [f.load("ptr", f.offset(f["buffers"], place, "ptr"), 8) for place in where]
    table = f.stack_slot(f"[{_BUFFERS} x i64]", 8)
    for k, pointer in enumerate(pointers):
        f.store(pointer, f.offset(table, 8 * k), 8)
    run_tasks(f, symbol, table, tasks, 1)
    _add_up(f, target, blocking.compute, pointers[2], pointers[3], problem.m * problem.n, tasks - 1, each)
    if epilogue:
        f.call(epilogue, "void", [f["context"], f["buffers"], *map(i64, (0, 0, problem.m, 0, problem.n))])
    f.ret()
    return KernelPlan(
        module.define("gemv_by_depth", f),
        1,
        scratch_bytes=blocking.scratch_bytes,
        flops=problem.flops,
        bytes=problem.bytes,
    )


def _tasks(module: ModuleText, problem: GemmProblem, blocking: Blocking, tasks: int, each: int) -> str:
    """The kernel whose task t multiplies its part of A with its rows of B."""
    last = problem.k - (tasks - 1) * blocking.task_depth
    tables = [
        parameter_table(module, blocking.parameters | {P.K: depth}) for depth in (blocking.task_depth, last)
    ]
    f, (a, b, c, sums) = phase(module, _BUFFERS)

    def task(t: Value, _: list[Value]) -> None:
        low = f.mul(t, blocking.task_depth)
        is_first, is_last = f.compare("icmp eq", t, i64(0)), f.compare("icmp eq", t, i64(tasks - 1))
        arguments = {
            "A": f.offset(a, f.mul(low, blocking.parameters[P.A_K])),
            "B": f.offset(b, f.mul(low, blocking.parameters[P.B_K])),
            "C": f.select(is_first, c, f.offset(sums, f.mul(f.sub(t, 1), each))),
            "P": f.select(is_last, Value("ptr", f"@{tables[1]}"), Value("ptr", f"@{tables[0]}")),
            "rows": i64(problem.m),
            "cols": i64(problem.n),
        }
        listed = [
            arguments.get(name, Value(type_, "null" if type_ == "ptr" else "0"))
            for type_, name in BLOCK_PARAMETERS
        ]
        f.do(f"call void @{blocking.function}({', '.join(map(str, listed))})")

    f.loop(f["low"], f["high"], 1, task)
    f.ret()
    return module.define("gemv_rows", f)


def _add_up(
    f: Function, target: Target, compute: str, y: Value, sums: Value, n: int, count: int, each: int
) -> None:
    """y[0:n] += `count` sums, the one after the other."""
    type_, lanes = COMPUTE_TYPES[compute], lanes_of(target, compute)
    vector, size, add = vector_type(type_, lanes), SIZES[type_], "fadd" if compute.startswith("f") else "add"
    whole = n // lanes * lanes

    def step(j: Value, masked: Value | None) -> None:
        def load(pointer: Value) -> Value:
            return (
                f.load(vector, pointer, size)
                if masked is None
                else load_masked(f, type_, lanes, pointer, masked)
            )

        def one(t: Value, carried: list[Value]) -> list[Value]:
            return [f.binary(add, carried[0], load(f.offset(f.offset(sums, f.mul(t, each)), j, type_)))]

        at = f.offset(y, j, type_)
        (total,) = f.loop(0, count, 1, one, [load(at)])
        if masked is None:
            f.store(total, at, size)
        else:
            store_masked(f, total, type_, lanes, at, masked)

    f.loop(0, whole, lanes, lambda j, _: step(j, None))
    if whole < n:
        step(i64(whole), i64(n - whole))
