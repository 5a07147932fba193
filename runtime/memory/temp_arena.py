"""Arenas for temporary memory, kept between calls: LLVM IR text that any thread may call without Python.

`tfb_arena_take(bytes)` gives memory (64-byte aligned, contents undefined) and `tfb_arena_put(ptr)` takes it
back. Free arenas form a stack, so a thread that calls again gets the memory that is still in its cache, and
as many arenas exist as calls ran at once. The smallest free arena that is big enough is taken; if all are too
small, the newest one grows. `tfb_run(entry, run_context, args, results, temp_bytes)` calls an entry with an
arena around it, in the floating-point mode of runs (float_mode.py).

An arena is a header of 64 bytes {ptr next, i64 capacity, ptr allocation} and the memory after it.
"""

from __future__ import annotations

from ..code import float_mode

OUT_OF_MEMORY = -12
EXPORTS = (
    "tfb_arena_take",
    "tfb_arena_put",
    "tfb_arena_trim",
    "tfb_run",
    "tfb_arena_hold",
    "tfb_arena_release",
)

_HUGE_PAGE = 2 << 20
# Big arenas start at a huge page and ask for such pages; elsewhere a cache line is enough.
_ADVISE_HUGE_PAGES = """
  %wants_huge = icmp uge i64 %rounded, 2097152
  br i1 %wants_huge, label %huge, label %done
huge:
  %ignored = call i32 @madvise(ptr %aligned, i64 %total, i32 14)
  br label %done
"""


