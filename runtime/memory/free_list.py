"""Lists of free memory blocks behind a spin lock, as functions that any thread may call without Python.

A block is a header of 64 bytes and the memory after it, 64-byte aligned; big ones start at a huge page and ask for
such pages. Free blocks form a stack: a thread that asks again gets the memory that is still in its cache.
"""

from __future__ import annotations

from ..llvm.addressing import Int, Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.struct_layout import Struct
from ..llvm.types import parameters

HEADER = Struct({"next": (0, "ptr"), "capacity": (8, "i64"), "allocation": (16, "ptr")})
HEADER_BYTES = 64
GRANULE = 1 << 16  # bytes that blocks are multiples of
_HUGE_PAGE = 2 << 20
_MADV_HUGEPAGE = 14
_READ_WRITE, _PRIVATE_ANONYMOUS = 3, 0x22


def write_allocation(module: ModuleText, linux: bool) -> None:
    """Writes `new_block(bytes)`, which returns null without memory, `free_block(block)`, and `best_fit(list, bytes,
    limit)`: the link to the smallest block of at least `bytes` and less than `limit`, or null."""
    _write_new_block(module, linux)
    _write_free_block(module, linux)
    _write_best_fit(module)


def _write_new_block(module: ModuleText, linux: bool) -> None:
    f = Function(module, "new_block", [("i64", "bytes")], result="ptr")
    rounded = (f.integer("bytes") + (HEADER_BYTES + GRANULE - 1)).round_down(GRANULE)
    if linux:
        with f.if_(rounded.compare("icmp uge", _HUGE_PAGE)):
            # Mapped by itself: the allocator would keep what is freed, up to as much as was ever freed at once.
            flags = [f.constant("i32", n) for n in (_READ_WRITE, _PRIVATE_ANONYMOUS, -1)]
            allocation = f.call("mmap", "ptr", [f.null, rounded + _HUGE_PAGE, *flags, f.i64(0)])
            with f.if_(Int.of(f, allocation.as_bits()).equals(-1)):
                f.ret(f.null)
            block = _block_at(f, allocation, _HUGE_PAGE, rounded)
            f.call("madvise", "i32", [block, rounded, f.constant("i32", _MADV_HUGEPAGE)])
            f.ret(block)
    allocation = f.call("malloc", "ptr", [rounded + HEADER_BYTES])
    with f.if_(allocation.is_null()):
        f.ret(f.null)
    f.ret(_block_at(f, allocation, HEADER_BYTES, rounded))
    module.add("new_block", f.text())


def _block_at(f: Function, allocation: Ptr, alignment: int, size: Int) -> Ptr:
    """The first aligned address of an allocation, with the header of a block of so many bytes."""
    end = Int.of(f, allocation.as_bits()) + alignment - 1
    block = (end & -alignment).as_pointer()
    HEADER.field(block, "capacity").store(size - HEADER_BYTES)
    HEADER.field(block, "allocation").store(allocation)
    return block


def _write_free_block(module: ModuleText, linux: bool) -> None:
    f = Function(module, "free_block", [("ptr", "block")])
    allocation = HEADER.field(f.pointer("block"), "allocation").load_ptr()
    if linux:
        size = HEADER.field(f.pointer("block"), "capacity").load_int() + HEADER_BYTES
        with f.if_(size.compare("icmp uge", _HUGE_PAGE)):
            f.call("munmap", "i32", [allocation, size + _HUGE_PAGE])
            f.ret()
    f.call("free", "void", [allocation])
    f.ret()
    module.add("free_block", f.text())


def _write_best_fit(module: ModuleText) -> None:
    f = Function(module, "best_fit", parameters("ptr list, i64 bytes, i64 limit"), result="ptr")
    with f.repeat(link=f.pointer("list"), best=f.null, best_capacity=f.integer("limit")) as search:
        block = search.link.load_ptr()
        search.while_(block.is_not_null())
        capacity = HEADER.field(block, "capacity").load_int()
        fits = capacity.compare("icmp uge", f.integer("bytes"))
        with f.if_(fits & capacity.compare("icmp ult", search.best_capacity)):
            search.best, search.best_capacity = search.link, capacity
        search.link = HEADER.field(block, "next").address
    f.ret(search.best)
    module.add("best_fit", f.text())


class FreeList:
    """The writer of one list: its lock, and code between `lock` and `unlock` that changes it.

    `tfb_<name>_hold` and `tfb_<name>_release` are called around a fork: no other thread is in the midst of a change.
    """

    def __init__(self, module: ModuleText, name: str) -> None:
        self.module, self.name = module, name
        module.add_global(f"tfb_{name}s", "internal global ptr null, align 64")
        module.add_global(f"tfb_{name}_lock", "internal global i32 0, align 64")
        self._write_lock()
        for verb, action in (("hold", self.lock), ("release", self.unlock)):
            f = Function(module, f"tfb_{name}_{verb}", [], linkage="")
            action(f)
            f.ret()
            module.add(f"tfb_{name}_{verb}", f.text())

    def _write_lock(self) -> None:
        f = Function(self.module, f"lock_{self.name}s", [])
        lock = f.symbol(f"tfb_{self.name}_lock")
        with f.repeat() as attempt:
            _, taken = lock.compare_exchange(
                f.constant("i32", 0), f.constant("i32", 1), "acquire", "monotonic"
            )
            attempt.while_(~taken)
            with f.repeat() as wait:
                wait.while_(lock.atomic_load("i32", "monotonic").differs(0))
        f.ret()
        self.module.add(f"lock_{self.name}s", f.text())

    def lock(self, f: Function) -> None:
        """Waits for the list."""
        f.call(f"lock_{self.name}s", "void", [])

    def unlock(self, f: Function) -> None:
        """Gives the list to others."""
        f.symbol(f"tfb_{self.name}_lock").atomic_store(f.constant("i32", 0), "release")

    def head(self, f: Function) -> Ptr:
        """The link to the first block, which was put back last."""
        return f.symbol(f"tfb_{self.name}s")

    def push(self, f: Function, block: Ptr) -> None:
        """Puts a block back."""
        HEADER.field(block, "next").store(self.head(f).load_ptr())
        self.head(f).store(block)

    def unlink(self, link: Ptr) -> Ptr:
        """Takes the block that a link leads to."""
        block = link.load_ptr()
        link.store(HEADER.field(block, "next").load_ptr())
        return block

    def best_fit(self, f: Function, bytes_: Int, limit: Int) -> Ptr:
        """The link to the smallest block of at least so many bytes and less than `limit`, or null."""
        return f.call("best_fit", "ptr", [self.head(f), bytes_, limit])

    def free_all(self, f: Function) -> None:
        """Takes all blocks, unlocks the list and frees them."""
        blocks = self.head(f).load_ptr()
        self.head(f).store(f.null)
        self.unlock(f)
        with f.repeat(block=blocks) as rest:
            rest.while_(rest.block.is_not_null())
            block = rest.block
            rest.block = HEADER.field(block, "next").load_ptr()
            f.call("free_block", "void", [block])


def return_memory_of_new_block(f: Function, bytes_: Int) -> None:
    """Returns the memory of a new block, or null; ends the function."""
    block = f.call("new_block", "ptr", [bytes_])
    with f.if_(block.is_null()):
        f.ret(f.null)
    f.ret(block + HEADER_BYTES)
