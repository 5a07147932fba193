"""The matrix-multiplication kernels: micro-kernels and the blocked driver, with run-time sizes and strides.

They depend on the target alone, so they are compiled once per machine; a matrix product of one shape is then
a small stub that calls `tfb_gemm_<type>_<vectors>` for each task (gemm/emit.py). Every function that computes a
block of C has the parameters BLOCK_PARAMETERS; all strides are bytes. From the inside out:

* sweep: a column panel of NR = vectors * lanes columns against `tiles` row tiles of `mr` rows, accumulators
  in registers, A read as it lies, B from a panel or as it lies;
* gemm: loops over column, depth and row blocks around it, packing (gemm/packing.py), the epilogue's call.

There is a sweep for every height and width of a tile. Few are needed for a shape: who calls the driver names them in a
table behind the parameters, and no others are compiled.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ....runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value, i64, vector_type
from ....runtime.llvm.target import Target
from .compute_types import CACHE_LINE, COMPUTE_TYPES, SIZES, if_, lanes_of, line_vectors, multiply_add, zero

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


UNROLLED = 4  # steps of the sums in tiles of whole lines, and of narrow ones
ROWS_ASKED = 2  # beside those, of the panel to come
AHEAD = 4  # turns of a loop between asking for the last row of a tile and reading it
DIRECT, PACK, PACKED = 0, 1, 2  # P.B_MODE: B as it lies, packed by the driver, packed beforehand

# -- micro-kernels


def max_rows(target: Target, compute: str, vectors: int) -> int:
    """Rows of the largest tile whose accumulators, B vectors and temporaries stay in registers."""
    temporaries = 1 if target.has_fma and compute.startswith("f") else 2
    rows = (target.registers - vectors - temporaries) // vectors
    return max(1, min(rows, {1: 12, 2: 12 if line_vectors(target) else 14, 3: 8}[vectors]))


def unrolled_steps(target: Target, accumulators: int) -> int:
    """Steps of a sum written one after the other: large tiles hide the loop's own instructions without that."""
    return UNROLLED if accumulators < 8 or line_vectors(target) else 2


def widths(target: Target, vectors: int) -> range:
    """Vectors of the tiles that a panel is computed in: where vectors are long, the last panel's are no wider than
    what is left of it."""
    return range(1 if line_vectors(target) else vectors, vectors + 1)


def ask_for_rows(f: Function, row: Value, pace: Value, lines: int) -> Value:
    """Asks for the next rows of the panel to come, so that they are in L2 when its turn comes; returns those after."""
    for _ in range(ROWS_ASKED):
        for line in range(lines):
            f.prefetch(f.offset(row, line * CACHE_LINE), locality=2)
        row = f.offset(row, pace)
    return row


def pace_of(f: Function, tile: Value) -> Value:
    """Bytes between the rows that a tile asks for; 0: it asks for none but one."""
    return f.select(f.compare("icmp slt", tile, f["asking"]), f["pace"], i64(0))


def after_tiles(f: Function, to_come: Sequence[Value], steps: Value, tiles: Value) -> list[Value]:
    """The arguments NEXT for the tiles after so many of a panel, each of which has `steps`."""
    row, pace, asking = to_come
    left = f.intrinsic("smax", "i64", [i64(f.sub(asking, tiles)), i64(0)])
    asked = f.mul(f.mul(f.divide(steps, UNROLLED), ROWS_ASKED), tiles)
    return [f.offset(row, f.mul(asked, pace)), pace, left]


class Prefetch:
    """Asks for a tile of C, a row at a time, in the last steps of its sums before it is needed."""

    def __init__(self, f: Function, c: Value, ldc: Value, rows: int, lines: int, turns: Value | int) -> None:
        self.f, self.ldc, self.lines = f, ldc, lines
        self.first = f.cast("ptrtoint", c, "i64")
        self.last = f.binary("add", self.first, i64(f.mul(ldc, rows - 1)))
        before = f.intrinsic("smax", "i64", [i64(f.sub(turns, rows + AHEAD)), i64(0)])
        self.start = f.binary("sub", self.first, i64(f.mul(ldc, before)))

    def turn(self, at: Value) -> Value:
        """Asks for one row; returns the next turn's."""
        f = self.f
        row = f.cast("inttoptr", f.intrinsic("smax", "i64", [at, self.first]), "ptr")
        for line in range(self.lines):
            f.prefetch(f.offset(row, line * CACHE_LINE), writes=True)
        return f.intrinsic("smin", "i64", [f.binary("add", at, self.ldc), self.last])


