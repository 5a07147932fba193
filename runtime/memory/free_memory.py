"""Memory that the C library's allocator keeps for itself after it was freed.

Threads that run tensors of megabytes leave as much behind, each in a pool of its own. Programs that serve for long do
that in their first calls, before there is code for them, and never need it again.
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Gives free memory back to the system, where the C library is glibc. Takes milliseconds."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
