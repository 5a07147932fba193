"""Kernels in which an operand is read across: blocks of rows are evaluated together, and the operand's tiles
turned in registers, so that both sides walk memory along their lines."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Value, i64
from .affine import Affine, Atom
from .loop_fusion import FusionKernel

_LINE_BYTES = 64
_MAX_ROWS = 16  # of a block, which is written out as a whole: LLVM takes seconds for 64 by 64 bytes


def transposed_loop(kernel: FusionKernel) -> int | None:
    """The loop along which an operand is contiguous that the innermost loop walks across; None: no such
    operand."""
    if not kernel.vectorised or kernel.probe.reductions or len(kernel.loops.extents) < 2:
        return None
    *outer, v = kernel.probe_atoms
    for load in kernel.probe.loads:
        if load.address.coefficient(v) in (0, 1) or any(a.quotient for a, _ in load.address.terms):
            continue
        for k, u in enumerate(outer):
            lanes = min(kernel.lanes, 8)
            if (
                load.address.coefficient(u) == 1
                and min(kernel.loops.extents[k], kernel.loops.extents[-1]) >= lanes
            ):
                return k
    return None


class TileKernel(FusionKernel):
    """A fused computation in blocks of rows along loop `across`. The last block overlaps the one before it
    where the extent does not divide evenly."""

    def __init__(self, kernel: FusionKernel, across: int) -> None:
        super().__init__(kernel.module, kernel.target, kernel.computation, kernel.roots)
        self.lanes = min(kernel.lanes, 8)
        self.settle(kernel.loops)
        self.across = across
        item = max(x.source.shape.element_type.item_bytes for x in self.probe.loads)
        rows = max(self.lanes, min(_LINE_BYTES // item, _MAX_ROWS))
        self.rows = rows if self.loops.extents[across] >= rows else self.lanes
        self.columns = rows if self.loops.extents[-1] >= rows else self.lanes
        self.order = [k for k in range(len(self.loops.extents) - 1) if k != across]
        self.trips = [
            *(self.loops.extents[k] for k in self.order),
            math.ceil(self.loops.extents[across] / self.rows),
        ]

    def divide(self, nanoseconds: float) -> None:
        """Tasks are all combinations of the outer loops and blocks of rows."""
        if nanoseconds >= self.parallel_ns:
            self.tasks = math.prod(self.trips)

    def _outgrows_cache(self) -> bool:
        return super()._outgrows_cache() and self.loops.extents[-1] % self.columns == 0

    def in_place(self) -> frozenset[tuple[int, int]]:
        """None where elements are computed twice."""
        even = self.loops.extents[self.across] % self.rows == 0 and self.loops.extents[-1] % self.columns == 0
        return super().in_place() if even else frozenset()

    def task(self, task: Affine) -> None:
        """The code of one task, or of all when there is one."""
        if self.tasks > 1:
            step, digits = self.tasks, []
            for extent in self.trips:
                step //= extent
                digit = self.nest.division.divide(task, step)
                digits.append(self.nest.division.remainder(digit, extent))
            self._block(digits)
        else:
            self._outer([])

    def _outer(self, digits: list[Affine]) -> None:
        if len(digits) == len(self.trips):
            self._block(digits)
            return
        atom = Atom("t", 0, self.trips[len(digits)] - 1)
        self.nest.loop(
            self.nest.depth,
            0,
            self.trips[len(digits)],
            1,
            atom,
            lambda *_: self._outer([*digits, Affine.of(atom)]),
        )

    def _block(self, digits: list[Affine]) -> None:
        nest, extents = self.nest, self.loops.extents
        most = extents[self.across] - self.rows
        row = Atom("row", 0, max(most, 1))
        start, depth = nest.scalar(digits[-1] * self.rows)
        with nest.at(depth) as f:
            nest.bind(row, f.op("i64", f"add i64 {i64(f.minimum(start, most)).text}, 0"), depth)
        column = Atom("column", 0, extents[-1] - 1)
        variables = [Affine.number(0)] * len(extents)
        for k, digit in zip(self.order, digits):
            variables[k] = digit
        variables[-1] = Affine.of(column)

        def body(position: Value, _: list[Value]) -> None:
            scope = nest.chain[-1]
            if extents[-1] % self.columns:
                with nest.at(nest.depth) as f:
                    position = i64(f.minimum(position, extents[-1] - self.columns))
            scope.atoms[column], scope.vector, scope.lanes = position, column, self.lanes
            for k in range(self.rows):
                self.elements.tile = (row, self.lanes, k)
                variables[self.across] = Affine.of(row) + Affine.number(k)
                self.store(list(variables), self.lanes, range(0, self.columns, self.lanes))
            self.elements.tile = None

        nest.loop(nest.depth, 0, extents[-1], self.columns, None, body)
