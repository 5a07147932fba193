"""The convolution kernels: matrix products whose rows of A and C are named by tables of pointers.

Row r of A is made of `taps` runs of `run` elements each, the t-th at the pointer table[t][r]: output pixels see the
input where it lies, shifted, strided or padded (a pointer to zeros), without being copied together. They depend on
the target alone and are compiled once per machine, as the matrix products are (gemm/microkernel.py), those for the
tiles that a shape has.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial

from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from ..gemm.compute_types import COMPUTE_TYPES, SIZES, if_, lanes_of, line_vectors, multiply_add, zero
from ..gemm.microkernel import (
    ASKING,
    NEXT,
    Sweeps,
    after_tiles,
    ask_for_rows,
    max_rows,
    pace_of,
    sweep_at,
    unrolled_steps,
    widths,
    write_copy,
)

MOST_ROWS = 8  # every row takes an address register
PANELS_AT_ONCE = 8

BLOCK_PARAMETERS = (
    ("ptr", "A"),
    ("ptr", "C"),
    ("ptr", "B"),
    ("ptr", "packed"),
    ("ptr", "tail"),
    ("ptr", "P"),
    ("ptr", "taps"),
    ("ptr", "pack_b"),
    ("i64", "first"),
    ("i64", "rows"),
    ("i64", "cols"),
)


class P(enum.IntEnum):
    """Slots of a convolution's parameter array (i64 each; strides in bytes); the table of micro-kernels follows it.

    TAPS runs of RUN elements make a row of A; TAP_BLOCK of them, RUN_PART elements of each, are summed at a time.
    RUN covers MERGED taps of the kernel, whose places the tap table gives. TABLE is the length of a line of A's table.
    Packed B is kept for later calls where KEEP is 1; else the panels of a group lie where those of the last one lay.
    PANEL is 0, or the bytes of a panel of all of A's columns where B comes in such panels.
    """

    TAPS = 0
    RUN = 1
    TAP_BLOCK = 2
    RUN_PART = 3
    MERGED = 4
    B_K = 5
    B_COL = 6
    TABLE = 7
    TAIL_TILE = 8
    KEEP = 9
    PANEL = 10


def rows_of(target: Target, compute: str, vectors: int) -> int:
    """Rows of the largest tile."""
    return min(MOST_ROWS, max_rows(target, compute, vectors))


def convolution_name(compute: str, vectors: int) -> str:
    """The function that computes a block of rows and columns."""
    return f"tfb_conv_{compute}_{vectors}"


_SWEEP = (
    ("ptr", "A"),
    ("i64", "table"),
    ("i64", "shift"),
    ("ptr", "B"),
    ("ptr", "C"),
    ("i64", "column"),
    ("i64", "taps"),
    ("i64", "run"),
    ("i64", "accumulate"),
    ("i64", "tiles"),
)


def _sweep_parameters(target: Target) -> tuple[tuple[str, str], ...]:
    return (*_SWEEP, *NEXT) if line_vectors(target) else _SWEEP


def convolution_sweep_name(compute: str, panel: int, width: int, mr: int) -> str:
    """The micro-kernel for tiles of `width` vectors and mr rows, where a panel has `panel` vectors."""
    return f"{convolution_name(compute, panel)}_{width}x{mr}"


def write_convolution_sweep(
    module: ModuleText, target: Target, compute: str, width: int, vectors: int, mr: int, linkage: str
) -> None:
    """Writes a micro-kernel: `tiles` tiles of mr rows times `vectors` vectors of one panel of B, which has `width`."""
    name = convolution_sweep_name(compute, width, vectors, mr)
    if module.has(name):
        return
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector, panel = vector_type(type_, lanes), width * lanes * size
    f = Function(module, name, _sweep_parameters(target), linkage=linkage)
    ahead = line_vectors(target)
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    unroll = unrolled_steps(target, mr * vectors)
    main = f.binary("and", f["run"], i64(-unroll))

    def step(a: Sequence[Value], k: Value, u: int, b: Value, acc: list[Value]) -> list[Value]:
        loaded = [f.load(vector, f.offset(b, u * panel + j * lanes * size), size) for j in range(vectors)]
        made = []
        for r in range(mr):
            one = f.splat(f.load(type_, f.offset(f.offset(a[r], k, type_), u * size), size), lanes)
            made += [multiply_add(f, one, loaded[j], acc[r * vectors + j], target) for j in range(vectors)]
        return made

    def tile(number: Value, carried: list[Value]) -> list[Value]:
        a_table, c_table, *panel_to_come = carried
        pace = pace_of(f, number) if ahead else i64(0)
        rows = [f.offset(f.load("ptr", f.offset(c_table, 8 * r), 8), f["column"]) for r in range(mr)]
        places = [f.offset(row, j * lanes * size) for row in rows for j in range(vectors)]

        def stored() -> list[Value]:
            return [f.load(vector, p, size) for p in places]

        start = [zero(vector)] * len(places)
        if not ahead:
            start = f.branch(old, stored, lambda: [zero(vector) for _p in places])

        def tap(_: Value, state: list[Value]) -> list[Value]:
            line, b, acc = state[0], state[1], state[2 : 2 + len(start)]
            a = [f.offset(f.load("ptr", f.offset(line, 8 * r), 8), f["shift"]) for r in range(mr)]

            def several(k: Value, inner: list[Value]) -> list[Value]:
                sums, next_panel = inner[1 : 1 + len(start)], inner[1 + len(start) :]
                if next_panel:
                    next_panel = [ask_for_rows(f, next_panel[0], pace, vectors)]
                for u in range(unroll):
                    sums = step(a, k, u, inner[0], sums)
                return [f.offset(inner[0], unroll * panel), *sums, *next_panel]

            def single(k: Value, inner: list[Value]) -> list[Value]:
                return [f.offset(inner[0], panel), *step(a, k, 0, inner[0], inner[1:])]

            inner = f.loop(0, main, unroll, several, [b, *acc, *state[2 + len(start) :]])
            sums = f.loop(main, f["run"], 1, single, inner[: 1 + len(start)])
            return [f.offset(line, f["table"]), *sums, *inner[1 + len(start) :]]

        state = f.loop(0, f["taps"], 1, tap, [a_table, f["B"], *start, *panel_to_come])
        made, panel_to_come = state[2 : 2 + len(start)], state[2 + len(start) :]
        if ahead:
            add = "fadd" if compute.startswith("f") else "add"
            made = f.branch(old, lambda: [f.binary(add, x, y) for x, y in zip(made, stored())], lambda: made)
        for value, place in zip(made, places, strict=True):
            f.store(value, place, size)
        return [f.offset(a_table, 8 * mr), f.offset(c_table, 8 * mr), *panel_to_come]

    f.loop(0, f["tiles"], 1, tile, [f["A"], f["C"], *([f["next"]] if ahead else [])])
    f.ret()
    module.add(name, f.text())


def parameter(f: Function, slot: P) -> Value:
    """A slot of the parameter array."""
    return f.load("i64", f.offset(f["P"], int(slot), "i64"), 8)


def write_convolution(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the block function into a module; returns its name.

    It computes rows x cols of C in full. `packed` holds B in the order it is read, filled when `first` is not 0;
    the last, narrow panel goes through a tile behind `tail`, where its table of rows stands.
    """
    name = convolution_name(compute, vectors)
    if module.has(name):
        return name
    size, lanes = SIZES[COMPUTE_TYPES[compute]], lanes_of(target, compute)
    nr, mr = vectors * lanes, rows_of(target, compute, vectors)
    copy_row = write_copy(module, target, compute, "internal")
    f = Function(module, name, BLOCK_PARAMETERS, attributes=GLUE, linkage=linkage)
    p = {slot: parameter(f, slot) for slot in P}
    rows, cols, table = f["rows"], f["cols"], p[P.TABLE]
    panels = f.divide(f.add(cols, nr - 1), nr)
    panel_cols = f.mul(panels, nr)
    tail_width = i64(f.remainder(cols, nr))
    tile = f.offset(f["tail"], p[P.TAIL_TILE])
    # The last panel's tiles have `span` columns; where C has not as many, they go through a tile.
    span = i64(nr)
    if len(widths(target, vectors)) > 1:
        span = i64(f.mul(f.divide(f.add(tail_width, lanes - 1), lanes), lanes))
    is_narrow = f.compare("icmp ne", tail_width, i64(0))
    has_tail = f.binary("and", is_narrow, f.compare("icmp ne", tail_width, span))
    keep = f.compare("icmp ne", p[P.KEEP], i64(0))
    first = f.compare("icmp ne", f["first"], i64(0))
    whole_panels = f.compare("icmp ne", p[P.PANEL], i64(0))
    packed_run = f.binary("udiv", p[P.RUN], p[P.MERGED])
    # Blocks of one tap are packed some panels at a time: B is read in longer lines.
    single = f.compare("icmp eq", i64(f.mul(p[P.TAP_BLOCK], p[P.MERGED])), i64(1))
    several = f.binary("xor", single, Value("i1", "true"))
    # Tiles of nearly equal height: no thin one at the end.
    tiles = i64(f.divide(f.add(rows, mr - 1), mr))
    low = f.binary("udiv", rows, tiles)
    taller = f.sub(rows, f.mul(low, tiles))
    done = f.mul(taller, f.mul(f.add(low, 1), 8))
    sweeps = f.offset(f["P"], 8 * len(P))

    def fill(r: Value, _: list[Value]) -> None:
        f.store(f.offset(tile, f.mul(r, nr * size)), f.offset(f["tail"], r, "ptr"), 8)

    if_(f, has_tail, lambda: f.loop(0, rows, 1, fill))

    def depth(tap: Value, k: Value, before: Value) -> Value:
        taps = f.minimum(p[P.TAP_BLOCK], f.sub(p[P.TAPS], tap))
        run = f.minimum(p[P.RUN_PART], f.sub(p[P.RUN], k))
        deep = f.mul(taps, run)
        accumulate = f.cast("zext", f.compare("icmp ne", before, i64(0)), "i64")
        base = f.offset(f["packed"], f.mul(f.mul(f.select(keep, before, i64(0)), panel_cols), size))

        def pack(panel: Value, column: Value) -> None:
            width = f.minimum(f.select(single, i64(nr * PANELS_AT_ONCE), i64(nr)), f.sub(cols, column))
            # A merged run is never cut: its parts are whole taps of the kernel.
            part = i64(f.minimum(run, packed_run))

            def one(t: Value, carried: list[Value]) -> list[Value]:
                place = f.load("i64", f.offset(f["taps"], t, "i64"), 8)
                source = f.offset(f["B"], f.add(place, f.add(f.mul(k, p[P.B_K]), f.mul(column, p[P.B_COL]))))
                f.do(
                    f"call void %pack_b({source}, {carried[0]}, {part}, {i64(width)}, {p[P.B_K]}, {p[P.B_COL]})"
                )
                return [f.offset(carried[0], f.mul(part, nr * size))]

            start = f.mul(tap, p[P.MERGED])
            f.loop(start, f.add(start, f.mul(taps, p[P.MERGED])), 1, one, [panel])

        def columns(column: Value, _: list[Value]) -> None:
            in_group = i64(f.remainder(column, nr * PANELS_AT_ONCE))
            here = f.mul(f.mul(f.select(keep, column, in_group), deep), size)
            whole = f.add(f.mul(f.divide(column, nr), p[P.PANEL]), f.mul(before, nr * size))
            panel = f.select(whole_panels, f.offset(f["packed"], whole), f.offset(base, here))
            due = f.compare("icmp eq", in_group, i64(0))
            if_(f, f.binary("and", first, f.binary("or", due, several)), lambda: pack(panel, column))
            whole_panel = f.compare("icmp sle", i64(f.add(column, nr)), cols)
            fits = f.binary("or", whole_panel, f.binary("xor", has_tail, Value("i1", "true")))
            here_span = f.select(whole_panel, i64(nr), span)
            c = f.op("ptr", f"select {fits}, ptr %C, ptr %tail")
            at = f.select(fits, i64(f.mul(column, size)), i64(0))
            a = f.offset(f["A"], f.mul(tap, table))
            depths = (i64(taps), i64(run))

            # After the last panel come those of the next steps, where B is all there.
            is_followed = f.compare("icmp slt", i64(f.add(column, nr)), cols)
            following_panel = f.offset(panel, f.select(whole_panels, p[P.PANEL], i64(f.mul(deep, nr * size))))
            next_steps = f.offset(f["packed"], f.mul(f.add(before, deep), nr * size))
            follows = f.select(whole_panels, next_steps, f["packed"])
            asked = [f.select(is_followed, following_panel, follows), i64(nr * size), i64(ASKING)]

            def sweep(
                width: int, a: Value, c: Value, count: Value | int, height: Value | int, before: Value | int
            ) -> None:
                following: list[Value] = []
                if line_vectors(target):
                    following = after_tiles(f, asked, i64(f.mul(run, taps)), i64(before)) if before else asked
                function = sweep_at(f, target, sweeps, vectors, mr, width, height)
                arguments = (
                    a,
                    table,
                    i64(f.mul(k, size)),
                    panel,
                    c,
                    at,
                    *depths,
                    accumulate,
                    i64(count),
                    *following,
                )
                f.do(f"call void {function}({', '.join(map(str, arguments))})")

            def tiles_of(width: int) -> None:
                if_(
                    f,
                    f.compare("icmp ne", i64(taller), i64(0)),
                    lambda: sweep(width, a, c, taller, f.add(low, 1), 0),
                )
                sweep(width, f.offset(a, done), f.offset(c, done), f.sub(tiles, taller), low, taller)

            for width in widths(target, vectors):
                if_(f, f.compare("icmp eq", here_span, i64(width * lanes)), partial(tiles_of, width))

        f.loop(0, cols, nr, columns)
        return i64(f.add(before, deep))

    # A sum over nothing is one block of no steps: zeros.
    some_taps, some_run = (f.intrinsic("smax", "i64", [p[s], i64(1)]) for s in (P.TAPS, P.RUN))
    f.loop(
        0,
        some_taps,
        p[P.TAP_BLOCK],
        lambda tap, outer: f.loop(
            0, some_run, p[P.RUN_PART], lambda k, inner: [depth(tap, k, inner[0])], outer
        ),
        [i64(0)],
    )

    def copy() -> None:
        at = f.mul(f.sub(panels, 1), nr * size)

        def row(r: Value, _: list[Value]) -> None:
            to = f.offset(f.load("ptr", f.offset(f["C"], r, "ptr"), 8), at)
            source = f.offset(tile, f.mul(r, nr * size))
            f.call(copy_row, "void", [source, i64(0), to, i64(0), i64(1), tail_width])

        f.loop(0, rows, 1, row)

    if_(f, has_tail, copy)
    f.ret()
    module.add(name, f.text())
    return name


