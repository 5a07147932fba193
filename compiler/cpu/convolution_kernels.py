"""The convolution kernels: matrix products whose rows of A and C are named by tables of pointers.

Row r of A is made of `taps` runs of `run` elements each, the t-th at the pointer table[t][r]: output pixels see the
input where it lies, shifted, strided or padded (a pointer to zeros), without being copied together. They depend on
the target alone and are compiled once per machine, as the matrix products are (gemm_kernels.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from .gemm_elements import COMPUTE_TYPES, SIZES, if_, lanes_of, load_masked, multiply_add, store_masked, zero
from .gemm_kernels import max_rows, unrolled_steps
from .llvm_text import Function, ModuleText, Value, i64, vector_type
from .target import Target

MOST_ROWS = 8  # every row takes an address register
PANELS_AT_ONCE = 8

BLOCK_PARAMETERS = (("ptr", "A"), ("ptr", "C"), ("ptr", "B"), ("ptr", "packed"), ("ptr", "tail"), ("ptr", "P"),
                    ("ptr", "taps"), ("ptr", "pack_b"), ("i64", "first"), ("i64", "rows"), ("i64", "cols"))


class P(enum.IntEnum):
    """Slots of a convolution's parameter array (i64 each; strides in bytes).

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


_SWEEP = (("ptr", "A"), ("i64", "table"), ("i64", "shift"), ("ptr", "B"), ("ptr", "C"), ("i64", "column"),
          ("i64", "taps"), ("i64", "run"), ("i64", "accumulate"), ("i64", "tiles"))


def _sweep(module: ModuleText, target: Target, compute: str, vectors: int, mr: int, name: str) -> None:
    """`tiles` tiles of mr rows times one panel of B."""
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector, panel = vector_type(type_, lanes), vectors * lanes * size
    f = Function(module, name, _SWEEP, linkage="internal")
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    unroll = unrolled_steps(mr * vectors)
    main = f.binary("and", f["run"], i64(-unroll))

    def step(a: Sequence[Value], k: Value, u: int, b: Value, acc: list[Value]) -> list[Value]:
        loaded = [f.load(vector, f.offset(b, u * panel + j * lanes * size), size) for j in range(vectors)]
        made = []
        for r in range(mr):
            one = f.splat(f.load(type_, f.offset(f.offset(a[r], k, type_), u * size), size), lanes)
            made += [multiply_add(f, one, loaded[j], acc[r * vectors + j], target) for j in range(vectors)]
        return made

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        a_table, c_table = carried
        rows = [f.offset(f.load("ptr", f.offset(c_table, 8 * r), 8), f["column"]) for r in range(mr)]
        places = [f.offset(row, j * lanes * size) for row in rows for j in range(vectors)]
        start = f.branch(old, lambda: [f.load(vector, p, size) for p in places],
                         lambda: [zero(vector) for _p in places])

        def tap(_: Value, state: list[Value]) -> list[Value]:
            line, b, acc = state[0], state[1], state[2:]
            a = [f.offset(f.load("ptr", f.offset(line, 8 * r), 8), f["shift"]) for r in range(mr)]

            def several(k: Value, inner: list[Value]) -> list[Value]:
                sums = inner[1:]
                for u in range(unroll):
                    sums = step(a, k, u, inner[0], sums)
                return [f.offset(inner[0], unroll * panel), *sums]

            def single(k: Value, inner: list[Value]) -> list[Value]:
                return [f.offset(inner[0], panel), *step(a, k, 0, inner[0], inner[1:])]

            inner = f.loop(0, main, unroll, several, [b, *acc])
            return [f.offset(line, f["table"]), *f.loop(main, f["run"], 1, single, inner)]

        state = f.loop(0, f["taps"], 1, tap, [a_table, f["B"], *start])
        for value, place in zip(state[2:], places, strict=True):
            f.store(value, place, size)
        return [f.offset(a_table, 8 * mr), f.offset(c_table, 8 * mr)]

    f.loop(0, f["tiles"], 1, tile, [f["A"], f["C"]])
    f.ret()
    module.add(name, f.text())


