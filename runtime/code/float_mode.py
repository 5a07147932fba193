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

from ..llvm.addressing import Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.types import parameters
from ..llvm.vector_value import VectorValue

ENTER, LEAVE = "tfb_enter_mode", "tfb_leave_mode"


class _Register(NamedTuple):
    """The control register of a processor: its LLVM type, what writes code that reads it to an address and writes it
    from there, the mask of its control bits, and their values in the mode of runs. The other bits are flags, which do
    not change."""

    type: str
    read: Callable[[Function, Ptr], object]
    write: Callable[[Function, Ptr], object]
    controls: int
    mode: int


_REGISTERS = {
    # MXCSR: flush to zero (15), round to nearest (14, 13), exceptions masked (12-7), denormals are zero (6)
    "x86_64": _Register(
        "i32",
        lambda f, at: f.call("llvm.x86.sse.stmxcsr", "void", [at]),
        lambda f, at: f.call("llvm.x86.sse.ldmxcsr", "void", [at]),
        0xFFC0,
        0x9FC0,
    ),
    # FPCR: default NaN (25), flush to zero (24), round to nearest (23, 22), traps (15, 12-8)
    "aarch64": _Register(
        "i64",
        lambda f, at: at.store(f.call("llvm.aarch64.get.fpcr", "i64", [])),
        lambda f, at: f.call("llvm.aarch64.set.fpcr", "void", [at.load_int()]),
        0x3C09F00,
        1 << 24,
    ),
}


_NAMES = {"arm64": "aarch64", "AMD64": "x86_64"}  # of macOS and Windows


def _register(machine: str) -> _Register | None:
    return _REGISTERS.get(_NAMES.get(machine, machine))


def read(f: Function, machine: str, at: Ptr) -> None:
    """Writes code that stores the calling thread's mode at an address, which has room for 8 bytes."""
    register = _register(machine)
    if register:
        register.read(f, at)


def write(f: Function, machine: str, at: Ptr) -> None:
    """Writes code that gives the calling thread the mode stored at an address."""
    register = _register(machine)
    if register:
        register.write(f, at)


def write_functions(module: ModuleText, machine: str | None = None) -> None:
    """Writes `ENTER(ptr saved) -> i1`, which stores the calling thread's mode and, if that is another one (true), sets
    the mode of runs; and `LEAVE(ptr saved, i1)`, which takes its result and gives the mode back."""
    register = _register(machine or platform.machine())
    f = Function(module, ENTER, [("ptr", "saved")], result="i1")
    f.ret(_set_mode(f, register) if register else f.constant("i1", False))
    module.add(ENTER, f.text())
    f = Function(module, LEAVE, parameters("ptr saved, i1 differs"))
    if register:
        with f.if_(VectorValue.of(f, f["differs"])):
            register.write(f, f.pointer("saved"))
    f.ret()
    module.add(LEAVE, f.text())


def _set_mode(f: Function, register: _Register) -> VectorValue:
    """Sets the mode of runs; returns whether it was another."""
    saved, changed = f.pointer("saved"), f.stack_slot(register.type, 8)
    register.read(f, saved)
    before = saved.load(register.type, 8)
    differs = (before & register.controls).differs(register.mode)
    with f.if_(differs):
        changed.store((before & ~register.controls) | register.mode, 8)
        register.write(f, changed)
    return differs


# Where the C library's fenv_t has that register: (its ctypes type, how many of that type fenv_t is, which one it is).
_FENV = {
    ("linux", "x86_64"): (ctypes.c_uint32, 8, 7),
    ("linux", "aarch64"): (ctypes.c_uint32, 2, 0),
    ("darwin", "x86_64"): (ctypes.c_uint32, 4, 1),
    ("darwin", "arm64"): (ctypes.c_uint64, 2, 1),
}


class _Environment(NamedTuple):
    """The C library's `get(fenv_t*)` and `set(fenv_t*)`; the ctypes array for fenv_t, the register's position in it."""

    get: Callable[[ctypes.Array[Any]], int]
    set: Callable[[ctypes.Array[Any]], int]
    words: type[ctypes.Array[Any]]
    position: int
    register: _Register


@functools.cache
def _environment() -> _Environment | None:
    """None where fenv_t is not known."""
    layout, register = _FENV.get((sys.platform, platform.machine())), _register(platform.machine())
    if layout is None or register is None:
        return None
    type_, count, index = layout
    library = ctypes.PyDLL("libm.so.6" if sys.platform == "linux" else None)
    return _Environment(library.fegetenv, library.fesetenv, type_ * count, index, register)


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
    inside[fenv.position] = inside[fenv.position] & ~fenv.register.controls | fenv.register.mode
    fenv.set(inside)
    try:
        yield
    finally:
        fenv.set(before)
