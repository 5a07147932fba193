"""The matrix-multiplication kernels: micro-kernels and the blocked driver, with run-time sizes and strides.

They depend on the target alone, so they are compiled once per machine; a matrix product of one shape is then
a small stub that calls `tfb_gemm_<type>_<vectors>` for each task (gemm.py). Every function that computes a
block of C has the parameters BLOCK_PARAMETERS; all strides are bytes. From the inside out:

* sweep: a column panel of NR = vectors * lanes columns against `tiles` row tiles of `mr` rows, accumulators
  in registers, A read as it lies, B from a panel or as it lies;
* gemm: loops over column, depth and row blocks around it, packing (gemm_packing.py), the epilogue's call.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence

from .gemm_elements import COMPUTE_TYPES, SIZES, if_, lanes_of, multiply_add, zero
from .llvm_text import Function, ModuleText, Value, i64, vector_type
from .target import Target

VECTORS = (1, 2, 3)

BLOCK_PARAMETERS = (
    ("ptr", "A"),
    ("ptr", "B"),
    ("ptr", "C"),
    ("ptr", "scratch"),
    ("ptr", "P"),
    ("ptr", "pack_a"),
    ("ptr", "pack_b"),
    ("ptr", "epilogue"),
    ("ptr", "ctx"),
    ("ptr", "buffers"),
    ("i64", "batch"),
    ("i64", "row"),
    ("i64", "rows"),
    ("i64", "col"),
    ("i64", "cols"),
)
_BLOCK_TYPES = [t for t, _ in BLOCK_PARAMETERS]


class P(enum.IntEnum):
    """Slots of a problem's parameter array (i64 each; strides and offsets in bytes)."""

    K = 0
    A_ROW = 1
    A_K = 2
    B_K = 3
    B_COL = 4
    C_ROW = 5
    C_COL = 6
    KC = 7
    MC = 8
    NC = 9
    PACK_A = 10
    B_MODE = 11
    LDA = 12
    AT_A = 13
    AT_TAIL = 14
    AT_TILE = 15
    B_PANEL = 16


DIRECT, PACK, PACKED = 0, 1, 2  # P.B_MODE: B as it lies, packed by the driver, packed beforehand

# -- micro-kernels


def max_rows(target: Target, compute: str, vectors: int) -> int:
    """Rows of the largest tile whose accumulators, B vectors and temporaries stay in registers."""
    temporaries = 1 if target.has_fma and compute.startswith("f") else 2
    rows = (target.registers - vectors - temporaries) // vectors
    return max(1, min(rows, {1: 12, 2: 14, 3: 8}[vectors]))


def unrolled_steps(accumulators: int) -> int:
    """Steps of a sum written one after the other: large tiles hide the loop's own instructions without that."""
    return 4 if accumulators < 8 else 2


