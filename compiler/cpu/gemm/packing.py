"""Packing: A into contiguous rows, B into panels of NR columns, converting and transposing on the way.

All strides are bytes and known at run time; the contiguous axis of the source, if any, is read in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import element_bytes, parameters
from ....runtime.llvm.vector_value import VectorValue
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from .compute_types import CACHE_LINE, Compute, line_vectors

PANELS_AT_ONCE = 8  # copied side by side when B is packed
ROWS_AHEAD = 16
PART_BYTES = 16  # of a vector, within which processors interleave at once
_ROWS = parameters("ptr S, ptr D, i64 rows, i64 width, i64 row_stride, i64 col_stride, i64 ld, i64 padded")
_PANELS = parameters("ptr S, ptr D, i64 kc, i64 nc, i64 k_stride, i64 col_stride")


def rows_name(element: ElementType, compute: str) -> str:
    """The function that packs A."""
    return f"tfb_rows_{element.value}_{compute}"


def panels_name(element: ElementType, compute: str, vectors: int, in_row: bool) -> str:
    """The function that packs B whose rows lie in a row each, or any B."""
    return f"tfb_{'panels' if in_row else 'columns'}_{element.value}_{compute}_{vectors}"


def write_packing(
    module: ModuleText, target: Target, element: ElementType, compute: str, vectors: int, linkage: str
) -> None:
    """Writes the packing functions for A and for B into a module."""
    write_rows(module, target, element, compute, linkage)
    for in_row in (True, False):
        write_panels(module, target, element, compute, vectors, in_row, linkage)


def use_rows(module: ModuleText, target: Target, element: ElementType, compute: str) -> str:
    """The function that packs A, declared, or written into a module that embeds libraries."""
    name = rows_name(element, compute)
    if module.embed_libraries:
        write_rows(module, target, element, compute, "internal")
    else:
        module.declare(name, "void", [t for t, _ in _ROWS])
    return name


def use_panels(
    module: ModuleText, target: Target, element: ElementType, compute: str, vectors: int, column_stride: int
) -> str:
    """The name of the function that packs B, whose columns are so many elements apart: written into the module, or
    declared where libraries have it."""
    in_row = column_stride == 1
    name = panels_name(element, compute, vectors, in_row)
    if module.embed_libraries:
        write_panels(module, target, element, compute, vectors, in_row, "internal")
    else:
        module.declare(name, "void", [t for t, _ in _PANELS])
    return name


def write_rows(module: ModuleText, target: Target, element: ElementType, compute: str, linkage: str) -> str:
    """Writes what copies a block to contiguous rows with conversion: D[r, w] = S[r, w], zero for width <= w < padded.
    Returns its name."""
    name = rows_name(element, compute)
    if not module.has(name):
        f = Function(module, name, _ROWS, linkage=linkage)
        _Rows(f, Compute(target, compute), element).write()
        module.add(name, f.text())
    return name


class _Rows:
    """Packing of A under construction: one way for each order in which the source lies in memory."""

    def __init__(self, f: Function, compute: Compute, element: ElementType) -> None:
        self.f, self.compute, self.element = f, compute, element
        self.type, self.storage, self.lanes = compute.type, memory_type(element), compute.lanes
        self.rows, self.width, self.row_stride = f.integers("rows", "width", "row_stride")
        self.col_stride, self.ld, self.padded = f.integers("col_stride", "ld", "padded")

    def write(self) -> None:
        """Chooses by the strides."""
        f, size = self.f, self.element.item_bytes
        # `padded` is whole vectors where it is more than the width; the last of them is filled before it is copied to.
        with f.if_(self.width < self.padded), f.loop(0, self.rows) as row:
            self._clear_end(row.index)
        with f.if_(self.col_stride.equals(size)) as in_rows:
            self._contiguous()
        with in_rows.else_():
            with f.if_(self.row_stride.equals(size)) as in_columns:
                if self.lanes > 1:
                    self._transposed()
                else:
                    self._elements()
            with in_columns.else_():
                self._elements()
        f.ret()

    def _clear_end(self, r: Int) -> None:
        f, compute = self.f, self.compute
        d = f.pointer("D") + r * self.ld
        with f.loop(self.width.round_down(self.lanes), self.padded, self.lanes) as w:
            d.at(w.index, self.type).store(f.zero(compute.vector))

    def _contiguous(self) -> None:
        """The elements of a row lie side by side: vectors of them."""
        f, storage, type_ = self.f, self.storage, self.type
        whole = self.width.round_down(self.lanes)
        with f.loop(0, self.rows) as row:
            s, d = f.pointer("S") + row.index * self.row_stride, f.pointer("D") + row.index * self.ld
            with f.loop(0, whole, self.lanes) as w:
                if line_vectors(self.compute.target):
                    (s + self.row_stride * 2).at(w.index, storage).prefetch()
                value = self.compute.load(s.at(w.index, storage), self.element, self.lanes)
                d.at(w.index, type_).store(value)
            with f.loop(whole, self.width) as w:
                value = self.compute.load(s.at(w.index, storage), self.element, 1)
                d.at(w.index, type_).store(value)

    def _elements(self) -> None:
        """One by one."""
        f = self.f
        with f.loop(0, self.rows) as row:
            s, d = f.pointer("S") + row.index * self.row_stride, f.pointer("D") + row.index * self.ld
            with f.loop(0, self.width) as w:
                value = self.compute.load(s + w.index * self.col_stride, self.element, 1)
                d.at(w.index, self.type).store(value)

    def _transposed(self) -> None:
        """The elements of a column lie side by side: square blocks, the last one of a row or column overlaps the one
        before it."""
        f, lanes = self.f, self.lanes
        has_rows, has_columns = self.rows >= lanes, self.width >= lanes
        with f.if_(has_rows & has_columns) as has_blocks:
            last_row = self.rows - lanes
            with f.loop(0, self.rows, lanes) as row:
                r = row.index.minimum(last_row)
                s, d = f.pointer("S").at(r, self.storage), f.pointer("D") + r * self.ld
                last_column = self.width - lanes
                with f.loop(0, self.width, lanes) as column:
                    self._transposed_block(column.index.minimum(last_column), s, d)
        with has_blocks.else_():
            self._elements()

    def _transposed_block(self, w: Int, s: Ptr, d: Ptr) -> None:
        at, columns = s + w * self.col_stride, []
        for _ in range(self.lanes):
            columns.append(self.compute.load(at, self.element, self.lanes))
            at = at + self.col_stride
        to = d.at(w, self.type)
        for row in transpose(columns):
            to.store(row)
            to = to + self.ld


def transpose(vectors: Sequence[VectorValue]) -> list[VectorValue]:
    """Transposes a square block of vectors in registers: within parts of 128 bits, then whole parts.

    Every shuffle is a single instruction of the machines that have such vectors, and one that LLVM finds at once.
    """
    lanes = len(vectors)
    part = min(lanes, max(1, PART_BYTES // element_bytes(vectors[0].type)))
    parts = lanes // part
    low = [at + j // 2 + (lanes if j % 2 else 0) for at in range(0, lanes, part) for j in range(part)]
    even = [at + j for at in range(0, 2 * lanes, 2 * part) for j in range(part)]
    high, odd = [at + part // 2 for at in low], [at + part for at in even]

    def within(rows: list[VectorValue]) -> list[VectorValue]:
        for _ in range(part.bit_length() - 1):
            pairs = [(rows[j], rows[j + part // 2]) for j in range(part // 2)]
            rows = [a.shuffle(order, b) for a, b in pairs for order in (low, high)]
        return rows

    def across(rows: list[VectorValue]) -> list[VectorValue]:
        for _ in range(parts.bit_length() - 1):
            pairs = [(rows[j], rows[j + 1]) for j in range(0, parts, 2)]
            rows = [a.shuffle(order, b) for order in (even, odd) for a, b in pairs]
        return rows

    groups = [within(list(vectors[at : at + part])) for at in range(0, lanes, part)]
    columns = [across([group[j] for group in groups]) for j in range(part)]
    return [columns[j][q] for q in range(parts) for j in range(part)]


def write_panels(
    module: ModuleText,
    target: Target,
    element: ElementType,
    compute: str,
    vectors: int,
    in_row: bool,
    linkage: str,
) -> None:
    """Writes what packs kc x nc elements of B into panels of NR columns, the last one padded with zeros. With `in_row`
    the elements of a row of B lie side by side."""
    name = panels_name(element, compute, vectors, in_row)
    if not module.has(name):
        f = Function(
            module, name, _PANELS, attributes="nounwind" if in_row else DRIVER_ATTRIBUTES, linkage=linkage
        )
        panels = _Panels(f, Compute(target, compute), element, vectors)
        if in_row:
            panels.write_from_rows(linkage)
        else:
            panels.copy_panels(0, linkage)
            f.ret()
        module.add(name, f.text())


class _Panels:
    """Packing of B under construction, into panels of `nr` columns of kc rows each."""

    def __init__(self, f: Function, compute: Compute, element: ElementType, vectors: int) -> None:
        self.f, self.compute, self.element, self.vectors = f, compute, element, vectors
        self.type, self.storage = compute.type, memory_type(element)
        self.nr = vectors * compute.lanes
        self.kc, self.nc, self.k_stride, self.col_stride = f.integers("kc", "nc", "k_stride", "col_stride")
        self.panel_bytes = self.kc * (self.nr * compute.bytes)
        self.whole = self.nc // self.nr * self.nr

    def write_from_rows(self, linkage: str) -> None:
        """The elements of a row of B lie side by side: whole panels in vectors, then the narrow one."""
        f, group = self.f, self.nr * PANELS_AT_ONCE
        grouped = self.nc // group * group
        with f.loop(0, grouped, group) as c:
            self._copy_group(c.index, PANELS_AT_ONCE)
        with f.loop(grouped, self.whole, self.nr) as c:
            self._copy_group(c.index, 1)
        if self.compute.is_stored_as(self.element):
            with f.if_(self.whole < self.nc):
                self._copy_tail_masked()
        else:
            self.copy_panels(self.whole, linkage)
        f.ret()

    def copy_panels(self, low: Index, linkage: str) -> None:
        """Panels from column `low` on, each copied as a block of A is, transposed where that is its order."""
        f, nr = self.f, self.nr
        copy = write_rows(f.module, self.compute.target, self.element, self.compute.name, linkage)
        with f.loop(low, self.nc, nr) as c:
            d = self._panel_of(c.index)
            s = f.pointer("S") + c.index * self.col_stride
            width = (self.nc - c.index).minimum(nr)
            strides = self.k_stride, self.col_stride
            f.call(copy, "void", [s, d, self.kc, width, *strides, nr * self.compute.bytes, nr])

    def _panel_of(self, c: Int) -> Ptr:
        return self.f.pointer("D") + c // self.nr * self.panel_bytes

    def _copy_group(self, c: Int, panels: int) -> None:
        """Copies some panels side by side: few pages are written at a time, and rows are read far enough."""
        f, nr = self.f, self.nr
        source = f.pointer("S").at(c, self.storage)
        with f.loop(0, self.kc, s=source, d=self._panel_of(c)) as row:
            ahead = row.s + self.k_stride * ROWS_AHEAD
            for line in range(0, panels * nr * self.element.item_bytes, CACHE_LINE):
                (ahead + line).prefetch()
            for panel in range(panels):
                to = row.d + self.panel_bytes * panel
                self._copy_row(row.s.at(panel * nr, self.storage), to)
            row.s, row.d = row.s + self.k_stride, row.d + nr * self.compute.bytes

    def _copy_row(self, s: Ptr, d: Ptr) -> None:
        compute = self.compute
        places = range(0, self.nr, compute.lanes)
        values = [compute.load(s.at(j, self.storage), self.element, compute.lanes) for j in places]
        for j, value in zip(places, values):
            d.at(j, self.type).store(value)

    def _copy_tail_masked(self) -> None:
        """The narrow panel, where elements are as they are computed."""
        f, compute, type_ = self.f, self.compute, self.type
        columns = self.nc - self.whole
        to = self._panel_of(self.nc)
        with f.loop(0, self.kc, s=f.pointer("S").at(self.whole, type_), d=to) as row:
            for j in range(0, self.nr, compute.lanes):
                value = compute.load_masked(row.s.at(j, type_), columns, j)
                row.d.at(j, type_).store(value)
            row.s, row.d = row.s + self.k_stride, row.d + self.nr * compute.bytes
