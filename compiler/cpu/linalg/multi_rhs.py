"""Triangular systems with a panel of right sides: as many side by side as some vectors hold.

The functions of one element type, written into a module once; sizes and strides are arguments, strides in elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Function, Index, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.shuffle import transposed
from ....runtime.llvm.target import Target
from ....runtime.llvm.types import parameters
from ...ir.element_types import ElementType
from .scalar_type import Number, ScalarType

_VECTORS = 4


@dataclasses.dataclass(frozen=True)
class Triangle:
    """How the matrix of a system is read: its lower or its upper triangle, its elements or their conjugates, its
    diagonal or ones."""

    is_lower: bool
    conjugates: bool
    has_unit_diagonal: bool


class PanelFunctions:
    """Writes the functions into a module; each method returns a function's name. A panel has `width` right sides."""

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
        listed = "ptr a, i64 a_row, i64 a_column, ptr x, i64 x_row, ptr update, i64 update_row, i64 rows, i64 count"
        f = Function(self.module, name, parameters(listed))
        count = f.integer("count")
        whole = count - count % self.width
        vectors = count - count % self.lanes
        with f.loop(0, whole, self.width) as column:
            self._solve_panel(f, t, column.index, self.vectors, self.lanes)
        with f.loop(whole, vectors, self.lanes) as column:
            self._solve_panel(f, t, column.index, 1, self.lanes)
        if self.lanes > 1:
            with f.loop(vectors, count) as column:
                self._solve_panel(f, t, column.index, 1, 1)
        f.ret()
        return self.module.add(name, f.text())

    def _solve_panel(self, f: Function, t: Triangle, column: Int, vectors: int, lanes: int) -> None:
        """All rows of `vectors` vectors from a column on."""
        scalar = ScalarType(f, self.type)
        a, x, update = f.pointers("a", "x", "update")
        a_row, a_column, x_row, update_row, rows = f.integers(
            "a_row", "a_column", "x_row", "update_row", "rows"
        )

        def coefficient(i: Int, j: Int) -> Number:
            value = scalar.load(scalar.at(a, i * a_row + j * a_column))
            return scalar.broadcast(scalar.conjugate(value) if t.conjugates else value, lanes)

        def at(base: Ptr, row: Int, stride: Int, v: int) -> Ptr:
            return scalar.at(base, row * stride + column + v * lanes)

        with f.loop(0, rows) as row:
            i = row.index if t.is_lower else rows - 1 - row.index
            right = [scalar.load(at(x, i, x_row, v), lanes) for v in range(vectors)]
            has_update = update.is_not_null()
            with f.if_(has_update) as branch:
                updates = (scalar.load(at(update, i, update_row, v), lanes) for v in range(vectors))
                branch.total = _flat([scalar.subtract(b, u) for b, u in zip(right, updates)])
            with branch.else_():
                branch.total = _flat(right)
            low, high = (f.i64(0), i) if t.is_lower else (i + 1, rows)
            with f.loop(low, high, total=branch.total) as solved:
                factor = coefficient(i, solved.index)
                values = (scalar.load(at(x, solved.index, x_row, v), lanes) for v in range(vectors))
                solved.total = _flat(
                    [
                        scalar.multiply_subtract(total, factor, value)
                        for total, value in zip(_numbers(solved.total, vectors), values)
                    ]
                )
            divisor = None if t.has_unit_diagonal else coefficient(i, i)
            for v, total in enumerate(_numbers(solved.total, vectors)):
                value = scalar.divide(total, divisor) if divisor else total
                scalar.store(value, at(x, i, x_row, v), lanes)

    def gather(self) -> str:
        """(x, x row stride, update, update row stride, panel, rows, count): panel[j][r] = x[r][j] for count rows and
        `rows` columns of x, less the update, which may be null. A row of the panel has `width` elements."""
        name = f"gather_panel_{self.type.value}"
        if self.module.has(name):
            return name
        listed = "ptr x, i64 x_row, ptr update, i64 update_row, ptr panel, i64 rows, i64 count"
        f = Function(self.module, name, parameters(listed))
        scalar = ScalarType(f, self.type)

        def copy(with_update: bool) -> None:
            def tile(r: Int, j: Int, size: int) -> None:
                values = []
                for k in range(size):
                    value = scalar.load(scalar.at(f.pointer("x"), (r + k) * f.integer("x_row") + j), size)
                    if with_update:
                        at = (r + k) * f.integer("update_row") + j
                        value = scalar.subtract(value, scalar.load(scalar.at(f.pointer("update"), at), size))
                    values.append(value)
                for k, value in enumerate(_transposed(f, scalar, values)):
                    scalar.store(value, scalar.at(f.pointer("panel"), (j + k) * self.width + r), size)

            self._tiles(f, f.integer("count"), f.integer("rows"), tile)

        has_update = f.pointer("update").is_not_null()
        with f.if_(has_update) as branch:
            copy(True)
        with branch.else_():
            copy(False)
        f.ret()
        return self.module.add(name, f.text())

    def scatter(self) -> str:
        """(x, x row stride, panel, rows, count): the opposite of gather."""
        name = f"scatter_panel_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(self.module, name, parameters("ptr x, i64 x_row, ptr panel, i64 rows, i64 count"))
        scalar = ScalarType(f, self.type)

        def tile(r: Int, j: Int, size: int) -> None:
            values = [
                scalar.load(scalar.at(f.pointer("panel"), (j + k) * self.width + r), size)
                for k in range(size)
            ]
            for k, value in enumerate(_transposed(f, scalar, values)):
                scalar.store(value, scalar.at(f.pointer("x"), (r + k) * f.integer("x_row") + j), size)

        self._tiles(f, f.integer("count"), f.integer("rows"), tile)
        f.ret()
        return self.module.add(name, f.text())

    def adjoint(self) -> str:
        """(source, target, n): the conjugate transpose of a square matrix."""
        name = f"adjoint_{self.type.value}"
        if self.module.has(name):
            return name
        f = Function(self.module, name, parameters("ptr source, ptr target, i64 n"))
        scalar, n = ScalarType(f, self.type), f.integer("n")

        def tile(r: Int, j: Int, size: int) -> None:
            values = [scalar.load(scalar.at(f.pointer("source"), (r + k) * n + j), size) for k in range(size)]
            for k, value in enumerate(_transposed(f, scalar, values)):
                scalar.store(scalar.conjugate(value), scalar.at(f.pointer("target"), (j + k) * n + r), size)

        self._tiles(f, n, n, tile)
        f.ret()
        return self.module.add(name, f.text())

    def _tiles(self, f: Function, rows: Int, columns: Int, tile: Callable[[Int, Int, int], None]) -> None:
        """tile(row, column, size) for squares that cover a matrix: of a vector's size, then single elements."""
        size = self.lanes
        tiled_rows = rows - rows % size
        tiled_columns = columns - columns % size

        def elements(first: Index, last: Index, start: Index) -> None:
            with f.loop(first, last) as row, f.loop(start, columns) as column:
                tile(row.index, column.index, 1)

        if size > 1:
            with f.loop(0, tiled_rows, size) as row, f.loop(0, tiled_columns, size) as column:
                tile(row.index, column.index, size)
            elements(0, tiled_rows, tiled_columns)
            elements(tiled_rows, rows, 0)
        else:
            elements(0, rows, 0)


