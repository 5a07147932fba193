"""The process-wide fork-join pool: functions with which any thread launches kernels without Python.

`tfb_parallel_for(run_context, kernel, buffers, tasks, grain)` runs `kernel(run_context, buffers, lo, hi,
tid)` over [0, tasks) in chunks of `grain`. Each thread begins with its own part of the chunks and then takes
the remaining ones of the others': from one kernel to the next a thread so works on the same part of the data, which
lies in its own cache, and a delayed thread loses its part to the others. The caller works too, as tid 0,
and never waits for a helper that has not joined: a sleeping helper costs the wake, no more. At most `threads`
- 1 helpers join (the run context's field), so tid < threads; less those other runs that are at work on their own
threads (`tfb_runs`), which have processors to themselves. Helpers are started when a launch first wants
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

from collections.abc import Callable, Sequence

from ..code import float_mode
from ..llvm.addressing import Int, Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.struct_layout import Field, Struct
from ..llvm.types import parameters
from ..llvm.vector_value import VectorValue
from ..run_context import OFFSETS
from . import futex

EXPORTS = ("tfb_parallel_for", "tfb_pool", "tfb_pool_reset")

SPIN_NS = 60_000
SPIN_TURNS = 4000  # of a waiting caller's loop, 100 us or so, before it sleeps
MAX_HELPERS = 255
MAX_PARTS = 16  # that the chunks are divided into; more threads than that share them

# The job word and the launch share a cache line: helpers get both at once.
_POOL = Struct(
    {
        "job": (0, "i64"),
        "launch_number": (4, "i32"),  # the high half of the job word
        "kernel": (8, "ptr"),
        "run_context": (16, "ptr"),
        "buffers": (24, "ptr"),
        "tasks": (32, "i64"),
        "grain": (40, "i64"),
        "may_join": (48, "i64"),
        "float_mode": (56, "i64"),
        "sleepers": (256, "i32"),
        "is_taken": (384, "i32"),
        "helpers": (388, "i32"),  # that were started
        "caller_sleeps": (448, "i32"),
        "next_tasks": (512, "i64"),  # of each part
    }
)
_PART_BYTES = 128
_POOL_BYTES = 512 + _PART_BYTES * MAX_PARTS
# Bits of the job word: helpers at work, helpers that may still join, the launch's number.
_COUNT_MASK, _MAY_JOIN_SHIFT, _NUMBER_SHIFT = 0xFFFF, 16, 32
_JOIN = (1 << _MAY_JOIN_SHIFT) - 1  # subtracted: one less may join, one more is at work
_CLOSED = ~(_COUNT_MASK << _MAY_JOIN_SHIFT)  # nobody may join any more

_CLOCK_MONOTONIC, _SIG_SETMASK = 1, 2
_SIGNAL_SET = "[128 x i8]"
_TURNS_BETWEEN_CLOCKS = 32  # of a spinning helper
# A pause while spinning. Of AArch64's instructions ISB: YIELD is a hint, which a processor may ignore.
_PAUSE: dict[str, Callable[[Function], object]] = {
    "x86_64": lambda f: f.call("llvm.x86.sse2.pause", "void", []),
    "aarch64": lambda f: f.call("llvm.aarch64.isb", "void", [f.constant("i32", 15)]),
    "riscv64": lambda f: f.fence("seq_cst"),
}
# Helpers leave signals to the threads of the program, but not those that a fault in their own code raises
# (SIGILL, SIGBUS, SIGFPE, SIGSEGV), so that fault handlers work.
_FAULT_SIGNALS = (4, 7, 8, 11)


def write_pool(module: ModuleText, machine: str, processors: int) -> None:
    """Writes the functions of the pool into a module with those of temp_arena."""
    module.add_global("tfb_pool", f"global [{_POOL_BYTES} x i8] zeroinitializer, align 128")
    futex.declare(module)
    _write_now(module)
    _write_work(module)
    _write_wait_for_launch(module, machine)
    _write_helper(module, machine)
    _write_start_helpers(module)
    _write_wait_for_helpers(module, machine)
    _write_launch(module, machine)
    _write_parallel_for(module, processors)
    f = Function(module, "tfb_pool_reset", [], linkage="")  # in the child of a fork: no helper came along
    f.call("memset", "ptr", [f.symbol("tfb_pool"), f.constant("i32", 0), _POOL_BYTES])
    f.symbol("tfb_runs").atomic_store(f.i64(0), "monotonic")
    f.ret()
    module.add("tfb_pool_reset", f.text())


# -- fields, futexes, the clock


class _PoolFunction(Function):
    """A function of the pool, on a machine: the pool's fields, and what the system does."""

    def __init__(
        self,
        module: ModuleText,
        name: str,
        parameters: Sequence[tuple[str, str]],
        machine: str = "",
        **more: str,
    ) -> None:
        super().__init__(module, name, parameters, **more)
        self._name, self._machine = name, machine

    def field(self, name: str) -> Field:
        """A field of the pool."""
        return _POOL.field(self.symbol("tfb_pool"), name)

    def next_task(self, part: Int) -> Ptr:
        """The number of the next task of a part."""
        return self.field("next_tasks").address + part * _PART_BYTES

    def now_ns(self) -> Int:
        """The time."""
        return self.call("now_ns", "i64", [])

    def pause(self) -> None:
        """A pause while spinning."""
        _PAUSE[self._machine](self)

    def sleep(self, address: Ptr, number: VectorValue) -> None:
        """Sleeps while the word (i32) at an address has a value."""
        futex.wait(self, self._machine, address, number)

    def wake(self, address: Ptr, number: VectorValue | int) -> None:
        """Wakes so many that sleep at an address."""
        futex.wake(self, self._machine, address, number)

    def finish(self) -> None:
        """Adds the function to its module."""
        self.module.add(self._name, self.text())


