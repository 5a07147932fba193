"""Copies of tiles that are less than a panel wide: between C and a whole tile in scratch memory."""

from __future__ import annotations

from ....runtime.llvm.addressing import Int
from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters, vector_type
from .compute_types import Compute
from .microkernel import vector_counts


def tail_copy_name(compute: str) -> str:
    """The function that copies part of a tile."""
    return f"tfb_copy_{compute}"


def write_tail_copy(module: ModuleText, target: Target, compute: str, linkage: str) -> str:
    """Writes a function into a module that copies `rows` rows of the first `width` columns of a tile, less than a
    panel; no others are touched on either side. Returns its name.

    A row goes in pieces of one size, the last of which overlaps the one before it: stores under a mask are slow.
    """
    name = tail_copy_name(compute)
    if module.has(name):
        return name
    listed = "ptr S, i64 lds, ptr D, i64 ldd, i64 rows, i64 width"
    f = Function(module, name, parameters(listed), linkage=linkage)
    lanes, vectors = Compute(target, compute).lanes, max(vector_counts(compute))
    # (columns of a piece, pieces, width from which on they are taken)
    cases = [(lanes, count, (count - 1) * lanes) for count in range(vectors, 1, -1)]
    cases += [(piece, 2, piece) for piece in (lanes >> k for k in range(1, lanes.bit_length()))]
    _copy_by_width(f, Compute(target, compute), cases)
    f.ret()
    return module.add(name, f.text())


def _copy_by_width(f: Function, compute: Compute, cases: list[tuple[int, int, int]]) -> None:
    """Copies by the first case that the width is above; the last one is a single column."""
    if not cases:
        _copy_rows(f, compute, 1, 1)
        return
    (piece, pieces, above), *others = cases
    with f.if_(f.integer("width") > above) as wider:
        _copy_rows(f, compute, piece, pieces)
    with wider.else_():
        _copy_by_width(f, compute, others)


def _copy_rows(f: Function, compute: Compute, piece: int, pieces: int) -> None:
    """Rows of more than (pieces - 1) * piece columns, and at most pieces * piece."""
    last = f.integer("width") - piece
    columns: list[Int | int] = [*(j * piece for j in range(pieces - 1)), last]
    with f.loop(0, f.integer("rows"), s=f.pointer("S"), d=f.pointer("D")) as row:
        vector = vector_type(compute.type, piece)
        values = [row.s.at(column, compute.type).load(vector) for column in columns]
        for value, column in zip(values, columns, strict=True):
            row.d.at(column, compute.type).store(value)
        row.s, row.d = row.s + f.integer("lds"), row.d + f.integer("ldd")
