"""What TensorFlow calls for the graph pass: native code that goes on to Python unless a gate is shut.

A few functions of TensorFlow, such as the converter to LiteRT, keep Python's lock while threads of theirs run sessions.
A graph pass that waited there for the lock would wait forever: within such a function graphs are left as they are.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from ...runtime.code import linker

# TF_Buffer is data, length, deallocator.
_TEXT = """
@shut = internal global i64 0

declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare void @tfbridge_rewrite(ptr, ptr, ptr, ptr, ptr)

define void @tfbridge_shut(i64 %more) nounwind {
  %before = atomicrmw add ptr @shut, i64 %more acq_rel
  ret void
}

define void @tfbridge_optimize(ptr %optimizer, ptr %graph, ptr %item, ptr %made, ptr %status) {
entry:
  %shut = load atomic i64, ptr @shut acquire, align 8
  %is_open = icmp eq i64 %shut, 0
  br i1 %is_open, label %rewrite, label %leave
rewrite:                                          ; again when it was interrupted before its first line
  %calls = phi i64 [0, %entry], [%more_calls, %again]
  call void @tfbridge_rewrite(ptr %optimizer, ptr %graph, ptr %item, ptr %made, ptr %status)
  %result = load ptr, ptr %made, align 8
  %is_interrupted = icmp eq ptr %result, null
  br i1 %is_interrupted, label %again, label %done
again:
  %more_calls = add i64 %calls, 1
  %many = icmp ugt i64 %calls, 1000
  br i1 %many, label %leave, label %rewrite
done:
  ret void
leave:
  %data = load ptr, ptr %graph, align 8
  %graph_length = getelementptr i8, ptr %graph, i64 8
  %length = load i64, ptr %graph_length, align 8
  %copy = call ptr @malloc(i64 %length)
  call ptr @memcpy(ptr %copy, ptr %data, i64 %length)
  store ptr %copy, ptr %made, align 8
  %made_length = getelementptr i8, ptr %made, i64 8
  store i64 %length, ptr %made_length, align 8
  %made_deallocator = getelementptr i8, ptr %made, i64 16
  store ptr @free, ptr %made_deallocator, align 8
  ret void
}
"""
_EXPORTS = ("tfbridge_optimize", "tfbridge_shut")


def gate(rewrite: int) -> tuple[int, Callable[[int], None]]:
    """(address of the C function for TensorFlow to call, `shut`) in front of the C function at `rewrite`.

    The gate is shut while the amounts that `shut` was called with are not 0 in sum.
    """
    found = linker.load_text(_TEXT, _EXPORTS, {"tfbridge_rewrite": rewrite}).keep().addresses
    optimize, shut = (found[name] for name in _EXPORTS)
    return optimize, ctypes.CFUNCTYPE(None, ctypes.c_int64)(shut)


def behind(shut: Callable[[int], None], function: Callable[..., object]) -> Callable[..., object]:
    """The function, during which the gate is shut."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        shut(1)
        try:
            return function(*args, **kwargs)
        finally:
            shut(-1)

    return call
