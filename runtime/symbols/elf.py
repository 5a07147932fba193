"""Functions in ELF files: those of an object or a library are read, those in memory are written for a debugger."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = np.dtype(
    [(n, "<u4") for n in ("name", "type")]
    + [(n, "<u8") for n in ("flags", "address", "offset", "bytes")]
    + [(n, "<u4") for n in ("link", "info")]
    + [(n, "<u8") for n in ("alignment", "entry_bytes")]
)
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("bytes", "<u8")]
)
_IDENT = b"\x7fELF\2\1\1"  # 64 bits, little endian
_SYMTAB, _DYNSYM, _STRTAB, _NOBITS, _PROGBITS = 2, 11, 3, 8, 1
_FUNCTION, _OBJECT, _GLOBAL = 2, 1, 1
_EXECUTABLE_FILE, _ALLOCATED_CODE = 2, 2 | 4
_PROGRAM = "/proc/self/exe"
_RESERVED = 0xFF00  # sections from here on are none


class Symbol(NamedTuple):
    """A function or a variable of a file. value: the offset in its section, of a linked file the address in it."""

    name: str
    section: int
    value: int
    bytes: int
    is_function: bool
    is_global: bool


class Placed(NamedTuple):
    """A function in memory."""

    name: str
    address: int
    bytes: int


def symbols_of(file: bytes) -> list[Symbol]:
    """The functions and variables that a file defines; none if it is no ELF file of 64 bits, or has no such table."""
    if not file.startswith(_IDENT) or len(file) < _HEADER.size:
        return []
    *_, sections_at, _, _, _, _, _, count, _ = _HEADER.unpack_from(file)
    sections = np.frombuffer(file, _SECTION, count, sections_at)
    symbols: list[Symbol] = []
    for table in sections[np.isin(sections["type"], (_SYMTAB, _DYNSYM))]:
        names_at = int(sections[int(table["link"])]["offset"])
        rows = np.frombuffer(file, _SYMBOL, int(table["bytes"]) // _SYMBOL.itemsize, int(table["offset"]))
        is_defined = (rows["section"] > 0) & (rows["section"] < _RESERVED)
        for row in rows[is_defined & np.isin(rows["info"] & 15, (_FUNCTION, _OBJECT))]:
            start = names_at + int(row["name"])
            symbols.append(
                Symbol(
                    file[start : file.index(b"\0", start)].decode(errors="replace"),
                    int(row["section"]),
                    int(row["value"]),
                    int(row["bytes"]),
                    int(row["info"]) & 15 == _FUNCTION,
                    int(row["info"]) >> 4 == _GLOBAL,
                )
            )
    return symbols


def symbol_file(functions: Sequence[Placed]) -> bytes:
    """An ELF file for a debugger: the functions at their addresses, no contents."""
    start = min(f.address for f in functions)
    end = max(f.address + f.bytes for f in functions)
    section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    names, symbols = bytearray(b"\0"), np.zeros(len(functions) + 1, _SYMBOL)
    for row, function in zip(symbols[1:], functions, strict=True):
        row["name"], row["section"], row["info"] = len(names), 1, _GLOBAL << 4 | _FUNCTION
        row["value"], row["bytes"] = function.address, function.bytes
        names += function.name.encode() + b"\0"
    contents = [symbols.tobytes(), bytes(names), section_names]
    offsets = np.cumsum([_HEADER.size, *map(len, contents)]).tolist()
    sections = np.zeros(5, _SECTION)
    sections["name"] = [
        section_names.index(n) for n in (b"\0", b".text", b".symtab", b".strtab", b".shstrtab")
    ]
    sections["type"] = [0, _NOBITS, _SYMTAB, _STRTAB, _STRTAB]
    sections["bytes"] = [0, end - start, *map(len, contents)]
    sections["offset"] = [0, _HEADER.size, *offsets[:3]]
    sections["alignment"] = [0, 16, 8, 1, 1]
    text, table = sections[1], sections[2]
    text["flags"], text["address"] = _ALLOCATED_CODE, start
    table["link"], table["info"], table["entry_bytes"] = 3, 1, _SYMBOL.itemsize
    header = _HEADER.pack(
        _IDENT.ljust(16, b"\0"),
        _EXECUTABLE_FILE,
        machine_number(),
        1,
        0,
        0,
        offsets[3],
        0,
        _HEADER.size,
        0,
        0,
        _SECTION.itemsize,
        len(sections),
        4,
    )
    return header + b"".join(contents) + sections.tobytes()


def machine_number() -> int:
    """The number of this machine's instruction set in ELF files: that of the running program."""
    # sys.executable may be a script that starts the interpreter, and is empty in a program that embeds it.
    with open(_PROGRAM if os.path.exists(_PROGRAM) else sys.executable, "rb") as file:
        return int(_HEADER.unpack(file.read(_HEADER.size))[2])
