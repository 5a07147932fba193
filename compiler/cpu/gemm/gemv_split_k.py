"""Few rows times a large matrix on several threads: each reads whole rows of the matrix, and the sums are added up.

y[m, n] = sum_k x[m, k] * B[k, n]. Divided by columns, every thread would read pieces of rows, which memory gives more
slowly than long runs. Each task writes sums of its own, the first one to y; then the calling thread adds the others to
y in their order, so that the result does not depend on who computed what.
"""

from __future__ import annotations

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, Value
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import VectorValue
from ...analysis.gemm_problem import GemmProblem
from ..codegen.kernel_info import KernelInfo
from ..codegen.parallel_for import KERNEL_PARAMETERS, phase, run_tasks
from .blocking import Blocking, sums_bytes
from .compute_types import Compute
from .driver import BLOCK_PARAMETERS, P, parameter_table
from .tasks import parts

_BUFFERS = 4  # A, B, C and the sums of all tasks but the first


def emit_split_k(
    module: ModuleText,
    target: Target,
    problem: GemmProblem,
    blocking: Blocking,
    buffers: tuple[int, int, int, int],
    epilogue: str | None,
) -> KernelInfo:
    """Writes the kernel of a problem that is divided into tasks of `blocking.task_depth` rows of B. `buffers`: numbers
    of A, B, C and scratch among the kernel's buffers; `epilogue` as for emit_gemm."""
    assert blocking.compute is not None
    tasks = parts(problem.k, blocking.task_depth)
    each = sums_bytes(problem, blocking.compute)
    symbol = _tasks(module, problem, blocking, tasks, each)
    f = Function(module, "SELF", KERNEL_PARAMETERS, attributes=DRIVER_ATTRIBUTES)
    context, table = f.pointers("context", "buffers")
    a, b, y, sums = (table.at(number, "ptr").load_ptr() for number in buffers)
    own_buffers = f.stack_slot(f"[{_BUFFERS} x i64]", 8)
    for k, pointer in enumerate((a, b, y, sums)):
        (own_buffers + 8 * k).store(pointer)
    run_tasks(f, symbol, own_buffers, tasks, 1)
    _Sums(f, Compute(target, blocking.compute), sums, tasks - 1, each).add_to(y, problem.m * problem.n)
    if epilogue:
        f.call(epilogue, "void", [context, table, 0, 0, problem.m, 0, problem.n])
    f.ret()
    return KernelInfo(
        module.define("gemv_split_k", f),
        1,
        scratch_bytes=blocking.scratch_bytes,
        flops=problem.flops,
        bytes=problem.bytes,
    )


def _tasks(module: ModuleText, problem: GemmProblem, blocking: Blocking, tasks: int, each: int) -> str:
    """The kernel whose task t multiplies its part of A with its rows of B."""
    last = problem.k - (tasks - 1) * blocking.task_depth
    f, buffers = phase(module, _BUFFERS)
    values = [
        [depth if s == P.K else blocking.parameters[s] for s in P] for depth in (blocking.task_depth, last)
    ]
    tables = [parameter_table(f, "gemm_parameters", listed) for listed in values]
    a, b, c, sums = (Ptr.of(f, p) for p in buffers)
    with f.loop(f.integer("low"), f.integer("high")) as task:
        t = task.index
        low = t * blocking.task_depth
        is_first, is_last = t.equals(0), t.equals(tasks - 1)
        arguments: dict[str, Value] = {
            "A": a + low * blocking.parameters[P.A_K],
            "B": b + low * blocking.parameters[P.B_K],
            "C": is_first.choose(c, sums + (t - 1) * each),
            "P": is_last.choose(tables[1], tables[0]),
            "rows": f.i64(problem.m),
            "cols": f.i64(problem.n),
        }
        absent = {"ptr": f.null, "i64": f.i64(0)}
        f.call(blocking.function, "void", [arguments.get(n, absent[t]) for t, n in BLOCK_PARAMETERS])
    f.ret()
    return module.define("gemv_rows", f)


class _Sums:
    """`count` arrays of sums, `each` bytes apart, that are added up one after the other."""

    def __init__(self, f: Function, compute: Compute, first: Ptr, count: int, each: int) -> None:
        self.f, self.compute, self.first, self.count, self.each = f, compute, first, count, each

    def add_to(self, y: Ptr, n: int) -> None:
        """y[0:n] += the sums."""
        lanes = self.compute.lanes
        whole = n // lanes * lanes
        with self.f.loop(0, whole, lanes) as j:
            self._add_vector(y, j.index, None)
        if whole < n:
            self._add_vector(y, whole, n - whole)

    def _add_vector(self, y: Ptr, j: Index, lanes: int | None) -> None:
        """A vector of y, or some lanes of it."""
        f, compute = self.f, self.compute

        def load(p: Ptr) -> VectorValue:
            return p.load(compute.vector) if lanes is None else compute.load_masked(p, lanes)

        at = y.at(j, compute.type)
        with f.loop(0, self.count, total=load(at)) as t:
            index: Int = t.index
            t.total = t.total + load((self.first + index * self.each).at(j, compute.type))
        if lanes is None:
            at.store(t.total)
        else:
            compute.store_masked(t.total, at, lanes)
