"""Files from which Linux' perf has the names of functions in memory: a map, and a dump with the code itself."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import struct
import threading
import time
from collections.abc import Iterable

from ..errors import LoadError
from .elf import Placed, machine_number

_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_MAGIC, _VERSION, _CODE_LOAD = 0x4A695444, 1, 0
_HEADER = struct.Struct("<IIIIIIQQ")
_RECORD = struct.Struct("<IIQIIQQQQ")


class PerfMap:
    """`/tmp/perf-PID.map`, which `perf report` and other profilers read: a line for each function."""

    def __init__(self) -> None:
        self.path = f"/tmp/perf-{os.getpid()}.map"
        self._file = os.open(self.path, _OPEN | os.O_APPEND, 0o600)
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            os.close(self._file)
            raise LoadError(f"{self.path} is another user's, or no plain file")

    def add(self, functions: Iterable[Placed]) -> None:
        """Appends functions."""
        text = "".join(f"{f.address:x} {f.bytes:x} {f.name}\n" for f in functions)
        os.write(self._file, text.encode())


class JitDump:
    """`jit-PID.dump` in the current folder, or in that of `JITDUMPDIR`, for `perf inject --jit`.

    perf finds the file by a page of it that is mapped for execution. Times are of the monotonic clock: `perf record
    -k mono`.
    """

    def __init__(self) -> None:
        self.path = os.path.join(os.environ.get("JITDUMPDIR") or ".", f"jit-{os.getpid()}.dump")
        file = os.open(self.path, _OPEN | os.O_TRUNC, 0o600)
        self._file, self._count = file, 0
        header = (_MAGIC, _VERSION, _HEADER.size, machine_number(), 0, os.getpid(), time.monotonic_ns(), 0)
        os.write(file, _HEADER.pack(*header))
        self._marker = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)

    def add(self, functions: Iterable[Placed]) -> None:
        """Appends functions, with their code."""
        for f in functions:
            name, code = f.name.encode() + b"\0", ctypes.string_at(f.address, f.bytes)
            self._count += 1
            record = _RECORD.pack(
                _CODE_LOAD,
                _RECORD.size + len(name) + len(code),
                time.monotonic_ns(),
                os.getpid(),
                threading.get_native_id(),
                f.address,
                f.address,
                f.bytes,
                self._count,
            )
            os.write(self._file, record + name + code)
