"""Runs that take much memory wait for a processor, in the order in which they came.

More such runs at once than there are processors end no sooner, but each has an arena of its own and takes caches and
processors from the others. A run calls `tfb_admit()` before it takes its arena and `tfb_leave()` after it; as many as
there are processors are between the two. Both count: a run is admitted when fewer than that many of those before it
have not left. It sleeps on the count of those that left, in the group of its number modulo 32, and each one that
leaves wakes the next one alone. What waits for another thread, as host calls do, must not be between the two.
"""

from __future__ import annotations

from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.vector_value import VectorValue
from . import futex

ADMIT, LEAVE, RESET = "tfb_admit", "tfb_leave", "tfb_admission_reset"
MIN_BYTES = 1 << 20  # of temporary memory, from which on a run waits: below, all together take little
_CAME, _LEFT = "tfb_runs_came", "tfb_runs_left"
_GROUPS = 32  # as many as a word has bits


def write_functions(module: ModuleText, machine: str, processors: int) -> None:
    """Writes the functions for a machine that has futexes."""
    futex.declare(module)
    for name in (_CAME, _LEFT):
        module.add_global(name, "internal global i32 0, align 128")
    f = Function(module, ADMIT, [])
    number = VectorValue.of(f, f.symbol(_CAME).atomic_rmw("add", f.constant("i32", 1), "seq_cst"))
    with f.repeat():
        left = f.symbol(_LEFT).atomic_load("i32", "seq_cst")
        with f.if_((number - left) < processors):
            f.ret()
        futex.wait(f, machine, f.symbol(_LEFT), left, _group(number))
    module.add(ADMIT, f.text())
    f = Function(module, LEAVE, [])
    before = VectorValue.of(f, f.symbol(_LEFT).atomic_rmw("add", f.constant("i32", 1), "seq_cst"))
    admitted = before + processors
    waiting = f.symbol(_CAME).atomic_load("i32", "seq_cst") - admitted
    with f.if_(waiting > 0):
        futex.wake(f, machine, f.symbol(_LEFT), futex.ALL, _group(admitted))
    f.ret()
    module.add(LEAVE, f.text())
    f = Function(module, RESET, [], linkage="")  # in the child of a fork, where no run goes on
    for name in (_CAME, _LEFT):
        f.symbol(name).store(f.constant("i32", 0))
    f.ret()
    module.add(RESET, f.text())


def _group(number: VectorValue) -> VectorValue:
    """The group in which the run of a number sleeps: one bit."""
    return number.number(1) << (number & (_GROUPS - 1))
