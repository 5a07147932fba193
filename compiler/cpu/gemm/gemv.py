"""Few rows times a large matrix, streaming the matrix once: y[m, n] = sum_k x[m, k] * B[k, n].

`tfb_gemv_<type>_n` wants the rows of B contiguous and updates a stretch of y from several of them at a time;
`tfb_gemv_<type>_t` wants the columns contiguous and takes the dot products of several at a time. Both have
the parameters of a block function (microkernel.BLOCK_PARAMETERS). Elements of another type than that of the sums
(`tfb_gemv_<element>_<type>_n`) are converted when they are read.

For one row of A, a matrix without gaps that comes from memory is read in one go, a row (column) at a time (parameter KC
is 1): one long stream is read ahead farther than several short ones; or as many streams as the target wants, each a
part of the matrix. Within the caches, several share the accesses to y.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, constant, i64, vector_type
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from .compute_types import (
    CACHE_LINE,
    COMPUTE_TYPES,
    SIZES,
    if_,
    lanes_of,
    load_as,
    load_masked,
    multiply_add,
    store_masked,
    zero,
)
from .microkernel import BLOCK_PARAMETERS, P, call_epilogue, parameter

ROWS_AT_ONCE = 8  # rows of B that one pass over a stretch of y reads
STRETCH_BYTES = 8 << 10  # of y: stays in L1 beside the streams
SHORT_BYTES = 2 << 10  # of y where it has several rows: ROWS_AT_ONCE stretches of B stay in L1 too


def gemv_name(element: ElementType, compute: str, transposed: bool) -> str:
    """The function for a matrix whose rows (`transposed`: whose columns) are contiguous."""
    source = "" if _is_held(element, compute) else f"{element.value}_"
    return f"tfb_gemv_{source}{compute}_{'t' if transposed else 'n'}"


def _is_held(element: ElementType, compute: str) -> bool:
    """Whether elements lie in memory as they are summed."""
    return memory_type(element) == COMPUTE_TYPES[compute]


def write_gemv(module: ModuleText, target: Target, element: ElementType, compute: str, linkage: str) -> None:
    """Writes both functions into a module."""
    for transposed, write in ((False, _by_rows), (True, _by_dots)):
        name = gemv_name(element, compute, transposed)
        if not module.has(name):
            module.add(name, write(module, target, element, compute, name, linkage))


def _by_rows(
    module: ModuleText, target: Target, element: ElementType, compute: str, name: str, linkage: str
) -> str:
    type_, storage, held = COMPUTE_TYPES[compute], memory_type(element), _is_held(element, compute)
    size, lanes = SIZES[type_], lanes_of(target, compute)
    vector, wide = vector_type(type_, lanes), 4
    f = Function(module, name, BLOCK_PARAMETERS, linkage=linkage)
    k_total, a_step, b_step = parameter(f, P.K), parameter(f, P.A_K), parameter(f, P.B_K)
    a_row, c_row, cols = parameter(f, P.A_ROW), parameter(f, P.C_ROW), f["cols"]
    one_stream = f.compare("icmp eq", parameter(f, P.KC), i64(1))
    # With several rows of C the rows of B are read again for each: they must stay in L1.
    stretch = f.select(
        f.compare("icmp eq", f["rows"], i64(1)), i64(STRETCH_BYTES // size), i64(SHORT_BYTES // size)
    )

    def update(y: Value, count: Value, b: Value, apart: Value, xs: list[Value]) -> None:
        """y[0:count] += sum of xs[u] * row u of B, rows being so many bytes apart."""
        rows = [b]
        for _ in xs[1:]:
            rows.append(f.offset(rows[-1], apart))
        step = wide * lanes
        main = f.mul(f.divide(count, step), step)

        def vectors(c: Value, _: list[Value]) -> None:
            at = f.offset(y, c, type_)
            acc = [f.load(vector, f.offset(at, j * lanes, type_), size) for j in range(wide)]
            for x, row in zip(xs, rows, strict=True):
                source = f.offset(row, c, storage)
                for j in range(wide):
                    value = load_as(f, element, type_, f.offset(source, j * lanes, storage), lanes)
                    acc[j] = multiply_add(f, x, value, acc[j], target)
            for j in range(wide):
                f.store(acc[j], f.offset(at, j * lanes, type_), size)

        f.loop(0, main, step, vectors)

        def masked(c: Value, _: list[Value]) -> None:
            left = i64(f.sub(count, c))
            at = f.offset(y, c, type_)
            acc = load_masked(f, type_, lanes, at, left)
            for x, row in zip(xs, rows, strict=True):
                acc = multiply_add(
                    f, x, load_masked(f, type_, lanes, f.offset(row, c, type_), left), acc, target
                )
            store_masked(f, acc, type_, lanes, at, left)

        def single(c: Value, _: list[Value]) -> None:
            at = f.offset(y, c, type_)
            acc = f.load(type_, at, size)
            for x, row in zip(xs, rows, strict=True):
                value = load_as(f, element, type_, f.offset(row, c, storage), 1)
                acc = multiply_add(f, f.extract(x, 0), value, acc, target)
            f.store(acc, at, size)

        f.loop(main, count, lanes if held else 1, masked if held else single)

    def fetch(ahead: Value, r: Value, count: Value) -> None:
        """Row r of C's share of the rows of B that come next: with several rows of C, arithmetic holds up reading."""
        several = f.compare("icmp sgt", f["rows"], i64(1))

        def one(j: Value, _: list[Value]) -> None:
            start = f.offset(ahead, f.mul(j, b_step))
            f.loop(
                0,
                f.mul(count, element.item_bytes),
                CACHE_LINE,
                lambda at, _: f.prefetch(f.offset(start, at), locality=2),
            )

        f.loop(f.select(several, r, i64(ROWS_AT_ONCE)), ROWS_AT_ONCE, f["rows"], one)

    def block(low: Value, _: list[Value]) -> None:
        count = i64(f.minimum(f.sub(cols, low), stretch))
        c, b = f.offset(f["C"], low, type_), f.offset(f["B"], low, storage)

        def clear(r: Value, _: list[Value]) -> None:
            y = f.offset(c, f.mul(r, c_row))
            f.loop(
                0,
                count,
                lanes,
                lambda j, _: store_masked(
                    f, zero(vector), type_, lanes, f.offset(y, j, type_), i64(f.sub(count, j))
                ),
            )

        f.loop(0, f["rows"], 1, clear)

        def some(
            at_once: int, apart: Value | int = 1, ahead: bool = False
        ) -> Callable[[Value, list[Value]], None]:
            def run(k: Value, _: list[Value]) -> None:
                source = f.offset(b, f.mul(k, b_step))

                def row(r: Value, carried: list[Value]) -> list[Value]:
                    a, y = carried
                    if ahead:
                        fetch(f.offset(source, f.mul(b_step, at_once)), r, count)
                    xs, x = [], a
                    for _u in range(at_once):
                        xs.append(f.splat(load_as(f, element, type_, x, 1), lanes))
                        x = f.offset(x, f.mul(a_step, apart))
                    update(y, count, source, i64(f.mul(b_step, apart)), xs)
                    return [f.offset(a, a_row), f.offset(y, c_row)]

                f.loop(0, f["rows"], 1, row, [f.offset(f["A"], f.mul(k, a_step)), c])

            return run

        near = f.select(one_stream, i64(0), f.binary("and", k_total, i64(-ROWS_AT_ONCE)))
        f.loop(0, near, ROWS_AT_ONCE, some(ROWS_AT_ONCE, ahead=True))
        if target.streams > 1:
            part = f.select(one_stream, i64(f.divide(k_total, target.streams)), i64(0))
            f.loop(0, part, 1, some(target.streams, part))
            near = i64(f.add(near, f.mul(part, target.streams)))
        f.loop(near, k_total, 1, some(1))
        call_epilogue(f, 0, f["rows"], low, count)

    f.loop(0, cols, stretch, block)
    f.ret()
    return f.text()


