"""Running a kernel's tasks on the thread pool, from the entry or from a kernel that has phases."""

from __future__ import annotations

from ...runtime.context import OFFSETS
from .llvm_text import Function, ModuleText, Value, i64

KERNEL_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread"))


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
    f = Function(text, "tfb.parallel", (("ptr", "context"), ("ptr", "kernel"), ("ptr", "buffers"), ("i64", "tasks"),
                                        ("i64", "grain")))
    run = f.load("ptr", f.offset(f["context"], OFFSETS["parallel_for"]), 8)

    def serial() -> None:
        f.do("call void %kernel(ptr %context, ptr %buffers, i64 0, i64 %tasks, i64 0)")

    def parallel() -> None:
        f.do(f"call void {run.text}(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain)")

    f.branch(f.compare("icmp eq", run, Value("ptr", "null")), serial, parallel)
    f.ret()
    text.add("tfb.parallel", f.text())
