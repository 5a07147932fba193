"""Triangular systems on strips: as many right sides side by side as some vectors hold.

The functions of one element type, written into a module once; sizes and strides are arguments, strides in elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, ModuleText, Value
from ....runtime.llvm.shuffle import transposed
from ....runtime.llvm.target import Target
from ...ir.element_types import ElementType
from .real_or_complex import Field, Number

_VECTORS = 4


@dataclasses.dataclass(frozen=True)
class Triangle:
    """How the matrix of a system is read: its lower or its upper triangle, its elements or their conjugates, its
    diagonal or ones."""

    is_lower: bool
    conjugates: bool
    has_unit_diagonal: bool


class Strips:
    """Writes the functions into a module; each method returns a function's name. `width` is a strip's right sides."""

    def __init__(self, module: ModuleText, target: Target, element_type: ElementType) -> None:
        self.module, self.type = module, element_type
        self.lanes = target.lanes(8 * element_type.real.item_bytes)
        self.vectors = 2 if element_type.is_complex else _VECTORS
        self.width = self.lanes * self.vectors

    def solve(self, triangle: Triangle) -> str:
        """(a, a row stride, a column stride, x, x row stride, update, update row stride, rows, count): replaces the
        `count` columns of x by the solution, less the update first, which may be null."""
        t = triangle
        name = (
            f"solve_{self.type.value}_{'lower' if t.is_lower else 'upper'}"
            + "_conjugate" * t.conjugates
            + "_unit" * t.has_unit_diagonal
        )
        if self.module.has(name):
            return name
        f = Function(
            self.module,
            name,
            [
                ("ptr", "a"),
                ("i64", "a_row"),
                ("i64", "a_column"),
                ("ptr", "x"),
                ("i64", "x_row"),
                ("ptr", "update"),
                ("i64", "update_row"),
                ("i64", "rows"),
                ("i64", "count"),
            ],
        )
        whole = f.sub(f["count"], f.remainder(f["count"], self.width))
        vectors = f.sub(f["count"], f.remainder(f["count"], self.lanes))
        f.loop(0, whole, self.width, lambda c, _: self._strip(f, t, c, self.vectors, self.lanes))
        f.loop(whole, vectors, self.lanes, lambda c, _: self._strip(f, t, c, 1, self.lanes))
        if self.lanes > 1:
            f.loop(vectors, f["count"], 1, lambda c, _: self._strip(f, t, c, 1, 1))
        f.ret()
        return self.module.add(name, f.text())

    def _strip(self, f: Function, t: Triangle, column: Value, vectors: int, lanes: int) -> None:
        """All rows of `vectors` vectors from a column on."""
        field = Field(f, self.type)

        def coefficient(i: Value | int, j: Value | int) -> Number:
            at = f.add(f.mul(i, f["a_row"]), f.mul(j, f["a_column"]))
            value = field.load(field.at(f["a"], at))
            return field.spread(field.conjugate(value) if t.conjugates else value, lanes)

        def place(base: str, row: Value | int, v: int) -> Value:
            return field.at(f[base], f.add(f.add(f.mul(row, f[f"{base}_row"]), column), v * lanes))

        def flat(numbers: list[Number]) -> list[Value]:
            return [part.value for number in numbers for part in number]

        def numbers(values: list[Value]) -> list[Number]:
            size = len(values) // vectors
            return [
                field.of(values[k] if size == 1 else (values[k], values[k + 1]))
                for k in range(0, len(values), size)
            ]

        def row(number: Value, _: list[Value]) -> None:
            i = number if t.is_lower else f.sub(f.sub(f["rows"], 1), number)
            given = [field.load(place("x", i, v), lanes) for v in range(vectors)]

            def less() -> list[Value]:
                return flat(
                    [field.subtract(x, field.load(place("update", i, v), lanes)) for v, x in enumerate(given)]
                )

            has_update = f.compare("icmp ne", f["update"], Value("ptr", "null"))
            total = f.branch(has_update, less, lambda: flat(given))

            def known(j: Value, carried: list[Value]) -> list[Value]:
                factor = coefficient(i, j)
                return flat(
                    [
                        field.minus_product(x, factor, field.load(place("x", j, v), lanes))
                        for v, x in enumerate(numbers(carried))
                    ]
                )

            first, last = (0, i) if t.is_lower else (f.add(i, 1), f["rows"])
            found = numbers(f.loop(first, last, 1, known, total))
            divisor = None if t.has_unit_diagonal else coefficient(i, i)
            for v, x in enumerate(found):
                field.store(field.divide(x, divisor) if divisor else x, place("x", i, v), lanes)

        f.loop(0, f["rows"], 1, row)

    def gather(self) -> str:
        """(x, x row stride, update, update row stride, strip, rows, count): strip[j][r] = x[r][j] for count rows and
        `rows` columns of x, less the update, which may be null. A row of the strip has `width` elements."""
        name = f"gather_strip_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(
            self.module,
            name,
            [
                ("ptr", "x"),
                ("i64", "x_row"),
                ("ptr", "update"),
                ("i64", "update_row"),
                ("ptr", "strip"),
                ("i64", "rows"),
                ("i64", "count"),
            ],
        )
        field = Field(f, self.type)

        def copy(with_update: bool) -> None:
            def tile(r: Value, j: Value, size: int) -> None:
                values = []
                for k in range(size):
                    value = field.load(field.at(f["x"], f.add(f.mul(f.add(r, k), f["x_row"]), j)), size)
                    if with_update:
                        at = f.add(f.mul(f.add(r, k), f["update_row"]), j)
                        value = field.subtract(value, field.load(field.at(f["update"], at), size))
                    values.append(value)
                for k, value in enumerate(_turned(f, field, values)):
                    field.store(value, field.at(f["strip"], f.add(f.mul(f.add(j, k), self.width), r)), size)

            self._tiles(f, f["count"], f["rows"], tile)

        has_update = f.compare("icmp ne", f["update"], Value("ptr", "null"))
        f.branch(has_update, lambda: copy(True), lambda: copy(False))
        f.ret()
        return self.module.add(name, f.text())

    def scatter(self) -> str:
        """(x, x row stride, strip, rows, count): the opposite of gather."""
        name = f"scatter_strip_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(
            self.module,
            name,
            [("ptr", "x"), ("i64", "x_row"), ("ptr", "strip"), ("i64", "rows"), ("i64", "count")],
        )
        field = Field(f, self.type)

        def tile(r: Value, j: Value, size: int) -> None:
            values = [
                field.load(field.at(f["strip"], f.add(f.mul(f.add(j, k), self.width), r)), size)
                for k in range(size)
            ]
            for k, value in enumerate(_turned(f, field, values)):
                field.store(value, field.at(f["x"], f.add(f.mul(f.add(r, k), f["x_row"]), j)), size)

        self._tiles(f, f["count"], f["rows"], tile)
        f.ret()
        return self.module.add(name, f.text())

    def adjoint(self) -> str:
        """(source, target, n): the conjugate transpose of a square matrix."""
        name = f"adjoint_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(self.module, name, [("ptr", "source"), ("ptr", "target"), ("i64", "n")])
        field, n = Field(f, self.type), f["n"]

        def tile(r: Value, j: Value, size: int) -> None:
            values = [
                field.load(field.at(f["source"], f.add(f.mul(f.add(r, k), n), j)), size) for k in range(size)
            ]
            for k, value in enumerate(_turned(f, field, values)):
                field.store(
                    field.conjugate(value), field.at(f["target"], f.add(f.mul(f.add(j, k), n), r)), size
                )

        self._tiles(f, n, n, tile)
        f.ret()
        return self.module.add(name, f.text())

    def _tiles(
        self, f: Function, rows: Value, columns: Value, tile: Callable[[Value, Value, int], None]
    ) -> None:
        """tile(row, column, size) for squares that cover a matrix: of a vector's size, then single elements."""
        size = self.lanes
        tiled_rows = f.sub(rows, f.remainder(rows, size))
        tiled_columns = f.sub(columns, f.remainder(columns, size))

        def single(first: Value | int, last: Value | int, start: Value | int) -> None:
            f.loop(
                first, last, 1, lambda r, _: f.loop(start, columns, 1, lambda j, _: tile(r, j, 1)) and None
            )

        if size > 1:
            f.loop(
                0,
                tiled_rows,
                size,
                lambda r, _: f.loop(0, tiled_columns, size, lambda j, _: tile(r, j, size)) and None,
            )
            single(0, tiled_rows, tiled_columns)
            single(tiled_rows, rows, 0)
        else:
            single(0, rows, 0)


def _turned(f: Function, field: Field, values: list[Number]) -> list[Number]:
    """The transpose of a square of numbers."""
    planes = [transposed(f, [value[part].value for value in values]) for part in range(len(values[0]))]
    return [field.of(parts[0] if len(parts) == 1 else (parts[0], parts[1])) for parts in zip(*planes)]


def conjugate_copy(module: ModuleText, strips: Strips) -> str:
    """(source, target, count): the name of a function that copies conjugates."""
    name = f"conjugate_copy_{strips.type.value}"
    if not module.has(name):
        f = Function(module, name, [("ptr", "source"), ("ptr", "target"), ("i64", "count")])
        field = Field(f, strips.type)

        def run(i: Value, lanes: int) -> None:
            value = field.load(field.at(f["source"], i), lanes)
            field.store(field.conjugate(value), field.at(f["target"], i), lanes)

        whole = f.sub(f["count"], f.remainder(f["count"], strips.lanes))
        f.loop(0, whole, strips.lanes, lambda i, _: run(i, strips.lanes))
        f.loop(whole, f["count"], 1, lambda i, _: run(i, 1))
        f.ret()
        module.add(name, f.text())
    return name