def declare_convolution(
    module: ModuleText, target: Target, compute: str, vectors: int, sweeps: Sweeps
) -> None:
    """Declares the block function and its micro-kernels."""
    module.declare(convolution_name(compute, vectors), "void", [t for t, _ in BLOCK_PARAMETERS])
    for sweep in sweeps.values():
        module.declare(sweep, "void", [t for t, _ in _sweep_parameters(target)])


# -- gradients of kernels: A transposed

GRADIENT_PARAMETERS = (
    ("ptr", "A"),
    ("i64", "shift"),
    ("ptr", "B"),
    ("i64", "skip"),
    ("ptr", "C"),
    ("i64", "ldc"),
    ("i64", "runs"),
    ("i64", "run"),
    ("i64", "step"),
    ("i64", "accumulate"),
    ("i64", "rows"),
    ("ptr", "sweeps"),
)
_GRADIENT_SWEEP = (*GRADIENT_PARAMETERS[:-2], ("i64", "tiles"))


def gradient_name(compute: str, vectors: int) -> str:
    """The function that computes a block of rows by one panel of columns, with A's rows contiguous in memory."""
    return f"tfb_convt_{compute}_{vectors}"


def gradient_sweep_name(compute: str, vectors: int, mr: int) -> str:
    """The micro-kernel for tiles of a panel's width and mr rows."""
    return f"tfb_convt_{compute}_{vectors}x{mr}"


