"""Runs of compiled code in the traces of TensorFlow's profiler: what its class TraceMe does, in native code."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.types import parameters
from .layouts import ENTRY

_LEVEL = "tfbridge_trace_level"
_OPS = 2  # the level of ops, TraceMeLevel::kInfo
# TraceMeRecorder::Event: a std::string, and the times of its start and its end.
STRING_BYTES, EVENT_BYTES = 32, 48


def write(module: ModuleText) -> None:
    """trace_run(entry, start): records a run of an entry's code that ends now."""
    module.add_global(_LEVEL, "external global i32")
    f = Function(module, "trace_run", parameters("ptr cache_entry, i64 start"))
    name = ENTRY.field(f.pointer("cache_entry"), "trace_name").load_ptr()
    with f.if_(name.is_not_null()):
        event = f.stack_slot(f"[{EVENT_BYTES} x i8]")
        f.call("tfbridge_new_string", "void", [event])
        f.call("tfbridge_assign_string", "ptr", [event, name])
        (event + STRING_BYTES).store(f.integer("start"))
        (event + STRING_BYTES + 8).store(_now(f))
        f.call("tfbridge_record_trace", "void", [event])
        f.call("tfbridge_delete_string", "void", [event])
    f.ret()
    module.add("trace_run", f.text())


def begin(f: Function) -> Int:
    """The time, while a profiler records ops; else 0."""
    level = VectorValue.of(f, f.symbol(_LEVEL).atomic_load("i32", "monotonic"))
    with f.if_(level.compare("icmp sge", _OPS), start=f.i64(0)) as branch:
        branch.start = _now(f)
    start: Int = branch.start
    return start


def end(f: Function, entry: Ptr, start: Int) -> None:
    """Records a run that began then."""
    with f.if_(start.differs(0)):
        f.call("trace_run", "void", [entry, start])


def _now(f: Function) -> Int:
    return f.call("tfbridge_trace_clock", "i64", [])