def text(linux: bool, machine: str | None = None) -> str:
    """The module text of the arena functions, for this machine or one of that name."""
    return (
        float_mode.text(machine)
        + f"""
@tfb_arenas = internal global ptr null, align 64
@tfb_arena_lock = internal global i32 0, align 64
declare ptr @malloc(i64)
declare void @free(ptr)
{"declare i32 @madvise(ptr, i64, i32)" if linux else ""}

define internal void @lock_arenas() nounwind {{
entry:
  br label %try
try:
  %got = cmpxchg ptr @tfb_arena_lock, i32 0, i32 1 acquire monotonic
  %won = extractvalue {{i32, i1}} %got, 1
  br i1 %won, label %done, label %wait
wait:
  %held = load atomic i32, ptr @tfb_arena_lock monotonic, align 4
  %free = icmp eq i32 %held, 0
  br i1 %free, label %try, label %wait
done:
  ret void
}}

define internal void @unlock_arenas() nounwind {{
  store atomic i32 0, ptr @tfb_arena_lock release, align 4
  ret void
}}

define internal void @free_arena(ptr %arena) nounwind {{
  %field = getelementptr i8, ptr %arena, i64 16
  %allocation = load ptr, ptr %field, align 8
  call void @free(ptr %allocation)
  ret void
}}

define internal ptr @new_arena(i64 %bytes) nounwind {{
entry:
  %up = add i64 %bytes, 65599
  %rounded = and i64 %up, -65536
  %is_huge = icmp uge i64 %rounded, {_HUGE_PAGE}
  %alignment = select i1 %is_huge, i64 {_HUGE_PAGE}, i64 64
  %total = add i64 %rounded, %alignment
  %allocation = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %allocation, null
  br i1 %failed, label %none, label %made
none:
  ret ptr null
made:
  %address = ptrtoint ptr %allocation to i64
  %mask = sub i64 0, %alignment
  %past = add i64 %address, %alignment
  %past1 = sub i64 %past, 1
  %aligned_address = and i64 %past1, %mask
  %aligned = inttoptr i64 %aligned_address to ptr
{_ADVISE_HUGE_PAGES.replace("%total", "%rounded") if linux else "  br label %done"}
done:
  %capacity_at = getelementptr i8, ptr %aligned, i64 8
  %capacity = sub i64 %rounded, 64
  store i64 %capacity, ptr %capacity_at, align 8
  %allocation_at = getelementptr i8, ptr %aligned, i64 16
  store ptr %allocation, ptr %allocation_at, align 8
  ret ptr %aligned
}}

define ptr @tfb_arena_take(i64 %bytes) nounwind {{
entry:
  call void @lock_arenas()
  br label %next
next:
  %link = phi ptr [@tfb_arenas, %entry], [%arena, %compare], [%arena, %better]
  %best = phi ptr [null, %entry], [%best, %compare], [%link, %better]
  %best_capacity = phi i64 [9223372036854775807, %entry], [%best_capacity, %compare], [%capacity, %better]
  %arena = load ptr, ptr %link, align 8
  %end = icmp eq ptr %arena, null
  br i1 %end, label %choose, label %compare
compare:
  %capacity_at = getelementptr i8, ptr %arena, i64 8
  %capacity = load i64, ptr %capacity_at, align 8
  %fits = icmp uge i64 %capacity, %bytes
  %smaller = icmp ult i64 %capacity, %best_capacity
  %is_better = and i1 %fits, %smaller
  br i1 %is_better, label %better, label %next
better:
  br label %next
choose:
  %found = icmp ne ptr %best, null
  %newest = load ptr, ptr @tfb_arenas, align 8
  %any = icmp ne ptr %newest, null
  br i1 %found, label %take, label %too_small
take:
  %chosen = load ptr, ptr %best, align 8
  %after = load ptr, ptr %chosen, align 8
  store ptr %after, ptr %best, align 8
  call void @unlock_arenas()
  br label %give
too_small:
  br i1 %any, label %drop, label %fresh
drop:
  %rest = load ptr, ptr %newest, align 8
  store ptr %rest, ptr @tfb_arenas, align 8
  call void @unlock_arenas()
  call void @free_arena(ptr %newest)
  br label %make
fresh:
  call void @unlock_arenas()
  br label %make
make:
  %made = call ptr @new_arena(i64 %bytes)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %give
none:
  ret ptr null
give:
  %taken = phi ptr [%chosen, %take], [%made, %make]
  %memory = getelementptr i8, ptr %taken, i64 64
  ret ptr %memory
}}

define void @tfb_arena_put(ptr %memory) nounwind {{
entry:
  %nothing = icmp eq ptr %memory, null
  br i1 %nothing, label %done, label %push
push:
  %arena = getelementptr i8, ptr %memory, i64 -64
  call void @lock_arenas()
  %top = load ptr, ptr @tfb_arenas, align 8
  store ptr %top, ptr %arena, align 8
  store ptr %arena, ptr @tfb_arenas, align 8
  call void @unlock_arenas()
  br label %done
done:
  ret void
}}

define void @tfb_arena_trim() nounwind {{
entry:
  call void @lock_arenas()
  %all = load ptr, ptr @tfb_arenas, align 8
  store ptr null, ptr @tfb_arenas, align 8
  call void @unlock_arenas()
  br label %next
next:
  %arena = phi ptr [%all, %entry], [%following, %drop]
  %end = icmp eq ptr %arena, null
  br i1 %end, label %done, label %drop
drop:
  %following = load ptr, ptr %arena, align 8
  call void @free_arena(ptr %arena)
  br label %next
done:
  ret void
}}

; Around a fork: no other thread is in the midst of a change.
define void @tfb_arena_hold() nounwind {{
  call void @lock_arenas()
  ret void
}}

define void @tfb_arena_release() nounwind {{
  call void @unlock_arenas()
  ret void
}}

define i32 @tfb_run(ptr %entry_point, ptr %context, ptr %args, ptr %results, i64 %temp_bytes) nounwind {{
entry:
  %mode_at = alloca i64, align 8
  %needs = icmp ne i64 %temp_bytes, 0
  br i1 %needs, label %with_temp, label %without
without:
  %differs = call i1 @tfb_enter_mode(ptr %mode_at)
  %plain = call i32 %entry_point(ptr %context, ptr %args, ptr %results, ptr null)
  call void @tfb_leave_mode(ptr %mode_at, i1 %differs)
  ret i32 %plain
with_temp:
  %temp = call ptr @tfb_arena_take(i64 %temp_bytes)
  %failed = icmp eq ptr %temp, null
  br i1 %failed, label %no_memory, label %call
no_memory:
  ret i32 {OUT_OF_MEMORY}
call:
  %differs_here = call i1 @tfb_enter_mode(ptr %mode_at)
  %status = call i32 %entry_point(ptr %context, ptr %args, ptr %results, ptr %temp)
  call void @tfb_leave_mode(ptr %mode_at, i1 %differs_here)
  call void @tfb_arena_put(ptr %temp)
  ret i32 %status
}}
"""
    )
