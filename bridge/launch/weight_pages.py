"""Large inputs of compiled code: those of an entry's SETTLED_RUNS-th run, variables mostly, go to huge pages.

An entry that runs that often is likely to go on, and its inputs to lie where they lie. Native code counts the runs and
calls `tfbridge_settled` once.
"""

from __future__ import annotations

import ctypes

from ...runtime.code.executable import Executable
from ...runtime.memory import huge_pages
from ...runtime.threads import interrupts
from . import kernel

SETTLED_RUNS = 16
_SETTLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_large: dict[int, list[tuple[int, int]]] = {}  # by address of the entry: (number, bytes) of its inputs


def watch(entry: kernel.Entry, executable: Executable) -> None:
    """Has an entry's large inputs moved when it has run for some time; what it reads packed needs no moving."""
    artifact = executable.artifact
    packed = {p.parameter for p in artifact.packed}
    large = [
        (k, spec.bytes)
        for k, spec in enumerate(artifact.parameters)
        if spec.bytes >= huge_pages.LEAST_BYTES and k not in packed
    ]
    if large:
        _large[ctypes.addressof(entry)] = large
        entry.settles = SETTLED_RUNS


def forget(entry: int) -> None:
    """An entry, given by its address, goes."""
    _large.pop(entry, None)


def _settled(entry: int, args: int) -> None:
    """Called by native code; nothing may be raised out of it."""
    try:
        huge_pages.move(
            (ctypes.c_uint64.from_address(args + 8 * number).value, size)
            for number, size in _large.pop(entry, ())
        )
    except Exception:
        return


_callback = _SETTLED(interrupts.callback(_settled))


def imports() -> dict[str, int]:
    """Addresses of what the native code calls."""
    return {"tfbridge_settled": ctypes.cast(_callback, ctypes.c_void_p).value or 0}
