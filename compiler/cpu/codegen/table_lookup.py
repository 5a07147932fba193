"""Lookups of bytes in tables of 256: shuffles of registers that hold the table where a target has them, else loads.

`vpermi2b` shuffles the bytes of two registers of 64: two of them are the table, the highest bit chooses. `tbl` looks
up in four registers of 16, and `tbx` keeps what is outside. `pshufb` looks up in one register of 16, by the low four
bits of an index, and gives 0 where the index has its highest bit. The sixteen tables for it are such that the
exclusive or of all results is the entry: `_differences`.

Source: the scheme with `pshufb` is that of XNNPACK's x8-lut kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ....runtime.llvm.ir_builder import Function, Int, Ptr, VectorValue
from ....runtime.llvm.lane_control import function_of
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import vector_type
from ....runtime.llvm.vector_value import by_registers

_ROW = 16  # bytes that `pshufb` looks up in
_ROWS = 16
_WRAPPING = 8  # rows until which the subtraction may wrap
_PSHUFB = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}
_MVE_GATHER = "llvm.arm.mve.vldr.gather.offset.v16i8.p0.v16i8"


def lookup_cycles(target: Target) -> int:
    """Cycles of a lookup, for as many bytes as a vector register holds of f32, about as `Op.cycles` counts them."""
    kind = target.byte_shuffles.rstrip("0123456789")
    return {"vpermi2b": 2, "tbl": 4, "mve": 4, "pshufb": 12}.get(kind, 8 if target.vector_bytes > 4 else 3)


def look_up(x: VectorValue, table: Sequence[int]) -> VectorValue:
    """Entries of a table of 256 bytes, whose bits are those of i8, for the bytes in the lanes of `x`."""
    f, target = function_of(x.f), x.f.module.target
    entries = np.array([entry & 255 for entry in table], np.uint8)
    shuffles = target.byte_shuffles if target is not None else ""
    if x.lanes == 1:
        return _load(_global(f, entries), x)
    if shuffles == "vpermi2b":
        return by_registers([x], 64, lambda part: _by_vpermi2b(f, part, _global(f, entries)))
    if shuffles.startswith("pshufb"):
        differences = _global(f, _differences(entries))
        return by_registers([x], int(shuffles[6:]), lambda part: _by_pshufb(f, part, differences))
    if shuffles == "tbl":
        return by_registers([x], 16, lambda part: _by_tbl(f, part, _global(f, entries)))
    at = _global(f, entries)
    if shuffles == "mve" and x.lanes == 16:
        flags = [f.constant("i32", flag) for flag in (8, 0, 1)]  # bits in memory, no shift, unsigned
        return x.write(f.call_text(_MVE_GATHER, x.type, [at, x, *flags]))
    result = f.poison(x.type)
    for lane in range(x.lanes):
        result = result.insert(_load(at, x.extract(lane)), lane)
    return result


def _global(f: Function, entries: np.ndarray) -> Ptr:
    """The address of a constant of these bytes; equal ones are one."""
    data = entries.tobytes()
    name = f"lookup.{hashlib.blake2b(data, digest_size=16).hexdigest()}"
    text = "".join(f"\\{byte:02X}" for byte in data)
    f.module.add_global(name, f'internal unnamed_addr constant [{len(data)} x i8] c"{text}", align 64')
    return f.symbol(name)


def _load(at: Ptr, index: VectorValue) -> VectorValue:
    return at.at(Int.of(at.f, index.cast("zext", "i64")), "i8").load("i8")


def _by_vpermi2b(f: Function, x: VectorValue, at: Ptr) -> VectorValue:
    quarters = [at.at(64 * k, "i8").load(x.type, align=64) for k in range(4)]
    low, high = (
        x.write(f.call_text("llvm.x86.avx512.vpermi2var.qi.512", x.type, [first, x, second]))
        for first, second in (quarters[:2], quarters[2:])
    )
    return (x < 0).choose(high, low)


def _by_pshufb(f: Function, x: VectorValue, at: Ptr) -> VectorValue:
    result, index, row_type = None, x, vector_type("i8", _ROW)
    for row in range(_ROWS):
        if row:
            index = index - _ROW if row <= _WRAPPING else index.call("ssub.sat", _ROW)
        entries = at.at(_ROW * row, "i8").load(row_type, align=_ROW)
        if x.lanes > _ROW:
            entries = entries.shuffle(list(range(_ROW)) * (x.lanes // _ROW))
        part = x.write(f.call_text(_PSHUFB[x.lanes], x.type, [entries, index]))
        result = part if result is None else result ^ part
    assert result is not None
    return result


def _differences(entries: np.ndarray) -> np.ndarray:
    """The rows whose shuffles `_by_pshufb` combines.

    An index of high bits h is not negative, and so finds a byte, at the rows up to h where h < 8; else at the rows
    from h - 7 on, before the index is 128 less, and at those from 8 to h. So each row follows from those before it.
    """
    wanted = entries.reshape(_ROWS, _ROW)
    rows = np.zeros_like(wanted)
    for high in range(_ROWS):
        first = 0 if high < _WRAPPING else high - 7
        rows[high] = wanted[high] ^ np.bitwise_xor.reduce(rows[first:high], axis=0)
    return rows


def _by_tbl(f: Function, x: VectorValue, at: Ptr) -> VectorValue:
    rows = [at.at(_ROW * k, "i8").load(x.type, align=_ROW) for k in range(_ROWS)]
    result = x.write(f.call_text("llvm.aarch64.neon.tbl4.v16i8", x.type, [*rows[:4], x]))
    for k in range(4, _ROWS, 4):
        index = x + ((128 - _ROW * k) % 256 - 128)
        name = "llvm.aarch64.neon.tbx4.v16i8"
        result = x.write(f.call_text(name, x.type, [result, *rows[k : k + 4], index]))
    return result
