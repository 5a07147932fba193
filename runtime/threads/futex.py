"""Sleeping on a word of memory until another thread changes it, in generated functions (Linux)."""

from __future__ import annotations

import platform
import sys

from ..llvm.addressing import Ptr
from ..llvm.ir_builder import Function
from ..llvm.module_text import ModuleText
from ..llvm.vector_value import VectorValue

_SYSTEM_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WAIT_BITSET, _WAKE_BITSET = 137, 138  # in this process
_ANY_GROUP = -1  # all bits
ALL = (1 << 31) - 1  # that sleep


def is_supported() -> bool:
    """Whether this machine has futexes."""
    return sys.platform.startswith("linux") and platform.machine() in _SYSTEM_CALL


def declare(module: ModuleText) -> None:
    """Declares what the other functions call."""
    module.declare("syscall", "i64", ["i64", "..."])


def wait(f: Function, machine: str, word: Ptr, number: VectorValue, group: VectorValue | None = None) -> None:
    """Sleeps while the word (i32) is the number, until it is woken; may return early. group: bits (i32), of which
    `wake` names one; any."""
    _call(f, machine, word, _WAIT_BITSET, number, group)


def wake(
    f: Function, machine: str, word: Ptr, count: VectorValue | int, group: VectorValue | None = None
) -> None:
    """Wakes so many (i32) of those that sleep on the word, or of those of a group."""
    number = f.constant("i32", count) if isinstance(count, int) else count
    _call(f, machine, word, _WAKE_BITSET, number, group)


def _call(
    f: Function, machine: str, word: Ptr, operation: int, number: VectorValue, group: VectorValue | None
) -> None:
    bits = f.constant("i32", _ANY_GROUP) if group is None else group
    call = f.i64(_SYSTEM_CALL[machine]), word, f.constant("i32", operation), number, f.null, f.null, bits
    f.call("syscall", "i64", call, signature="i64 (i64, ...)")
