"""Running a kernel's tasks on the thread pool, from the entry or from a kernel that has phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.run_context import OFFSETS

KERNEL_PARAMETERS = (
    ("ptr", "context"),
    ("ptr", "buffers"),
    ("i64", "low"),
    ("i64", "high"),
    ("i64", "thread"),
)

_PARALLEL_US = 40.0  # a shorter phase is not worth a second thread
_TASK_US = 20.0  # nor is a shorter part of a phase


def run_tasks(f: Function, symbol: str, buffers: Value, tasks: Value | int, grain: Value | int) -> None:
    """Writes the launch of a kernel on all its tasks, ranges of at least `grain` for each thread; `f` has a parameter
    `context`."""
    if isinstance(tasks, int) and isinstance(grain, int) and tasks <= grain:
        f.do(f"call void @{symbol}({f['context']}, {buffers}, i64 0, i64 {tasks}, i64 0)")
        return
    define_parallel(f.module)
    f.do(f"call void @tfb.parallel({f['context']}, ptr @{symbol}, {buffers}, {i64(tasks)}, {i64(grain)})")


def define_parallel(text: ModuleText) -> None:
    """Defines `tfb.parallel`: runs a kernel on all its tasks, through the run context's pool if it has one."""
    if text.has("tfb.parallel"):
        return
    f = Function(
        text,
        "tfb.parallel",
        (("ptr", "context"), ("ptr", "kernel"), ("ptr", "buffers"), ("i64", "tasks"), ("i64", "grain")),
    )
    run = f.load("ptr", f.offset(f["context"], OFFSETS["parallel_for"]), 8)

    def serial() -> None:
        f.do("call void %kernel(ptr %context, ptr %buffers, i64 0, i64 %tasks, i64 0)")

    def parallel() -> None:
        f.do(f"call void {run.text}(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain)")

    f.branch(f.compare("icmp eq", run, Value("ptr", "null")), serial, parallel)
    f.ret()
    text.add("tfb.parallel", f.text())


def run_phase(f: Function, symbol: str, pointers: Sequence[Value], tasks: int, microseconds: float) -> None:
    """Writes the launch of a kernel that is a phase of the kernel `f`, on a table of these buffers.

    Units: microseconds is an estimate for all tasks on one thread; short phases run on the calling thread.
    """
    buffers = f.stack_slot(f"[{len(pointers)} x i64]", 8)
    for k, pointer in enumerate(pointers):
        f.store(pointer, f.offset(buffers, 8 * k), 8)
    threads = f.module.target.threads if f.module.target else 1
    is_parallel = microseconds > _PARALLEL_US and threads > 1
    run_tasks(
        f, symbol, buffers, tasks, max(1, int(_TASK_US * tasks / microseconds)) if is_parallel else tasks
    )


def phase(module: ModuleText, buffers: int) -> tuple[Function, list[Value]]:
    """A kernel under construction, and the addresses of its buffers."""
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    return f, [f.load("ptr", f.offset(f["buffers"], 8 * k), 8) for k in range(buffers)]


def name_buffers(f: Function, present: Mapping[str, bool]) -> None:
    """Loads the buffers of a kernel in their order as `%at_name`; those that are absent are null."""
    number = 0
    for name, is_there in present.items():
        pointer = Value("ptr", "null")
        if is_there:
            pointer = f.load("ptr", f.offset(f["buffers"], 8 * number), 8)
            number += 1
        f.do(f"%at_{name} = getelementptr i8, {pointer}, i64 0")
