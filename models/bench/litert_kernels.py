"""Which kernels LiteRT takes: those for the flags of the processor that its library keeps in a table of its own."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from tensorflow.lite.python import interpreter  # noqa: F401  loads the library

from ...runtime.symbols.elf import symbols_of

_LIBRARY = re.compile(r"libpywrap_tflite_common\.so|\w+_interpreter_wrapper\.so")  # 2.18 has the second
_TABLE, _FILL = "cpuinfo_isa", "cpuinfo_initialize"
# AVX2, then AVX-512 F, PF and ER (of Xeon Phi), CD, DQ, BW and VL. The table has a byte for each, and no names.
_PATTERN = bytes((1, 1, 0, 0, 1, 1, 1, 1))
_AVX512_FLAGS = 16


def hide_avx512() -> bool:
    """From now on LiteRT takes the kernels that it has for AVX2. False where its library is not as known; it then takes
    those of the machine. To be called before the first interpreter."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, path = int(line.split("-")[0], 16), Path(line.split(maxsplit=5)[-1])
        if _LIBRARY.fullmatch(path.name):  # the first line of a file is that of its start
            return _hide(start, {s.name: (s.value, s.bytes) for s in symbols_of(path.read_bytes())})
    return False


def _hide(start: int, symbols: dict[str, tuple[int, int]]) -> bool:
    if not {_TABLE, _FILL} <= symbols.keys():
        return False
    ctypes.CFUNCTYPE(ctypes.c_bool)(start + symbols[_FILL][0])()
    address, size = symbols[_TABLE]
    table = (ctypes.c_ubyte * size).from_address(start + address)
    if bytes(table).count(_PATTERN) != 1:
        return False
    first = bytes(table).index(_PATTERN) + 1
    table[first : first + _AVX512_FLAGS] = [0] * _AVX512_FLAGS
    return True
