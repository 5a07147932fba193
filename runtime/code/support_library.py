"""The runtime's native functions, compiled once per process: addresses for compiled code."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

from ..memory import result_pool, temp_arena
from ..threads import forking, thread_pool
from . import linker

_lock = forking.long_lock()


def addresses() -> dict[str, int]:
    """Addresses by name, for code that runs without Python.

    parallel_for, pool     as in the run context; both 0 where the platform has no pool (run serially)
    arena_take, arena_put  `ptr take(i64 bytes)` (null: out of memory), `void put(ptr)`
    block_take, block_put  `ptr take(i64 bytes)` (null: out of memory), `void put(ptr, i64 ignored, ptr ignored)`
    run                    `i32 run(ptr entry, ptr run_context, ptr args, ptr results, i64 temp_bytes)`: the
    entry with an
                           arena around it; arena.OUT_OF_MEMORY if there is no memory for it
    """
    with _lock:
        return _load()


@functools.cache
def _load() -> dict[str, int]:
    exports = temp_arena.EXPORTS + result_pool.EXPORTS + (thread_pool.EXPORTS if thread_pool.text() else ())
    found = linker.load_text(_text(), exports).keep().addresses
    plain = ctypes.CFUNCTYPE(None)
    for kind in ("arena", "block"):
        forking.around(*(plain(found[f"tfb_{kind}_{verb}"]) for verb in ("hold", "release")))
    if "tfb_pool_reset" in found:
        forking.in_child(plain(found["tfb_pool_reset"]))
    return {
        "parallel_for": found.get("tfb_parallel_for", 0),
        "pool": found.get("tfb_pool", 0),
        "arena_take": found["tfb_arena_take"],
        "arena_put": found["tfb_arena_put"],
        "arena_trim": found["tfb_arena_trim"],
        "block_take": found["tfb_block_take"],
        "block_put": found["tfb_block_put"],
        "block_trim": found["tfb_block_trim"],
        "run": found["tfb_run"],
    }


@functools.cache
def _text() -> str:
    linux = sys.platform.startswith("linux")
    return temp_arena.text(linux) + result_pool.text() + thread_pool.text()


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