def _write_now(module: ModuleText) -> None:
    f = _PoolFunction(module, "now_ns", [], result="i64")
    time = f.stack_slot("[2 x i64]", 8)
    f.call("clock_gettime", "i32", [f.constant("i32", _CLOCK_MONOTONIC), time])
    seconds, nanoseconds = time.load_int(), (time + 8).load_int()
    f.ret(seconds * 1_000_000_000 + nanoseconds)
    f.finish()


def _first_task(part: Int, parts: Int, tasks: Int, grain: Int) -> Int:
    """The first task of a part: the chunks before it, times the grain."""
    chunks = (tasks + grain - 1) // grain
    return part * chunks // parts * grain


# -- the work of a launch


def _write_work(module: ModuleText) -> None:
    """`work(tid, home)` takes chunks until there are no more, those of part `home` first."""
    f = _PoolFunction(module, "work", parameters("i64 tid, i64 home"))
    kernel, context, buffers = (f.field(n).load_ptr() for n in ("kernel", "run_context", "buffers"))
    tasks, grain, helpers = (f.field(n).load_int() for n in ("tasks", "grain", "may_join"))
    parts = (helpers + 1).minimum(MAX_PARTS)
    first = f.integer("home") % parts
    with f.loop(0, parts, guard=False) as step:
        number = first + step.index
        part = (number >= parts).choose(number - parts, number)
        end = _first_task(part + 1, parts, tasks, grain).minimum(tasks)
        next_task = f.next_task(part)
        with f.repeat() as chunk:
            low = Int.of(f, next_task.atomic_rmw("add", grain, "monotonic"))
            chunk.while_(low < end)
            high = low + grain.minimum(end - low)
            f.call(kernel, "void", [context, buffers, low, high, f.integer("tid")])
    f.ret()
    f.finish()


# -- helpers


def _number(job: VectorValue) -> VectorValue:
    """The number of the launch that a job word is of."""
    return job.shift_right(_NUMBER_SHIFT)


def _may_join(job: VectorValue) -> VectorValue:
    """The helpers that may still join."""
    return job.shift_right(_MAY_JOIN_SHIFT) & _COUNT_MASK


