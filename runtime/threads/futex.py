"""Sleeping on a word of memory until another thread changes it, in generated functions (Linux)."""

from __future__ import annotations

import platform
import sys

from ..llvm.addressing import Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.vector_value import VectorValue

_SYSTEM_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WAIT, _WAKE, _WAIT_BITSET, _WAKE_BITSET = 128, 129, 137, 138  # in this process
_NULL, _ALL = 0, (1 << 31) - 1


def is_supported() -> bool:
    """Whether this machine has futexes."""
    return sys.platform.startswith("linux") and platform.machine() in _SYSTEM_CALL


def declare(module: ModuleText) -> None:
    """Declares what the other functions call."""
    module.declare("syscall", "i64", ["i64", "..."])


def wait(f: Function, machine: str, word: Ptr, number: VectorValue, group: VectorValue | None = None) -> None:
    """Sleeps while the word (i32) is the number, until it is woken; may return early. group: bits (i32), at least one
    of which `wake` names."""
    operation = _WAIT if group is None else _WAIT_BITSET
    _call(f, machine, word, operation, number, group)


def wake(f: Function, machine: str, word: Ptr, count: VectorValue | int) -> None:
    """Wakes so many (i32) of those that sleep on the word."""
    _call(f, machine, word, _WAKE, f.constant("i32", count) if isinstance(count, int) else count, None)


def wake_group(f: Function, machine: str, word: Ptr, group: VectorValue) -> None:
    """Wakes all that sleep on the word as part of a group."""
    _call(f, machine, word, _WAKE_BITSET, f.constant("i32", _ALL), group)


def _call(
    f: Function, machine: str, word: Ptr, operation: int, number: VectorValue, group: VectorValue | None
) -> None:
    zero = f.constant("i32", _NULL)
    call = f.i64(_SYSTEM_CALL[machine]), word, f.constant("i32", operation), number
    f.call(
        "syscall",
        "i64",
        [*call, f.null, f.null, zero if group is None else group],
        signature="i64 (i64, ...)",
    )