def write_gradient_sweep(
    module: ModuleText, target: Target, compute: str, vectors: int, mr: int, linkage: str
) -> None:
    """As write_convolution_sweep, where step k of a run finds its mr elements of A side by side, `step` bytes after
    those of k - 1."""
    name = gradient_sweep_name(compute, vectors, mr)
    if module.has(name):
        return
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector, panel = vector_type(type_, lanes), vectors * lanes * size
    f = Function(module, name, _GRADIENT_SWEEP, linkage=linkage)
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    unroll = unrolled_steps(target, mr * vectors)
    main = f.binary("and", f["run"], i64(-unroll))

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        shift, c = carried
        rows = [c]
        for _r in range(1, mr):
            rows.append(f.offset(rows[-1], f["ldc"]))
        places = [f.offset(row, j * lanes * size) for row in rows for j in range(vectors)]
        start = f.branch(
            old, lambda: [f.load(vector, p, size) for p in places], lambda: [zero(vector) for _p in places]
        )

        def run(k: Value, acc: list[Value]) -> list[Value]:
            a = f.offset(f.load("ptr", f.offset(f["A"], k, "ptr"), 8), shift)
            b = f.offset(f.load("ptr", f.offset(f["B"], k, "ptr"), 8), f["skip"])

            def steps(count: int) -> Callable[[Value, list[Value]], list[Value]]:
                def body(_: Value, state: list[Value]) -> list[Value]:
                    a, b, acc = state[0], state[1], state[2:]
                    for u in range(count):
                        loaded = [
                            f.load(vector, f.offset(b, u * panel + j * lanes * size), size)
                            for j in range(vectors)
                        ]
                        for r in range(mr):
                            one = f.splat(f.load(type_, f.offset(a, r * size), size), lanes)
                            for j in range(vectors):
                                at = r * vectors + j
                                acc[at] = multiply_add(f, one, loaded[j], acc[at], target)
                        a = f.offset(a, f["step"])
                    return [a, f.offset(b, count * panel), *acc]

                return body

            state = f.loop(0, main, unroll, steps(unroll), [a, b, *acc])
            return f.loop(main, f["run"], 1, steps(1), state)[2:]

        acc = f.loop(0, f["runs"], 1, run, start)
        for value, place in zip(acc, places, strict=True):
            f.store(value, place, size)
        return [f.binary("add", shift, i64(mr * size)), f.offset(c, f.mul(f["ldc"], mr))]

    f.loop(0, f["tiles"], 1, tile, [f["shift"], f["C"]])
    f.ret()
    module.add(name, f.text())


