"""Kernels of reductions over the outer axes of large arrays: rows are read whole, and the totals of a panel of
columns lie in the cache.

A total in registers would walk down the rows of a few columns, each in another page of memory; here a few rows at a
time are added to the totals of all columns of a panel, so that memory is read along its lines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from ....runtime.llvm.addressing import Index as LoopBound
from ....runtime.llvm.ir_builder import Int
from ....runtime.sizes import estimate, heuristic, is_symbolic, larger
from ...ir.module import Instruction
from ...ops import Reduce
from ..codegen.memory_types import memory_type
from ..codegen.memory_types import store as store_element
from .access_analysis import is_in_range
from .affine import Affine, Symbol
from .element_emitter import Item
from .indexing import Index, reduced_dims
from .loop_fusion import FusionKernel, Visit
from .reduce_emitter import Pass
from .reducer import Reducer

_MIN_BYTES = 1 << 19  # smaller arrays are in cache, however they are read
_MIN_ROWS = 16
_SEQUENTIAL_BYTES = 8 << 10  # of totals that stay in the first cache while rows as long go through it
_MIN_COLUMNS = 128
_MAX_COLUMNS = 8192
_ROWS = 4  # at a time, where a panel is a part of them
_NARROWEST = 512  # columns of a panel: less of a row at a time is read slowly


@heuristic()
def is_column_reduction(kernel: FusionKernel) -> bool:
    """Whether all reductions of a kernel run along its vectorised loop, over the same many rows of large
    arrays, and all their results are wanted."""
    reductions = kernel.accesses.reductions
    if (
        not (kernel.vectorised and reductions)
        or kernel.split_loops
        or is_symbolic(kernel.loops.trip_counts[-1:])
        or kernel.loops.trip_counts[-1] < _MIN_COLUMNS
    ):
        return False
    own, v = set(kernel.loop_symbols), kernel.loop_symbols[-1]
    first, place = reductions[0]
    if not own.issuperset(a for x in place for a in x.symbols()) or not any(x.coefficient(v) for x in place):
        return False
    for instruction, index in reductions:
        if (
            not isinstance(instruction.op, Reduce)
            or reduced_dims(instruction) != reduced_dims(first)
            or index != place
        ):
            return False
    large = first.operands[0].shape
    walked = [x.address for x in kernel.accesses.loads if not own.issuperset(a for a, _ in x.address.terms)]
    return (
        len({i for i, _ in reductions}) == len(reductions)
        and all(is_in_range(*r) for r in reductions)
        and math.prod(reduced_dims(first)) >= _MIN_ROWS
        and large.bytes >= _MIN_BYTES
        and all(address.coefficient(v) in (0, 1) for address in walked)
    )


class ColumnReduction(FusionKernel):
    """A fused computation that goes over all rows once per depth of its reductions, then over its outputs."""

    def __init__(self, kernel: FusionKernel) -> None:
        super().__init__(kernel.module, kernel.target, kernel.computation, kernel.roots)
        self.slices = kernel.slices
        self.set_loops(kernel.loops)
        self.is_in_order = kernel.is_in_order
        order = {i: k for k, i in enumerate(self.computation.instructions)}
        self.reductions = dict(sorted(self.accesses.reductions, key=lambda r: order[r[0]]))
        self.places: dict[Instruction, list[int]] = {}
        self.columns = self.loops.trip_counts[-1]
        self.first = Affine.number(0)  # column of the panel, as `low`
        self.low = self.high = Int("i64", "0")

    def divide(self, nanoseconds: float) -> None:
        """Tasks are the outer loops and panels of columns; too few rows of results make narrower panels."""
        width = self.columns
        if nanoseconds >= self.parallel_ns or is_symbolic(self.loops.trip_counts) or self.slices:
            self.task_loops = len(self.loops.trip_counts) - 1
            self.tasks = math.prod(self.loops.trip_counts[:-1])
            width = max(-(-width * estimate(self.tasks) // max(self.target.threads, 1)), _NARROWEST)
        step = 16 * self.lanes
        width = min(-(-width // step) * step, _MAX_COLUMNS)
        if width < self.columns:
            self.block = width
            self.task_loops = len(self.loops.trip_counts) - 1
            self.inner_tasks = math.ceil(self.columns / width)
            self.tasks = math.prod(self.loops.trip_counts[:-1]) * self.inner_tasks

    def cache_rows(self) -> None:
        """Memory for the totals of a panel."""
        columns = self.block or self.columns
        for instruction in self.reductions:
            self.places[instruction] = []
            for t in Reducer.of(instruction).types:
                self.places[instruction].append(self.scratch_bytes)
                self.scratch_bytes += -(-columns * t.item_bytes // 64) * 64

    def _vector_loop(self, depth: int, variables: list[Affine], block: Affine) -> None:
        self.first = block * self.block
        self.low, at = self.nest.scalar(self.first)
        depth = max(depth, at)
        with self.nest.at(depth) as f:  # not folded, where `low` is 0: the loops' bounds are values
            end = Int("i64", f.assign(f"add nsw {self.low}, {self.block or self.columns}"), f)
            self.high = end.minimum(self.columns)
        done: list[Instruction] = []
        for instruction in self.reductions:
            if instruction not in done:
                group = [
                    i for i in self.elements.siblings.get(instruction, [instruction]) if i in self.reductions
                ]
                self._begin(depth, variables, group)
                self._rows(depth, variables, group, done)
                done += group

        def visit(at: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
            for place in _shifted(at, offsets):
                self._load_totals(place, done)
            self.store(at, lanes, offsets)

        self._panel(depth, variables, visit)

    def _panel(self, depth: int, variables: list[Affine], visit: Visit) -> None:
        """A loop over the columns of the panel."""
        columns = self.block or self.columns
        self.strip_mined_loops(depth, variables, self.low, self.high, 0, self.columns, columns, visit)

    def _begin(self, depth: int, variables: list[Affine], group: list[Instruction]) -> None:
        """Totals of no row."""

        def visit(at: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
            for place in _shifted(at, offsets):
                for i in group:
                    reducer = Reducer.of(i)
                    initial = [self.elements.value(o, ()) for o in i.operands[len(reducer.types) :]]
                    self._store_totals(i, reducer, place, reducer.widened(self.elements, initial), lanes)

        self._panel(depth, variables, visit)

    def _rows(
        self, depth: int, variables: list[Affine], group: list[Instruction], done: list[Instruction]
    ) -> None:
        """Goes over the rows once, and leaves the totals of some reductions in memory."""
        nest, reducers = self.nest, [Reducer.of(i) for i in group]
        rows = Pass(
            self.elements,
            group,
            reducers,
            [self._index(variables)],
            True,
            depth,
            reduced_dims(group[0]),
            False,
        )
        symbols, trip_counts = rows.loops.symbols(), rows.loops.trip_counts

        def add(
            position: list[Affine], count: int, at: list[Affine], lanes: int, offsets: Sequence[int]
        ) -> None:
            for place in _shifted(at, offsets):
                self._load_totals(place, done)
                rows.indices = [self._index(place)]
                totals = [[self._total(i, r, place)] for i, r in zip(group, reducers)]
                for inner in _shifted(position, range(count)):
                    totals = rows.combine(totals, rows.loops.index(inner, nest.division))
                for i, r, per in zip(group, reducers, totals):
                    self._store_totals(i, r, place, per[0], lanes)

        def some(position: list[Affine], start: int, stop: int, count: int, is_rest: bool = False) -> None:
            """Rows [start, stop) along the innermost reduced axis, `count` at a time."""
            symbol = Symbol("row", start, larger(stop - 1, start + 1))
            visit = functools.partial(add, [*position, Affine.of(symbol)], count)
            end: LoopBound = stop if is_rest else rows.end(nest.depth, symbols, len(position), stop, count)
            nest.loop(
                nest.depth, start, end, count, symbol, lambda *_: self._panel(nest.depth, variables, visit)
            )

        def level(position: list[Affine]) -> None:
            k, trip_count = len(position), trip_counts[len(position)]
            if k < len(trip_counts) - 1:
                symbol = symbols[k]
                end = rows.end(nest.depth, symbols, k, trip_count)
                nest.loop(nest.depth, 0, end, 1, symbol, lambda *_: level([*position, Affine.of(symbol)]))
                return
            many = self._rows_at_once()
            whole = trip_count // many * many
            if whole != 0:
                some(position, 0, whole, many)
            if whole != trip_count:
                some(position, whole, trip_count, 1, is_rest=True)

        level([])

    def _rows_at_once(self) -> int:
        """One where that is how they follow one another in memory."""
        return _ROWS if self.block or self.scratch_bytes > _SEQUENTIAL_BYTES else 1

    def _interleave_counts(self) -> tuple[int, int]:
        return 1, 2

    def _index(self, variables: list[Affine]) -> Index:
        """The index of the reductions' results at the loops' variables."""
        values = dict(zip(self.loop_symbols, variables))
        return tuple(x.replaced(values) for x in next(iter(self.reductions.values())))

    def _load_totals(self, variables: list[Affine], done: list[Instruction]) -> None:
        """Makes the results of reductions known at these variables: they are loaded from the totals."""
        for instruction in done:
            key = (instruction, self._index(variables), True)
            if self.nest.lookup(self.elements.reduced, key) is None:
                reducer = Reducer.of(instruction)
                items = reducer.narrowed(self.elements, self._total(instruction, reducer, variables))
                self.nest.memoize(self.elements.reduced, key, max(i.depth for i in items), items)

    def _total(self, instruction: Instruction, reducer: Reducer, variables: list[Affine]) -> list[Item]:
        column = variables[-1] - self.first
        return [
            self.elements.load_at(self.nest.moved(self.scratch, place), t, column)
            for place, t in zip(self.places[instruction], reducer.types)
        ]

    def _store_totals(
        self,
        instruction: Instruction,
        reducer: Reducer,
        variables: list[Affine],
        items: list[Item],
        lanes: int,
    ) -> None:
        for place, t, item in zip(self.places[instruction], reducer.types, items):
            widened = self.elements.widen(item, lanes)
            column = (variables[-1] - self.first) * (2 if t.is_complex else 1)
            pointer, _ = self.nest.pointer(self.nest.moved(self.scratch, place), memory_type(t), column)
            with self.nest.at(self.nest.depth) as f:
                store_element(f, t, widened.element, pointer, lanes)


def _shifted(variables: list[Affine], offsets: Iterable[int]) -> list[list[Affine]]:
    """The variables with each of the offsets added to the last."""
    return [[*variables[:-1], variables[-1] + Affine.number(offset)] for offset in offsets]
