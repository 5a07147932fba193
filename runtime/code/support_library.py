"""The runtime's native functions, compiled once per process: addresses for compiled code."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable

from ..llvm.module_text import ModuleText
from ..memory import free_list, result_pool, temp_arena
from ..threads import admission, forking, futex, processors, thread_pool
from . import float_mode, linker

_lock = forking.long_lock()


def addresses() -> dict[str, int]:
    """Addresses by name, for code that runs without Python.

    parallel_for, pool     as in the run context; both 0 where the platform has no pool (run serially)
    arena_take, arena_put  `ptr take(i64 bytes)` (null: out of memory), `void put(ptr)`
    block_take, block_put  `ptr take(i64 bytes)` (null: out of memory), `void put(ptr, i64 ignored, ptr ignored)`
    run                    `i32 run(ptr entry, ptr run_context, ptr args, ptr results, i64 temp_bytes)`: calls the
                           entry with an arena; temp_arena.OUT_OF_MEMORY if there is no memory for it
    """
    with _lock:
        return _load()


@functools.cache
def _load() -> dict[str, int]:
    exports = (
        temp_arena.EXPORTS
        + result_pool.EXPORTS
        + ((*thread_pool.EXPORTS, admission.RESET) if futex.is_supported() else ())
    )
    native = linker.load_text(_text(), exports).keep().addresses
    plain = ctypes.CFUNCTYPE(None)
    for kind in ("arena", "block"):
        forking.around(*(plain(native[f"tfb_{kind}_{verb}"]) for verb in ("hold", "release")))
    for reset in ("tfb_pool_reset", admission.RESET):
        if reset in native:
            forking.in_child(plain(native[reset]))
    return {
        "parallel_for": native.get("tfb_parallel_for", 0),
        "pool": native.get("tfb_pool", 0),
        "arena_take": native["tfb_arena_take"],
        "arena_put": native["tfb_arena_put"],
        "arena_trim": native["tfb_arena_trim"],
        "block_take": native["tfb_block_take"],
        "block_put": native["tfb_block_put"],
        "block_trim": native["tfb_block_trim"],
        "run": native["tfb_run"],
    }


@functools.cache
def _text() -> str:
    machine = platform.machine() if futex.is_supported() else None
    is_linux = sys.platform.startswith("linux")
    return module_text(platform.machine(), is_linux, machine, processors.usable_cpus())


def module_text(machine: str, linux: bool, pool_machine: str | None, processors: int = 1) -> str:
    """The module of the functions for a machine; with the thread pool where one is named for that."""
    module = ModuleText()
    float_mode.write_functions(module, machine)
    free_list.write_allocation(module, linux)
    if pool_machine:
        admission.write_functions(module, pool_machine, processors)
    temp_arena.write_arenas(module)
    result_pool.write_pool(module)
    if pool_machine:
        thread_pool.write_pool(module, pool_machine, processors)
    return module.text()


def prefetch() -> None:
    """Starts to compile the functions in the background."""
    linker.prepare_text(_text())


@functools.cache
def run_function() -> Callable[..., int]:
    """`run` of `addresses` as a ctypes function; the GIL is free while it runs."""
    pointers = (ctypes.c_void_p,) * 4
    return ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, ctypes.c_int64)(addresses()["run"])


def trim_arenas() -> None:
    """Gives the memory of all arenas and blocks that are not in use back to the system."""
    for name in ("arena_trim", "block_trim"):
        ctypes.CFUNCTYPE(None)(addresses()[name])()