def write_gradient(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the function for gradients into a module; returns its name. `sweeps` is a table of its micro-kernels, the
    lowest first.

    C[m, n] (+)= the sum over runs and their steps of A[run][step][m] * B[run][step][n]; B is packed, `skip` bytes of
    every run of it left out.
    """
    name = gradient_name(compute, vectors)
    if module.has(name):
        return name
    size, mr = SIZES[COMPUTE_TYPES[compute]], rows_of(target, compute, vectors)
    f = Function(module, name, GRADIENT_PARAMETERS, attributes=GLUE, linkage=linkage)
    tiles = i64(f.divide(f.add(f["rows"], mr - 1), mr))
    low = f.binary("udiv", f["rows"], tiles)
    taller = f.sub(f["rows"], f.mul(low, tiles))

    def finish(done: Value | int, count: Value | int, height: Value | int) -> None:
        arguments = [f[n] for _, n in GRADIENT_PARAMETERS[:-2]]
        arguments[1] = i64(f.add(f["shift"], f.mul(done, size)))
        arguments[4] = f.offset(f["C"], f.mul(done, f["ldc"]))
        function = sweep_at(f, target, f["sweeps"], vectors, mr, vectors, height)
        f.do(f"call void {function}({', '.join(map(str, [*arguments, i64(count)]))})")

    if_(f, f.compare("icmp ne", i64(taller), i64(0)), lambda: finish(0, taller, f.add(low, 1)))
    finish(f.mul(taller, f.add(low, 1)), f.sub(tiles, taller), low)
    f.ret()
    module.add(name, f.text())
    return name


def declare_gradient(module: ModuleText, compute: str, vectors: int, sweeps: Sweeps) -> None:
    """Declares the function for gradients and its micro-kernels."""
    module.declare(gradient_name(compute, vectors), "void", [t for t, _ in GRADIENT_PARAMETERS])
    for sweep in sweeps.values():
        module.declare(sweep, "void", [t for t, _ in _GRADIENT_SWEEP])
