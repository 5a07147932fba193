"""Reductions, evaluated at an index of their result: loops over the reduced axes, with accumulators in
registers.

Where the result's index varies between the lanes of a vectorised loop, the accumulators are vectors and the
loops here scalar (columns). Elsewhere the loop here is the vectorised one: several vector accumulators,
combined at the end (rows); sums made this way have smaller errors than sequential ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ....runtime.llvm.addressing import Index as LoopBound
from ....runtime.llvm.addressing import Int
from ....runtime.llvm.ir_builder import Function, Value
from ....runtime.llvm.vector_value import VectorValue
from ....runtime.sizes import estimate, heuristic, is_symbolic, larger
from ...ir.module import Instruction
from ..codegen.memory_types import Element, is_pair, map_parts, parts, single
from .access_analysis import AccessAnalysis, Loops, choose_loops
from .affine import Affine, Symbol
from .element_emitter import Condition, Elements, Item, lanes_of
from .indexing import Index, operand_index, reduced_dims
from .masked_reduction import Mask, masks_of
from .reducer import Reducer

_UNROLLED = 9  # reductions of at most this many elements have no loop
_CHEAP = 12  # cycles per element up to which four accumulators hide latencies
_STREAM_BYTES = 4 << 10  # of a part of a row that is read beside others: a page
_BLOCK = 256  # elements that a long sum in one accumulator is made of: rounding loses less in sums of sums
_SHORTEST_BLOCK = 16  # elements of the innermost loop, below which that is no block
_EXPENSIVE_CYCLES = 8  # cycles per element from which on even so short rows are worth vectors


def reduce_together(
    elements: Elements,
    instructions: Sequence[Instruction],
    indices: Sequence[Index],
    condition: Condition | bool = True,
) -> list[list[list[Item]]]:
    """Results [instruction][index][result] of reductions over the same axes, in one pass of the loops."""
    nest = elements.nest
    reducers = [Reducer.of(i) for i in instructions]
    dims = reduced_dims(instructions[0])
    depth = max([0, *(nest.symbol(a)[1] for index in indices for x in index for a, _ in x.terms)])
    if isinstance(condition, Condition):
        depth = max(depth, condition.depth)
    start = [
        [
            [elements.widen(elements.value(i.operands[len(r.types) + k], ()), 1) for k in range(len(r.types))]
            for _ in indices
        ]
        for i, r in zip(instructions, reducers)
    ]
    start = [[r.widened(elements, items) for items in per] for r, per in zip(reducers, start)]
    if math.prod(dims) == 0:
        results = start
    else:
        is_row = all(s.vector is None for s in nest.chain[: depth + 1]) and all(
            r.start is not None for r in reducers
        )
        job = Pass(elements, instructions, reducers, list(indices), condition, depth, dims, is_row)
        stored, elements.row_stored = elements.row_stored, set()
        has_loops = bool(job.loops.trip_counts)  # none where guards say that the size is 1
        results = job.rows(start) if is_row and has_loops and not job.is_short else job.columns(start)
        for key in elements.row_stored:
            nest.memoize(elements.filled, key, depth, depth)
        elements.row_stored = stored
    return [[r.narrowed(elements, items) for items in per] for r, per in zip(reducers, results)]


class Pass:
    """One pass over the reduced axes."""

    def __init__(
        self,
        elements: Elements,
        instructions: Sequence[Instruction],
        reducers: list[Reducer],
        indices: list[Index],
        condition: Condition | bool,
        depth: int,
        dims: tuple[int, ...],
        is_row: bool,
    ) -> None:
        self.elements, self.nest = elements, elements.nest
        self.instructions, self.reducers, self.indices = instructions, reducers, indices
        self.condition, self.depth = condition, depth
        self.dims = dims
        is_few = not is_symbolic(dims) and math.prod(dims) <= _UNROLLED
        self.is_short = is_few and not (is_row and self._is_expensive())
        self.loops = Loops((), ()) if self.is_short else choose_loops(dims, self._walk)
        self.is_row = is_row and not self.is_short and condition is True and len(indices) == 1

    def _is_expensive(self) -> bool:
        """Whether the elements of a short row take longer than combining the lanes of a vector."""
        accesses = AccessAnalysis()
        self._walk(accesses, tuple(Affine.of(Symbol("r", 0, max(d - 1, 0))) for d in self.dims))
        return math.prod(self.dims) > 1 and accesses.cost >= _EXPENSIVE_CYCLES

    def _walk(self, accesses: AccessAnalysis, inner: Index) -> None:
        for instruction in self.instructions:
            at, bounds = operand_index(instruction, self.indices[0], inner, accesses.division)
            accesses.conditions.extend(bounds)
            for array in instruction.operands[: len(instruction.operands) // 2]:
                accesses.visit(array, at)

    def combine(self, accumulators: list[list[list[Item]]], inner: Index) -> list[list[list[Item]]]:
        """All accumulators [instruction][index][result] with the elements at one position of the
        reduced axes."""
        result = []
        for instruction, reducer, per in zip(self.instructions, self.reducers, accumulators):
            count = len(reducer.types)
            row = []
            for index, items in zip(self.indices, per):
                at, bounds = operand_index(instruction, index, inner, self.nest.division)
                inside: Condition | bool = self.condition
                for bound in bounds:
                    inside = self.elements.both(inside, self.elements.less(bound, Affine.number(0)))
                outside, self.elements.row_index = self.elements.row_index, at if self.is_row else None
                new = [self.elements.value(a, at, inside) for a in instruction.operands[:count]]
                self.elements.row_index = outside
                new = reducer.widened(self.elements, new)
                stepped = reducer.combine(self.elements, items, new) if inside is not False else list(items)
                if bounds:
                    stepped = [self.elements.choose(inside, s, i) for s, i in zip(stepped, items)]
                row.append(stepped)
            result.append(row)
        return result

    def end(self, depth: int, symbols: Sequence[Symbol], loop: int, high: int, step: int = 1) -> LoopBound:
        """Where one of the `loops`, written at a depth, may end instead of at `high`, behind a multiple of `step`: what
        is left out by masks changes nothing."""
        symbol = symbols[loop]
        inner = self.loops.index([Affine.of(s) for s in symbols], self.nest.division)
        masks: dict[Mask, None] = {}
        for instruction in self.instructions:
            for index in self.indices:
                at, _ = operand_index(instruction, index, inner, self.nest.division)
                mask = next((m for m in masks_of(instruction, at) if m.ends(symbol)), None)
                if mask is None:
                    return high
                masks[mask] = None
        ends: list[Int] = [self._end_of(mask, symbol, depth) for mask in masks]
        with self.nest.at(depth):
            last = functools.reduce(Int.maximum, ends)
            return ((last.maximum(0) + (step - 1)) // step * step).minimum(high)

    def _end_of(self, mask: Mask, symbol: Symbol, depth: int) -> Int:
        """The first value of a loop's symbol for which a mask leaves out everything."""
        rest, step = mask.before(symbol, lambda a: self.nest.knows(a) and not self.nest.varies(Affine.of(a)))
        number = single(self.elements.value(mask.size, ()).element)
        first, _ = self.nest.scalar(rest)
        with self.nest.at(depth) as f:
            size = VectorValue.of(f, number)
            limit = Int.of(f, size if size.type == "i64" else size.cast("sext", "i64")) * mask.factor
            room = limit - first
            return room if step == 1 else (room.maximum(0) + (step - 1)) // step

    # -- scalar loops, accumulators as wide as the elements are
    def columns(self, start: list[list[list[Item]]]) -> list[list[list[Item]]]:
        """Walks the reduced axes in order; vectors where the result's index varies between lanes."""
        if self.is_short:
            for position in np.ndindex(*self.dims):
                start = self.combine(start, tuple(Affine.number(k) for k in position))
            return start
        vector = next((s for s in reversed(self.nest.chain[: self.depth + 1]) if s.vector is not None), None)
        lanes = 1
        if vector is not None and any(self.nest.varies(x) for index in self.indices for x in index):
            lanes = vector.lanes
        items = [self.elements.widen(i, lanes) for per in start for row in per for i in row]
        flat = _flatten(items)
        symbols = self.loops.symbols()

        def level(k: int, variables: tuple[Affine, ...], carried: list[Value]) -> list[Value]:
            if k == len(symbols):
                depth = self.nest.depth
                inner = self.loops.index(variables, self.nest.division)
                shaped = self._shaped(_unflatten(carried, items, depth))
                totals = self.combine(shaped, inner)
                return _flatten([self.elements.widen(i, lanes) for per in totals for row in per for i in row])
            depth, symbol = self.depth + k, symbols[k]
            end = self.end(depth, symbols, k, self.loops.trip_counts[k])

            def body(_: Int, carried: list[Value]) -> list[Value]:
                return level(k + 1, (*variables, Affine.of(symbol)), carried)

            def add_block(low: Int, totals: list[Value]) -> list[Value]:
                at = depth + 1
                with self.nest.at(at):
                    high = (low + _BLOCK).minimum(end)
                zeros = _values([r.neutral(lanes) for r in self.reducers for _ in self.indices])
                block = self.nest.loop(at, low, high, 1, symbol, body, zeros)
                sides = (self._shaped(_unflatten(values, items, at)) for values in (totals, block))
                return _flatten(
                    [
                        item
                        for reducer, *rows in zip(self.reducers, *sides)
                        for total, own in zip(*rows)
                        for item in reducer.combine(self.elements, total, own)
                    ]
                )

            if k == len(symbols) - 1 and self._is_long_sum():
                return self.nest.loop(depth, 0, end, _BLOCK, None, add_block, carried)
            return self.nest.loop(depth, 0, end, 1, symbol, body, carried)

        return self._shaped(_unflatten(level(0, (), flat), items, self.depth))

    def _is_long_sum(self) -> bool:
        """Whether sums of so many elements are made block by block."""
        counts = [estimate(count) for count in self.loops.trip_counts]
        is_sum = all(
            r.kind == "add" and (r.types[0].is_float or r.types[0].is_complex) for r in self.reducers
        )
        return is_sum and math.prod(counts) > 2 * _BLOCK and counts[-1] >= _SHORTEST_BLOCK

    def _shaped(self, items: Sequence[Item]) -> list[list[list[Item]]]:
        rest = iter(items)
        return [[[next(rest) for _ in r.types] for _ in self.indices] for r in self.reducers]

    # -- the vectorised loop is here
    def rows(self, start: list[list[list[Item]]]) -> list[list[list[Item]]]:
        """Vector accumulators over the fastest loop, several of them, combined at the end."""
        assert len(self.indices) == 1
        symbols = self.loops.symbols()
        order, accesses = self._order(symbols)
        trip_counts = [self.loops.trip_counts[k] for k in order]
        lanes = row_lanes(self.elements, self.reducers)
        count, typical = trip_counts[-1], estimate(trip_counts[-1])
        unroll = next(
            (u for u in ((4, 2, 1) if accesses.cost <= _CHEAP else (2, 1)) if typical >= u * lanes), 1
        )
        if is_symbolic([count]):
            rests = [1 << k for k in reversed(range((lanes - 1).bit_length()))]
        else:
            rests = [max(count % lanes, 1)]
        if (
            not is_symbolic([count])
            and count % (unroll * lanes)
            and count < 4 * unroll * lanes
            and count % lanes == 0
        ):
            unroll = next(u for u in (4, 3, 2, 1) if u <= unroll and count % (u * lanes) == 0)
        bits = elements_bits(self.elements, lanes)
        streams = self._streams(count) if accesses.cost <= _CHEAP else 0
        is_even = unroll in (2, 4) and accesses.is_even(symbols[order[-1]], bits) and not streams
        # Several registers as one long vector, or several accumulators; then the rest of the row.
        first = (lanes * unroll, 1) if is_even else (lanes, streams or unroll)
        passes = self._passes(count, [first, (lanes, 1), *((rest, 1) for rest in rests)])
        neutral = [r.neutral(w) for r in self.reducers for _, _, w, many in passes for _ in range(many)]
        variables: list[Affine] = [Affine.number(0)] * len(symbols)

        def level(k: int, carried: list[Value]) -> list[Value]:
            symbol = symbols[order[k]]
            depth = self.depth + k
            if k < len(order) - 1:
                variables[order[k]] = Affine.of(symbol)
                end = self.end(depth, symbols, order[k], trip_counts[k])
                return self.nest.loop(depth, 0, end, 1, symbol, lambda _, c: level(k + 1, c), carried)
            _, high, width, many = passes[0]
            first_end = high if streams else self.end(depth, symbols, order[k], high, width * many)
            return self._row(depth, order[k], variables, passes, carried, neutral, bool(streams), first_end)

        if is_symbolic([count]) and len(order) == 1:
            results = self._narrowing_row(order[0], variables, passes, bool(streams))
        else:
            results = self._totals(_slots(level(0, _values(neutral)), neutral), 1)
        return [
            [reducer.combine(self.elements, per[0], [Item(e, self.depth) for e in total])]
            for reducer, per, total in zip(self.reducers, start, results)
        ]

    @heuristic()
    def _streams(self, count: int) -> int:
        """The number of streams in which a long row is read side by side, each with an accumulator; 0: in order."""
        target = self.elements.nest.f.module.target
        operands = [i.operands[0].shape for i in self.instructions]
        row_bytes = count * min(s.element_type.item_bytes for s in operands)
        if (
            target is None
            or target.streams == 1
            or row_bytes < target.streams * _STREAM_BYTES
            or max(s.bytes for s in operands) <= target.l2_bytes
        ):
            return 0
        return target.streams

    @staticmethod
    def _passes(count: int, widths: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        """(from, to, lanes, accumulators) of the loops over a row of `count` elements."""
        passes, done = [], 0
        for width, many in widths:
            end = done + (count - done) // (width * many) * width * many
            if is_symbolic([end, done]) or end > done:
                passes.append((done, end, width, many))
            done = end
        return passes

    def _row(
        self,
        depth: int,
        loop: int,
        variables: list[Affine],
        passes: Sequence[tuple[int, int, int, int]],
        carried: list[Value],
        like: list[list[Element]],
        is_split: bool,
        first_end: LoopBound | None = None,
    ) -> list[Value]:
        """The innermost loops, one after the other, each with accumulators of its own: of vectors side by side, or of
        streams of the row where it `is_split`. The first one may end before `first_end`."""
        members, nest = len(self.reducers), self.nest
        each = len(like) // members

        def stepped(
            width: int, many: int, step: int, symbol: Symbol, first: int, _: Value, values: list[Value]
        ) -> list[Value]:
            current = _slots(values, like)
            at = nest.depth
            for u in range(many):
                variables[loop] = Affine.of(symbol) + Affine.number(u * step)
                inner = self.loops.index(variables, nest.division)
                slots = [n * each + first + u for n in range(members)]
                totals = self.combine([[[Item(e, at) for e in current[slot]]] for slot in slots], inner)
                for n, slot in enumerate(slots):
                    current[slot] = [self.elements.widen(x, width).element for x in totals[n][0]]
            return _values(current)

        first = 0
        for low, high, width, many in passes:
            step, moved = width, width * many
            end: LoopBound = high if first or first_end is None else first_end
            if is_split and many > 1:
                step, moved = (high - low) // many, width
                end = high = low + step
            symbol = Symbol("v", low, larger(high - 1, low + 1))
            body = functools.partial(stepped, width, many, step, symbol, first)
            carried = nest.loop(depth, low, end, moved, symbol, body, carried, width)
            first += many
        return carried

    def _narrowing_row(
        self,
        loop: int,
        variables: list[Affine],
        passes: Sequence[tuple[int, int, int, int]],
        is_split: bool,
    ) -> list[list[Element]]:
        """The totals of the reducers: as in `_row`, but the accumulators of a loop go on in the next one with as many
        lanes as that has, so that a rest of unknown length costs little more than the loops' ends."""
        _, _, width, many = passes[0]
        slots = [r.neutral(width) for r in self.reducers for _ in range(many)]
        for k, one in enumerate(passes):
            if k:
                slots = self._totals(slots, one[2])
            carried = self._row(self.depth, loop, variables, [one], _values(slots), slots, is_split)
            slots = _slots(carried, slots)
        return self._totals(slots, 1)

    def _totals(self, slots: list[list[Element]], lanes: int) -> list[list[Element]]:
        """For each reducer its accumulators combined, to so many lanes."""
        each = len(slots) // len(self.reducers)
        return [
            _Lanes(self.elements, reducer, self.depth).total(slots[n * each : (n + 1) * each], lanes)
            for n, reducer in enumerate(self.reducers)
        ]

    def _order(self, symbols: list[Symbol]) -> tuple[list[int], AccessAnalysis]:
        """The loops' order: last the one along which most loads are contiguous."""
        accesses = AccessAnalysis()
        self._walk(accesses, self.loops.index([Affine.of(a) for a in symbols], accesses.division))
        score = [
            (
                sum(x.address.coefficient(a) in (0, 1) for x in accesses.loads)
                - sum(x.address.coefficient(a) not in (0, 1) for x in accesses.loads),
                k,
            )
            for k, a in enumerate(symbols)
        ]
        last = max(score)[1]
        return [*(k for k in range(len(symbols)) if k != last), last], accesses


def row_lanes(elements: Elements, reducers: Sequence[Reducer]) -> int:
    """Lanes of the accumulators of a row reduction."""
    target = elements.nest.f.module.target
    bits = max(max(t.real.bits, t.accumulator.real.bits, 8) for r in reducers for t in r.types)
    return target.lanes(bits) if target else 4


def elements_bits(elements: Elements, lanes: int) -> int:
    """Bits of elements, where a register holds that many."""
    target = elements.nest.f.module.target
    return target.vector_bytes * 8 // lanes if target else 32


class _Lanes:
    """Combines the lanes of a reducer's accumulators, in the scope of a depth."""

    def __init__(self, elements: Elements, reducer: Reducer, depth: int) -> None:
        self.elements, self.reducer, self.depth = elements, reducer, depth

    def total(self, accumulators: list[list[Element]], until: int) -> list[Element]:
        """All lanes of accumulators of several widths, the widest first, combined pairwise until so many are left."""
        rest = [self._even(a) for a in accumulators]
        while len(rest) > 1:
            following = lanes_of(rest[1][0])
            rest[0] = self._halved(rest[0], following)
            same = [a for a in rest if lanes_of(a[0]) == lanes_of(rest[0][0])]
            paired = [self._step(a, b) for a, b in zip(same[::2], same[1::2])]
            rest = paired + ([same[-1]] if len(same) % 2 else []) + rest[len(same) :]
        return self._halved(rest[0], until)

    def _step(self, a: list[Element], b: list[Element]) -> list[Element]:
        sides = ([Item(e, self.depth) for e in side] for side in (a, b))
        return [i.element for i in self.reducer.combine(self.elements, *sides)]

    def _even(self, accumulator: list[Element]) -> list[Element]:
        """With the next power of two of lanes: the others change nothing."""
        lanes = lanes_of(accumulator[0])
        full = 1 << (lanes - 1).bit_length()
        if lanes == full:
            return accumulator
        listed = [*range(lanes), *[lanes] * (full - lanes)]
        with self.elements.nest.at(self.depth) as f:
            return [
                map_parts(lambda v, n: _lanes(f, v, n, listed), e, n)
                for e, n in zip(accumulator, self.reducer.neutral(lanes))
            ]

    def _halved(self, accumulator: list[Element], until: int) -> list[Element]:
        """Lanes combined, pairwise, until so many are left."""
        while (lanes := lanes_of(accumulator[0])) > until:
            half = lanes // 2
            sides = []
            with self.elements.nest.at(self.depth) as f:
                for first in (0, half):
                    listed = list(range(first, first + half))
                    sides.append([map_parts(lambda v, k=listed: _lanes(f, v, v, k), e) for e in accumulator])
            accumulator = self._step(*sides)
        return accumulator


def _lanes(f: Function, a: Value, b: Value, order: Sequence[int]) -> Value:
    vector = VectorValue.of(f, a)
    return vector.extract(order[0]) if len(order) == 1 else vector.shuffle(order, b)


def _values(slots: Sequence[Sequence[Element]]) -> list[Value]:
    return [v for slot in slots for e in slot for v in parts(e)]


def _slots(values: Sequence[Value], like: Sequence[Sequence[Element]]) -> list[list[Element]]:
    """Accumulators of the same forms as `like`, from their values."""
    elements = iter(rebuild(values, [e for slot in like for e in slot]))
    return [[next(elements) for _ in slot] for slot in like]


def _flatten(items: Sequence[Item]) -> list[Value]:
    return [v for i in items for v in parts(i.element)]


def rebuild(values: Sequence[Value], like: Sequence[Element]) -> list[Element]:
    """Elements of the same forms as `like`, from their values."""
    rest = iter(values)
    return [(next(rest), next(rest)) if is_pair(e) else next(rest) for e in like]


def _unflatten(values: Sequence[Value], like: Sequence[Item], depth: int) -> list[Item]:
    return [Item(e, depth) for e in rebuild(values, [i.element for i in like])]
