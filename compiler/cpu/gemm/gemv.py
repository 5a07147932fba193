"""Few rows times a large matrix, streaming the matrix once: y[m, n] = sum_k x[m, k] * B[k, n].

`tfb_gemv_<type>_n` wants the rows of B contiguous and updates a stretch of y from several of them at a time;
`tfb_gemv_<type>_t` wants the columns contiguous and takes the dot products of several at a time. Both have
the parameters of a block function (driver.BLOCK_PARAMETERS). Elements of another type than that of the sums
(`tfb_gemv_<element>_<type>_n`) are converted when they are read, those of B alone by `tfb_wgemv_<element>_<type>_n`.

For one row of A, a matrix without gaps that comes from memory is read in one go, a row (column) at a time (parameter KC
is 1): one long stream is read ahead farther than several short ones; or as many streams as the target wants, each a
part of the matrix. Within the caches, several share the accesses to y.
"""

from __future__ import annotations

import dataclasses

from ....runtime.llvm.addressing import Index, Int, Ptr
from ....runtime.llvm.control_flow import Loop
from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import constant_text, intrinsic_name
from ....runtime.llvm.vector_value import VectorValue
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from .compute_types import CACHE_LINE, COMPUTE_TYPES, Compute
from .driver import BLOCK_PARAMETERS, P, call_epilogue, parameter
from .microkernel import is_scalar
from .uses import ALL, Uses

ROWS_AT_ONCE = 8  # rows of B that one pass over a stretch of y reads
COLUMNS_AT_ONCE = 4  # dot products with one row of A
STRETCH_BYTES = 8 << 10  # of y: stays in L1 beside the streams
SHORT_BYTES = 2 << 10  # of y where it has several rows: ROWS_AT_ONCE stretches of B stay in L1 too
_UPDATE_VECTORS = 4  # of y that a pass updates at a time


def gemv_name(element: ElementType, weights: ElementType, compute: str, transposed: bool) -> str:
    """The function for elements of A and of B, of a matrix whose rows (`transposed`: whose columns) are contiguous."""
    source = "" if memory_type(weights) == COMPUTE_TYPES[compute] else f"{weights.value}_"
    return f"tfb_{'gemv' if element is weights else 'wgemv'}_{source}{compute}_{'t' if transposed else 'n'}"


def write_gemv(
    module: ModuleText,
    target: Target,
    element: ElementType,
    weights: ElementType,
    compute: str,
    transposed: bool,
    linkage: str,
    uses: Uses = ALL,
) -> None:
    """Writes the function of that name, or what is used of it, into a module."""
    name = gemv_name(element, weights, compute, transposed)
    if not module.has(name):
        f = Function(module, name, BLOCK_PARAMETERS, linkage=linkage)
        kernel = _DotProducts if transposed else _RowUpdates
        kernel(f, Compute(target, compute), element, weights, uses).write()
        module.add(name, f.text())


class _Kernel:
    """A function under construction: elements of A and of B lie in memory as `a_storage` and `storage`, and are
    computed as they are (`is_direct`) or converted."""

    def __init__(
        self, f: Function, compute: Compute, element: ElementType, weights: ElementType, uses: Uses
    ) -> None:
        self.f, self.compute, self.a_element, self.element = f, compute, element, weights
        self.uses = uses
        self.a_storage, self.storage = memory_type(element), memory_type(weights)
        self.is_direct = compute.is_stored_as(weights) and compute.is_stored_as(element)
        self.streams = compute.target.streams

    def parameter(self, slot: P) -> Int:
        """A slot of the parameter array."""
        return parameter(self.f, slot, self.uses)

    def load_a(self, p: Ptr, lanes: int) -> VectorValue:
        """Elements of A."""
        return self.compute.load(p, self.a_element, lanes)

    def load(self, p: Ptr, lanes: int) -> VectorValue:
        """Elements of B."""
        return self.compute.load(p, self.element, lanes)


