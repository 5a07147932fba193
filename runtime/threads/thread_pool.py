"""The process-wide fork-join pool, as LLVM IR text: any thread launches kernels without Python.

`tfb_parallel_for(run_context, kernel, buffers, tasks, grain)` runs `kernel(run_context, buffers, lo, hi,
tid)` over [0, tasks) in chunks of `grain`. Each thread begins with its own part of the chunks and then takes
what is left of the others': from one kernel to the next a thread so works on the same part of the data, which
lies in its own cache, and a thread that is held up loses its part to the others. The caller works too, as tid 0,
and never waits for a helper that has not joined: a sleeping helper costs the wake, no more. At most `threads`
- 1 helpers join (the run context's field), so tid < threads. Helpers are started when a launch first wants
them, spin for SPIN_NS after their last work and then sleep on a futex. A caller that has waited for a while
sleeps until the last helper is done: its processor is free then for a helper that has lost its own. One
launch at a time has the pool: a launch that finds it taken, by another thread or by the kernel it runs in,
runs serially in its caller.

The job word (i64) says all that helpers must agree on: bits 0-15 helpers at work, bits 16-31 helpers that
may still join, bits 32-63 the launch's number. Helpers sleep on the high half, callers on the low one. A
helper joins by one compare-and-swap that moves one from "may join" to "at work"; the description of the
launch cannot change while one is at work.
"""

from __future__ import annotations

import platform
import sys

from ..code import float_mode

EXPORTS = ("tfb_parallel_for", "tfb_pool", "tfb_pool_reset")

SPIN_NS = 60_000
TURNS = 4000  # of a waiting caller's loop, 100 us or so, before it sleeps
MAX_HELPERS = 255
MAX_PARTS = 16  # that the chunks are divided into; more threads than that share them

_POOL_BYTES = 512 + 128 * MAX_PARTS
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
# The intrinsic for a pause while spinning. The floating-point mode is the caller's in helpers, too.
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "riscv64": ("", "fence seq_cst"),
}
# Helpers leave signals to the threads of the program, but keep those that a fault in their own code raises
# (SIGILL, SIGBUS, SIGFPE, SIGSEGV), so that fault handlers work.
_FAULT_SIGNALS = (4, 7, 8, 11)


def text() -> str:
    """The text of the pool; empty where there are no futexes (run serially). It goes into one module with that of the
    arenas, which declares what reads and writes the floating-point mode."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _FUTEX_NUMBER:
        return ""
    return _text(machine)


def _text(machine: str) -> str:
    declare_pause, pause = _PAUSE[machine]
    futex = _FUTEX_NUMBER[machine]
    keep_faults = "\n".join(f"  %kept{n} = call i32 @sigdelset(ptr %all, i32 {n})" for n in _FAULT_SIGNALS)
    return f"""
; pool: job at 0 and, in the same cache line so that helpers get it with the job word, the launch: kernel at
;       8, run_context, buffers, tasks, grain, may_join, floating-point mode at 56
;       | sleepers (i32) at 256 | taken (i32) at 384, helpers started (i32) at 388
;       | caller asleep (i32) at 448 | the next task of each part at 512, 640, ...
@tfb_pool = global [{_POOL_BYTES} x i8] zeroinitializer, align 128
{declare_pause}
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)

