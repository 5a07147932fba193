"""Intel VTune is told of functions in memory, through the collector that it puts into the programs that it starts.

Source: the JIT profiling API of https://github.com/intel/ittapi, of which `Method` is the struct `iJIT_Method_Load`.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterable

from ..errors import LoadError
from .elf import Placed

COLLECTOR = "INTEL_JIT_PROFILER64"
_METHOD_LOAD_FINISHED = 13
_SAMPLING_ON = 1
_FIRST_NUMBER = 1000  # lower ones are not for programs


class Method(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint),
        ("line_count", ctypes.c_uint),
        ("lines", ctypes.c_void_p),
        ("class_number", ctypes.c_uint),
        ("class_file", ctypes.c_char_p),
        ("source_file", ctypes.c_char_p),
    )


class JitProfiling:
    """The collector's library, whose path VTune puts into the environment."""

    def __init__(self) -> None:
        path = os.environ.get(COLLECTOR)
        if not path:
            raise LoadError(f"{COLLECTOR} is not set, as VTune sets it for the programs that it starts")
        library = ctypes.CDLL(path)
        self._notify = library.NotifyEvent
        self._notify.argtypes, self._notify.restype = (ctypes.c_uint, ctypes.c_void_p), ctypes.c_uint
        library.Initialize.restype = ctypes.c_uint
        self._is_sampling = library.Initialize() == _SAMPLING_ON
        self._numbers = itertools.count(_FIRST_NUMBER)

    def add(self, functions: Iterable[Placed]) -> None:
        """Tells of functions; of none while VTune collects no samples."""
        for f in functions if self._is_sampling else ():
            method = Method(next(self._numbers), f.name.encode(), f.address, f.bytes)
            self._notify(_METHOD_LOAD_FINISHED, ctypes.byref(method))
