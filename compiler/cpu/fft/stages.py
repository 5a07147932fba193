"""The functions that Fourier transforms are made of: stages over planes of real and imaginary parts, and what
moves complex arrays into planes and back. Lengths and strides are arguments: each is written once per type.

Shapes: a plane has `rows` rows of `plane` elements side by side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, split_vector, vector_type
from ....runtime.llvm.shuffle import shuffled, transposed
from ....runtime.llvm.vector_value import Lanes
from ...ir.element_types import ElementType
from ..codegen.memory_types import Element, load, memory_type, parts, store

Pair = tuple[Lanes, Lanes]


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
    found = [functools.reduce(_add, sums, x[0])] * count
    for j in half:
        even, odd = x[0], (x[0][0].number(0), x[0][0].number(0))
        for k, (total, difference) in enumerate(zip(sums, differences), 1):
            angle = 2 * math.pi * (j * k % count) / count
            cosine, sine = math.cos(angle), math.sin(angle)
            even = total[0].fma(cosine, even[0]), total[1].fma(cosine, even[1])
            odd = difference[0].fma(sine, odd[0]), difference[1].fma(sine, odd[1])
        found[j], found[-j] = (even[0] + odd[1], even[1] - odd[0]), (even[0] - odd[1], even[1] + odd[0])
    return found


class Stages:
    """Writes the functions for one complex type into a module; each method returns a function's name.

    `lanes` is the number of parts of a full vector.
    """

    def __init__(self, module: ModuleText, element_type: ElementType, lanes: int) -> None:
        self.module, self.complex, self.lanes = module, element_type, lanes
        self.real = element_type.real
        self.part = memory_type(element_type)
        self.part_bytes = element_type.item_bytes // 2

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

    def _column_stage(self, name: str, radix: int, vector: int, is_last: bool) -> Function:
        f = self._function(name, "re im to_re to_im table", "m s")
        s, step = f["s"], f.mul(f["m"], f["s"])

        def block(p: Value, _: list[Value]) -> None:
            factors: list[Pair] = []
            if not is_last:
                row = f.offset(f["table"], f.mul(p, 2 * (radix - 1)), self.part)
                scalars = [
                    f.load(self.part, f.offset(row, k, self.part), self.part_bytes)
                    for k in range(2 * (radix - 1))
                ]
                spread = [Lanes(f, f.splat(v, vector)) for v in scalars]
                factors = list(zip(spread[0::2], spread[1::2]))
            source, target = f.mul(p, s), f.mul(f.mul(p, s), radix)

            def run(i: Value, _: list[Value]) -> None:
                q = f.minimum(f.mul(i, vector), f.sub(s, vector))
                x = [
                    self._read(f, "re", "im", f.add(f.add(source, q), f.mul(step, k)), vector)
                    for k in range(radix)
                ]
                for j, y in enumerate(transform(x)):
                    value = multiply(y, factors[j - 1]) if factors and j else y
                    at = f.add(f.add(target, q), f.mul(s, j))
                    for plane, part in zip(("to_re", "to_im"), value):
                        f.store(part.value, f.offset(f[plane], at, self.part), self.part_bytes)

            count = f.divide(f.add(s, vector - 1), vector)
            f.loop(0, count, 1, run, guard=False)

        f.loop(0, f["m"], 1, block, guard=False)
        f.ret()
        return f

    def _row_stage(self, name: str, radix: int, vector: int, is_last: bool) -> Function:
        f = self._function(name, "re im to_re to_im table", "m s")
        m = f["m"]

        def run(i: Value, _: list[Value]) -> None:
            p = f.minimum(f.mul(i, vector), f.sub(m, vector))
            x = [self._read(f, "re", "im", f.add(p, f.mul(m, k)), vector) for k in range(radix)]
            found = []
            for j, y in enumerate(transform(x)):
                if j:
                    at = f.offset(f["table"], f.add(p, f.mul(m, 2 * (j - 1))), self.part)
                    both = [
                        Lanes(f, f.load(vector_type(self.part, vector), a, self.part_bytes))
                        for a in (at, f.offset(at, m, self.part))
                    ]
                    y = multiply(y, (both[0], both[1]))
                found.append(y)
            for number, plane in enumerate(("to_re", "to_im")):
                self._interleave(
                    f, [y[number].value for y in found], f.offset(f[plane], f.mul(p, radix), self.part)
                )

        f.loop(0, f.divide(f.add(m, vector - 1), vector), 1, run, guard=False)
        f.ret()
        return f

    def _read(self, f: Function, re: str, im: str, at: Value | int, vector: int) -> Pair:
        def plane(name: str) -> Lanes:
            return Lanes(
                f, f.load(vector_type(self.part, vector), f.offset(f[name], at, self.part), self.part_bytes)
            )

        return plane(re), plane(im)

    def _interleave(self, f: Function, values: list[Value], target: Value) -> None:
        """Stores lane 0 of each value, then lane 1 of each, and so on."""
        count, vector = len(values), split_vector(values[0].type)[1]
        if vector == 1 or count & (count - 1):
            for k, value in enumerate(values):
                for lane in range(vector):
                    f.store(
                        f.extract(value, lane), f.offset(target, lane * count + k, self.part), self.part_bytes
                    )
            return
        while len(values) > 1:
            half, size = len(values) // 2, split_vector(values[0].type)[1]
            order = [k // 2 + size * (k % 2) for k in range(2 * size)]
            values = [shuffled(f, values[k], values[k + half], order) for k in range(half)]
        f.store(values[0], target, self.part_bytes)

    # -- planes and complex arrays
    def spans(
        self, f: Function, count: Value | int, body: Callable[[Value, int], None], start: Value | int = 0
    ) -> None:
        """body(i, vector) for ranges that cover start .. count - 1: full vectors, then single elements."""

        def run(vector: int) -> Callable[[Value, list[Value]], None]:
            return lambda i, _: body(i, vector)

        if self.lanes == 1:
            f.loop(start, count, 1, run(1))
            return
        whole = f.sub(f.sub(count, start), f.remainder(f.sub(count, start), self.lanes))
        end = f.add(start, whole)
        f.loop(start, end, self.lanes, run(self.lanes))
        f.loop(end, count, 1, run(1))

    def _at(self, f: Function, base: Value, index: Value | int) -> Value:
        """Address of a complex element."""
        return f.offset(base, f.mul(index, 2), self.part)

    def load(self) -> str:
        """(source, re, im, rows, row stride, count, plane): planes of `count` columns of a complex array."""
        name = f"fft_load_{self.part}"
        if not self.module.has(name):
            f = self._function(name, "source re im", "rows stride count plane")

            def row(r: Value, _: list[Value]) -> None:
                source, target = self._at(f, f["source"], f.mul(r, f["stride"])), f.mul(r, f["plane"])

                def run(i: Value, vector: int) -> None:
                    value = parts(load(f, self.complex, self._at(f, source, i), vector))
                    for plane, part in zip(("re", "im"), value):
                        f.store(part, f.offset(f[plane], f.add(target, i), self.part), self.part_bytes)

                self.spans(f, f["count"], run)

            f.loop(0, f["rows"], 1, row)
            f.ret()
            self.module.add(name, f.text())
        return name

    def store(self) -> str:
        """(re, im, target, rows, row stride, count, plane, scale): the opposite of load, times scale."""
        name = f"fft_store_{self.part}"
        if not self.module.has(name):
            f = self._function(name, "re im target", "rows stride count plane", scale=True)

            def row(r: Value, _: list[Value]) -> None:
                target, source = self._at(f, f["target"], f.mul(r, f["stride"])), f.mul(r, f["plane"])

                def run(i: Value, vector: int) -> None:
                    value = self._read(f, "re", "im", f.add(source, i), vector)
                    scale = Lanes(f, f.splat(f["scale"], vector))
                    store(
                        f,
                        self.complex,
                        _element(value[0] * scale, value[1] * scale),
                        self._at(f, target, i),
                        vector,
                    )

                self.spans(f, f["count"], run)

            f.loop(0, f["rows"], 1, row)
            f.ret()
            self.module.add(name, f.text())
        return name

    def store_transposed(self) -> str:
        """(re, im, target, rows, count, plane): element (r, c) of the planes to target[c * rows + r]."""
        name = f"fft_store_transposed_{self.part}"
        if self.module.has(name):
            return name
        f, size = self._function(name, "re im target", "rows count plane"), self.lanes
        rows, count, plane = f["rows"], f["count"], f["plane"]

        def tile(r: Value, c: Value) -> None:
            planes = []
            for p in ("re", "im"):
                values = [
                    f.load(
                        vector_type(self.part, size),
                        f.offset(f[p], f.add(f.mul(f.add(r, k), plane), c), self.part),
                        self.part_bytes,
                    )
                    for k in range(size)
                ]
                planes.append(transposed(f, values))
            for k, (re, im) in enumerate(zip(*planes)):
                store(
                    f,
                    self.complex,
                    (re, im),
                    self._at(f, f["target"], f.add(f.mul(f.add(c, k), rows), r)),
                    size,
                )

        def one(r: Value, c: Value) -> None:
            value = self._read(f, "re", "im", f.add(f.mul(r, plane), c), 1)
            store(f, self.complex, _element(*value), self._at(f, f["target"], f.add(f.mul(c, rows), r)), 1)

        def columns(r: Value, vector: int) -> None:
            tiles = f.sub(count, f.remainder(count, size)) if vector > 1 else 0
            if vector > 1:
                f.loop(0, tiles, size, lambda c, _: tile(r, c))
            f.loop(
                tiles, count, 1, lambda c, _: f.loop(r, f.add(r, vector), 1, lambda k, _: one(k, c)) and None
            )

        self.spans(f, rows, columns)
        f.ret()
        return self.module.add(name, f.text())

    def scale_rows(self, by_rows: bool) -> str:
        """(re, im, table, rows, plane): row r of the planes times complex number r of the table; with `by_rows`
        the planes have one column."""
        name = f"fft_scale_{'rows' if by_rows else 'columns'}_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "re im table", "rows plane")

        def change(at: Value | int, vector: int, factor: Pair) -> None:
            for plane, part in zip(("re", "im"), multiply(self._read(f, "re", "im", at, vector), factor)):
                f.store(part.value, f.offset(f[plane], at, self.part), self.part_bytes)

        def factors(row: Value | int, vector: int) -> Pair:
            re, im = parts(load(f, self.complex, self._at(f, f["table"], row), vector))
            return Lanes(f, re), Lanes(f, im)

        def columns(r: Value, _: list[Value]) -> None:
            re, im = factors(r, 1)

            def run(i: Value, vector: int) -> None:
                spread = [Lanes(f, f.splat(x.value, vector)) for x in (re, im)]
                change(f.add(f.mul(r, f["plane"]), i), vector, (spread[0], spread[1]))

            self.spans(f, f["plane"], run)

        if by_rows:
            self.spans(f, f["rows"], lambda i, vector: change(i, vector, factors(i, vector)))
        else:
            f.loop(0, f["rows"], 1, columns)
        f.ret()
        return self.module.add(name, f.text())

    def twist(self) -> str:
        """(re, im, first, second, rows, plane, stride): element (r, c) of the planes times first[r * stride] and
        second[r * plane + c]."""
        name = f"fft_twist_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "re im first second", "rows plane stride")

        def row(r: Value, _: list[Value]) -> None:
            one = parts(load(f, self.complex, self._at(f, f["first"], f.mul(r, f["stride"])), 1))

            def run(i: Value, vector: int) -> None:
                at = f.add(f.mul(r, f["plane"]), i)
                other = parts(load(f, self.complex, self._at(f, f["second"], at), vector))
                spread = [Lanes(f, f.splat(x, vector)) for x in one]
                factor = multiply((spread[0], spread[1]), (Lanes(f, other[0]), Lanes(f, other[1])))
                for plane, part in zip(("re", "im"), multiply(self._read(f, "re", "im", at, vector), factor)):
                    f.store(part.value, f.offset(f[plane], at, self.part), self.part_bytes)

            self.spans(f, f["plane"], run)

        f.loop(0, f["rows"], 1, row)
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
        re, im = map(Lanes, (f, f), parts(load(f, self.complex, f["z"], 1)))
        zero = Lanes(f, re.number(0).value)
        store(f, self.complex, _element(re + im, zero), f["z"], 1)
        store(f, self.complex, _element(re - im, zero), self._at(f, f["z"], f["h"]), 1)

        def change(a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
            even = ((a[0] + b[0]) * 0.5, (a[1] + b[1]) * 0.5)
            odd = ((a[1] - b[1]) * 0.5, (b[0] - a[0]) * 0.5)
            odd = multiply(odd, w)
            return _add(even, odd), _subtract(even, odd)

        self._by_pairs(f, f["z"], f["z"], change)
        return self.module.add(name, f.text())

    def pack(self) -> str:
        """(x, z, table, h): the opposite, from h + 1 numbers to h others elsewhere; their inverse transform over h is
        the real result, even elements as real and odd ones as imaginary parts."""
        name = f"fft_pack_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "x z table", "h")
        first, last = (
            Lanes(f, parts(load(f, self.complex, at, 1))[0]) for at in (f["x"], self._at(f, f["x"], f["h"]))
        )
        store(f, self.complex, _element((first + last) * 0.5, (first - last) * 0.5), f["z"], 1)

        def change(a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
            even = ((a[0] + b[0]) * 0.5, (a[1] + b[1]) * 0.5)
            odd = multiply(((a[0] - b[0]) * 0.5, (a[1] - b[1]) * 0.5), (w[0], -w[1]))
            turned = (-odd[1], odd[0])
            return _add(even, turned), _subtract(even, turned)

        self._by_pairs(f, f["x"], f["z"], change)
        return self.module.add(name, f.text())

    def _by_pairs(
        self,
        f: Function,
        source: Value,
        target: Value,
        change: Callable[[Pair, Pair, Pair], tuple[Pair, Pair]],
    ) -> None:
        """For k = 1 .. h / 2: target k and the conjugate of target h - k from source k and the conjugate of source
        h - k; then returns."""
        h = f["h"]

        def run(k: Value, vector: int) -> None:
            mirrored = f.sub(f.sub(h, k), vector - 1)

            def flipped(x: Value) -> Value:
                return shuffled(f, x, None, range(vector - 1, -1, -1)) if vector > 1 else x

            a = parts(load(f, self.complex, self._at(f, source, k), vector))
            b = parts(load(f, self.complex, self._at(f, source, mirrored), vector))
            w = parts(load(f, self.complex, self._at(f, f["table"], k), vector))
            pairs = [(Lanes(f, re), Lanes(f, im)) for re, im in (a, (flipped(b[0]), flipped(b[1])), w)]
            here, there = change(pairs[0], (pairs[1][0], -pairs[1][1]), pairs[2])
            store(f, self.complex, _element(*here), self._at(f, target, k), vector)
            store(
                f,
                self.complex,
                (flipped(there[0].value), flipped((-there[1]).value)),
                self._at(f, target, mirrored),
                vector,
            )

        apart = f.divide(f.sub(h, 1), 2)  # pairs of different numbers
        whole = f.sub(apart, f.remainder(apart, self.lanes))
        if self.lanes > 1:
            f.loop(1, f.add(whole, 1), self.lanes, lambda k, _: run(k, self.lanes))
        f.loop(f.add(whole, 1), f.add(f.divide(h, 2), 1), 1, lambda k, _: run(k, 1))
        f.ret()

    def expand(self) -> str:
        """(x, re, im, n): planes of all n numbers of which x has the first n // 2 + 1, n odd."""
        name = f"fft_expand_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "x re im", "n")

        def put(at: Value | int, re: Lanes, im: Lanes) -> None:
            for plane, part in (("re", re), ("im", im)):
                f.store(part.value, f.offset(f[plane], at, self.part), self.part_bytes)

        first = Lanes(f, parts(load(f, self.complex, f["x"], 1))[0])
        put(0, first, first.number(0))

        def run(k: Value, _: list[Value]) -> None:
            re, im = map(Lanes, (f, f), parts(load(f, self.complex, self._at(f, f["x"], k), 1)))
            put(k, re, im)
            put(f.sub(f["n"], k), re, -im)

        f.loop(1, f.divide(f.add(f["n"], 1), 2), 1, run)
        f.ret()
        return self.module.add(name, f.text())

    def copy_real(self) -> str:
        """(source, target, count, scale): real numbers times scale."""
        name = f"fft_copy_real_{self.part}"
        if self.module.has(name):
            return name
        f = self._function(name, "source target", "count", scale=True)

        def run(i: Value, vector: int) -> None:
            at = f.load(vector_type(self.part, vector), f.offset(f["source"], i, self.part), self.part_bytes)
            f.store(
                (Lanes(f, at) * Lanes(f, f.splat(f["scale"], vector))).value,
                f.offset(f["target"], i, self.part),
                self.part_bytes,
            )

        self.spans(f, f["count"], run)
        f.ret()
        return self.module.add(name, f.text())


def _element(re: Lanes, im: Lanes) -> Element:
    return re.value, im.value