define internal i64 @now_ns() nounwind {{
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest_at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest_at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

; The first task of a part: the chunks before it, times the grain.
define internal i64 @first_task(i64 %part, i64 %parts, i64 %tasks, i64 %grain) alwaysinline nounwind {{
  %up = add i64 %tasks, %grain
  %more = sub i64 %up, 1
  %chunks = udiv i64 %more, %grain
  %scaled = mul i64 %part, %chunks
  %before = udiv i64 %scaled, %parts
  %first = mul i64 %before, %grain
  ret i64 %first
}}

; Takes chunks until none is left, those of part %home first.
define internal void @work(i64 %tid, i64 %home) nounwind {{
entry:
  %kernel = load ptr, ptr getelementptr (i8, ptr @tfb_pool, i64 8), align 8
  %context = load ptr, ptr getelementptr (i8, ptr @tfb_pool, i64 16), align 8
  %buffers = load ptr, ptr getelementptr (i8, ptr @tfb_pool, i64 24), align 8
  %tasks = load i64, ptr getelementptr (i8, ptr @tfb_pool, i64 32), align 8
  %grain = load i64, ptr getelementptr (i8, ptr @tfb_pool, i64 40), align 8
  %helpers = load i64, ptr getelementptr (i8, ptr @tfb_pool, i64 48), align 8
  %threads = add i64 %helpers, 1
  %parts = call i64 @llvm.umin.i64(i64 %threads, i64 {MAX_PARTS})
  %own = urem i64 %home, %parts
  br label %part
part:
  %turn = phi i64 [0, %entry], [%turn1, %none]
  %sum = add i64 %own, %turn
  %beyond = icmp uge i64 %sum, %parts
  %wrapped = sub i64 %sum, %parts
  %number = select i1 %beyond, i64 %wrapped, i64 %sum
  %number1 = add i64 %number, 1
  %last = call i64 @first_task(i64 %number1, i64 %parts, i64 %tasks, i64 %grain)
  %end = call i64 @llvm.umin.i64(i64 %last, i64 %tasks)
  %place = shl i64 %number, 7
  %next_at = getelementptr i8, ptr getelementptr (i8, ptr @tfb_pool, i64 512), i64 %place
  br label %next
next:
  %low = atomicrmw add ptr %next_at, i64 %grain monotonic
  %some = icmp slt i64 %low, %end
  br i1 %some, label %run, label %none
run:
  %left = sub i64 %end, %low
  %count = call i64 @llvm.umin.i64(i64 %grain, i64 %left)
  %high = add i64 %low, %count
  call void %kernel(ptr %context, ptr %buffers, i64 %low, i64 %high, i64 %tid)
  br label %next
none:
  %turn1 = add i64 %turn, 1
  %all = icmp eq i64 %turn1, %parts
  br i1 %all, label %done, label %part
done:
  ret void
}}

define internal ptr @helper(ptr %which) nounwind {{
entry:
  %home = ptrtoint ptr %which to i64
  br label %idle
idle:                                             ; nothing to do since launch %seen
  %seen = phi i64 [0, %entry], [%number1, %look], [%number1, %finished], [%number1, %wake]
  %started = call i64 @now_ns()
  %deadline = add i64 %started, {SPIN_NS}
  br label %spin
spin:
  %turn = phi i32 [0, %idle], [%turn1, %again], [0, %check_time]
  %job = load atomic i64, ptr @tfb_pool acquire, align 8
  %number = lshr i64 %job, 32
  %same = icmp eq i64 %number, %seen
  br i1 %same, label %again, label %look
again:
  {pause}
  %turn1 = add i32 %turn, 1
  %enough = icmp ugt i32 %turn1, 32
  br i1 %enough, label %check_time, label %spin
check_time:
  %now = call i64 @now_ns()
  %early = icmp slt i64 %now, %deadline
  br i1 %early, label %spin, label %sleep
sleep:
  %before = atomicrmw add ptr getelementptr (i8, ptr @tfb_pool, i64 256), i32 1 seq_cst
  %expected = trunc i64 %seen to i32
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr getelementptr (i8, ptr @tfb_pool, i64 4), i32 128,
                                        i32 %expected, ptr null, ptr null, i32 0)
  %after = atomicrmw sub ptr getelementptr (i8, ptr @tfb_pool, i64 256), i32 1 seq_cst
  br label %look_first
look_first:                                       ; woken without a launch: sleep again
  %job_now = load atomic i64, ptr @tfb_pool acquire, align 8
  %number_now = lshr i64 %job_now, 32
  %still = icmp eq i64 %number_now, %seen
  br i1 %still, label %sleep, label %look
look:                                             ; a launch not seen before: join if it wants helpers
  %job1 = phi i64 [%job, %spin], [%job_now, %look_first], [%job_then, %retry]
  %number1 = lshr i64 %job1, 32
  %shifted = lshr i64 %job1, 16
  %may = and i64 %shifted, 65535
  %closed = icmp eq i64 %may, 0
  br i1 %closed, label %idle, label %join
join:
  %joined = sub i64 %job1, 65535
  %swap = cmpxchg ptr @tfb_pool, i64 %job1, i64 %joined acq_rel acquire
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %work, label %retry
retry:
  %job_then = extractvalue {{i64, i1}} %swap, 0
  br label %look
work:
  %wanted = load i64, ptr getelementptr (i8, ptr @tfb_pool, i64 48), align 8
  %taken = sub i64 %wanted, %may
  %tid = add i64 %taken, 1
  %mode_at = getelementptr i8, ptr @tfb_pool, i64 56
{float_mode.write(machine, "%mode_at")}
  call void @work(i64 %tid, i64 %home)
  br label %finished
finished:
  %one_less = atomicrmw sub ptr @tfb_pool, i64 1 seq_cst
  %caller = load atomic i32, ptr getelementptr (i8, ptr @tfb_pool, i64 448) seq_cst, align 4
  %asleep = icmp ne i32 %caller, 0
  br i1 %asleep, label %wake, label %idle
wake:
  %woken_caller = call i64 (i64, ...) @syscall(i64 {futex}, ptr @tfb_pool, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %idle
}}

; Starts helpers until `wanted` run; returns how many do. The pool is taken.
define internal i64 @start_helpers(i64 %wanted) nounwind {{
entry:
  %thread = alloca i64, align 8
  %all = alloca [128 x i8], align 8
  %kept = alloca [128 x i8], align 8
  %running32 = load i32, ptr getelementptr (i8, ptr @tfb_pool, i64 388), align 4
  %running = zext i32 %running32 to i64
  %enough = icmp uge i64 %running, %wanted
  br i1 %enough, label %as_is, label %start
as_is:
  ret i64 %running
start:
  %filled = call i32 @sigfillset(ptr %all)
{keep_faults}
  %masked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %kept)
  br label %next
next:
  %count = phi i64 [%running, %start], [%count1, %made]
  %full = icmp uge i64 %count, %wanted
  br i1 %full, label %done, label %make
make:
  %count1 = add i64 %count, 1
  %which = inttoptr i64 %count1 to ptr
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @helper, ptr %which)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %made
made:
  %handle = load i64, ptr %thread, align 8
  %detached = call i32 @pthread_detach(i64 %handle)
  br label %next
done:
  %count32 = trunc i64 %count to i32
  store i32 %count32, ptr getelementptr (i8, ptr @tfb_pool, i64 388), align 4
  %restored = call i32 @pthread_sigmask(i32 2, ptr %kept, ptr null)
  ret i64 %count
}}