def _write_wait_for_launch(module: ModuleText, machine: str) -> None:
    """`wait_for_launch(seen)` returns the job word when it is of another launch: spins for a while, then sleeps."""
    f = _PoolFunction(module, "wait_for_launch", [("i64", "seen")], machine, result="i64")
    seen = VectorValue.of(f, f["seen"])

    def return_another_job() -> None:
        job = f.field("job").atomic_load("acquire")
        with f.if_(_number(job).differs(seen)):
            f.ret(job)

    deadline = f.now_ns() + SPIN_NS
    with f.repeat(turns=0) as spin:
        return_another_job()
        f.pause()
        spin.turns = spin.turns + 1
        with f.if_(spin.turns > _TURNS_BETWEEN_CLOCKS):
            with f.if_(f.now_ns() >= deadline):
                spin.break_()
            spin.turns = 0
    with f.repeat():
        f.field("sleepers").atomic_rmw("add", 1, "seq_cst")
        f.sleep(f.field("launch_number").address, seen.cast("trunc", "i32"))
        f.field("sleepers").atomic_rmw("sub", 1, "seq_cst")
        return_another_job()
    f.finish()


def _write_helper(module: ModuleText, machine: str) -> None:
    """`helper(home)`, a thread: waits for a launch, joins it if it wants helpers, works, and waits for the next one."""
    f = _PoolFunction(module, "helper", [("ptr", "home")], machine, result="ptr")
    home = f.pointer("home").as_bits()
    with f.repeat(seen=f.constant("i64", 0)) as idle:
        with f.repeat(job=VectorValue.of(f, f.call("wait_for_launch", "i64", [idle.seen]))) as look:
            may_join = _may_join(look.job)
            look.while_(may_join.differs(0))
            job = f.field("job").address
            before, is_joined = job.compare_exchange(look.job, look.job - _JOIN, "acq_rel", "acquire")
            with f.if_(is_joined):
                _work_as_helper(f, machine, may_join, home)
                look.break_()
            look.job = before
        idle.seen = _number(look.job)
    f.finish()


def _work_as_helper(f: _PoolFunction, machine: str, may_join: VectorValue, home: VectorValue) -> None:
    """Works in the caller's floating-point mode, and wakes the caller where it sleeps."""
    joined = f.field("may_join").load() - may_join
    float_mode.write(f, machine, f.field("float_mode").address)
    f.call("work", "void", [joined + 1, home])
    f.field("job").atomic_rmw("sub", 1, "seq_cst")
    with f.if_(f.field("caller_sleeps").atomic_load("seq_cst").differs(0)):
        f.wake(f.field("job").address, 1)


def _write_start_helpers(module: ModuleText) -> None:
    """`start_helpers(count)` starts helpers until so many run; returns how many do. The pool is taken."""
    f = _PoolFunction(module, "start_helpers", [("i64", "count")], result="i64")
    count, running = f.integer("count"), Int.zero_extended(f.field("helpers").load())
    with f.if_(running >= count):
        f.ret(running)
    thread, blocked, usual = (
        f.stack_slot("i64", 8),
        f.stack_slot(_SIGNAL_SET, 8),
        f.stack_slot(_SIGNAL_SET, 8),
    )
    f.call("sigfillset", "i32", [blocked])
    for signal in _FAULT_SIGNALS:
        f.call("sigdelset", "i32", [blocked, f.constant("i32", signal)])
    set_mask = f.constant("i32", _SIG_SETMASK)
    f.call("pthread_sigmask", "i32", [set_mask, blocked, usual])
    with f.repeat(started=running) as start:
        start.while_(start.started < count)
        number = start.started + 1
        status = f.call("pthread_create", "i32", [thread, f.null, f.symbol("helper"), number.as_pointer()])
        start.while_(VectorValue.of(f, status).equals(0))
        f.call("pthread_detach", "i32", [thread.load_int()])
        start.started = number
    f.field("helpers").store(start.started.truncate("i32"))
    f.call("pthread_sigmask", "i32", [set_mask, usual, f.null])
    f.ret(start.started)
    f.finish()


# -- callers