def _flat(numbers: list[Number]) -> list[VectorValue]:
    return [part for number in numbers for part in number]


def _numbers(values: list[VectorValue], count: int) -> list[Number]:
    size = len(values) // count
    return [tuple(values[k : k + size]) for k in range(0, len(values), size)]


def _transposed(f: Function, scalar: ScalarType, values: list[Number]) -> list[Number]:
    """The transpose of a square of numbers."""
    planes = [transposed([value[part] for value in values]) for part in range(len(values[0]))]
    return [scalar.of(parts[0] if len(parts) == 1 else (parts[0], parts[1])) for parts in zip(*planes)]


def conjugate_copy(module: ModuleText, panels: PanelFunctions) -> str:
    """(source, target, count): the name of a function that copies conjugates."""
    name = f"conjugate_copy_{panels.type.value}"
    if not module.has(name):
        f = Function(module, name, parameters("ptr source, ptr target, i64 count"))
        scalar = ScalarType(f, panels.type)

        def copy(i: Int, lanes: int) -> None:
            value = scalar.load(scalar.at(f.pointer("source"), i), lanes)
            scalar.store(scalar.conjugate(value), scalar.at(f.pointer("target"), i), lanes)

        whole = f.integer("count") - f.integer("count") % panels.lanes
        with f.loop(0, whole, panels.lanes) as vector:
            copy(vector.index, panels.lanes)
        with f.loop(whole, f.integer("count")) as element:
            copy(element.index, 1)
        f.ret()
        module.add(name, f.text())
    return name
