"""The functions that Fourier transforms are made of: stages over planes of real and imaginary parts, and what
moves complex arrays into planes and back. Lengths and strides are arguments: each is written once per type.

Shapes: a plane has `rows` rows of `plane` elements side by side.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue, vector_type
from ....runtime.llvm.shuffle import transposed
from ...ir.element_types import ElementType
from ..codegen.memory_types import load, memory_type, parts, store

Pair = tuple[VectorValue, VectorValue]


def multiply(a: Pair, b: Pair) -> Pair:
    """a * b."""
    return a[0].fma(b[0], -(a[1] * b[1])), a[0].fma(b[1], a[1] * b[0])


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _subtract(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def transform(x: list[Pair]) -> list[Pair]:
    """The transform of 2, 4, 8 or an odd prime number of elements."""
    count = len(x)
    if count == 2:
        return [_add(*x), _subtract(*x)]
    if count == 4:
        a, b, c = _add(x[0], x[2]), _subtract(x[0], x[2]), _add(x[1], x[3])
        d = _subtract(x[1], x[3])
        return [_add(a, c), (b[0] + d[1], b[1] - d[0]), _subtract(a, c), (b[0] - d[1], b[1] + d[0])]
    if count == 8:
        first, second = transform(x[0::2]), transform(x[1::2])
        root = math.sqrt(0.5)
        _, (p, q), (r, s), (t, u) = second
        second = [second[0], ((p + q) * root, (q - p) * root), (s, -r), ((u - t) * root, (t + u) * -root)]
        return [*map(_add, first, second), *map(_subtract, first, second)]
    half = range(1, count // 2 + 1)
    sums = [_add(x[k], x[-k]) for k in half]
    differences = [_subtract(x[k], x[-k]) for k in half]
    outputs = [functools.reduce(_add, sums, x[0])] * count
    for j in half:
        even, odd = x[0], (x[0][0].number(0), x[0][0].number(0))
        for k, (total, difference) in enumerate(zip(sums, differences), 1):
            angle = 2 * math.pi * (j * k % count) / count
            cosine, sine = math.cos(angle), math.sin(angle)
            even = total[0].fma(cosine, even[0]), total[1].fma(cosine, even[1])
            odd = difference[0].fma(sine, odd[0]), difference[1].fma(sine, odd[1])
        outputs[j], outputs[-j] = (even[0] + odd[1], even[1] - odd[0]), (even[0] - odd[1], even[1] + odd[0])
    return outputs


def _splat(x: Pair, lanes: int) -> Pair:
    return x[0].splat(lanes), x[1].splat(lanes)


@dataclasses.dataclass(frozen=True)
class _Planes:
    """Real and imaginary parts in two arrays; `part` is the LLVM type of a part."""

    re: Ptr
    im: Ptr
    part: str

    def load(self, index: Index, lanes: int) -> Pair:
        """The complex numbers from `index` on."""
        type_ = vector_type(self.part, lanes)
        return self.re.at(index, self.part).load(type_), self.im.at(index, self.part).load(type_)

    def store(self, value: Pair, index: Index) -> None:
        """Stores complex numbers from `index` on."""
        self.re.at(index, self.part).store(value[0])
        self.im.at(index, self.part).store(value[1])


@dataclasses.dataclass(frozen=True)
class _ComplexArray:
    """Complex numbers side by side in memory, as arrays of a graph have them."""

    f: Function
    pointer: Ptr
    element_type: ElementType

    def from_(self, index: Index) -> _ComplexArray:
        """The array that starts at element `index`."""
        pointer = self.pointer.at(index * 2, memory_type(self.element_type))
        return dataclasses.replace(self, pointer=pointer)

    def load(self, index: Index, lanes: int) -> Pair:
        """The complex numbers from `index` on."""
        re, im = parts(load(self.f, self.element_type, self.from_(index).pointer, lanes))
        return VectorValue.of(self.f, re), VectorValue.of(self.f, im)

    def store(self, value: Pair, index: Index) -> None:
        """Stores complex numbers from `index` on."""
        store(self.f, self.element_type, value, self.from_(index).pointer, value[0].lanes)


class Stages:
    """Writes the functions for one complex type into a module; each method returns a function's name.

    `lanes` is the number of parts of a full vector.
    """

    def __init__(self, module: ModuleText, element_type: ElementType, lanes: int) -> None:
        self.module, self.complex, self.lanes = module, element_type, lanes
        self.part = memory_type(element_type)

    def stage(self, radix: int, vector: int, by_rows: bool, is_last: bool) -> str:
        """(source re, im, target re, im, table, m, stride): one stage of a line (plan.Stage)."""
        kind = "rows" if by_rows else "last" if is_last else "columns"
        name = f"fft_{kind}_{radix}_{self.part}_{vector}"
        if not self.module.has(name):
            write = self._row_stage if by_rows else self._column_stage
            self.module.add(name, write(name, radix, vector, is_last).text())
        return name

    def _function(self, name: str, pointers: str, numbers: str, scale: bool = False) -> Function:
        listed = [("ptr noalias", p) for p in pointers.split()] + [("i64", n) for n in numbers.split()]
        return Function(self.module, name, listed + ([(self.part, "scale")] if scale else []))

    def _planes(self, f: Function, re: str = "re", im: str = "im") -> _Planes:
        return _Planes(f.pointer(re), f.pointer(im), self.part)

    def _array(self, f: Function, parameter: str) -> _ComplexArray:
        return _ComplexArray(f, f.pointer(parameter), self.complex)

    def _column_stage(self, name: str, radix: int, vector: int, is_last: bool) -> Function:
        """Block p of s columns: from rows p + m k of the source to rows p radix + j of the target; the last vector of a
        block may overlap the one before."""
        f = self._function(name, "re im to_re to_im table", "m s")
        source, target, table = self._planes(f), self._planes(f, "to_re", "to_im"), f.pointer("table")
        m, s = f.integers("m", "s")
        step = m * s
        with f.loop(0, m, guard=False) as block:
            p = block.index
            factors = [] if is_last else self._factors(table, p, radix, vector)
            source_row, target_row = p * s, p * s * radix
            with f.loop(0, (s + (vector - 1)) // vector, guard=False) as loop:
                q = (loop.index * vector).minimum(s - vector)
                x = [source.load(source_row + q + step * k, vector) for k in range(radix)]
                for j, y in enumerate(transform(x)):
                    value = multiply(y, factors[j - 1]) if factors and j else y
                    target.store(value, target_row + q + s * j)
        f.ret()
        return f

    def _factors(self, table: Ptr, p: Int, radix: int, vector: int) -> list[Pair]:
        """The radix - 1 roots of unity of block p, in all lanes."""
        row = table.at(p * (2 * (radix - 1)), self.part)
        scalars = [row.at(k, self.part).load(self.part) for k in range(2 * (radix - 1))]
        spread = [x.splat(vector) for x in scalars]
        return list(zip(spread[0::2], spread[1::2]))

    def _row_stage(self, name: str, radix: int, vector: int, is_last: bool) -> Function:
        """A stage of one column, with neighbouring p as lanes: the results of each p lie side by side."""
        f = self._function(name, "re im to_re to_im table", "m s")
        source, target, table = self._planes(f), self._planes(f, "to_re", "to_im"), f.pointer("table")
        m, type_ = f.integer("m"), vector_type(self.part, vector)
        with f.loop(0, (m + (vector - 1)) // vector, guard=False) as loop:
            p = (loop.index * vector).minimum(m - vector)
            outputs = transform([source.load(p + m * k, vector) for k in range(radix)])
            for j in range(1, radix):
                re = table.at(p + m * (2 * (j - 1)), self.part)
                im = re.at(m, self.part)
                outputs[j] = multiply(outputs[j], (re.load(type_), im.load(type_)))
            self._interleave([re for re, _ in outputs], target.re.at(p * radix, self.part))
            self._interleave([im for _, im in outputs], target.im.at(p * radix, self.part))
        f.ret()
        return f

    def _interleave(self, values: list[VectorValue], target: Ptr) -> None:
        """Stores lane 0 of each value, then lane 1 of each, and so on."""
        count, vector = len(values), values[0].lanes
        if vector == 1 or count & (count - 1):
            for k, value in enumerate(values):
                for lane in range(vector):
                    element = value.extract(lane)
                    target.at(lane * count + k, self.part).store(element)
            return
        while len(values) > 1:
            half, size = len(values) // 2, values[0].lanes
            order = [k // 2 + size * (k % 2) for k in range(2 * size)]
            values = [values[k].shuffle(order, values[k + half]) for k in range(half)]
        target.store(values[0])

    # -- planes and complex arrays
    def _spans(self, f: Function, count: Int) -> Iterator[tuple[Int, int]]:
        """Writes loops over 0 .. count - 1, by full vectors and then by single elements. The body of the caller's `for`
        is the body of each: (first index, lanes)."""
        whole: Index = 0
        if self.lanes > 1:
            whole = count - count % self.lanes
            with f.loop(0, whole, self.lanes) as loop:
                yield loop.index, self.lanes
        with f.loop(whole, count) as loop:
            yield loop.index, 1

    def load(self) -> str:
        """(source, re, im, rows, row stride, count, plane): planes of `count` columns of a complex array."""
        name = f"fft_load_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "source re im", "rows stride count plane")
        array, planes = self._array(f, "source"), self._planes(f)
        rows, stride, count, plane = f.integers("rows", "stride", "count", "plane")
        with f.loop(0, rows) as row:
            source, target = array.from_(row.index * stride), row.index * plane
            for i, vector in self._spans(f, count):
                re, im = source.load(i, vector)
                planes.re.at(target + i, self.part).store(re)
                planes.im.at(target + i, self.part).store(im)
        f.ret()
        return self.module.add(name, f.text())

    def store(self) -> str:
        """(re, im, target, rows, row stride, count, plane, scale): the opposite of load, times scale."""
        name = f"fft_store_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "re im target", "rows stride count plane", scale=True)
        planes, array, scale = self._planes(f), self._array(f, "target"), VectorValue.of(f, f["scale"])
        rows, stride, count, plane = f.integers("rows", "stride", "count", "plane")
        with f.loop(0, rows) as row:
            target, source = array.from_(row.index * stride), row.index * plane
            for i, vector in self._spans(f, count):
                re, im = planes.load(source + i, vector)
                factor = scale.splat(vector)
                target.store((re * factor, im * factor), i)
        f.ret()
        return self.module.add(name, f.text())

    def store_transposed(self) -> str:
        """(re, im, target, rows, count, plane): element (r, c) of the planes to target[c * rows + r]."""
        name = f"fft_store_transposed_{self.part}"
        if self.module.has(name):
            return name
        f, size = self._function(name, "re im target", "rows count plane"), self.lanes
        planes, target = self._planes(f), self._array(f, "target")
        rows, count, plane = f.integers("rows", "count", "plane")
        for r, vector in self._spans(f, rows):
            tiles: Index = 0
            if vector > 1:
                tiles = count - count % size
                with f.loop(0, tiles, size) as tile:
                    self._transpose_tile(planes, target, r, tile.index, rows, plane)
            with f.loop(tiles, count) as column, f.loop(r, r + vector) as row:
                value = planes.load(row.index * plane + column.index, 1)
                target.store(value, column.index * rows + row.index)
        f.ret()
        return self.module.add(name, f.text())

    def _transpose_tile(
        self, planes: _Planes, target: _ComplexArray, r: Int, c: Int, rows: Int, plane: Int
    ) -> None:
        """The square of one vector of rows and columns from (r, c) on."""
        size = self.lanes
        type_ = vector_type(self.part, size)
        columns = [
            transposed([base.at((r + k) * plane + c, self.part).load(type_) for k in range(size)])
            for base in (planes.re, planes.im)
        ]
        for k, (re, im) in enumerate(zip(*columns)):
            target.store((re, im), (c + k) * rows + r)

    def scale_rows(self, by_rows: bool) -> str:
        """(re, im, table, rows, plane): row r of the planes times complex number r of the table; with `by_rows`
        the planes have one column."""
        name = f"fft_scale_{'rows' if by_rows else 'columns'}_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "re im table", "rows plane")
        planes, table = self._planes(f), self._array(f, "table")
        rows, plane = f.integers("rows", "plane")
        if by_rows:
            for i, vector in self._spans(f, rows):
                factor = table.load(i, vector)
                planes.store(multiply(planes.load(i, vector), factor), i)
        else:
            with f.loop(0, rows) as row:
                factor = table.load(row.index, 1)
                for i, vector in self._spans(f, plane):
                    factors = _splat(factor, vector)
                    at = row.index * plane + i
                    planes.store(multiply(planes.load(at, vector), factors), at)
        f.ret()
        return self.module.add(name, f.text())

    def twiddle(self) -> str:
        """(re, im, first, second, rows, plane, stride): element (r, c) of the planes times first[r * stride] and
        second[r * plane + c]."""
        name = f"fft_twiddle_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "re im first second", "rows plane stride")
        planes, first, second = self._planes(f), self._array(f, "first"), self._array(f, "second")
        rows, plane, stride = f.integers("rows", "plane", "stride")
        with f.loop(0, rows) as row:
            of_row = first.load(row.index * stride, 1)
            for i, vector in self._spans(f, plane):
                at = row.index * plane + i
                of_element = second.load(at, vector)
                factor = multiply(_splat(of_row, vector), of_element)
                planes.store(multiply(planes.load(at, vector), factor), at)
        f.ret()
        return self.module.add(name, f.text())

    # -- real transforms of an even length n through complex ones of h = n / 2
    def unpack(self) -> str:
        """(z, table, h): the h + 1 numbers of a real transform in the place of the h of the complex one.

        The table has exp(-2 pi i k / n) for k = 0 .. h / 2.
        """
        name = f"fft_unpack_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "z table", "h")
        z = self._array(f, "z")
        re, im = z.load(0, 1)
        zero = re.number(0)
        z.store((re + im, zero), 0)
        z.store((re - im, zero), f.integer("h"))

        def change(a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
            even = ((a[0] + b[0]) * 0.5, (a[1] + b[1]) * 0.5)
            odd = ((a[1] - b[1]) * 0.5, (b[0] - a[0]) * 0.5)
            odd = multiply(odd, w)
            return _add(even, odd), _subtract(even, odd)

        self._by_pairs(f, z, z, change)
        return self.module.add(name, f.text())

    def pack(self) -> str:
        """(x, z, table, h): the opposite, from h + 1 numbers to h others elsewhere; their inverse transform over h is
        the real result, even elements as real and odd ones as imaginary parts."""
        name = f"fft_pack_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "x z table", "h")
        x, z = self._array(f, "x"), self._array(f, "z")
        end = x.from_(f.integer("h"))
        (first, _), (last, _) = x.load(0, 1), end.load(0, 1)
        z.store(((first + last) * 0.5, (first - last) * 0.5), 0)

        def change(a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
            even = ((a[0] + b[0]) * 0.5, (a[1] + b[1]) * 0.5)
            odd = multiply(((a[0] - b[0]) * 0.5, (a[1] - b[1]) * 0.5), (w[0], -w[1]))
            turned = (-odd[1], odd[0])
            return _add(even, turned), _subtract(even, turned)

        self._by_pairs(f, x, z, change)
        return self.module.add(name, f.text())

    def _by_pairs(
        self,
        f: Function,
        source: _ComplexArray,
        target: _ComplexArray,
        change: Callable[[Pair, Pair, Pair], tuple[Pair, Pair]],
    ) -> None:
        """For k = 1 .. h / 2: target k and the conjugate of target h - k from source k and the conjugate of source
        h - k; then returns."""
        h, table = f.integer("h"), self._array(f, "table")

        def flipped(x: VectorValue) -> VectorValue:
            return x.shuffle(range(x.lanes - 1, -1, -1)) if x.lanes > 1 else x

        def change_span(k: Int, vector: int) -> None:
            mirrored = h - k - (vector - 1)
            a, b, w = source.load(k, vector), source.load(mirrored, vector), table.load(k, vector)
            re, im = flipped(b[0]), flipped(b[1])
            here, there = change(a, (re, -im), w)
            target.store(here, k)
            target.store((flipped(there[0]), flipped(-there[1])), mirrored)

        pairs = (h - 1) // 2  # pairs of different numbers
        whole = pairs - pairs % self.lanes
        if self.lanes > 1:
            with f.loop(1, whole + 1, self.lanes) as loop:
                change_span(loop.index, self.lanes)
        with f.loop(whole + 1, h // 2 + 1) as loop:
            change_span(loop.index, 1)
        f.ret()

    def expand(self) -> str:
        """(x, re, im, n): planes of all n numbers, n odd; x has the first n // 2 + 1 of them."""
        name = f"fft_expand_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "x re im", "n")
        x, planes, n = self._array(f, "x"), self._planes(f), f.integer("n")
        first, _ = x.load(0, 1)
        planes.store((first, first.number(0)), 0)
        with f.loop(1, (n + 1) // 2) as loop:
            re, im = x.load(loop.index, 1)
            planes.store((re, im), loop.index)
            mirrored = n - loop.index
            planes.store((re, -im), mirrored)
        f.ret()
        return self.module.add(name, f.text())

    def copy_real(self) -> str:
        """(source, target, count, scale): real numbers times scale."""
        name = f"fft_copy_real_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "source target", "count", scale=True)
        (source, target), scale = f.pointers("source", "target"), VectorValue.of(f, f["scale"])
        for i, vector in self._spans(f, f.integer("count")):
            x = source.at(i, self.part).load(vector_type(self.part, vector))
            product = x * scale.splat(vector)
            target.at(i, self.part).store(product)
        f.ret()
        return self.module.add(name, f.text())
