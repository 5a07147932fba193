"""A WebAssembly object as a module that can be run, without a linker.

LLVM writes an object as it would be if it was linked alone: functions have their numbers, data begin at address 0, and
functions whose addresses are taken are elements of a table from 1 on. What an object lacks is exports, and what it has
besides are the sections for linkers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

_MAGIC = b"\0asm\1\0\0\0"
_CUSTOM, _IMPORT, _EXPORT, _DATA = 0, 2, 7, 11
_ORDER = (1, 2, 3, 4, 5, 6, _EXPORT, 8, 9, 12, 10, _DATA)  # of sections in a module
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = range(4)
_SYMBOL_TABLE = 8
_FUNCTION_NAMES = 1
_UNDEFINED, _EXPLICIT_NAME = 0x10, 0x40
_SEGMENT_INDEX = 2  # a flag of data that names its memory
PAGE_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class WasmModule:
    """A module. functions: those that it imports. table, memory: elements and bytes that these have at least, None
    where it does not import them. has_stack: whether it imports a stack pointer. data_bytes: where its own data end."""

    contents: bytes
    functions: tuple[str, ...]
    table: int | None
    memory: int | None
    has_stack: bool
    data_bytes: int


class _Reader:
    """Reads numbers and texts one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.bytes(1)[0]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        start = self.at
        value = self.unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self) -> str:
        return self.bytes(self.unsigned()).decode(errors="replace")

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.data)


def module_of(object_bytes: bytes, exports: Collection[str], has_names: bool = False) -> WasmModule:
    """The module of an object that exports some of its functions. has_names: with the names of all, for profilers."""
    sections = dict(_sections(object_bytes))
    symbols = _symbols(sections.pop("linking", b""))
    listed = b"".join(_text(name) + bytes([_FUNCTION]) + _leb(symbols[name]) for name in exports)
    parts = {kind: data for kind, data in sections.items() if isinstance(kind, int)}
    parts[_EXPORT] = _leb(len(exports)) + listed
    contents = _MAGIC + b"".join(_section(kind, parts[kind]) for kind in _ORDER if kind in parts)
    if has_names:
        contents += _section(_CUSTOM, _text("name") + _section(_FUNCTION_NAMES, _names(symbols)))
    functions, limits = _imports(parts.get(_IMPORT, b"\0"))
    memory = limits.get(_MEMORY)
    return WasmModule(
        contents,
        tuple(functions),
        limits.get(_TABLE),
        None if memory is None else memory * PAGE_BYTES,
        _GLOBAL in limits,
        _data_bytes(parts.get(_DATA, b"\0")),
    )


def _section(kind: int, contents: bytes) -> bytes:
    return bytes([kind]) + _leb(len(contents)) + contents


def _names(symbols: Mapping[str, int]) -> bytes:
    """Functions by number, with their names."""
    rows = sorted((number, name) for name, number in symbols.items())
    return _leb(len(rows)) + b"".join(_leb(number) + _text(name) for number, name in rows)


def _sections(data: bytes) -> Iterator[tuple[int | str, bytes]]:
    """(number, contents) of sections; custom ones by their names."""
    reader = _Reader(data)
    reader.bytes(len(_MAGIC))
    while not reader.is_at_end:
        kind = reader.byte()
        contents = reader.bytes(reader.unsigned())
        if kind != _CUSTOM:
            yield kind, contents
            continue
        inner = _Reader(contents)
        yield inner.text(), contents[inner.at :]


def _symbols(linking: bytes) -> dict[str, int]:
    """The numbers of functions that are defined, by name."""
    numbers: dict[str, int] = {}
    reader = _Reader(linking)
    reader.unsigned()  # version
    while not reader.is_at_end:
        kind, contents = reader.byte(), _Reader(reader.bytes(reader.unsigned()))
        if kind != _SYMBOL_TABLE:
            continue
        for _ in range(contents.unsigned()):
            symbol, flags = contents.byte(), contents.unsigned()
            is_defined = not flags & _UNDEFINED
            if symbol == 1:  # data
                contents.text()
                for _ in range(3 if is_defined else 0):
                    contents.unsigned()
                continue
            number = contents.unsigned()
            name = contents.text() if symbol != 3 and (is_defined or flags & _EXPLICIT_NAME) else ""
            if symbol == 0 and is_defined:
                numbers[name] = number
    return numbers


def _imports(section: bytes) -> tuple[list[str], dict[int, int]]:
    """(names of functions, the least size of the table and of the memory and whether there is a global, by kind)."""
    reader, functions, limits = _Reader(section), list[str](), dict[int, int]()
    for _ in range(reader.unsigned()):
        reader.text()
        name, kind = reader.text(), reader.byte()
        if kind == _FUNCTION:
            reader.unsigned()
            functions.append(name)
            continue
        reader.byte()  # of a table and a global: the type; of a memory: flags
        if kind == _GLOBAL:
            reader.byte()
            limits[kind] = 0
            continue
        flags = reader.byte() if kind == _TABLE else reader.data[reader.at - 1]
        limits[kind] = reader.unsigned()
        if flags & 1:
            reader.unsigned()
    return functions, limits


def _data_bytes(section: bytes) -> int:
    """The address behind the last segment of data."""
    reader, end = _Reader(section), 0
    for _ in range(reader.unsigned()):
        if reader.unsigned() == _SEGMENT_INDEX:
            reader.unsigned()
        reader.byte()  # i32.const
        offset = reader.signed()
        reader.byte()  # end
        size = reader.unsigned()
        reader.bytes(size)
        end = max(end, offset + size)
    return end


def _leb(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 127
        out.append(low | (128 if number else 0))
        if not number:
            return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return _leb(len(data)) + data