def _sweep(
    module: ModuleText, target: Target, compute: str, vectors: int, mr: int, name: str, linkage: str
) -> None:
    """C tiles of mr rows times one panel: `tiles` of them one below the other."""
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector = vector_type(type_, lanes)
    f = Function(
        module,
        name,
        [
            ("ptr", "A"),
            ("i64", "lda"),
            ("ptr", "B"),
            ("i64", "ldb"),
            ("ptr", "C"),
            ("i64", "ldc"),
            ("i64", "kc"),
            ("i64", "accumulate"),
            ("i64", "tiles"),
        ],
        linkage=linkage,
    )
    lda, ldb, ldc, kc = f["lda"], f["ldb"], f["ldc"], f["kc"]
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    # Three rows share a base register: base, base + lda, base + 2 lda.
    row_offsets: list[Value | int] = [0, lda, f.mul(lda, 2)]
    unroll = unrolled_steps(mr * vectors)
    sets = max(1, min(unroll, 8 // (mr * vectors)))  # enough chains of additions to hide their latency
    main = f.binary("and", kc, i64(-unroll))

    def step(bases: Sequence[Value], b: Value, u: int, acc: list[Value]) -> None:
        loaded = [f.load(vector, f.offset(b, j * lanes * size), size) for j in range(vectors)]
        for r in range(mr):
            address = f.offset(f.offset(bases[r // 3], row_offsets[r % 3]), u * size)
            a = f.splat(f.load(type_, address, size), lanes)
            for j in range(vectors):
                acc[r * vectors + j] = multiply_add(f, a, loaded[j], acc[r * vectors + j], target)

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        a, c = carried
        rows_c = [c]
        for _r in range(1, mr):
            rows_c.append(f.offset(rows_c[-1], ldc))
        places = [f.offset(row, j * lanes * size) for row in rows_c for j in range(vectors)]
        start = f.branch(
            old, lambda: [f.load(vector, p, size) for p in places], lambda: [zero(vector) for _p in places]
        )
        bases = [a]
        for _r in range(3, mr, 3):
            bases.append(f.offset(bases[-1], f.mul(lda, 3)))
        count, tile_size = len(bases), len(places)

        def unrolled(_k: Value, state: list[Value]) -> list[Value]:
            at, b, acc = state[:count], state[count], state[count + 1 :]
            for u in range(unroll):
                part = u % sets * tile_size
                mine = acc[part : part + tile_size]
                step(at, b, u, mine)
                acc[part : part + tile_size] = mine
                b = f.offset(b, ldb)
            return [*(f.offset(p, unroll * size) for p in at), b, *acc]

        state = f.loop(
            0, main, unroll, unrolled, [*bases, f["B"], *start, *[zero(vector)] * (tile_size * (sets - 1))]
        )
        acc = state[count + 1 :]
        for s in range(1, sets):
            add = "fadd" if compute.startswith("f") else "add"
            acc[:tile_size] = [
                f.binary(add, x, y) for x, y in zip(acc, acc[s * tile_size : (s + 1) * tile_size])
            ]

        def single(_k: Value, state: list[Value]) -> list[Value]:
            at, b, acc = state[:count], state[count], state[count + 1 :]
            step(at, b, 0, acc)
            return [*(f.offset(p, size) for p in at), f.offset(b, ldb), *acc]

        state = f.loop(main, kc, 1, single, [*state[: count + 1], *acc[:tile_size]])
        for value, place in zip(state[count + 1 :], places, strict=True):
            f.store(value, place, size)
        return [f.offset(a, f.mul(lda, mr)), f.offset(c, f.mul(ldc, mr))]

    f.loop(0, f["tiles"], 1, tile, [f["A"], f["C"]])
    f.ret()
    module.add(name, f.text())


_SWEEP_TYPES = ["ptr", "i64", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64"]


def _dispatch(module: ModuleText, sweeps: Sequence[str], name: str) -> None:
    """The sweep for a number of rows known at run time."""
    parameters = [
        ("ptr", "A"),
        ("i64", "lda"),
        ("ptr", "B"),
        ("i64", "ldb"),
        ("ptr", "C"),
        ("i64", "ldc"),
        ("i64", "kc"),
        ("i64", "accumulate"),
        ("i64", "tiles"),
        ("i64", "mr"),
    ]
    f = Function(module, name, parameters)
    cases = " ".join(f"i64 {r + 1}, label %r{r + 1}" for r in range(len(sweeps)))
    f.do(f"switch i64 %mr, label %none [{cases}]")
    for r, sweep in enumerate(sweeps):
        f.start_block(f"r{r + 1}")
        f.call(sweep, "void", [f[n] for _, n in parameters[:-1]])
        f.ret()
    f.start_block("none")
    f.ret()
    module.add(name, f.text())


# -- packing


# -- the driver


def _tail_copy(module: ModuleText, target: Target, compute: str, vectors: int, name: str) -> None:
    """Copies `rows` rows of the first `width` columns of a tile, less than a panel; only those are touched on either
    side. A row goes in pieces of one size, the last of which overlaps the one before it: stores under a mask are slow.
    """
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    f = Function(
        module,
        name,
        [("ptr", "S"), ("i64", "lds"), ("ptr", "D"), ("i64", "ldd"), ("i64", "rows"), ("i64", "width")],
    )

    def copy(piece: int, pieces: int) -> None:
        """Rows of more than (pieces - 1) * piece columns, and at most pieces * piece."""
        last = f.sub(f["width"], piece)
        places = [*(j * piece for j in range(pieces - 1)), last]

        def row(_: Value, carried: list[Value]) -> list[Value]:
            s, d = carried
            values = [f.load(vector_type(type_, piece), f.offset(s, at, type_), size) for at in places]
            for value, at in zip(values, places, strict=True):
                f.store(value, f.offset(d, at, type_), size)
            return [f.offset(s, f["lds"]), f.offset(d, f["ldd"])]

        f.loop(0, f["rows"], 1, row, [f["S"], f["D"]])

    def wider_than(width: int) -> Value:
        return f.compare("icmp sgt", f["width"], i64(width))

    cases = [(lanes, count, (count - 1) * lanes) for count in range(vectors, 1, -1)]
    cases += [(piece, 2, piece) for piece in (lanes >> k for k in range(1, lanes.bit_length()))]

    def choose(number: int) -> None:
        if number == len(cases):
            copy(1, 1)
            return
        piece, pieces, above = cases[number]
        f.branch(wider_than(above), lambda: copy(piece, pieces), lambda: choose(number + 1))

    choose(0)
    f.ret()
    module.add(name, f.text())


def parameter_table(module: ModuleText, parameters: Mapping[P, int]) -> str:
    """The name of a constant parameter array in a module."""
    values = ", ".join(f"i64 {parameters[slot]}" for slot in P)
    table = f"internal constant [{len(P)} x i64] [{values}]"
    return module.add_global("gemm_parameters_" + hashlib.blake2b(table.encode(), digest_size=6).hexdigest(), table)


def parameter(f: Function, slot: P) -> Value:
    """A slot of the parameter array."""
    return f.load("i64", f.offset(f["P"], int(slot), "i64"), 8)


def call_epilogue(f: Function, row: Value | int, rows: Value, col: Value | int, cols: Value) -> None:
    """Calls the epilogue, if there is one, for a finished block given relative to this call's block."""

    def call() -> None:
        low_row, low_col = f.add(f["row"], row), f.add(f["col"], col)
        arguments = [
            f["ctx"],
            f["buffers"],
            f["batch"],
            i64(low_row),
            i64(f.add(low_row, rows)),
            i64(low_col),
            i64(f.add(low_col, cols)),
        ]
        f.do(f"call void %epilogue({', '.join(map(str, arguments))})")

    if_(f, f.op("i1", "icmp ne ptr %epilogue, null"), call)


def _gemm(module: ModuleText, target: Target, compute: str, vectors: int, name: str, linkage: str) -> None:
    """The blocked driver: column blocks, depth blocks, row blocks, panels."""
    type_ = COMPUTE_TYPES[compute]
    size, lanes = SIZES[type_], lanes_of(target, compute)
    nr, mr = vectors * lanes, max_rows(target, compute, vectors)
    nr_bytes = nr * size
    prefix = f"{name}_part"
    sweeps = []
    for r in range(1, mr + 1):
        sweeps.append(f"{prefix}_sweep{r}")
        _sweep(module, target, compute, vectors, r, sweeps[-1], "internal")
    dispatch, copy = f"{prefix}_dispatch", f"{prefix}_copy"
    _dispatch(module, sweeps, dispatch)
    _tail_copy(module, target, compute, vectors, copy)

    f = Function(module, name, BLOCK_PARAMETERS, linkage=linkage)
    p = {slot: parameter(f, slot) for slot in P}
    packs_a = f.compare("icmp ne", p[P.PACK_A], i64(0))
    direct, packs_b = (f.compare("icmp eq", p[P.B_MODE], i64(mode)) for mode in (DIRECT, PACK))
    tail_packed, tile = f.offset(f["scratch"], p[P.AT_TAIL]), f.offset(f["scratch"], p[P.AT_TILE])
    a_packed, rows, cols = f.offset(f["scratch"], p[P.AT_A]), f["rows"], f["cols"]
    # A product over nothing is one depth block of no steps: zeros.
    depth = f.intrinsic("smax", "i64", [p[P.K], i64(1)])
    ldb = f.select(packs_b, i64(nr_bytes), p[P.B_K])
    # Where a product is one depth block and B was not packed beforehand, the last panel may overlap the one before it.
    may_overlap = f.binary("and", f.binary("or", direct, packs_b), f.compare("icmp sle", p[P.K], p[P.KC]))

    def pack_b(source: Value, to: Value, kc: Value, width: Value) -> None:
        f.do(f"call void %pack_b({source}, {to}, {kc}, {width}, {p[P.B_K]}, {p[P.B_COL]})")

    def column_block(jc: Value, _: list[Value]) -> None:
        nc = i64(f.minimum(p[P.NC], f.sub(cols, jc)))
        panels, tail = f.divide(nc, nr), i64(f.remainder(nc, nr))
        has_tail = f.compare("icmp ne", tail, i64(0))
        wide_enough = f.compare("icmp sge", nc, i64(nr))
        overlaps = f.binary("and", may_overlap, f.binary("and", has_tail, wide_enough))
        apart = f.compare("icmp eq", overlaps, Value("i1", "false"))
        b_block = f.offset(f["B"], f.mul(jc, p[P.B_COL]))
        c_block = f.offset(f["C"], f.mul(jc, size))

        def depth_block(kb: Value, _: list[Value]) -> None:
            kc = i64(f.minimum(p[P.KC], f.sub(p[P.K], kb)))
            accumulate = f.cast("zext", f.compare("icmp ne", kb, i64(0)), "i64")
            b = f.offset(b_block, f.mul(kb, p[P.B_K]))
            last = f.sub(nc, nr)

            def pack_panels() -> None:
                pack_b(b, f["scratch"], kc, f.select(overlaps, i64(f.sub(nc, tail)), nc))
                to = f.offset(f["scratch"], f.mul(f.mul(panels, kc), nr_bytes))
                if_(f, overlaps, lambda: pack_b(f.offset(b, f.mul(last, p[P.B_COL])), to, kc, i64(nr)))

            if_(f, packs_b, pack_panels)
            if_(
                f,
                f.binary("and", direct, f.binary("and", has_tail, apart)),
                lambda: pack_b(f.offset(b, f.mul(panels, nr_bytes)), tail_packed, kc, tail),
            )
            b_panels = f.select(packs_b, f["scratch"], b)
            panel_bytes = f.select(packs_b, i64(f.mul(kc, nr_bytes)), p[P.B_PANEL])
            direct_tail = f.select(overlaps, f.offset(b, f.mul(last, size)), tail_packed)
            b_tail = f.select(direct, direct_tail, f.offset(b_panels, f.mul(panels, panel_bytes)))
            tail_ldb = f.select(f.binary("and", direct, overlaps), p[P.B_K], i64(nr_bytes))
            is_last = f.compare("icmp sge", i64(f.add(kb, kc)), p[P.K])

            def row_block(ic: Value, _: list[Value]) -> None:
                mc = i64(f.minimum(p[P.MC], f.sub(rows, ic)))
                a_block = f.offset(f.offset(f["A"], f.mul(ic, p[P.A_ROW])), f.mul(kb, p[P.A_K]))
                if_(
                    f,
                    packs_a,
                    lambda: f.do(
                        f"call void %pack_a({a_block}, {a_packed}, {mc}, {kc}, {p[P.A_ROW]}, {p[P.A_K]}, "
                        f"{p[P.LDA]}, {kc})"
                    ),
                )
                a = f.select(packs_a, a_packed, a_block)
                lda = f.select(packs_a, p[P.LDA], p[P.A_ROW])
                c = f.offset(c_block, f.mul(ic, p[P.C_ROW]))
                # Tiles of nearly equal height: no thin one at the end.
                tiles = i64(f.divide(i64(f.add(mc, mr - 1)), mr))
                low = f.binary("udiv", mc, tiles)
                taller = i64(f.sub(mc, f.mul(low, tiles)))

                def panel(b: Value, ldb: Value, c: Value, ldc: Value) -> None:
                    first = [a, lda, b, ldb, c, ldc, kc, accumulate]
                    if_(
                        f,
                        f.compare("icmp ne", taller, i64(0)),
                        lambda: f.call(dispatch, "void", [*first, taller, i64(f.add(low, 1))]),
                    )
                    done = f.mul(taller, f.add(low, 1))
                    f.call(
                        dispatch,
                        "void",
                        [
                            f.offset(a, f.mul(done, lda)),
                            lda,
                            b,
                            ldb,
                            f.offset(c, f.mul(done, ldc)),
                            ldc,
                            kc,
                            accumulate,
                            i64(f.sub(tiles, taller)),
                            low,
                        ],
                    )

                def full_panel(j: Value, _: list[Value]) -> None:
                    panel(
                        f.offset(b_panels, f.mul(j, panel_bytes)),
                        ldb,
                        f.offset(c, f.mul(j, nr_bytes)),
                        p[P.C_ROW],
                    )

                f.loop(0, panels, 1, full_panel)

                def tail_panel() -> None:
                    at = f.offset(c, f.mul(panels, nr_bytes))
                    if_(
                        f,
                        f.compare("icmp ne", accumulate, i64(0)),
                        lambda: f.call(copy, "void", [at, p[P.C_ROW], tile, i64(nr_bytes), mc, tail]),
                    )
                    place = f.select(overlaps, f.offset(c, f.mul(last, size)), tile)
                    panel(b_tail, tail_ldb, place, f.select(overlaps, p[P.C_ROW], i64(nr_bytes)))
                    if_(
                        f, apart, lambda: f.call(copy, "void", [tile, i64(nr_bytes), at, p[P.C_ROW], mc, tail])
                    )

                if_(f, has_tail, tail_panel)
                if_(f, is_last, lambda: call_epilogue(f, ic, mc, jc, nc))

            f.loop(0, rows, p[P.MC], row_block)

        f.loop(0, depth, p[P.KC], depth_block)

    f.loop(0, cols, p[P.NC], column_block)
    f.ret()
    module.add(name, f.text())


def gemm_name(compute: str, vectors: int) -> str:
    """The blocked driver."""
    return f"tfb_gemm_{compute}_{vectors}"


def write_gemm(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the blocked driver with its micro-kernels into a module; returns its name."""
    name = gemm_name(compute, vectors)
    if not module.has(name):
        _gemm(module, target, compute, vectors, name, linkage)
    return name


def declare_block(module: ModuleText, name: str) -> None:
    """Declares a library function that computes a block of C."""
    module.declare(name, "void", _BLOCK_TYPES)


def vector_counts(compute: str) -> tuple[int, ...]:
    """Panel widths, in vectors, that the library has for a compute type."""
    return VECTORS if compute.startswith("f") else (2,)