define void @tfb_parallel_for(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %asked) nounwind {{
entry:
  %positive = icmp sgt i64 %asked, 0
  %grain = select i1 %positive, i64 %asked, i64 1
  %any = icmp sgt i64 %tasks, 0
  br i1 %any, label %size, label %nothing
nothing:
  ret void
size:
  %threads_at = getelementptr i8, ptr %context, i64 16
  %threads = load i32, ptr %threads_at, align 4
  %several = icmp sgt i32 %threads, 1
  %large = icmp sgt i64 %tasks, %grain
  %wants = and i1 %several, %large
  br i1 %wants, label %take, label %serial
serial:
  call void %kernel(ptr %context, ptr %buffers, i64 0, i64 %tasks, i64 0)
  ret void
take:
  %got = cmpxchg ptr getelementptr (i8, ptr @tfb_pool, i64 384), i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{i32, i1}} %got, 1
  br i1 %mine, label %launch, label %serial
launch:
  ; helpers: as many as threads allow and chunks beyond the caller's first give work to
  %others = sub i32 %threads, 1
  %others64 = zext i32 %others to i64
  %last_task = sub i64 %tasks, 1
  %chunks_beyond = udiv i64 %last_task, %grain
  %fewer = call i64 @llvm.umin.i64(i64 %others64, i64 %chunks_beyond)
  %wanted = call i64 @llvm.umin.i64(i64 %fewer, i64 {MAX_HELPERS})
  %running = call i64 @start_helpers(i64 %wanted)
  %may_join = call i64 @llvm.umin.i64(i64 %wanted, i64 %running)
  store ptr %kernel, ptr getelementptr (i8, ptr @tfb_pool, i64 8), align 8
  store ptr %context, ptr getelementptr (i8, ptr @tfb_pool, i64 16), align 8
  store ptr %buffers, ptr getelementptr (i8, ptr @tfb_pool, i64 24), align 8
  store i64 %tasks, ptr getelementptr (i8, ptr @tfb_pool, i64 32), align 8
  store i64 %grain, ptr getelementptr (i8, ptr @tfb_pool, i64 40), align 8
  store i64 %may_join, ptr getelementptr (i8, ptr @tfb_pool, i64 48), align 8
  %mode_at = getelementptr i8, ptr @tfb_pool, i64 56
{float_mode.read(machine, "%mode_at")}
  %joining = add i64 %may_join, 1
  %parts = call i64 @llvm.umin.i64(i64 %joining, i64 {MAX_PARTS})
  br label %begin
begin:
  %part = phi i64 [0, %launch], [%part1, %begin]
  %part1 = add i64 %part, 1
  %first = call i64 @first_task(i64 %part, i64 %parts, i64 %tasks, i64 %grain)
  %place = shl i64 %part, 7
  %next_at = getelementptr i8, ptr getelementptr (i8, ptr @tfb_pool, i64 512), i64 %place
  store atomic i64 %first, ptr %next_at monotonic, align 8
  %begun = icmp eq i64 %part1, %parts
  br i1 %begun, label %open_launch, label %begin
open_launch:
  %previous = load atomic i64, ptr @tfb_pool monotonic, align 8
  %number = lshr i64 %previous, 32
  %number1 = add i64 %number, 1
  %high = shl i64 %number1, 32
  %low = shl i64 %may_join, 16
  %job = or i64 %high, %low
  store atomic i64 %job, ptr @tfb_pool seq_cst, align 8
  %sleepers = load atomic i32, ptr getelementptr (i8, ptr @tfb_pool, i64 256) seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %join
wake:
  %may_join32 = trunc i64 %may_join to i32
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr getelementptr (i8, ptr @tfb_pool, i64 4), i32 129,
                                        i32 %may_join32, ptr null, ptr null, i32 0)
  br label %join
