"""Memory for large results, used again: functions that any thread may call without Python.

The system's allocator gives memory of megabytes back to the kernel as soon as it is free, and every page of the next
result is then mapped and cleared anew, which takes longer than most kernels take to fill it. `tfb_block_take(bytes)`
gives memory (64-byte aligned, on huge pages where there are some; contents undefined; null: out of memory), preferably
that of a block put back before whose size is at most a quarter too large. `tfb_block_put(ptr, size, arg)`, which looks
at its first argument only, is what a tensor's deallocator is called with. Free blocks are cached up to a limit in
bytes; the ones put back first are freed.
"""

from __future__ import annotations

import os

from ..llvm.addressing import Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.types import parameters
from .free_list import HEADER, HEADER_BYTES, FreeList, return_memory_of_new_block

EXPORTS = ("tfb_block_take", "tfb_block_put", "tfb_block_trim", "tfb_block_hold", "tfb_block_release")
MIN_BYTES = 1 << 20  # of a result that is worth a block
_MAX_CACHED_BYTES = 1 << 30
_SLACK_BYTES = 1 << 16  # that a block may have beside a quarter more than asked for
_CACHED_BYTES = "tfb_block_bytes"  # of the free blocks


def max_cached_bytes() -> int:
    """Most bytes of free blocks: a sixteenth of the machine's memory, at most 1 GiB."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no POSIX system
        return _MAX_CACHED_BYTES // 4
    return min(physical // 16, _MAX_CACHED_BYTES)


def write_pool(module: ModuleText) -> None:
    """Writes the functions of the pool, into a module with free_list.write_allocation."""
    module.add_global(_CACHED_BYTES, "internal global i64 0")
    blocks = FreeList(module, "block")
    _write_take(blocks)
    _write_drop_oldest(blocks)
    _write_put(blocks)
    f = Function(module, "tfb_block_trim", [], linkage="")
    blocks.lock(f)
    f.symbol(_CACHED_BYTES).store(0)
    blocks.free_all(f)
    f.ret()
    module.add("tfb_block_trim", f.text())


def _write_take(blocks: FreeList) -> None:
    f = Function(blocks.module, "tfb_block_take", [("i64", "bytes")], result="ptr", linkage="")
    bytes_ = f.integer("bytes")
    blocks.lock(f)
    best = blocks.best_fit(f, bytes_, bytes_ + (bytes_ >> 2) + _SLACK_BYTES)
    with f.if_(best.is_not_null()):
        block = blocks.unlink(best)
        _count(f, block, is_added=False)
        blocks.unlock(f)
        f.ret(block + HEADER_BYTES)
    blocks.unlock(f)
    return_memory_of_new_block(f, bytes_)
    blocks.module.add("tfb_block_take", f.text())


def _write_put(blocks: FreeList) -> None:
    f = Function(blocks.module, "tfb_block_put", parameters("ptr memory, i64 size, ptr arg"), linkage="")
    memory = f.pointer("memory")
    with f.if_(memory.is_not_null()):
        block = memory + -HEADER_BYTES
        blocks.lock(f)
        blocks.push(f, block)
        _count(f, block, is_added=True)
        with f.repeat() as excess:
            excess.while_(f.symbol(_CACHED_BYTES).load_int().compare("icmp ugt", max_cached_bytes()))
            f.call("drop_oldest_block", "void", [])
        blocks.unlock(f)
    f.ret()
    blocks.module.add("tfb_block_put", f.text())


def _write_drop_oldest(blocks: FreeList) -> None:
    """Frees the last block of the list, which is locked and has one."""
    f = Function(blocks.module, "drop_oldest_block", [])
    with f.repeat(link=blocks.head(f)) as search:
        block = search.link.load_ptr()
        following = HEADER.field(block, "next")
        search.while_(following.load_ptr().is_not_null())
        search.link = following.address
    search.link.store(f.null)
    _count(f, block, is_added=False)
    f.call("free_block", "void", [block])
    f.ret()
    blocks.module.add("drop_oldest_block", f.text())


def _count(f: Function, block: Ptr, is_added: bool) -> None:
    """Counts the bytes of a block that is put into the list or taken out of it."""
    capacity, total = HEADER.field(block, "capacity").load_int(), f.symbol(_CACHED_BYTES)
    before = total.load_int()
    total.store(before + capacity if is_added else before - capacity)
