"""Arenas for temporary memory, used again by later calls: functions that any thread may call without Python.

`tfb_arena_take(bytes)` gives memory (64-byte aligned, contents undefined) and `tfb_arena_put(ptr)` takes it
back. The smallest free arena that is big enough is taken; if all are too small, the smallest one grows. Large arenas,
of admission.MIN_BYTES and more, are for large runs alone. So as many arenas of each kind exist as such calls ran at
once; of large ones there are as many as processors. `tfb_run(entry, run_context, args, results, temp_bytes)` calls an
entry with an arena around it, in the floating-point mode of runs (float_mode.py). `tfb_runs` counts the runs at this
moment. A run with a large arena waits for a processor first (admission.py), unless it calls the host, which may wait
for other runs.
"""

from __future__ import annotations

from ..code import float_mode
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.types import parameters
from ..llvm.value import Value
from ..run_context import OFFSETS
from ..threads import admission
from .free_list import GRANULE, HEADER_BYTES, FreeList, return_memory_of_new_block

OUT_OF_MEMORY = -12
EXPORTS = (
    "tfb_arena_take",
    "tfb_arena_put",
    "tfb_arena_trim",
    "tfb_run",
    "tfb_arena_hold",
    "tfb_arena_release",
)
_ANY_CAPACITY = (1 << 63) - 1
_RUN = parameters("ptr entry_point, ptr context, ptr args, ptr results, i64 temp_bytes")


def write_arenas(module: ModuleText) -> None:
    """Writes the arena functions, into a module with float_mode.write_functions and free_list.write_allocation."""
    arenas = FreeList(module, "arena")
    _write_take(arenas)
    _write_put(arenas)
    f = Function(module, "tfb_arena_trim", [], linkage="")
    arenas.lock(f)
    arenas.free_all(f)
    f.ret()
    module.add("tfb_arena_trim", f.text())
    module.add_global("tfb_runs", "global i64 0, align 128")
    _write_run(module)


def _write_take(arenas: FreeList) -> None:
    f = Function(arenas.module, "tfb_arena_take", [("i64", "bytes")], result="ptr", linkage="")
    is_large = f.integer("bytes") >= admission.MIN_BYTES
    least = is_large.choose(f.i64(admission.MIN_BYTES), 0)
    limit = is_large.choose(f.i64(_ANY_CAPACITY), admission.MIN_BYTES + GRANULE)
    arenas.lock(f)
    best = arenas.best_fit(f, f.integer("bytes"), limit)
    with f.if_(best.is_not_null()):
        arena = arenas.unlink(best)
        arenas.unlock(f)
        f.ret(arena + HEADER_BYTES)
    smallest = arenas.best_fit(f, least, limit)
    with f.if_(smallest.is_not_null()) as too_small:
        arena = arenas.unlink(smallest)
        arenas.unlock(f)
        f.call("free_block", "void", [arena])
    with too_small.else_():
        arenas.unlock(f)
    return_memory_of_new_block(f, f.integer("bytes"))
    arenas.module.add("tfb_arena_take", f.text())


def _write_put(arenas: FreeList) -> None:
    f = Function(arenas.module, "tfb_arena_put", [("ptr", "memory")], linkage="")
    memory = f.pointer("memory")
    with f.if_(memory.is_not_null()):
        arenas.lock(f)
        arenas.push(f, memory + -HEADER_BYTES)
        arenas.unlock(f)
    f.ret()
    arenas.module.add("tfb_arena_put", f.text())


def _write_run(module: ModuleText) -> None:
    """`tfb_run`; where the module has the functions of admission, a large run waits."""
    _write_run_now(module)
    f = Function(module, "tfb_run", _RUN, result="i32", linkage="")
    arguments = [f[name] for _, name in _RUN]
    if module.has(admission.ADMIT):
        with f.if_(f.integer("temp_bytes") >= admission.MIN_BYTES):
            feeds = (f.pointer("context") + OFFSETS["feeds"]).load_ptr()
            with f.if_(feeds.is_null()):  # it does not call the host
                f.call(admission.ADMIT, "void", [])
                status = f.call("run_now", "i32", arguments)
                f.call(admission.LEAVE, "void", [])
                f.ret(status)
    f.ret(f.call("run_now", "i32", arguments))
    module.add("tfb_run", f.text())


def _write_run_now(module: ModuleText) -> None:
    f = Function(module, "run_now", _RUN, result="i32")
    entry_point, *arguments = f.pointers("entry_point", "context", "args", "results")
    temp_bytes, mode = f.integer("temp_bytes"), f.stack_slot("i64", 8)

    def run(temp: Value) -> Value:
        differs = f.call(float_mode.ENTER, "i1", [mode])
        runs = f.symbol("tfb_runs")
        runs.atomic_rmw("add", f.i64(1), "monotonic")
        status = f.call(entry_point, "i32", [*arguments, temp])
        runs.atomic_rmw("sub", f.i64(1), "monotonic")
        f.call(float_mode.LEAVE, "void", [mode, differs])
        return status

    with f.if_(temp_bytes.equals(0)):
        f.ret(run(f.null))
    temp = f.call("tfb_arena_take", "ptr", [temp_bytes])
    with f.if_(temp.is_null()):
        f.ret(f.constant("i32", OUT_OF_MEMORY))
    status = run(temp)
    f.call("tfb_arena_put", "void", [temp])
    f.ret(status)
    module.add("run_now", f.text())