join:
  call void @work(i64 0, i64 0)
  %open = atomicrmw and ptr @tfb_pool, i64 -4294901761 acq_rel  ; nobody may join any more
  br label %wait
wait:
  %turn = phi i32 [0, %join], [%turn1, %pause]
  %state = load atomic i64, ptr @tfb_pool acquire, align 8
  %working = and i64 %state, 65535
  %finished = icmp eq i64 %working, 0
  br i1 %finished, label %done, label %more
more:
  %turn1 = add i32 %turn, 1
  %long = icmp ugt i32 %turn1, {TURNS}
  br i1 %long, label %say_asleep, label %pause
pause:
  {pause}
  br label %wait
say_asleep:                                       ; a helper that finishes after this sees it and wakes the caller
  store atomic i32 1, ptr getelementptr (i8, ptr @tfb_pool, i64 448) seq_cst, align 4
  br label %look
look:
  %state_now = load atomic i64, ptr @tfb_pool seq_cst, align 8
  %working_now = and i64 %state_now, 65535
  %finished_now = icmp eq i64 %working_now, 0
  br i1 %finished_now, label %awake, label %sleep
sleep:
  %expected = trunc i64 %state_now to i32
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr @tfb_pool, i32 128, i32 %expected, ptr null, ptr null, i32 0)
  br label %look
awake:
  store atomic i32 0, ptr getelementptr (i8, ptr @tfb_pool, i64 448) monotonic, align 4
  br label %done
done:
  store atomic i32 0, ptr getelementptr (i8, ptr @tfb_pool, i64 384) release, align 4
  ret void
}}
declare i64 @llvm.umin.i64(i64, i64)

; After a fork, in the child: no helper came along.
define void @tfb_pool_reset() nounwind {{
  call void @llvm.memset.p0.i64(ptr @tfb_pool, i8 0, i64 {_POOL_BYTES}, i1 false)
  ret void
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