def _write_parallel_for(module: ModuleText, processors: int) -> None:
    """`tfb_parallel_for(context, kernel, buffers, tasks, grain)` launches on the pool, or runs the kernel itself."""
    pointers = [("ptr", name) for name in ("context", "kernel", "buffers")]
    f = _PoolFunction(
        module, "tfb_parallel_for", [*pointers, ("i64", "tasks"), ("i64", "requested_grain")], linkage=""
    )
    context, kernel, buffers = f.pointers("context", "kernel", "buffers")
    tasks, requested = f.integers("tasks", "requested_grain")
    with f.if_(tasks <= 0):
        f.ret()
    grain = requested.maximum(1)
    threads = Int.zero_extended((context + OFFSETS["threads"]).load("i32"))
    with f.if_((threads > 1) & (tasks > grain)):
        runs = Int.of(f, f.symbol("tfb_runs").atomic_load("i64", "monotonic"))
        spare = (processors - threads).maximum(0)  # processors that this launch leaves to others
        helpers = threads - 1 - (runs - 1 - spare).maximum(0)
        with f.if_(helpers > 0):
            _, is_mine = f.field("is_taken").address.compare_exchange(
                f.constant("i32", 0), f.constant("i32", 1), "acquire", "monotonic"
            )
            with f.if_(is_mine):
                f.call("launch", "void", [context, kernel, buffers, tasks, grain, helpers])
                f.ret()
    f.call(kernel, "void", [context, buffers, 0, tasks, 0])
    f.ret()
    f.finish()


def _write_launch(module: ModuleText, machine: str) -> None:
    """`launch(context, kernel, buffers, tasks, grain, others)` has the pool: describes the launch, opens it to helpers,
    works, closes it, waits for those at work and gives the pool back."""
    pointers = [("ptr", name) for name in ("run_context", "kernel", "buffers")]
    numbers = [("i64", name) for name in ("tasks", "grain", "others")]
    f = _PoolFunction(module, "launch", [*pointers, *numbers], machine)
    tasks, grain, others = f.integers("tasks", "grain", "others")
    # As many helpers as threads allow and chunks beyond the caller's first give work to.
    useful = others.minimum((tasks - 1) // grain).minimum(MAX_HELPERS)
    may_join = useful.minimum(f.call("start_helpers", "i64", [useful]))
    for name in ("kernel", "run_context", "buffers", "tasks", "grain"):
        f.field(name).store(f[name])
    f.field("may_join").store(may_join)
    float_mode.read(f, machine, f.field("float_mode").address)
    parts = (may_join + 1).minimum(MAX_PARTS)
    with f.loop(0, parts, guard=False) as part:
        f.next_task(part.index).atomic_store(_first_task(part.index, parts, tasks, grain), "monotonic")
    _open_launch(f, VectorValue.of(f, may_join))
    f.call("work", "void", [0, 0])
    f.field("job").atomic_rmw("and", _CLOSED, "acq_rel")
    f.call("wait_for_helpers", "void", [])
    f.field("is_taken").atomic_store(f.constant("i32", 0), "release")
    f.ret()
    f.finish()


def _open_launch(f: _PoolFunction, may_join: VectorValue) -> None:
    """Helpers may join from here on; wakes those that sleep."""
    number = _number(f.field("job").atomic_load("monotonic")) + 1
    f.field("job").atomic_store((number << _NUMBER_SHIFT) | (may_join << _MAY_JOIN_SHIFT), "seq_cst")
    with f.if_(f.field("sleepers").atomic_load("seq_cst") > 0):
        f.wake(f.field("launch_number").address, may_join.cast("trunc", "i32"))


def _write_wait_for_helpers(module: ModuleText, machine: str) -> None:
    """`wait_for_helpers()` returns when none is at work: spins for a while, then sleeps."""
    f = _PoolFunction(module, "wait_for_helpers", [], machine)
    with f.repeat(turns=0) as spin:
        with f.if_((f.field("job").atomic_load("acquire") & _COUNT_MASK).equals(0)):
            f.ret()
        spin.turns = spin.turns + 1
        spin.while_(spin.turns <= SPIN_TURNS)
        f.pause()
    # A helper that finishes after this sees it and wakes the caller.
    f.field("caller_sleeps").atomic_store(f.constant("i32", 1), "seq_cst")
    with f.repeat() as sleep:
        job = f.field("job").atomic_load("seq_cst")
        sleep.while_((job & _COUNT_MASK).differs(0))
        f.sleep(f.field("job").address, job.cast("trunc", "i32"))
    f.field("caller_sleeps").atomic_store(f.constant("i32", 0), "monotonic")
    f.ret()
    f.finish()
