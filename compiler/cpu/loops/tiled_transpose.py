"""Kernels in which an operand is read across: blocks of rows are evaluated together, and the operand's tiles
turned in registers, so that both sides walk memory along their lines."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.llvm.ir_builder import Int, Value
from ....runtime.sizes import ceiling, estimate, is_symbolic, larger, minimum
from .affine import Affine, Symbol
from .loop_fusion import FusionKernel

_LINE_BYTES = 64
_MAX_ROWS = 16  # of a block, which is written out as a whole: LLVM takes seconds for 64 by 64 bytes


def transposed_loop(kernel: FusionKernel) -> int | None:
    """The loop along which an operand is contiguous that the innermost loop walks across; None: no such
    operand."""
    if not kernel.vectorised or kernel.accesses.reductions or len(kernel.loops.trip_counts) < 2:
        return None
    *outer, v = kernel.loop_symbols
    for load in kernel.accesses.loads:
        if load.address.coefficient(v) in (0, 1) or any(a.quotient for a, _ in load.address.terms):
            continue
        for k, u in enumerate(outer):
            lanes = min(kernel.lanes, 8)
            sides = kernel.loops.trip_counts[k], kernel.loops.trip_counts[-1]
            if load.address.coefficient(u) == 1 and min(map(estimate, sides)) >= lanes:
                return k
    return None


class TiledTranspose(FusionKernel):
    """A fused computation in blocks of rows along loop `across`. The last block overlaps the one before it
    where the trip_count does not divide evenly. Where sizes are known at run time only, plain loops are for those
    that are smaller than a block."""

    def __init__(self, kernel: FusionKernel, across: int) -> None:
        super().__init__(kernel.module, kernel.target, kernel.computation, kernel.roots)
        self.lanes = min(kernel.lanes, 8)
        self.set_loops(kernel.loops)
        self.is_in_order = False
        self.across = across
        item = max(x.source.shape.element_type.item_bytes for x in self.accesses.loads)
        rows = max(self.lanes, min(_LINE_BYTES // item, _MAX_ROWS))
        self.rows = rows if estimate(self.loops.trip_counts[across]) >= rows else self.lanes
        self.columns = rows if estimate(self.loops.trip_counts[-1]) >= rows else self.lanes
        self.order = [k for k in range(len(self.loops.trip_counts) - 1) if k != across]
        self.trips = [
            *(self.loops.trip_counts[k] for k in self.order),
            ceiling(self.loops.trip_counts[across], self.rows),
        ]

    def divide(self, nanoseconds: float) -> None:
        """Tasks are all combinations of the outer loops and blocks of rows."""
        if nanoseconds >= self.parallel_ns or is_symbolic(self.trips):
            self.tasks, self.inner_tasks = math.prod(self.trips), self.trips[-1]

    def _outgrows_cache(self) -> bool:
        return super()._outgrows_cache() and self.loops.trip_counts[-1] % self.columns == 0

    def may_alias(self) -> frozenset[tuple[int, int]]:
        """None where elements are computed twice."""
        even = (
            self.loops.trip_counts[self.across] % self.rows == 0
            and self.loops.trip_counts[-1] % self.columns == 0
        )
        return super().may_alias() if even else frozenset()

    def task(self, task: Affine) -> None:
        """The code of one task, or of all when there is one."""
        if self.is_parallel:
            step, coordinates = self.tasks, []
            for trip_count in self.trips:
                step //= trip_count
                coordinate = self.nest.division.divide(task, step)
                coordinates.append(self.nest.division.remainder(coordinate, trip_count))
            self._rows(coordinates)
        else:
            self._outer([])

    def _outer(self, coordinates: list[Affine]) -> None:
        if len(coordinates) == len(self.trips):
            self._rows(coordinates)
            return
        symbol = Symbol("t", 0, self.trips[len(coordinates)] - 1)
        self.nest.loop(
            self.nest.depth,
            0,
            self.trips[len(coordinates)],
            1,
            symbol,
            lambda *_: self._outer([*coordinates, Affine.of(symbol)]),
        )

    def _rows(self, coordinates: list[Affine]) -> None:
        """One block of rows: in tiles, or by plain loops where a side is smaller than a tile."""
        across, last = self.loops.trip_counts[self.across], self.loops.trip_counts[-1]
        has_tiles = minimum([1, across // self.rows, last // self.columns])  # 1 or 0
        if has_tiles == 1:
            self._block(coordinates)
            return
        kinds: list[tuple[int, Callable[[list[Affine]], None]]]
        kinds = [(has_tiles, self._block), (1 - has_tiles, self._plain_block)]
        for count, write in kinds:
            self.nest.loop(self.nest.depth, 0, count, 1, None, lambda *_, write=write: write(coordinates))

    def _plain_block(self, coordinates: list[Affine]) -> None:
        trip_count = self.loops.trip_counts[self.across]
        start, depth = self.nest.scalar(coordinates[-1] * self.rows)
        with self.nest.at(depth):
            end = (start + self.rows).minimum(trip_count)
        row = Symbol("row", 0, larger(trip_count - 1, 1))
        variables = [Affine.number(0)] * (len(self.loops.trip_counts) - 1)
        for k, coordinate in zip(self.order, coordinates):
            variables[k] = coordinate
        variables[self.across] = Affine.of(row)

        def body(*_: object) -> None:
            last = self.loops.trip_counts[-1]
            self.strip_mined_loops(self.nest.depth, variables, 0, last, 0, last)

        self.nest.loop(self.nest.depth, start, end, 1, row, body)

    def _block(self, coordinates: list[Affine]) -> None:
        nest, trip_counts = self.nest, self.loops.trip_counts
        last_start = trip_counts[self.across] - self.rows
        row = Symbol("row", 0, larger(last_start, 1))
        start, depth = nest.scalar(coordinates[-1] * self.rows)
        with nest.at(depth) as f:
            first = start.minimum(last_start)
            nest.bind(row, Int("i64", f.assign(f"add {first}, 0"), f), depth)
        column = Symbol("column", 0, trip_counts[-1] - 1)
        variables = [Affine.number(0)] * len(trip_counts)
        for k, coordinate in zip(self.order, coordinates):
            variables[k] = coordinate
        variables[-1] = Affine.of(column)

        def body(position: Int, _: list[Value]) -> None:
            scope = nest.chain[-1]
            if trip_counts[-1] % self.columns:
                with nest.at(nest.depth):
                    position = position.minimum(trip_counts[-1] - self.columns)
            scope.symbols[column], scope.vector, scope.lanes = position, column, self.lanes
            for k in range(self.rows):
                self.elements.tile = (row, self.lanes, k)
                variables[self.across] = Affine.of(row) + Affine.number(k)
                self.store(list(variables), self.lanes, range(0, self.columns, self.lanes))
            self.elements.tile = None

        nest.loop(nest.depth, 0, trip_counts[-1], self.columns, None, body)