_SWEEP = (
    ("ptr", "A"),
    ("i64", "lda"),
    ("ptr", "B"),
    ("i64", "ldb"),
    ("ptr", "C"),
    ("i64", "ldc"),
    ("i64", "kc"),
    ("i64", "accumulate"),
    ("i64", "tiles"),
)
# The panel to come, the bytes between its rows, and how many tiles ask for them, ROWS_ASKED at a time.
NEXT = (("ptr", "next"), ("i64", "pace"), ("i64", "asking"))
ASKING = UNROLLED // ROWS_ASKED  # tiles that ask for all rows


def _sweep_parameters(target: Target) -> tuple[tuple[str, str], ...]:
    return (*_SWEEP, *NEXT) if line_vectors(target) else _SWEEP


def write_sweep(
    module: ModuleText, target: Target, compute: str, vectors: int, mr: int, linkage: str
) -> None:
    """Writes a micro-kernel into a module: C tiles of mr rows times one panel, `tiles` of them one below the other."""
    name = sweep_name(compute, vectors, mr)
    if module.has(name):
        return
    type_ = COMPUTE_TYPES[compute]
    lanes, size = lanes_of(target, compute), SIZES[type_]
    vector = vector_type(type_, lanes)
    f = Function(module, name, _sweep_parameters(target), linkage=linkage)
    lda, ldb, ldc, kc = f["lda"], f["ldb"], f["ldc"], f["kc"]
    old = f.compare("icmp ne", f["accumulate"], i64(0))
    # Three rows share a base register: base, base + lda, base + 2 lda.
    row_offsets: list[Value | int] = [0, lda, f.mul(lda, 2)]
    unroll, ahead = unrolled_steps(target, mr * vectors), line_vectors(target)
    sets = max(1, min(unroll, 8 // (mr * vectors)))  # enough chains of additions to hide their latency
    main = f.binary("and", kc, i64(-unroll))

    def step(bases: Sequence[Value], b: Value, u: int, acc: list[Value]) -> None:
        loaded = [f.load(vector, f.offset(b, j * lanes * size), size) for j in range(vectors)]
        for r in range(mr):
            address = f.offset(f.offset(bases[r // 3], row_offsets[r % 3]), u * size)
            a = f.splat(f.load(type_, address, size), lanes)
            for j in range(vectors):
                acc[r * vectors + j] = multiply_add(f, a, loaded[j], acc[r * vectors + j], target)

    def tile(number: Value, carried: list[Value]) -> list[Value]:
        a, c, *panel = carried
        pace = pace_of(f, number) if ahead else i64(0)
        rows_c = [c]
        for _r in range(1, mr):
            rows_c.append(f.offset(rows_c[-1], ldc))
        places = [f.offset(row, j * lanes * size) for row in rows_c for j in range(vectors)]

        def stored() -> list[Value]:
            return [f.load(vector, p, size) for p in places]

        start = [zero(vector)] * len(places)
        if not ahead:
            start = f.branch(old, stored, lambda: [zero(vector) for _p in places])
        asked = Prefetch(f, c, ldc, mr, vectors, f.divide(main, unroll)) if ahead else None
        bases = [a]
        for _r in range(3, mr, 3):
            bases.append(f.offset(bases[-1], f.mul(lda, 3)))
        count, tile_size = len(bases), len(places)

        def unrolled(_k: Value, state: list[Value]) -> list[Value]:
            at, b, acc = state[:count], state[count], state[count + 1 : end]
            turns = [asked.turn(state[end]), ask_for_rows(f, state[end + 1], pace, vectors)] if asked else []
            for u in range(unroll):
                part = u % sets * tile_size
                mine = acc[part : part + tile_size]
                step(at, b, u, mine)
                acc[part : part + tile_size] = mine
                b = f.offset(b, ldb)
            return [*(f.offset(p, unroll * size) for p in at), b, *acc, *turns]

        first = [*bases, f["B"], *start, *[zero(vector)] * (tile_size * (sets - 1))]
        end = len(first)
        state = f.loop(0, main, unroll, unrolled, [*first, *([asked.start, *panel] if asked else [])])
        acc = state[count + 1 : end]
        add = "fadd" if compute.startswith("f") else "add"

        def sums(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            return [f.binary(add, x, y) for x, y in zip(a, b)]

        for s in range(1, sets):
            acc[:tile_size] = sums(acc[:tile_size], acc[s * tile_size : (s + 1) * tile_size])

        def single(_k: Value, state: list[Value]) -> list[Value]:
            at, b, acc = state[:count], state[count], state[count + 1 :]
            step(at, b, 0, acc)
            return [*(f.offset(p, size) for p in at), f.offset(b, ldb), *acc]

        made = f.loop(main, kc, 1, single, [*state[: count + 1], *acc[:tile_size]])[count + 1 :]
        if ahead:
            made = f.branch(old, lambda: sums(made, stored()), lambda: made)
        for value, place in zip(made, places, strict=True):
            f.store(value, place, size)
        return [
            f.offset(a, f.mul(lda, mr)),
            f.offset(c, f.mul(ldc, mr)),
            *(state[end + 1 :] if asked else []),
        ]

    f.loop(0, f["tiles"], 1, tile, [f["A"], f["C"], *([f["next"]] if ahead else [])])
    f.ret()
    module.add(name, f.text())


def tile_heights(counts: Iterable[int], mr: int) -> set[int]:
    """Heights of the tiles, at most mr and nearly equal, that blocks of so many rows are cut into."""
    heights = set()
    for count in filter(None, counts):
        low, taller = divmod(count, -(-count // mr))
        heights |= {low, low + 1} if taller else {low}
    return heights


def tile_widths(target: Target, columns: int, vectors: int, lanes: int) -> set[int]:
    """Widths, in vectors, of the tiles that so many columns are cut into; a panel has `vectors`."""
    panels, tail = divmod(columns, vectors * lanes)
    narrow = -(-tail // lanes) if len(widths(target, vectors)) > 1 else vectors
    return ({vectors} if panels else set()) | ({narrow} if tail else set())


Sweeps = Mapping[
    tuple[int, int], str
]  # names of micro-kernels by width, in vectors, and height of their tiles


def sweep_table(target: Target, vectors: int, mr: int, sweeps: Sweeps) -> tuple[str, str]:
    """(type, value) of a constant table of micro-kernels, from which `sweep_at` takes one; those left out are null."""
    pad = "" if target.pointer_bytes == 8 else f", [{8 - target.pointer_bytes} x i8]"
    zeros = f"{pad} zeroinitializer" if pad else ""
    names = [
        f"@{sweeps[key]}" if (key := (width, height)) in sweeps else "null"
        for width in widths(target, vectors)
        for height in range(1, mr + 1)
    ]
    entries = ", ".join(f"<{{ptr{pad}}}> <{{ptr {name}{zeros}}}>" for name in names)
    return f"[{len(names)} x <{{ptr{pad}}}>]", f"[{entries}]"


def sweep_at(
    f: Function, target: Target, table: Value, vectors: int, mr: int, width: int, height: Value | int
) -> str:
    """The micro-kernel for tiles of some width and height, of panels of `vectors` and at most mr rows."""
    first = widths(target, vectors).index(width) * mr - 1
    return f.load("ptr", f.offset(table, f.add(height, first), "ptr"), 8).text


# -- the driver


def write_copy(module: ModuleText, target: Target, compute: str, linkage: str) -> str:
    """Writes into a module what copies `rows` rows of the first `width` columns of a tile, less than a panel; only
    those are touched on either side. Returns its name.

    A row goes in pieces of one size, the last of which overlaps the one before it: stores under a mask are slow.
    """
    name = copy_name(compute)
    if module.has(name):
        return name
    type_, vectors = COMPUTE_TYPES[compute], max(vector_counts(compute))
    lanes, size = lanes_of(target, compute), SIZES[type_]
    f = Function(
        module,
        name,
        [("ptr", "S"), ("i64", "lds"), ("ptr", "D"), ("i64", "ldd"), ("i64", "rows"), ("i64", "width")],
        linkage=linkage,
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
    return module.add(name, f.text())


def constant_table(
    module: ModuleText, prefix: str, values: Iterable[int], sweeps: tuple[str, str] | None = None
) -> str:
    """The name of a constant array of i64 in a module, with a sweep_table behind it."""
    listed = [f"i64 {value}" for value in values]
    type_, content = f"[{len(listed)} x i64]", f"[{', '.join(listed)}]"
    if sweeps is not None:
        type_, content = f"{{{type_}, {sweeps[0]}}}", f"{{{type_} {content}, {sweeps[0]} {sweeps[1]}}}"
    text = f"internal constant {type_} {content}"
    return module.add_global(f"{prefix}_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}", text)


def parameter_table(
    module: ModuleText, parameters: Mapping[P, int], sweeps: tuple[str, str] | None = None
) -> str:
    """The name of a constant parameter array in a module."""
    return constant_table(module, "gemm_parameters", (parameters[slot] for slot in P), sweeps)


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
    copy = write_copy(module, target, compute, linkage)
    f = Function(module, name, BLOCK_PARAMETERS, attributes=GLUE, linkage=linkage)
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

    in_rows = f.compare("icmp eq", p[P.B_COL], i64(size))

    def pack_b(source: Value, to: Value, kc: Value, width: Value) -> None:
        f.do(f"call void %pack_b({source}, {to}, {kc}, {width}, {p[P.B_K]}, {p[P.B_COL]})")

    def column_block(jc: Value, _: list[Value]) -> None:
        nc = i64(f.minimum(p[P.NC], f.sub(cols, jc)))
        panels, tail = f.divide(nc, nr), i64(f.remainder(nc, nr))
        has_tail = f.compare("icmp ne", tail, i64(0))
        # The last panel's tiles have `span` columns, which are all of C's where they overlap or fill them.
        span = i64(nr)
        if len(widths(target, vectors)) > 1:
            span = i64(f.mul(f.divide(f.add(tail, lanes - 1), lanes), lanes))
        wide_enough = f.compare("icmp sge", nc, span)
        overlaps = f.binary("and", may_overlap, f.binary("and", has_tail, wide_enough))
        in_place = f.binary("or", overlaps, f.compare("icmp eq", tail, span))
        apart = f.compare("icmp eq", in_place, Value("i1", "false"))
        b_block = f.offset(f["B"], f.mul(jc, p[P.B_COL]))
        c_block = f.offset(f["C"], f.mul(jc, size))

        def depth_block(kb: Value, _: list[Value]) -> None:
            kc = i64(f.minimum(p[P.KC], f.sub(p[P.K], kb)))
            accumulate = f.cast("zext", f.compare("icmp ne", kb, i64(0)), "i64")
            b = f.offset(b_block, f.mul(kb, p[P.B_K]))
            last = f.sub(nc, span)

            def pack_panels() -> None:
                pack_b(b, f["scratch"], kc, f.select(overlaps, i64(f.sub(nc, tail)), nc))
                to = f.offset(f["scratch"], f.mul(f.mul(panels, kc), nr_bytes))
                if_(f, overlaps, lambda: pack_b(f.offset(b, f.mul(last, p[P.B_COL])), to, kc, span))

            if_(f, packs_b, pack_panels)
            if_(
                f,
                f.binary("and", direct, f.binary("and", has_tail, apart)),
                lambda: pack_b(f.offset(b, f.mul(panels, nr_bytes)), tail_packed, kc, tail),
            )
            b_panels = f.select(packs_b, f["scratch"], b)
            panel_bytes = f.select(packs_b, i64(f.mul(kc, nr_bytes)), p[P.B_PANEL])
            direct_tail = f.select(in_place, f.offset(b, f.mul(last, size)), tail_packed)
            b_tail = f.select(direct, direct_tail, f.offset(b_panels, f.mul(panels, panel_bytes)))
            tail_ldb = f.select(f.binary("and", direct, in_place), p[P.B_K], i64(nr_bytes))
            is_last = f.compare("icmp sge", i64(f.add(kb, kc)), p[P.K])
            following_b = f.select(
                is_last, f.offset(b_block, f.mul(nc, p[P.B_COL])), f.offset(b, f.mul(kc, p[P.B_K]))
            )

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
                table = f.offset(f["P"], 8 * len(P))

                def sweep(
                    b: Value, ldb: Value, c: Value, ldc: Value, width: int, asked: Sequence[Value]
                ) -> None:
                    def run(height: Value | int, arguments: list[Value]) -> None:
                        function = sweep_at(f, target, table, vectors, mr, width, height)
                        f.do(f"call void {function}({', '.join(map(str, arguments))})")

                    first = [a, lda, b, ldb, c, ldc, kc, accumulate]
                    done = f.mul(taller, f.add(low, 1))
                    following: list[list[Value]] = [[], []]
                    if line_vectors(target):
                        following = [[*asked], after_tiles(f, asked, kc, taller)]
                    if_(
                        f,
                        f.compare("icmp ne", taller, i64(0)),
                        lambda: run(f.add(low, 1), [*first, taller, *following[0]]),
                    )
                    run(
                        low,
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
                            *following[1],
                        ],
                    )

                is_last_row = f.compare("icmp sge", i64(f.add(ic, mc)), rows)
                streams = f.binary(
                    "and", packs_b, f.binary("and", in_rows, f.compare("icmp sle", rows, p[P.MC]))
                )

                def after_panel(j: Value) -> list[Value]:
                    """What to ask for beside panel j: where B is packed for one block of rows, that panel of the next
                    block of B, before it is packed; else the next panel, after the last one the first that follows."""
                    is_followed = f.compare("icmp slt", i64(f.mul(f.add(j, 1), nr)), nc)
                    follows = f.select(is_last_row, following_b, b_panels)
                    near = f.select(is_followed, f.offset(b_panels, f.mul(f.add(j, 1), panel_bytes)), follows)
                    far = f.offset(following_b, f.mul(j, p[P.B_PANEL]))
                    return [f.select(streams, far, near), f.select(streams, p[P.B_K], ldb), i64(ASKING)]

                def full_panel(j: Value, _: list[Value]) -> None:
                    at = f.offset(b_panels, f.mul(j, panel_bytes))
                    sweep(at, ldb, f.offset(c, f.mul(j, nr_bytes)), p[P.C_ROW], vectors, after_panel(j))

                f.loop(0, panels, 1, full_panel)

                def tail_panel() -> None:
                    at = f.offset(c, f.mul(panels, nr_bytes))
                    if_(
                        f,
                        f.binary("and", apart, f.compare("icmp ne", accumulate, i64(0))),
                        lambda: f.call(copy, "void", [at, p[P.C_ROW], tile, i64(nr_bytes), mc, tail]),
                    )
                    place = f.select(in_place, f.offset(c, f.mul(last, size)), tile)
                    ldc = f.select(in_place, p[P.C_ROW], i64(nr_bytes))
                    for width in widths(target, vectors):
                        chosen = f.compare("icmp eq", span, i64(width * lanes))
                        if_(
                            f,
                            chosen,
                            partial(sweep, b_tail, tail_ldb, place, ldc, width, after_panel(i64(panels))),
                        )
                    if_(
                        f,
                        apart,
                        lambda: f.call(copy, "void", [tile, i64(nr_bytes), at, p[P.C_ROW], mc, tail]),
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


def copy_name(compute: str) -> str:
    """The function that copies part of a tile."""
    return f"tfb_copy_{compute}"


def sweep_name(compute: str, width: int, mr: int) -> str:
    """The micro-kernel for tiles of `width` vectors and mr rows."""
    return f"tfb_gemm_{compute}_{width}x{mr}"


def write_gemm(module: ModuleText, target: Target, compute: str, vectors: int, linkage: str) -> str:
    """Writes the blocked driver into a module; returns its name."""
    name = gemm_name(compute, vectors)
    if not module.has(name):
        _gemm(module, target, compute, vectors, name, linkage)
    return name


def declare_block(module: ModuleText, target: Target, name: str, sweeps: Sweeps | None = None) -> None:
    """Declares a library function that computes a block of C, and its micro-kernels."""
    module.declare(name, "void", _BLOCK_TYPES)
    for sweep in (sweeps or {}).values():
        module.declare(sweep, "void", [t for t, _ in _sweep_parameters(target)])


def vector_counts(compute: str) -> tuple[int, ...]:
    """Panel widths, in vectors, that the library has for a compute type."""
    return VECTORS if compute.startswith("f") else (2,)