class _RowUpdates(_Kernel):
    """The rows of B are contiguous: for each stretch of columns, y += x[k] * B[k, :], several k at a time."""

    def write(self) -> None:
        """A stretch of y after the other."""
        f, size = self.f, self.compute.bytes
        self.k_total, self.a_step, self.b_step = map(self.parameter, (P.K, P.A_K, P.B_K))
        self.a_row, self.c_row = map(self.parameter, (P.A_ROW, P.C_ROW))
        self.rows, cols = f.integers("rows", "cols")
        self.is_one_stream = self.parameter(P.KC).equals(1)
        # With several rows of C the rows of B are read again for each: they must stay in L1.
        short, long = f.i64(SHORT_BYTES // size), f.i64(STRETCH_BYTES // size)
        stretch = self.rows.equals(1).choose(long, short)
        with f.loop(0, cols, stretch) as stretches:
            low = stretches.index
            count = (cols - low).minimum(stretch)
            self._stretch(low, count)
            call_epilogue(f, 0, self.rows, low, count)
        f.ret()

    def _stretch(self, low: Int, count: Int) -> None:
        f, k_total, streams = self.f, self.k_total, self.streams
        c, b = f.pointer("C").at(low, self.compute.type), f.pointer("B").at(low, self.storage)
        self._clear(c, count)
        done = self.is_one_stream.choose(0, k_total.round_down(ROWS_AT_ONCE))
        with f.loop(0, done, ROWS_AT_ONCE) as block:
            self._add_rows(block.index, b, c, count, ROWS_AT_ONCE, fetches=True)
        if streams > 1:
            part = self.is_one_stream.choose(k_total // streams, 0)
            with f.loop(0, part) as block:
                self._add_rows(block.index, b, c, count, streams, part)
            done = done + part * streams
        with f.loop(done, k_total) as block:
            self._add_rows(block.index, b, c, count, 1)

    def _clear(self, c: Ptr, count: Int) -> None:
        f, compute = self.f, self.compute
        with f.loop(0, self.rows) as row:
            y = c + row.index * self.c_row
            with f.loop(0, count, compute.lanes) as j:
                to = y.at(j.index, compute.type)
                compute.store_masked(f.zero(compute.vector), to, count - j.index)

    def _add_rows(
        self, k: Int, b: Ptr, c: Ptr, count: Int, at_once: int, distance: Index = 1, fetches: bool = False
    ) -> None:
        """y += the sum of x[k + u * distance] * B[k + u * distance, :] for u < at_once, for every row of A and C."""
        f = self.f
        source = b + k * self.b_step
        with f.loop(0, self.rows, a=f.pointer("A") + k * self.a_step, y=c) as row:
            if fetches:
                self._fetch(source + self.b_step * at_once, row.index, count)
            xs, x = [], row.a
            for _ in range(at_once):
                xs.append(self.compute.broadcast(self.load_a(x, 1)))
                x = x + self.a_step * distance
            self._update(row.y, count, source, self.b_step * distance, xs)
            row.a, row.y = row.a + self.a_row, row.y + self.c_row

    def _update(self, y: Ptr, count: Int, b: Ptr, distance: Int, xs: list[VectorValue]) -> None:
        """y[0:count] += the sum of xs[u] * row u of B, rows being so many bytes apart. The products are added up before
        they are added to y: less of them is lost in rounding."""
        f, compute, lanes = self.f, self.compute, self.compute.lanes
        rows = [b]
        for _ in xs[1:]:
            rows.append(rows[-1] + distance)
        step = self._update_vectors_at_once() * lanes
        whole = count // step * step
        with f.loop(0, whole, step) as c:
            self._update_vectors(y.at(c.index, compute.type), [(x, r, c.index) for x, r in zip(xs, rows)])
        with f.loop(whole, count, lanes if self.is_direct else 1) as c:
            at = c.index
            if self.is_direct:
                self._update_masked(y, at, count - at, list(zip(xs, rows)))
            else:
                self._update_one(y.at(at, compute.type), [(x, r, at) for x, r in zip(xs, rows)])

    def _update_vectors_at_once(self) -> int:
        return 1 if self.compute.target.is_small else _UPDATE_VECTORS

    def _update_vectors(self, y: Ptr, terms: list[tuple[VectorValue, Ptr, Int]]) -> None:
        compute = self.compute
        places = range(0, self._update_vectors_at_once() * compute.lanes, compute.lanes)
        acc = [self.f.zero(compute.vector) for _ in places]
        for x, row, c in terms:
            source = row.at(c, self.storage)
            for n, j in enumerate(places):
                value = self.load(source.at(j, self.storage), compute.lanes)
                acc[n] = compute.multiply_add(x, value, acc[n])
        for n, j in enumerate(places):
            to = y.at(j, compute.type)
            to.store(to.load(compute.vector) + acc[n])

    def _update_masked(self, y: Ptr, c: Int, remaining: Int, terms: list[tuple[VectorValue, Ptr]]) -> None:
        compute = self.compute
        to = y.at(c, compute.type)
        acc = self.f.zero(compute.vector)
        for x, row in terms:
            value = compute.load_masked(row.at(c, compute.type), remaining)
            acc = compute.multiply_add(x, value, acc)
        compute.store_masked(compute.load_masked(to, remaining) + acc, to, remaining)

    def _update_one(self, y: Ptr, terms: list[tuple[VectorValue, Ptr, Int]]) -> None:
        acc = self.f.zero(self.compute.type)
        for x, row, c in terms:
            value = self.load(row.at(c, self.storage), 1)
            acc = self.compute.multiply_add(x.extract(0), value, acc)
        y.store(y.load(self.compute.type) + acc)

    def _fetch(self, next_rows: Ptr, r: Int, count: Int) -> None:
        """Row r of C's share of the next rows of B: with several rows of C, arithmetic holds up reading."""
        f, several = self.f, self.rows > 1
        with f.loop(several.choose(r, ROWS_AT_ONCE), ROWS_AT_ONCE, self.rows) as j:
            start = next_rows + j.index * self.b_step
            with f.loop(0, count * self.element.item_bytes, CACHE_LINE) as line:
                (start + line.index).prefetch(locality=2)


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Columns of B whose dot products with a row of A are computed at a time, in `width` vectors each."""

    count: int
    width: int
    distance: Index  # between their numbers
    whole: Int  # elements that are computed in so many vectors


class _DotProducts(_Kernel):
    """The columns of B are contiguous: y[n] = the dot product of x and B[:, n], several n at a time."""

    def write(self) -> None:
        """All columns for all rows of A."""
        f = self.f
        self.k_total, self.a_step = map(self.parameter, (P.K, P.A_K))
        self.b_column, self.c_column = map(self.parameter, (P.B_COL, P.C_COL))
        self.a_row, self.c_row = map(self.parameter, (P.A_ROW, P.C_ROW))
        self.rows, cols = f.integers("rows", "cols")
        self.a = self._contiguous_a()
        is_one_stream = self.parameter(P.KC).equals(1)
        # Of quads that are multiplied one by one, more sums would not stay in registers.
        few = is_scalar(self.compute.target, self.compute.name)
        done = is_one_stream.choose(0, cols.round_down(COLUMNS_AT_ONCE))
        self._compute(0, done, self._columns(COLUMNS_AT_ONCE, 1 if few else 2), COLUMNS_AT_ONCE)
        if self.streams > 1:
            part = is_one_stream.choose(cols // self.streams, 0)
            self._compute(0, part, self._columns(self.streams, 2, part))
            done = done + part * self.streams
        self._compute(done, cols, self._columns(1, 2 if few else 4))
        with f.if_((cols > 0) & (self.rows > 0)):
            call_epilogue(f, 0, self.rows, 0, cols)
        f.ret()

    def _contiguous_a(self) -> Ptr:
        """A, copied together where its one row is strided; several rows are contiguous each."""
        f, size = self.f, self.a_element.item_bytes
        with f.if_(self.a_step.differs(size)) as strided:
            with f.loop(0, self.k_total) as k:
                value = (f.pointer("A") + k.index * self.a_step).load(self.a_storage)
                f.pointer("scratch").at(k.index, self.a_storage).store(value)
            strided.a = f.pointer("scratch")
        with strided.else_():
            strided.a = f.pointer("A")
        a: Ptr = strided.a
        return a

    def _columns(self, count: int, width: int, distance: Index = 1) -> _Columns:
        step = width * self.compute.lanes
        return _Columns(count, width, distance, self.k_total // step * step)

    def _compute(self, low: Index, high: Int, columns: _Columns, step: int = 1) -> None:
        """C[:, n + i * distance] for n in range(low, high, step) and i < count."""
        f, count, distance = self.f, columns.count, columns.distance
        with f.loop(low, high, step) as n:
            bs = [f.pointer("B") + n.index * self.b_column]
            for _ in range(1, count):
                bs.append(bs[-1] + self.b_column * distance)
            with f.loop(0, self.rows, x=self.a, y=f.pointer("C") + n.index * self.c_column) as row:
                to = row.y
                for value in self._dots(row.x, bs, columns):
                    to.store(value)
                    to = to + self.c_column * distance
                row.x, row.y = row.x + self.a_row, row.y + self.c_row

    def _dots(self, x: Ptr, bs: list[Ptr], columns: _Columns) -> list[VectorValue]:
        """The dot products of x with the columns at `bs`: vectors, then the remaining elements."""
        f, compute, whole = self.f, self.compute, columns.whole
        sums = [f.zero(compute.vector)] * (columns.count * columns.width)
        with f.loop(0, whole, columns.width * compute.lanes, sums=sums) as k:
            self._add_vectors(k, x, bs, columns.width)
        sums = _halved(k.sums, columns.count, columns.width)
        if self.is_direct:
            with f.loop(whole, self.k_total, compute.lanes, sums=sums) as k:
                self._add_masked(k, x, bs)
            sums = k.sums
        sums = [sum_of_lanes(value) for value in sums]
        if not self.is_direct:
            with f.loop(whole, self.k_total, sums=sums) as k:
                a = self.load_a(x.at(k.index, self.a_storage), 1)
                values = (self.load(b.at(k.index, self.storage), 1) for b in bs)
                k.sums = [compute.multiply_add(a, b, s) for b, s in zip(values, k.sums)]
            sums = k.sums
        return sums

    def _add_vectors(self, k: Loop, x: Ptr, bs: list[Ptr], width: int) -> None:
        compute = self.compute

        def part(source: Ptr, j: int, storage: str) -> Ptr:
            return source.at(k.index, storage).at(j * compute.lanes, storage)

        xs = [self.load_a(part(x, j, self.a_storage), compute.lanes) for j in range(width)]
        k.sums = [
            compute.multiply_add(
                xs[j], self.load(part(p, j, self.storage), compute.lanes), k.sums[i * width + j]
            )
            for i, p in enumerate(bs)
            for j in range(width)
        ]

    def _add_masked(self, k: Loop, x: Ptr, bs: list[Ptr]) -> None:
        compute, remaining = self.compute, self.k_total - k.index
        a = compute.load_masked(x.at(k.index, compute.type), remaining)
        values = (compute.load_masked(b.at(k.index, compute.type), remaining) for b in bs)
        k.sums = [compute.multiply_add(a, b, s) for b, s in zip(values, k.sums)]


def _halved(sums: list[VectorValue], columns: int, width: int) -> list[VectorValue]:
    """One vector of sums for every column, of `width` each."""
    for half in (width >> level for level in range(1, width.bit_length())):
        pairs = [(2 * i * half + j, 2 * i * half + half + j) for i in range(columns) for j in range(half)]
        sums = [sums[a] + sums[b] for a, b in pairs]
    return sums


def sum_of_lanes(value: VectorValue) -> VectorValue:
    """The sum of a vector's lanes, in a tree."""
    if value.lanes == 1:
        return value
    module, element = value.f.module, value.element
    if not value.is_float:
        name = intrinsic_name("vector.reduce.add", value.type)
        module.declare(name, element, [value.type])
        return value.write(f"call {element} @{name}({value})", element)
    name = intrinsic_name("vector.reduce.fadd", value.type)
    module.declare(name, element, [element, value.type])
    zero = constant_text(element, -0.0)
    return value.write(f"call reassoc {element} @{name}({element} {zero}, {value})", element)
