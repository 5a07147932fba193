"""Runs of code, and kernels, in the traces of TensorFlow's profiler: what its class TraceMe does, in native code."""

from __future__ import annotations

import ctypes

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.types import parameters
from ....runtime.profiler import recorded_end
from ....runtime.run_context import RECORD_START, Recorder
from .layouts import ENTRY, RECORDER, RUN_CONTEXT

_LEVEL = "tfbridge_trace_level"
_OPS = 2  # the level of ops, TraceMeLevel::kInfo
# TraceMeRecorder::Event: a std::string, and the times of its start and its end.
STRING_BYTES, EVENT_BYTES = 32, 48


def write(module: ModuleText) -> None:
    """trace_event(name, start, end): records what ran then. trace_kernel: a recorder's function that does so
    for each kernel; the recorder's data are the names."""
    module.add_global(_LEVEL, "external global i32")
    f = Function(module, "trace_event", parameters("ptr name, i64 start, i64 end"))
    event = f.stack_slot(f"[{EVENT_BYTES} x i8]")
    f.call("tfbridge_new_string", "void", [event])
    f.call("tfbridge_assign_string", "ptr", [event, f["name"]])
    (event + STRING_BYTES).store(f.integer("start"))
    (event + STRING_BYTES + 8).store(f.integer("end"))
    f.call("tfbridge_record_trace", "void", [event])
    f.call("tfbridge_delete_string", "void", [event])
    f.ret()
    module.add("trace_event", f.text())
    f = Function(module, "trace_kernel", parameters("ptr recorder, i64 kernel, ptr last"))
    recorder, last, kernel = *f.pointers("recorder", "last"), f.integer("kernel")
    with f.if_(kernel.differs(RECORD_START)):
        name = RECORDER.field(recorder, "data").load_ptr().at(kernel, "ptr").load_ptr()
        f.call("trace_event", "void", [name, last.load_int(), recorded_end(f, last, _now)])
    last.store(recorded_end(f, last, _now))
    f.ret()
    module.add("trace_kernel", f.text())


def begin(f: Function) -> Int:
    """The time, while a profiler records ops; else 0."""
    level = VectorValue.of(f, f.symbol(_LEVEL).atomic_load("i32", "monotonic"))
    with f.if_(level.compare("icmp sge", _OPS), start=f.i64(0)) as branch:
        branch.start = _now(f)
    start: Int = branch.start
    return start


def record_kernels(f: Function, entry: Ptr, context: Ptr, start: Int) -> None:
    """Gives a run that began then, if it is recorded, a recorder of its kernels."""
    names = ENTRY.field(entry, "kernel_names").load_ptr()
    with f.if_(start.differs(0) & names.is_not_null()):
        recorder = f.stack_slot(f"[{ctypes.sizeof(Recorder)} x i8]")
        RECORDER.field(recorder, "record").store(f.symbol("trace_kernel"))
        RECORDER.field(recorder, "data").store(names)
        RUN_CONTEXT.field(context, "recorder").store(recorder)


def end(f: Function, entry: Ptr, start: Int) -> None:
    """Records a run that began then."""
    name = ENTRY.field(entry, "trace_name").load_ptr()
    with f.if_(start.differs(0) & name.is_not_null()):
        f.call("trace_event", "void", [name, start, _now(f)])


def _now(f: Function) -> Int:
    return Int.of(f, f.call("tfbridge_trace_clock", "i64", []))
