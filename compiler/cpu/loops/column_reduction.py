"""Kernels of reductions over the outer axes of large arrays: rows are read whole, and the totals of a panel of
columns lie in the cache.

A total in registers would walk down the rows of a few columns, a page of memory apart each; here a few rows at a
time are added to the totals of all columns of a panel, so that memory is read along its lines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from ....runtime.llvm.ir_builder import i64
from ...ir.module import Instruction
from ...ops import Reduce
from ..codegen.memory_types import memory_type
from ..codegen.memory_types import store as store_element
from .affine import Affine, Atom
from .element_emitter import Index, Item
from .loop_fusion import FusionKernel, Visit
from .reduce_emitter import Pass, Reducer, reduced_dims

_LEAST_BYTES = 1 << 19  # smaller arrays are in cache, however they are read
_LEAST_ROWS = 16
_SEQUENTIAL_BYTES = 8 << 10  # of totals that stay in the first cache while rows as long go through it
_LEAST_COLUMNS = 128
_MOST_COLUMNS = 8192
_ROWS = 4  # at a time, where a panel is a part of them
_NARROWEST = 512  # columns of a panel: less of a row at a time is read slowly


def is_column_reduction(kernel: FusionKernel) -> bool:
    """Whether all reductions of a kernel run along its vectorised loop, over the same many rows of large
    arrays."""
    found = kernel.probe.reductions
    if not (kernel.vectorised and found) or kernel.cut_loops or kernel.loops.extents[-1] < _LEAST_COLUMNS:
        return False
    own, v = set(kernel.probe_atoms), kernel.probe_atoms[-1]
    first, place = found[0]
    if not own.issuperset(a for x in place for a in x.atoms()) or not any(x.coefficient(v) for x in place):
        return False
    for instruction, index in found:
        if (
            not isinstance(instruction.op, Reduce)
            or reduced_dims(instruction) != reduced_dims(first)
            or index != place
        ):
            return False
    large = first.operands[0].shape
    walked = [x.address for x in kernel.probe.loads if not own.issuperset(a for a, _ in x.address.terms)]
    return (
        len({i for i, _ in found}) == len(found)
        and math.prod(reduced_dims(first)) >= _LEAST_ROWS
        and large.bytes >= _LEAST_BYTES
        and all(address.coefficient(v) in (0, 1) for address in walked)
    )


class ColumnKernel(FusionKernel):
    """A fused computation that goes over all rows once per depth of its reductions, then over its outputs."""

    def __init__(self, kernel: FusionKernel) -> None:
        super().__init__(kernel.module, kernel.target, kernel.computation, kernel.roots)
        self.settle(kernel.loops)
        order = {i: k for k, i in enumerate(self.computation.instructions)}
        self.found = dict(sorted(self.probe.reductions, key=lambda r: order[r[0]]))
        self.places: dict[Instruction, list[int]] = {}
        self.columns = self.loops.extents[-1]
        self.first = Affine.number(0)  # column of the panel, as `low`
        self.low = self.high = i64(0)

    def divide(self, nanoseconds: float) -> None:
        """Tasks are the outer loops and panels of columns; too few rows of results make narrower panels."""
        if nanoseconds >= self.parallel_ns:
            self.task_loops = len(self.loops.extents) - 1
            self.tasks = math.prod(self.loops.extents[:-1])
        width = self.columns
        if nanoseconds >= self.parallel_ns:
            width = max(-(-width * self.tasks // max(self.target.threads, 1)), _NARROWEST)
        step = 16 * self.lanes
        width = min(-(-width // step) * step, _MOST_COLUMNS)
        if width < self.columns:
            self.block = width
            self.task_loops = len(self.loops.extents) - 1
            self.tasks = math.prod(self.loops.extents[:-1]) * math.ceil(self.columns / width)

    def keep_rows(self) -> None:
        """Memory for the totals of a panel."""
        columns = self.block or self.columns
        for instruction in self.found:
            self.places[instruction] = []
            for t in Reducer.of(instruction).types:
                self.places[instruction].append(self.scratch_bytes)
                self.scratch_bytes += -(-columns * t.item_bytes // 64) * 64

    def _vector_loop(self, depth: int, variables: list[Affine], block: Affine) -> None:
        self.first = block * self.block
        self.low, at = self.nest.scalar(self.first)
        depth = max(depth, at)
        with self.nest.at(depth) as f:
            self.high = i64(f.minimum(f.add(self.low, self.block or self.columns), self.columns))
        done: list[Instruction] = []
        for instruction in self.found:
            if instruction not in done:
                group = [i for i in self.elements.siblings.get(instruction, [instruction]) if i in self.found]
                self._begin(depth, variables, group)
                self._rows(depth, variables, group, done)
                done += group

        def visit(at: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
            for place in _places(at, offsets):
                self._recall(place, done)
            self.store(at, lanes, offsets)

        self._panel(depth, variables, visit)

    def _panel(self, depth: int, variables: list[Affine], visit: Visit) -> None:
        """A loop over the columns of the panel."""
        columns = self.block or self.columns
        self.pieces(depth, variables, self.low, self.high, 0, self.columns, columns, visit)

    def _begin(self, depth: int, variables: list[Affine], group: list[Instruction]) -> None:
        """Totals of no row."""

        def visit(at: list[Affine], lanes: int, offsets: Sequence[int]) -> None:
            for place in _places(at, offsets):
                for i in group:
                    reducer = Reducer.of(i)
                    initial = [self.elements.value(o, ()) for o in i.operands[len(reducer.types) :]]
                    self._keep(i, reducer, place, reducer.widened(self.elements, initial), lanes)

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
        atoms, extents = rows.loops.atoms(), rows.loops.extents

        def add(
            position: list[Affine], count: int, at: list[Affine], lanes: int, offsets: Sequence[int]
        ) -> None:
            for place in _places(at, offsets):
                self._recall(place, done)
                rows.indices = [self._index(place)]
                totals = [[self._total(i, r, place)] for i, r in zip(group, reducers)]
                for inner in _places(position, range(count)):
                    totals = rows.combine(totals, rows.loops.index(inner, nest.division))
                for i, r, per in zip(group, reducers, totals):
                    self._keep(i, r, place, per[0], lanes)

        def some(position: list[Affine], start: int, stop: int, count: int) -> None:
            """Rows [start, stop) along the innermost axis of what is reduced, so many at a time."""
            atom = Atom("row", start, max(stop - 1, start + 1))
            visit = functools.partial(add, [*position, Affine.of(atom)], count)
            nest.loop(
                nest.depth, start, stop, count, atom, lambda *_: self._panel(nest.depth, variables, visit)
            )

        def level(position: list[Affine]) -> None:
            k, extent = len(position), extents[len(position)]
            if k < len(extents) - 1:
                atom = atoms[k]
                nest.loop(nest.depth, 0, extent, 1, atom, lambda *_: level([*position, Affine.of(atom)]))
                return
            many = self._rows_at_once()
            whole = extent // many * many
            for start, stop, count in ((0, whole, many), (whole, extent, 1)):
                if stop > start:
                    some(position, start, stop, count)

        level([])

    def _rows_at_once(self) -> int:
        """One where that is how they follow one another in memory."""
        return _ROWS if self.block or self.scratch_bytes > _SEQUENTIAL_BYTES else 1

    def _copies(self) -> tuple[int, int]:
        return 1, 2

    def _index(self, variables: list[Affine]) -> Index:
        """The index of the reductions' results at the loops' variables."""
        known = dict(zip(self.probe_atoms, variables))
        return tuple(x.replaced(known) for x in next(iter(self.found.values())))

    def _recall(self, variables: list[Affine], done: list[Instruction]) -> None:
        """Makes the results of reductions known at these variables: they are loaded from the totals."""
        for instruction in done:
            key = ("results", instruction, self._index(variables), True)
            if self.nest.recall(key) is None:
                reducer = Reducer.of(instruction)
                items = reducer.narrowed(self.elements, self._total(instruction, reducer, variables))
                self.nest.keep(key, max(i.depth for i in items), items)

    def _total(self, instruction: Instruction, reducer: Reducer, variables: list[Affine]) -> list[Item]:
        column = variables[-1] - self.first
        return [
            self.elements.load_at(self.nest.moved(self.scratch, place), t, column)
            for place, t in zip(self.places[instruction], reducer.types)
        ]

    def _keep(
        self,
        instruction: Instruction,
        reducer: Reducer,
        variables: list[Affine],
        items: list[Item],
        lanes: int,
    ) -> None:
        for place, t, item in zip(self.places[instruction], reducer.types, items):
            wide = self.elements.widen(item, lanes)
            column = (variables[-1] - self.first) * (2 if t.is_complex else 1)
            pointer, _ = self.nest.pointer(self.nest.moved(self.scratch, place), memory_type(t), column)
            with self.nest.at(self.nest.depth) as f:
                store_element(f, t, wide.element, pointer, lanes)


def _places(variables: list[Affine], offsets: Iterable[int]) -> list[list[Affine]]:
    """The variables with each of the offsets added to the last."""
    return [[*variables[:-1], variables[-1] + Affine.number(offset)] for offset in offsets]
