"""GDB's interface for code made at run time: a list of symbol files in memory, and a function that GDB stops in to read
the list. Both are LLVM's, in llvmlite's library.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import llvmlite.binding as llvm

from ..errors import LoadError
from . import elf

_REGISTER, _UNREGISTER = 1, 2
_DESCRIPTOR, _FUNCTION, _ANCHOR = (
    "__jit_debug_descriptor",
    "__jit_debug_register_code",
    "LLVMPY_GetVersionInfo",
)


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("previous", ctypes.POINTER(_Entry)),
    ("file", ctypes.c_char_p),
    ("bytes", ctypes.c_uint64),
]


class _Descriptor(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("action", ctypes.c_uint32),
        ("relevant", ctypes.POINTER(_Entry)),
        ("first", ctypes.POINTER(_Entry)),
    )


@functools.cache
def _interface() -> tuple[_Descriptor, Callable[[], None]]:
    """The list, and the function that a debugger stops in. Raises: LoadError  the library does not name them."""
    library = llvm.ffi.lib
    path = Path(str(library._name))
    values = {s.name: s.value for s in elf.symbols_of(path.read_bytes())}
    if missing := {_DESCRIPTOR, _FUNCTION, _ANCHOR} - values.keys():
        raise LoadError(f"{path} does not name {', '.join(sorted(missing))}")
    address = ctypes.cast(getattr(ctypes.CDLL(str(path)), _ANCHOR), ctypes.c_void_p).value
    base = (address or 0) - values[_ANCHOR]
    return (
        _Descriptor.from_address(base + values[_DESCRIPTOR]),
        ctypes.CFUNCTYPE(None)(base + values[_FUNCTION]),
    )


_entries: dict[int, _Entry] = {}  # what the list refers to


class SymbolFiles:
    """The symbol files that a debugger has of this process."""

    def __init__(self) -> None:
        self._descriptor, self._stop = _interface()

    def add(self, functions: Sequence[elf.Placed]) -> int:
        """Adds a file with these functions; returns its number."""
        file, first = elf.symbol_file(functions), self._descriptor.first
        entry = _Entry(next=first, file=file, bytes=len(file))
        if first:
            first.contents.previous = ctypes.pointer(entry)
        self._descriptor.first = ctypes.pointer(entry)
        number = ctypes.addressof(entry)
        _entries[number] = entry
        self._tell(_REGISTER, entry)
        return number

    def remove(self, number: int) -> None:
        """Removes the file of that number."""
        entry = _entries.pop(number)
        if entry.previous:
            entry.previous.contents.next = entry.next
        else:
            self._descriptor.first = entry.next
        if entry.next:
            entry.next.contents.previous = entry.previous
        self._tell(_UNREGISTER, entry)

    def _tell(self, action: int, entry: _Entry) -> None:
        self._descriptor.relevant, self._descriptor.action = ctypes.pointer(entry), action
        self._stop()
        self._descriptor.action = 0
