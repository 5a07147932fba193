"""Running a kernel's tasks on the thread pool, from the entry or from a kernel that has phases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from ....runtime.llvm.ir_builder import Function, Index, ModuleText, Ptr, Value
from ....runtime.llvm.types import parameters
from ....runtime.run_context import OFFSETS
from ....runtime.sizes import ceiling, estimate, larger, smaller

KERNEL_PARAMETERS = parameters("ptr context, ptr buffers, i64 low, i64 high, i64 thread")

_PARALLEL_US = 40.0  # a shorter phase is not worth a second thread
_TASK_US = 20.0  # nor is a shorter part of a phase


def run_tasks(f: Function, symbol: str, buffers: Value, tasks: Index, grain: Index) -> None:
    """Writes the launch of a kernel on all its tasks, ranges of at least `grain` for each thread; `f` has a parameter
    `context`."""
    if tasks is grain or isinstance(tasks, int) and isinstance(grain, int) and tasks <= grain:
        f.call(f.symbol(symbol), "void", [f["context"], buffers, 0, tasks, 0])
        return
    define_parallel(f.module)
    f.call(f.symbol("tfb.parallel"), "void", [f["context"], f.symbol(symbol), buffers, tasks, grain])


def grain_of_work(tasks: int, work: int, share: int, least: int) -> int:
    """The grain of tasks with that much work in all, some of it known at run time only: `share` of the work for each
    thread, or all of it where it is less than `least`."""
    return larger(ceiling(tasks * share, work), tasks * smaller(1, least // work))


def define_parallel(text: ModuleText) -> None:
    """Defines `tfb.parallel`: runs a kernel on all its tasks, through the run context's pool if it has one."""
    if text.has("tfb.parallel"):
        return
    f = Function(
        text,
        "tfb.parallel",
        parameters("ptr context, ptr kernel, ptr buffers, i64 tasks, i64 grain"),
    )
    context, kernel, buffers = f.pointers("context", "kernel", "buffers")
    pool = (context + OFFSETS["parallel_for"]).load_ptr()
    with f.if_(pool.is_null()) as has_no_pool:
        f.call(kernel, "void", [context, buffers, 0, f["tasks"], 0])
    with has_no_pool.else_():
        f.call(pool, "void", [context, kernel, buffers, f["tasks"], f["grain"]])
    f.ret()
    text.add("tfb.parallel", f.text())


def run_phase(f: Function, symbol: str, pointers: Sequence[Value], tasks: int, microseconds: float) -> None:
    """Writes the launch of a kernel that is a phase of the kernel `f`, on a table of these buffers.

    Units: microseconds is an estimate for all tasks on one thread; short phases run on the calling thread.
    """
    buffers = f.stack_slot(f"[{len(pointers)} x i64]", 8)
    for k, pointer in enumerate(pointers):
        (buffers + 8 * k).store(pointer)
    threads = f.module.target.threads if f.module.target else 1
    is_parallel = microseconds > _PARALLEL_US and threads > 1
    run_tasks(
        f,
        symbol,
        buffers,
        tasks,
        max(1, int(_TASK_US * estimate(tasks) / microseconds)) if is_parallel else tasks,
    )


def phase(module: ModuleText, buffers: int) -> tuple[Function, list[Ptr]]:
    """A kernel under construction, and the addresses of its buffers."""
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    return f, [(f.pointer("buffers") + 8 * k).load_ptr() for k in range(buffers)]


@contextlib.contextmanager
def phases(f: Function, present: Callable[[], Mapping[str, bool]]) -> Iterator[None]:
    """Within, the phases of a kernel are written. Then it is known which of the buffers, in their order, are `present`;
    their addresses (`buffer_address`) are loaded before the phases."""
    body: list[str] = []
    with f.redirected(body):
        f.start_block("phases")
        yield
    f.block = "entry"
    number = 0
    for name, is_present in present().items():
        address = (f.pointer("buffers") + 8 * number).load_ptr() if is_present else f.null
        number += is_present
        f.do(f"%at_{name} = getelementptr i8, {address}, i64 0")
    f.do("br label %phases")
    f.lines.extend(body)


def buffer_address(f: Function, name: str) -> Ptr:
    """The address of a buffer of a kernel with phases; null if the buffer is absent."""
    return Ptr("ptr", f"%at_{name}", f)
