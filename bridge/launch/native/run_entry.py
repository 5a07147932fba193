"""The run of an entry's code: run context, random state, packed arguments, bailouts, traces."""

from __future__ import annotations

from ....runtime import run_context
from ....runtime.llvm.ir_builder import Function, ModuleText, Ptr, VectorValue
from ....runtime.memory import temp_arena
from ..structs import ERROR_CAPACITY, MIN_BAILOUTS
from . import prepacked, trace
from .calls import call_i32
from .layouts import ENTRY, PACKED_SET, RUN_CONTEXT

HASH_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)


def write(module: ModuleText, with_traces: bool) -> None:
    """run_entry(cache entry, code, args, results, message, tensors) -> status of the code, which may have been removed
    from the entry since it was read."""
    names = ("cache_entry", "code", "args", "results", "message", "tensors")
    f = Function(module, "tfbridge_run_entry", [("ptr", name) for name in names], "i32", linkage="")
    entry, args, tensors = f.pointers("cache_entry", "args", "tensors")
    context = f.stack_slot(f"[{run_context.CONTEXT_BYTES} x i8]")
    start = trace.begin(f) if with_traces else None
    runs = ENTRY.field(entry, "runs").atomic_rmw("add", 1, "monotonic")
    f.call("memcpy", "ptr", [context, ENTRY.field(entry, "context").address, run_context.CONTEXT_BYTES])
    if start is not None:
        trace.record_kernels(f, entry, context, start)
    _set_message(f, context, f.pointer("message"))
    _count_run(f, entry, runs + 1, args)
    _set_random_state(f, entry, context, runs)
    packing = ENTRY.field(entry, "packing").load_ptr()
    with f.if_(packing.is_not_null()) as branch:
        branch.status = _run_packed(f, entry, packing, context, args, tensors)
    with branch.else_():
        branch.status = _run(f, entry, context)
    with f.if_(branch.status.equals(run_context.ASSUMPTION_FAILED)):
        _count_bailout(f, entry)
    if start is not None:
        trace.end(f, entry, start)
    f.ret(branch.status)
    module.add("tfbridge_run_entry", f.text())


def _set_message(f: Function, context: Ptr, message: Ptr) -> None:
    """Gives the code room for a message, which is empty."""
    message.store(f.constant("i8", 0))
    RUN_CONTEXT.field(context, "error_message").store(message)
    RUN_CONTEXT.field(context, "error_capacity").store(f.i64(ERROR_CAPACITY))


def _count_run(f: Function, entry: Ptr, number: VectorValue, args: Ptr) -> None:
    """At their runs: removes the code until its benchmark, and moves large inputs to huge pages."""
    with f.if_(number.equals(ENTRY.field(entry, "benchmark_at_run").load())):
        ENTRY.field(entry, "code").atomic_store(f.null, "monotonic")
    with f.if_(number.equals(ENTRY.field(entry, "promote_at_run").load())):
        f.call("tfbridge_promote", "void", [entry, args])


def _set_random_state(f: Function, entry: Ptr, context: Ptr, runs: VectorValue) -> None:
    """Starts every run elsewhere in the random stream, whichever word of the state is counted."""
    state = f.stack_slot("[2 x i64]")
    seed = ENTRY.field(entry, "seed").load()
    state.store(seed ^ (runs * HASH_FACTOR))
    (state + 8).store(seed)
    RUN_CONTEXT.field(context, "rng_state").store(state)


def _run(f: Function, entry: Ptr, context: Ptr) -> VectorValue:
    temp_bytes = ENTRY.field(entry, "temp_bytes").load()
    return call_i32(f, "tfbridge_run", [f["code"], context, f["args"], f["results"], temp_bytes])


def _run_packed(f: Function, entry: Ptr, packing: Ptr, context: Ptr, args: Ptr, tensors: Ptr) -> VectorValue:
    """Runs code that reads packed arguments."""
    packed = prepacked.use(f, packing, args, tensors)
    with f.if_(packed.is_not_null(), status=f.constant("i32", temp_arena.OUT_OF_MEMORY)) as branch:
        RUN_CONTEXT.field(context, "packed").store(PACKED_SET.field(packed, "addresses").load_ptr())
        branch.status = _run(f, entry, context)
        prepacked.release(packed)
    status: VectorValue = branch.status
    return status


def _count_bailout(f: Function, entry: Ptr) -> None:
    """Counts a bailout; removes code that bails out in most of its runs."""
    bailouts = ENTRY.field(entry, "bailouts").atomic_rmw("add", 1, "monotonic") + 1
    is_frequent = (bailouts << 1).compare("icmp ugt", ENTRY.field(entry, "runs").load())
    with f.if_(bailouts.compare("icmp uge", MIN_BAILOUTS) & is_frequent):
        ENTRY.field(entry, "code").atomic_store(f.null, "monotonic")
