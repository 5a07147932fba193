"""The floating-point mode of every run: denormals are zero, results are rounded to nearest, nothing traps.

It is the mode in which TensorFlow's own threads run kernels. A run gets it whoever calls: on entry the mode of the
calling thread is compared with it and, where it differs, set, and restored at the end. In it a denormal operand of an
arithmetic operation or comparison is zero, and so is a denormal result; loads, stores, selections and operations on
bits keep denormals. Processors without such a mode (RISC-V, WebAssembly) keep them everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class _Register(NamedTuple):
    """The control register of a processor: its LLVM type, the intrinsics that read and write it at an address, the mask
    of its control bits, and their values in the mode of runs. The other bits are flags, which are kept."""

    type: str
    declarations: str
    read: str
    write: str
    controls: int
    mode: int


_REGISTERS = {
    # MXCSR: flush to zero (15), round to nearest (14, 13), exceptions masked (12-7), denormals are zero (6)
    "x86_64": _Register(
        "i32",
        "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
        "call void @llvm.x86.sse.stmxcsr(ptr {at})",
        "call void @llvm.x86.sse.ldmxcsr(ptr {at})",
        0xFFC0,
        0x9FC0,
    ),
    # FPCR: default NaN (25), flush to zero (24), round to nearest (23, 22), traps (15, 12-8)
    "aarch64": _Register(
        "i64",
        "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
        "{at}.r = call i64 @llvm.aarch64.get.fpcr()\n  store i64 {at}.r, ptr {at}, align 8",
        "{at}.w = load i64, ptr {at}, align 8\n  call void @llvm.aarch64.set.fpcr(i64 {at}.w)",
        0x3C09F00,
        1 << 24,
    ),
}


_NAMES = {"arm64": "aarch64", "AMD64": "x86_64"}  # of macOS and Windows


def _register(machine: str) -> _Register | None:
    return _REGISTERS.get(_NAMES.get(machine, machine))


def read(machine: str, at: str) -> str:
    """LLVM IR that stores the calling thread's mode at the local `at`, which has room for 8 bytes; in a module with
    `text`, as `write`."""
    register = _register(machine)
    return "  " + register.read.format(at=at) if register else ""


def write(machine: str, at: str) -> str:
    """LLVM IR that gives the calling thread the mode stored at `at`."""
    register = _register(machine)
    return "  " + register.write.format(at=at) if register else ""


def text(machine: str | None = None) -> str:
    """The text of `tfb_enter_mode(ptr saved) -> i1`, which sets the mode of runs and stores the one before, if that is
    another (true), and `tfb_leave_mode(ptr saved, i1)`, which takes its result and gives the mode back."""
    register = _register(machine or platform.machine())
    if register is None:
        return """
define internal i1 @tfb_enter_mode(ptr %saved) alwaysinline nounwind { ret i1 false }
define internal void @tfb_leave_mode(ptr %saved, i1 %differs) alwaysinline nounwind { ret void }
"""
    type_, mask = register.type, (1 << int(register.type[1:])) - 1
    return f"""
{register.declarations}
define internal i1 @tfb_enter_mode(ptr %saved) alwaysinline nounwind {{
  %new = alloca {type_}, align 8
  {register.read.format(at="%saved")}
  %before = load {type_}, ptr %saved, align 8
  %controls = and {type_} %before, {register.controls}
  %differs = icmp ne {type_} %controls, {register.mode}
  br i1 %differs, label %set, label %done
set:
  %flags = and {type_} %before, {~register.controls & mask}
  %mode = or {type_} %flags, {register.mode}
  store {type_} %mode, ptr %new, align 8
  {register.write.format(at="%new")}
  br label %done
done:
  ret i1 %differs
}}

define internal void @tfb_leave_mode(ptr %saved, i1 %differs) alwaysinline nounwind {{
  br i1 %differs, label %set, label %done
set:
  {register.write.format(at="%saved")}
  br label %done
done:
  ret void
}}
"""


# Where the C library's fenv_t has that register: (its ctypes type, how many of that type fenv_t is, which one it is).
_FENV = {
    ("linux", "x86_64"): (ctypes.c_uint32, 8, 7),
    ("linux", "aarch64"): (ctypes.c_uint32, 2, 0),
    ("darwin", "x86_64"): (ctypes.c_uint32, 4, 1),
    ("darwin", "arm64"): (ctypes.c_uint64, 2, 1),
}


class _Environment(NamedTuple):
    """The C library's `get(fenv_t*)` and `set(fenv_t*)`; the ctypes array that is fenv_t, and the register's place."""

    get: Callable[[ctypes.Array[Any]], int]
    set: Callable[[ctypes.Array[Any]], int]
    words: type[ctypes.Array[Any]]
    place: int
    register: _Register


@functools.cache
def _environment() -> _Environment | None:
    """None where fenv_t is not known."""
    known, register = _FENV.get((sys.platform, platform.machine())), _register(platform.machine())
    if known is None or register is None:
        return None
    type_, count, place = known
    library = ctypes.PyDLL("libm.so.6" if sys.platform == "linux" else None)
    return _Environment(library.fegetenv, library.fesetenv, type_ * count, place, register)


@contextlib.contextmanager
def of_runs() -> Iterator[None]:
    """Within, this thread has the mode of runs, so that what NumPy computes here is what compiled code would."""
    fenv = _environment()
    if fenv is None:
        yield
        return
    before = fenv.words()
    fenv.get(before)
    inside = fenv.words.from_buffer_copy(before)
    inside[fenv.place] = inside[fenv.place] & ~fenv.register.controls | fenv.register.mode
    fenv.set(inside)
    try:
        yield
    finally:
        fenv.set(before)