def _dispatch(module: ModuleText, sweeps: Sequence[str], name: str, parameters: Sequence[tuple[str, str]]) -> None:
    """The sweep for a number of rows known at run time."""
    f = Function(module, name, (*parameters, ("i64", "mr")))
    f.do(f"switch i64 %mr, label %none [{' '.join(f'i64 {r + 1}, label %r{r + 1}' for r in range(len(sweeps)))}]")
    for r, sweep in enumerate(sweeps):
        f.start_block(f"r{r + 1}")
        f.call(sweep, "void", [f[n] for _, n in parameters])
        f.ret()
    f.start_block("none")
    f.ret()
    module.add(name, f.text())


def parameter(f: Function, slot: P) -> Value:
    """A slot of the parameter array."""
    return f.load("i64", f.offset(f["P"], int(slot), "i64"), 8)


def write_convolution(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the block function with its micro-kernels into a module; returns its name.

    It computes rows x cols of C in full. `packed` holds B in the order it is read, filled when `first` is not 0;
    the last, narrow panel goes through a tile behind `tail`, where its table of rows stands.
    """
    name = convolution_name(compute, vectors)
    if module.has(name):
        return name
    type_ = COMPUTE_TYPES[compute]
    size, lanes = SIZES[type_], lanes_of(target, compute)
    nr, mr = vectors * lanes, rows_of(target, compute, vectors)
    sweeps = [f"{name}_part_sweep{r}" for r in range(1, mr + 1)]
    for r, sweep in enumerate(sweeps):
        _sweep(module, target, compute, vectors, r + 1, sweep)
    dispatch = f"{name}_part_dispatch"
    _dispatch(module, sweeps, dispatch, _SWEEP)
    f = Function(module, name, BLOCK_PARAMETERS, linkage=linkage)
    p = {slot: parameter(f, slot) for slot in P}
    rows, cols, table = f["rows"], f["cols"], p[P.TABLE]
    panels = f.divide(f.add(cols, nr - 1), nr)
    panel_cols = f.mul(panels, nr)
    tail_width = i64(f.remainder(cols, nr))
    tile = f.offset(f["tail"], p[P.TAIL_TILE])
    has_tail = f.compare("icmp ne", tail_width, i64(0))
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
                f.do(f"call void %pack_b({source}, {carried[0]}, {part}, {i64(width)}, {p[P.B_K]}, {p[P.B_COL]})")
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
            fits = f.compare("icmp sle", i64(f.add(column, nr)), cols)
            c = f.op("ptr", f"select {fits}, ptr %C, ptr %tail")
            at = f.select(fits, i64(f.mul(column, size)), i64(0))
            a = f.offset(f["A"], f.mul(tap, table))
            depths = (i64(taps), i64(run))

            def sweep(a: Value, c: Value, count: Value | int, height: Value | int) -> None:
                f.call(dispatch, "void", [a, table, i64(f.mul(k, size)), panel, c, at, *depths, accumulate,
                                          i64(count), i64(height)])

            if_(f, f.compare("icmp ne", i64(taller), i64(0)), lambda: sweep(a, c, taller, f.add(low, 1)))
            sweep(f.offset(a, done), f.offset(c, done), f.sub(tiles, taller), low)

        f.loop(0, cols, nr, columns)
        return i64(f.add(before, deep))

    # A sum over nothing is one block of no steps: zeros.
    some_taps, some_run = (f.intrinsic("smax", "i64", [p[s], i64(1)]) for s in (P.TAPS, P.RUN))
    f.loop(0, some_taps, p[P.TAP_BLOCK],
           lambda tap, outer: f.loop(0, some_run, p[P.RUN_PART], lambda k, inner: [depth(tap, k, inner[0])], outer),
           [i64(0)])

    def copy() -> None:
        at = f.mul(f.sub(panels, 1), nr * size)

        def row(r: Value, _: list[Value]) -> None:
            to = f.offset(f.load("ptr", f.offset(f["C"], r, "ptr"), 8), at)
            source = f.offset(tile, f.mul(r, nr * size))
            for j in range(vectors):
                value = load_masked(f, type_, lanes, f.offset(source, j * lanes, type_), tail_width, j * lanes)
                store_masked(f, value, type_, lanes, f.offset(to, j * lanes, type_), tail_width, j * lanes)

        f.loop(0, rows, 1, row)

    if_(f, has_tail, copy)
    f.ret()
    module.add(name, f.text())
    return name


def declare_convolution(module: ModuleText, compute: str, vectors: int) -> str:
    """Declares the block function; returns its name."""
    name = convolution_name(compute, vectors)
    module.declare(name, "void", [t for t, _ in BLOCK_PARAMETERS])
    return name



# -- gradients of kernels: A transposed

GRADIENT_PARAMETERS = (("ptr", "A"), ("i64", "shift"), ("ptr", "B"), ("i64", "skip"), ("ptr", "C"), ("i64", "ldc"),
                       ("i64", "runs"), ("i64", "run"), ("i64", "step"), ("i64", "accumulate"), ("i64", "rows"))


def gradient_name(compute: str, vectors: int) -> str:
    """The function that computes a block of rows by one panel of columns, with A's rows contiguous in memory."""
    return f"tfb_convt_{compute}_{vectors}"


def _gradient_sweep(module: ModuleText, target: Target, compute: str, vectors: int, mr: int, name: str) -> None:
    """As _sweep, where step k of a run finds its mr elements of A side by side, `step` bytes after those of k - 1."""
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector, panel = vector_type(type_, lanes), vectors * lanes * size
    f = Function(module, name, (*GRADIENT_PARAMETERS[:-1], ("i64", "tiles")), linkage="internal")
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    unroll = unrolled_steps(mr * vectors)
    main = f.binary("and", f["run"], i64(-unroll))

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        shift, c = carried
        rows = [c]
        for _r in range(1, mr):
            rows.append(f.offset(rows[-1], f["ldc"]))
        places = [f.offset(row, j * lanes * size) for row in rows for j in range(vectors)]
        start = f.branch(old, lambda: [f.load(vector, p, size) for p in places],
                         lambda: [zero(vector) for _p in places])

        def run(k: Value, acc: list[Value]) -> list[Value]:
            a = f.offset(f.load("ptr", f.offset(f["A"], k, "ptr"), 8), shift)
            b = f.offset(f.load("ptr", f.offset(f["B"], k, "ptr"), 8), f["skip"])

            def steps(count: int) -> Callable[[Value, list[Value]], list[Value]]:
                def body(_: Value, state: list[Value]) -> list[Value]:
                    a, b, acc = state[0], state[1], state[2:]
                    for u in range(count):
                        loaded = [f.load(vector, f.offset(b, u * panel + j * lanes * size), size)
                                  for j in range(vectors)]
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
    """Writes the function for gradients with its micro-kernels into a module; returns its name.

    C[m, n] (+)= the sum over runs and their steps of A[run][step][m] * B[run][step][n]; B is packed, `skip` bytes of
    every run of it left out.
    """
    name = gradient_name(compute, vectors)
    if module.has(name):
        return name
    size, mr = SIZES[COMPUTE_TYPES[compute]], rows_of(target, compute, vectors)
    sweeps = [f"{name}_part_sweep{r}" for r in range(1, mr + 1)]
    for r, sweep in enumerate(sweeps):
        _gradient_sweep(module, target, compute, vectors, r + 1, sweep)
    dispatch = f"{name}_part_dispatch"
    _dispatch(module, sweeps, dispatch, (*GRADIENT_PARAMETERS[:-1], ("i64", "tiles")))
    f = Function(module, name, GRADIENT_PARAMETERS, linkage=linkage)
    tiles = i64(f.divide(f.add(f["rows"], mr - 1), mr))
    low = f.binary("udiv", f["rows"], tiles)
    taller = f.sub(f["rows"], f.mul(low, tiles))

    def finish(done: Value | int, count: Value | int, height: Value | int) -> None:
        arguments = [f[n] for _, n in GRADIENT_PARAMETERS[:-1]]
        arguments[1] = i64(f.add(f["shift"], f.mul(done, size)))
        arguments[4] = f.offset(f["C"], f.mul(done, f["ldc"]))
        f.call(dispatch, "void", [*arguments, i64(count), i64(height)])

    if_(f, f.compare("icmp ne", i64(taller), i64(0)), lambda: finish(0, taller, f.add(low, 1)))
    finish(f.mul(taller, f.add(low, 1)), f.sub(tiles, taller), low)
    f.ret()
    module.add(name, f.text())
    return name


def declare_gradient(module: ModuleText, compute: str, vectors: int) -> str:
    """Declares the function for gradients; returns its name."""
    name = gradient_name(compute, vectors)
    module.declare(name, "void", [t for t, _ in GRADIENT_PARAMETERS])
    return name
