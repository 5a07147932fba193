"""What was freed is given back to the system, also where the allocator would keep it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
from tfbridge.runtime.code import support_library
from tfbridge.runtime.memory import free_memory

pytestmark = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "malloc_trim")),
    reason="needs Linux and glibc",
)
_MIB = 1 << 20


@pytest.fixture
def libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def written(libc: ctypes.CDLL, size: int) -> int:
    memory = libc.malloc(size)
    ctypes.memset(memory, 1, size)
    return int(memory)


def test_free_memory_between_used_memory(libc: ctypes.CDLL) -> None:
    free_memory.give_back()
    chunks = [(written(libc, 60 << 10), written(libc, 3000)) for _ in range(1000)]
    before = resident_bytes()
    for chunk, _ in chunks:
        libc.free(chunk)
    free_memory.give_back()
    assert before - resident_bytes() > 40 * _MIB
    for _, separator in chunks:
        libc.free(separator)


def test_large_blocks_are_no_memory_of_the_allocator(libc: ctypes.CDLL) -> None:
    libc.free(written(libc, 31 * _MIB))  # it keeps what is smaller from now on
    addresses = support_library.addresses()
    support_library.trim_arenas()
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(addresses["arena_take"])
    put = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses["arena_put"])
    memory = take(20 * _MIB)
    ctypes.memset(memory, 1, 20 * _MIB)
    put(memory)
    before = resident_bytes()
    support_library.trim_arenas()
    assert before - resident_bytes() > 18 * _MIB
