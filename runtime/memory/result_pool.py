"""Memory for large results, used again: LLVM IR text that any thread may call without Python.

The system's allocator gives memory of megabytes back to the kernel as soon as it is free, and every page of the next
result is then mapped and cleared anew, which takes longer than most kernels take to fill it. `tfb_block_take(bytes)`
gives memory (64-byte aligned, on huge pages where there are some; contents undefined; null: none left), preferably
that of a block put back before whose size is at most a quarter too large. `tfb_block_put(ptr, size, arg)`, which looks
at its first argument only, is what a tensor's deallocator is called with. Free blocks are kept up to a limit in bytes,
the ones put back last.

A block is made and freed as an arena is (memory/temp_arena.py), with the same header. Local variables are
stack slots: nothing here is hot.
"""

from __future__ import annotations

import os

EXPORTS = ("tfb_block_take", "tfb_block_put", "tfb_block_trim", "tfb_block_hold", "tfb_block_release")
SMALLEST = 1 << 20  # bytes from which a result is worth a block
_MOST_KEPT = 1 << 30


def kept_bytes() -> int:
    """Most bytes of free blocks: a sixteenth of the machine's memory, at most 1 GiB."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no POSIX system
        return _MOST_KEPT // 4
    return min(physical // 16, _MOST_KEPT)


def text() -> str:
    """The text of the block functions; it goes into one module with that of the arenas, whose memory a block is."""
    return f"""
@tfb_blocks = internal global ptr null, align 64
@tfb_block_bytes = internal global i64 0
@tfb_block_lock = internal global i32 0, align 64

define internal void @lock_blocks() nounwind {{
entry:
  br label %try
try:
  %got = cmpxchg ptr @tfb_block_lock, i32 0, i32 1 acquire monotonic
  %won = extractvalue {{i32, i1}} %got, 1
  br i1 %won, label %done, label %try
done:
  ret void
}}

define internal void @unlock_blocks() nounwind {{
  store atomic i32 0, ptr @tfb_block_lock release, align 4
  ret void
}}

define internal i64 @capacity_of(ptr %block) nounwind {{
  %field = getelementptr i8, ptr %block, i64 8
  %capacity = load i64, ptr %field, align 8
  ret i64 %capacity
}}

define internal void @add_to_kept(i64 %change) nounwind {{
  %before = load i64, ptr @tfb_block_bytes, align 8
  %after = add i64 %before, %change
  store i64 %after, ptr @tfb_block_bytes, align 8
  ret void
}}

define ptr @tfb_block_take(i64 %bytes) nounwind {{
entry:
  %link = alloca ptr
  %best = alloca ptr
  %best_capacity = alloca i64
  %quarter = lshr i64 %bytes, 2
  %most = add i64 %bytes, %quarter
  %limit = add i64 %most, 65536
  store ptr @tfb_blocks, ptr %link
  store ptr null, ptr %best
  store i64 %limit, ptr %best_capacity
  call void @lock_blocks()
  br label %next
next:
  %at = load ptr, ptr %link
  %block = load ptr, ptr %at, align 8
  %end = icmp eq ptr %block, null
  br i1 %end, label %choose, label %compare
compare:
  %capacity = call i64 @capacity_of(ptr %block)
  %fits = icmp uge i64 %capacity, %bytes
  %bound = load i64, ptr %best_capacity
  %smaller = icmp ult i64 %capacity, %bound
  %better = and i1 %fits, %smaller
  store ptr %block, ptr %link
  br i1 %better, label %keep, label %next
keep:
  store ptr %at, ptr %best
  store i64 %capacity, ptr %best_capacity
  br label %next
choose:
  %before = load ptr, ptr %best
  %found = icmp ne ptr %before, null
  br i1 %found, label %unlink, label %make
unlink:
  %taken = load ptr, ptr %before, align 8
  %after = load ptr, ptr %taken, align 8
  store ptr %after, ptr %before, align 8
  %size = call i64 @capacity_of(ptr %taken)
  %less = sub i64 0, %size
  call void @add_to_kept(i64 %less)
  call void @unlock_blocks()
  br label %give
make:
  call void @unlock_blocks()
  %made = call ptr @new_arena(i64 %bytes)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %give
none:
  ret ptr null
give:
  %given = phi ptr [%taken, %unlink], [%made, %make]
  %memory = getelementptr i8, ptr %given, i64 64
  ret ptr %memory
}}

define void @tfb_block_put(ptr %memory, i64 %size, ptr %arg) nounwind {{
entry:
  %link = alloca ptr
  %nothing = icmp eq ptr %memory, null
  br i1 %nothing, label %done, label %push
push:
  %block = getelementptr i8, ptr %memory, i64 -64
  %capacity = call i64 @capacity_of(ptr %block)
  call void @lock_blocks()
  %top = load ptr, ptr @tfb_blocks, align 8
  store ptr %top, ptr %block, align 8
  store ptr %block, ptr @tfb_blocks, align 8
  call void @add_to_kept(i64 %capacity)
  br label %check
check:
  %kept = load i64, ptr @tfb_block_bytes, align 8
  %many = icmp ugt i64 %kept, {kept_bytes()}
  br i1 %many, label %find, label %enough
enough:
  call void @unlock_blocks()
  br label %done
find:
  store ptr @tfb_blocks, ptr %link
  br label %next
next:
  %at = load ptr, ptr %link
  %here = load ptr, ptr %at, align 8
  %following = load ptr, ptr %here, align 8
  store ptr %here, ptr %link
  %last = icmp eq ptr %following, null
  br i1 %last, label %drop, label %next
drop:
  store ptr null, ptr %at, align 8
  %dropped = call i64 @capacity_of(ptr %here)
  %less = sub i64 0, %dropped
  call void @add_to_kept(i64 %less)
  call void @free_arena(ptr %here)
  br label %check
done:
  ret void
}}

define void @tfb_block_trim() nounwind {{
entry:
  call void @lock_blocks()
  %all = load ptr, ptr @tfb_blocks, align 8
  store ptr null, ptr @tfb_blocks, align 8
  store i64 0, ptr @tfb_block_bytes, align 8
  call void @unlock_blocks()
  br label %next
next:
  %block = phi ptr [%all, %entry], [%following, %drop]
  %end = icmp eq ptr %block, null
  br i1 %end, label %done, label %drop
drop:
  %following = load ptr, ptr %block, align 8
  call void @free_arena(ptr %block)
  br label %next
done:
  ret void
}}

; Around a fork, as those of the arenas.
define void @tfb_block_hold() nounwind {{
  call void @lock_blocks()
  ret void
}}

define void @tfb_block_release() nounwind {{
  call void @unlock_blocks()
  ret void
}}
"""
