"""Packing: A into contiguous rows, B into panels of NR columns, converting and transposing on the way.

All strides are bytes and known at run time; the contiguous axis of the source, if any, is read in vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, i64, split_vector, vector_type
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from .compute_types import (
    CACHE_LINE,
    COMPUTE_TYPES,
    SIZES,
    if_,
    lanes_of,
    line_vectors,
    load_as,
    load_masked,
    zero,
)

PANELS_AT_ONCE = 8  # copied side by side when B is packed
ROWS_AHEAD = 16
PART_BYTES = 16  # of a vector, within which processors interleave at once
_ROWS_TYPES = ["ptr", "ptr", "i64", "i64", "i64", "i64", "i64", "i64"]
_PANELS = (
    ("ptr", "S"),
    ("ptr", "D"),
    ("i64", "kc"),
    ("i64", "nc"),
    ("i64", "k_stride"),
    ("i64", "col_stride"),
)


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
        module.declare(name, "void", _ROWS_TYPES)
    return name


def use_panels(
    module: ModuleText, target: Target, element: ElementType, compute: str, vectors: int, column_stride: int
) -> str:
    """The function that packs B with columns so many elements apart, likewise."""
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
    if module.has(name):
        return name
    type_, storage = COMPUTE_TYPES[compute], memory_type(element)
    size, source_size = SIZES[type_], element.item_bytes
    lanes = lanes_of(target, compute)
    f = Function(
        module,
        name,
        [
            ("ptr", "S"),
            ("ptr", "D"),
            ("i64", "rows"),
            ("i64", "width"),
            ("i64", "row_stride"),
            ("i64", "col_stride"),
            ("i64", "ld"),
            ("i64", "padded"),
        ],
        linkage=linkage,
    )
    rows, width, row_stride, col_stride, ld = f["rows"], f["width"], f["row_stride"], f["col_stride"], f["ld"]

    def elements(r_low: Value | int, r_high: Value, w_low: Value | int, w_high: Value) -> None:
        def row(r: Value, _: list[Value]) -> None:
            s, d = f.offset(f["S"], f.mul(r, row_stride)), f.offset(f["D"], f.mul(r, ld))

            def column(w: Value, _: list[Value]) -> None:
                f.store(
                    load_as(f, element, type_, f.offset(s, f.mul(w, col_stride)), 1),
                    f.offset(d, w, type_),
                    size,
                )

            f.loop(w_low, w_high, 1, column)

        f.loop(r_low, r_high, 1, row)

    def contiguous() -> None:
        main = f.binary("and", width, i64(-lanes))

        def row(r: Value, _: list[Value]) -> None:
            s, d = f.offset(f["S"], f.mul(r, row_stride)), f.offset(f["D"], f.mul(r, ld))

            def vector(w: Value, _: list[Value]) -> None:
                if line_vectors(target):
                    ahead = f.offset(f.offset(s, f.mul(row_stride, 2)), w, storage)
                    f.prefetch(ahead)
                f.store(
                    load_as(f, element, type_, f.offset(s, w, storage), lanes), f.offset(d, w, type_), size
                )

            f.loop(0, main, lanes, vector)

            def scalar(w: Value, _: list[Value]) -> None:
                f.store(load_as(f, element, type_, f.offset(s, w, storage), 1), f.offset(d, w, type_), size)

            f.loop(main, width, 1, scalar)

        f.loop(0, rows, 1, row)

    def transposed() -> None:
        """Square blocks; the last one of a row or column overlaps the one before it."""

        def blocks(count: Value, body: Callable[[Value], None]) -> None:
            last = f.sub(count, lanes)
            f.loop(0, count, lanes, lambda at, _: body(i64(f.minimum(at, last))))

        def row_block(r: Value) -> None:
            s, d = f.offset(f["S"], r, storage), f.offset(f["D"], f.mul(r, ld))

            def block(w: Value) -> None:
                at = f.offset(s, f.mul(w, col_stride))
                columns = []
                for _j in range(lanes):
                    columns.append(load_as(f, element, type_, at, lanes))
                    at = f.offset(at, col_stride)
                to = f.offset(d, w, type_)
                for vector in transpose(f, columns):
                    f.store(vector, to, size)
                    to = f.offset(to, ld)

            blocks(width, block)

        fits = [f.compare("icmp sge", count, i64(lanes)) for count in (rows, width)]
        f.branch(f.binary("and", *fits), lambda: blocks(rows, row_block), everything)

    def strided() -> None:
        by_rows = f.compare("icmp eq", row_stride, i64(source_size))
        f.branch(by_rows, transposed if lanes > 1 else everything, everything)

    def everything() -> None:
        elements(0, rows, 0, width)

    def fill(r: Value, _: list[Value]) -> None:
        d = f.offset(f["D"], f.mul(r, ld))
        vector = zero(vector_type(type_, lanes))
        f.loop(
            f.binary("and", width, i64(-lanes)),
            f["padded"],
            lanes,
            lambda w, _: f.store(vector, f.offset(d, w, type_), size),
        )

    # `padded` is whole vectors where it is more than the width; the last of them is filled before it is copied to.
    if_(f, f.compare("icmp slt", width, f["padded"]), lambda: f.loop(0, rows, 1, fill))
    f.branch(f.compare("icmp eq", col_stride, i64(source_size)), contiguous, strided)
    f.ret()
    return module.add(name, f.text())


def transpose(f: Function, vectors: list[Value]) -> list[Value]:
    """Transposes a square block of vectors in registers: within parts of 128 bits, then whole parts.

    Every shuffle is a single instruction of the machines that have such vectors, and one that LLVM finds at once.
    """
    lanes = len(vectors)
    part = min(lanes, max(1, PART_BYTES // SIZES[split_vector(vectors[0].type)[0]]))
    parts = lanes // part
    low = [at + j // 2 + (lanes if j % 2 else 0) for at in range(0, lanes, part) for j in range(part)]
    even = [at + j for at in range(0, 2 * lanes, 2 * part) for j in range(part)]
    high, odd = [at + part // 2 for at in low], [at + part for at in even]

    def mixed(a: Value, b: Value, order: list[int]) -> Value:
        mask = "<" + ", ".join(f"i32 {at}" for at in order) + ">"
        return f.op(a.type, f"shufflevector {a}, {b}, <{lanes} x i32> {mask}")

    def within(rows: list[Value]) -> list[Value]:
        for _ in range(part.bit_length() - 1):
            rows = [
                mixed(rows[j], rows[j + part // 2], order) for j in range(part // 2) for order in (low, high)
            ]
        return rows

    def across(rows: list[Value]) -> list[Value]:
        for _ in range(parts.bit_length() - 1):
            rows = [mixed(rows[j], rows[j + 1], order) for order in (even, odd) for j in range(0, parts, 2)]
        return rows

    groups = [within(vectors[at : at + part]) for at in range(0, lanes, part)]
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
    if module.has(name):
        return
    type_, storage = COMPUTE_TYPES[compute], memory_type(element)
    size, lanes = SIZES[type_], lanes_of(target, compute)
    nr = vectors * lanes
    f = Function(module, name, _PANELS, attributes="nounwind" if in_row else GLUE, linkage=linkage)
    kc, nc, k_stride, col_stride = f["kc"], f["nc"], f["k_stride"], f["col_stride"]
    panel_bytes = f.mul(kc, nr * size)
    full = i64(f.mul(f.divide(nc, nr), nr))

    def group(panels: int) -> Callable[[Value, list[Value]], None]:
        """Copies some panels side by side: few pages are written at a time, and rows are read far enough."""

        def run(c: Value, _: list[Value]) -> None:
            source = f.offset(f["S"], c, storage)
            to = f.offset(f["D"], f.mul(f.divide(c, nr), panel_bytes))

            def row(_: Value, carried: list[Value]) -> list[Value]:
                s, d = carried
                ahead = f.offset(s, f.mul(k_stride, ROWS_AHEAD))
                for line in range(0, panels * nr * element.item_bytes, CACHE_LINE):
                    f.prefetch(f.offset(ahead, line))
                for q in range(panels):
                    at, columns = f.offset(d, f.mul(panel_bytes, q)), f.offset(s, q * nr, storage)
                    values = [
                        load_as(f, element, type_, f.offset(columns, j * lanes, storage), lanes)
                        for j in range(vectors)
                    ]
                    for j, value in enumerate(values):
                        f.store(value, f.offset(at, j * lanes, type_), size)
                return [f.offset(s, k_stride), f.offset(d, nr * size)]

            f.loop(0, kc, 1, row, [source, to])

        return run

    def contiguous() -> None:
        grouped = f.mul(f.divide(nc, nr * PANELS_AT_ONCE), nr * PANELS_AT_ONCE)
        f.loop(0, grouped, nr * PANELS_AT_ONCE, group(PANELS_AT_ONCE))
        f.loop(grouped, full, nr, group(1))

    def by_panel(low: Value | int) -> None:
        copy = write_rows(module, target, element, compute, linkage)

        def panel(c: Value, _: list[Value]) -> None:
            d = f.offset(f["D"], f.mul(f.divide(c, nr), panel_bytes))
            f.call(
                copy,
                "void",
                [
                    f.offset(f["S"], f.mul(c, col_stride)),
                    d,
                    kc,
                    i64(f.minimum(f.sub(nc, c), nr)),
                    k_stride,
                    col_stride,
                    i64(nr * size),
                    i64(nr),
                ],
            )

        f.loop(low, nc, nr, panel)

    def masked_tail() -> None:
        left = i64(f.sub(nc, full))

        def row(_: Value, carried: list[Value]) -> list[Value]:
            s, d = carried
            for j in range(vectors):
                f.store(
                    load_masked(f, type_, lanes, f.offset(s, j * lanes, type_), left, j * lanes),
                    f.offset(d, j * lanes, type_),
                    size,
                )
            return [f.offset(s, k_stride), f.offset(d, nr * size)]

        to = f.offset(f["D"], f.mul(f.divide(nc, nr), panel_bytes))
        f.loop(0, kc, 1, row, [f.offset(f["S"], full, type_), to])

    if in_row:
        contiguous()
    if in_row and storage == type_:
        if_(f, f.compare("icmp slt", full, nc), masked_tail)
    else:
        by_panel(full if in_row else 0)
    f.ret()
    module.add(name, f.text())
