"""Cumulative sums, products and the like: a reduce-window whose window reaches back to the start (or on to
the end) of an axis, computed in one walk along it."""

from __future__ import annotations

import math

from ....runtime.llvm.ir_builder import Value
from ....runtime.sizes import estimate, is_symbolic, larger
from .access_analysis import AccessAnalysis, Loops
from .affine import Affine, Symbol, linear_address
from .element_emitter import Item
from .indexing import Index
from .loop_fusion import FusionKernel
from .reduce_emitter import rebuild
from .reducer import Reducer


class Scan(FusionKernel):
    """A fused computation whose root accumulates along an axis: for each outer index and inner vector, one
    loop."""

    def __init__(self, kernel: FusionKernel, axis: int, backwards: bool) -> None:
        super().__init__(kernel.module, kernel.target, kernel.computation, kernel.roots)
        self.axis, self.backwards, self.is_in_order = axis, backwards, False
        self.reducer = Reducer.of(self.roots[0])
        self.operand = self.roots[0].operands[0]
        dims = self.dims
        trip_counts = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
        delinearized = tuple(
            (
                (
                    0 if a < axis else 1 if a == axis else 2,
                    math.prod(dims[a + 1 : axis] if a < axis else dims[a + 1 :] if a > axis else ()),
                    d,
                    1,
                ),
            )
            for a, d in enumerate(dims)
        )
        self.set_loops(Loops(trip_counts, delinearized))
        self.vectorised = estimate(trip_counts[2]) >= self.lanes

    def walk(self, accesses: AccessAnalysis, index: Index) -> None:
        """What one step reads."""
        accesses.visit(self.operand, index)

    def divide(self, nanoseconds: float) -> None:
        """Tasks are the outer indices."""
        if nanoseconds >= self.parallel_ns or is_symbolic(self.loops.trip_counts):
            self.tasks = self.loops.trip_counts[0]

    def may_alias(self) -> frozenset[tuple[int, int]]:
        """What is read is read before it is written, element by element."""
        return super().may_alias() if self.reducer.types == self.reducer.result_types else frozenset()

    def task(self, task: Affine) -> None:
        """The code of one task, or of all when there is one."""
        if self.is_parallel:
            self._inner(task)
            return
        outer = Symbol("outer", 0, self.loops.trip_counts[0] - 1)
        self.nest.loop(0, 0, self.loops.trip_counts[0], 1, outer, lambda *_: self._inner(Affine.of(outer)))

    def _inner(self, outer: Affine) -> None:
        depth, trip_count = self.nest.depth, self.loops.trip_counts[2]
        done = 0
        for width in (self.lanes, 1) if self.vectorised else (1,):
            end = done + (trip_count - done) // width * width
            if end == done:
                continue
            inner = Symbol("inner", done, larger(end - 1, done + 1))
            self.nest.loop(
                depth,
                done,
                end,
                width,
                inner,
                lambda *_, w=width, a=inner: self._along(outer, Affine.of(a), w),
                (),
                width,
            )
            done = end

    def _along(self, outer: Affine, inner: Affine, lanes: int) -> None:
        count, elements, reducer = self.loops.trip_counts[1], self.elements, self.reducer
        init = elements.value(self.roots[0].operands[1], ())
        start = elements.widen(reducer.widened(elements, [init])[0], lanes)
        step = Symbol("step", 0, larger(count - 1, 1))
        at = Affine.number(count - 1) - Affine.of(step) if self.backwards else Affine.of(step)

        def body(_: Value, carried: list[Value]) -> list[Value]:
            index = self.loops.index([outer, at, inner], self.nest.division)
            (previous,) = rebuild(carried, [start.element])
            new = reducer.widened(elements, [elements.value(self.operand, index)])
            (total,) = reducer.combine(elements, [Item(previous, self.nest.depth)], new)
            total = elements.widen(total, lanes)
            output = self.outputs[0]
            address = linear_address(index, output.shape.strides)
            self.put(output, address, reducer.narrowed(elements, [total])[0], lanes)
            return list(_parts(total))

        self.nest.loop(self.nest.depth, 0, count, 1, step, body, list(_parts(start)))


def _parts(item: Item) -> tuple[Value, ...]:
    return item.element if not isinstance(item.element, Value) else (item.element,)