def _by_dots(
    module: ModuleText, target: Target, element: ElementType, compute: str, name: str, linkage: str
) -> str:
    type_, storage, held = COMPUTE_TYPES[compute], memory_type(element), _is_held(element, compute)
    size, lanes = SIZES[type_], lanes_of(target, compute)
    vector = vector_type(type_, lanes)
    f = Function(module, name, BLOCK_PARAMETERS, linkage=linkage)
    k_total, a_step = parameter(f, P.K), parameter(f, P.A_K)
    b_column, c_column = parameter(f, P.B_COL), parameter(f, P.C_COL)
    a_row, c_row = parameter(f, P.A_ROW), parameter(f, P.C_ROW)

    def gather() -> list[Value]:
        f.loop(
            0,
            k_total,
            1,
            lambda k, _: f.store(
                f.load(storage, f.offset(f["A"], f.mul(k, a_step)), element.item_bytes),
                f.offset(f["scratch"], k, storage),
                element.item_bytes,
            ),
        )
        return [f["scratch"]]

    # One row may be strided; several are contiguous each.
    one = f.branch(f.compare("icmp ne", a_step, i64(element.item_bytes)), gather, lambda: [f["A"]])[0]
    add = "fadd" if compute.startswith("f") else "add"

    def dots(columns: int, wide: int, apart: Value | int = 1) -> Callable[[Value, list[Value]], None]:
        step = wide * lanes
        main = f.mul(f.divide(k_total, step), step)

        def run(n: Value, _: list[Value]) -> None:
            sources = [f.offset(f["B"], f.mul(n, b_column))]
            for _c in range(1, columns):
                sources.append(f.offset(sources[-1], f.mul(b_column, apart)))

            def row(_: Value, carried: list[Value]) -> list[Value]:
                x, y = carried

                def vectors(k: Value, acc: list[Value]) -> list[Value]:
                    def part(source: Value, j: int) -> Value:
                        at = f.offset(f.offset(source, k, storage), j * lanes, storage)
                        return load_as(f, element, type_, at, lanes)

                    xs = [part(x, j) for j in range(wide)]
                    return [
                        multiply_add(f, xs[j], part(s, j), acc[i * wide + j], target)
                        for i, s in enumerate(sources)
                        for j in range(wide)
                    ]

                acc = f.loop(0, main, step, vectors, [zero(vector)] * (columns * wide))
                for half in (wide >> level for level in range(1, wide.bit_length())):
                    acc = [
                        f.binary(add, acc[i * 2 * half + j], acc[i * 2 * half + half + j])
                        for i in range(columns)
                        for j in range(half)
                    ]

                def masked(k: Value, acc: list[Value]) -> list[Value]:
                    left = i64(f.sub(k_total, k))
                    part = load_masked(f, type_, lanes, f.offset(x, k, type_), left)
                    return [
                        multiply_add(
                            f, part, load_masked(f, type_, lanes, f.offset(s, k, type_), left), a, target
                        )
                        for s, a in zip(sources, acc, strict=True)
                    ]

                def single(k: Value, acc: list[Value]) -> list[Value]:
                    part = load_as(f, element, type_, f.offset(x, k, storage), 1)
                    return [
                        multiply_add(
                            f, part, load_as(f, element, type_, f.offset(s, k, storage), 1), a, target
                        )
                        for s, a in zip(sources, acc, strict=True)
                    ]

                if held:
                    acc = f.loop(main, k_total, lanes, masked, acc)
                acc = [_sum(f, value, type_, lanes) for value in acc]
                if not held:
                    acc = f.loop(main, k_total, 1, single, acc)
                at = y
                for value in acc:
                    f.store(value, at, size)
                    at = f.offset(at, f.mul(c_column, apart))
                return [f.offset(x, a_row), f.offset(y, c_row)]

            f.loop(0, f["rows"], 1, row, [one, f.offset(f["C"], f.mul(n, c_column))])

        return run

    cols = f["cols"]
    one_stream = f.compare("icmp eq", parameter(f, P.KC), i64(1))
    whole = f.select(one_stream, i64(0), f.binary("and", cols, i64(-4)))
    f.loop(0, whole, 4, dots(4, 2))
    if target.streams > 1:
        part = f.select(one_stream, i64(f.divide(cols, target.streams)), i64(0))
        f.loop(0, part, 1, dots(target.streams, 2, part))
        whole = i64(f.add(whole, f.mul(part, target.streams)))
    f.loop(whole, cols, 1, dots(1, 4))
    some = f.binary("and", f.compare("icmp sgt", cols, i64(0)), f.compare("icmp sgt", f["rows"], i64(0)))
    if_(f, some, lambda: call_epilogue(f, 0, f["rows"], 0, cols))
    f.ret()
    return f.text()


def _sum(f: Function, value: Value, type_: str, lanes: int) -> Value:
    """The sum of a vector's lanes, in a tree."""
    if lanes == 1:
        return value
    if type_.startswith("i"):
        return f.call(f"llvm.vector.reduce.add.v{lanes}{type_}", type_, [value])
    name = f"llvm.vector.reduce.fadd.v{lanes}{'f32' if type_ == 'float' else 'f64'}"
    f.module.declare(name, type_, [type_, value.type])
    return f.op(type_, f"call reassoc {type_} @{name}({constant(type_, -0.0)}, {value})")
