"""Reductions, evaluated at an index of their result: loops over what is reduced, with accumulators in
registers.

Where the result's index varies between the lanes of a vectorised loop, the accumulators are vectors and the
loops here scalar (columns). Elsewhere the loop here is the vectorised one: several vector accumulators,
combined at the end (rows); sums made this way have smaller errors than sequential ones.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.llvm.ir_builder import Function, Value, split_vector, vector_type
from ...evaluator.evaluator import apply_computation
from ...ir.element_types import ElementType
from ...ir.module import Computation, Instruction
from ...ops import Constant, Reduce, ReduceWindow, reducer_kind
from ...ops.reduce import neutral_number
from ..codegen.elementwise import apply
from ..codegen.memory_types import NARROW, Element, constant_element, convert, is_pair, map_parts, parts
from .access_analysis import Loops, Probe, choose_loops
from .affine import Affine, Atom, Division
from .element_emitter import Condition, Elements, Index, Item, lanes_of

_UNROLLED = 9  # reductions of at most this many elements have no loop
_TRIED_FLOATS, _TRIED_INTEGERS = (-1.0, 2.0, float("nan")), (0, 1, 3)
_CHEAP = 12  # cycles per element up to which four accumulators hide latencies
_STREAM_BYTES = 4 << 10  # of a part of a row that is read beside others: a page
_DEAR = 8  # cycles per element from which on even so short rows are worth vectors


def reduced_dims(instruction: Instruction) -> tuple[int, ...]:
    """Dims of what one result element is made of."""
    op = instruction.op
    if isinstance(op, ReduceWindow):
        return op.window.size
    assert isinstance(op, Reduce)
    return tuple(instruction.operands[0].shape.dims[axis] for axis in op.dimensions)


def operand_index(
    instruction: Instruction, index: Index, inner: Sequence[Affine], division: Division
) -> tuple[Index, list[Affine]]:
    """(index of the operands, affines that must be negative for it to be inside) for a result's index and the
    position `inner` among what is reduced."""
    op = instruction.op
    if isinstance(op, Reduce):
        outer, rest = iter(index), dict(zip(op.dimensions, inner, strict=True))
        rank = instruction.operands[0].shape.rank
        return tuple(rest[axis] if axis in rest else next(outer) for axis in range(rank)), []
    assert isinstance(op, ReduceWindow)
    window = op.window
    at: list[Affine] = []
    bounds: list[Affine] = []
    for axis, (i, k) in enumerate(zip(index, inner, strict=True)):
        extent, step = instruction.operands[0].shape.dims[axis], window.base_dilation[axis]
        if window.reversal[axis]:
            k = Affine.number(window.size[axis] - 1) - k
        position = (
            i * window.stride[axis] + k * window.window_dilation[axis] - Affine.number(window.pad_low[axis])
        )
        outside = [Affine.number(-1) - position, position - Affine.number((extent - 1) * step + 1)]
        if step > 1:
            outside.append(division.remainder(position, step) - Affine.number(1))
            position = division.divide(position, step)
        bounds.extend(x for x in outside if x.high >= 0)
        at.append(position)
    return tuple(at), bounds


@dataclasses.dataclass(frozen=True)
class Reducer:
    """How elements are combined: a known kind, or a computation. `types` are those of the accumulators:
    narrow floats are summed in f32. `start` is neutral, and then elements may be taken in any
    order; it is None where their own order shows in the result."""

    kind: str | None
    computation: Computation
    types: tuple[ElementType, ...]
    result_types: tuple[ElementType, ...]
    start: tuple[object, ...] | None

    @staticmethod
    def of(instruction: Instruction) -> Reducer:
        """The reducer of a reduce or reduce-window."""
        computation: Computation = instruction.op.to_apply  # type: ignore[attr-defined]
        count = len(instruction.operands) // 2
        kind = reducer_kind(computation) if count == 1 else None
        results = tuple(o.shape.element_type for o in instruction.operands[:count])
        wide = kind in ("add", "multiply")
        types = tuple(ElementType.F32 if wide and t in NARROW else t for t in results)
        start: tuple[object, ...] | None = None
        if kind is not None:
            start = (neutral_number(kind, types[0]),)
        elif all(isinstance(o.op, Constant) for o in instruction.operands[count:]):
            initial = tuple(
                o.op.literal.array[()]  # type: ignore[attr-defined]
                for o in instruction.operands[count:]
            )
            start = initial if has_any_order(computation, types, initial) else None
        return Reducer(kind, computation, types, results, start)

    def widened(self, elements: Elements, items: Sequence[Item]) -> list[Item]:
        """Elements in the accumulators' types."""
        return [_converted(elements, *x) for x in zip(items, self.result_types, self.types)]

    def narrowed(self, elements: Elements, items: Sequence[Item]) -> list[Item]:
        """Accumulators in the results' types."""
        return [_converted(elements, *x) for x in zip(items, self.types, self.result_types)]

    def combine(self, elements: Elements, a: Sequence[Item], b: Sequence[Item]) -> list[Item]:
        """One step: accumulators `a`, elements `b`."""
        if self.kind is None:
            return elements.call(self.computation, [*a, *b])
        lanes = max(lanes_of(a[0].element), lanes_of(b[0].element))
        x, y = elements.widen(a[0], lanes), elements.widen(b[0], lanes)
        depth = max(x.depth, y.depth)
        with elements.nest.at(depth) as f:
            return [Item(self.step(f, x.element, y.element), depth)]

    def step(self, f: Function, a: Element, b: Element) -> Element:
        """One step of a known kind."""
        assert self.kind is not None
        t = self.types[0]
        return apply(f, self.kind, {}, [t, t], t, [a, b])

    def neutral(self, lanes: int) -> list[Element]:
        """Accumulators that change nothing when combined, where the order is free."""
        assert self.start is not None
        return [constant_element(t, number, lanes) for t, number in zip(self.types, self.start)]


@functools.lru_cache(maxsize=64)
def has_any_order(computation: Computation, types: tuple[ElementType, ...], initial: tuple[Any, ...]) -> bool:
    """Whether parts of the elements may be reduced by themselves, each from the initial values, and combined.

    A reduction allows that in any case. This is for reducers that choose between equal elements, or NaNs, by
    their order: all triples of some elements, ties and NaN among them, are reduced in order and in parts.
    """
    numbers = [_TRIED_FLOATS if t.is_float or t.is_complex else _TRIED_INTEGERS for t in types]
    if len(types) > 2 or not all(
        i.op.is_elementwise or i.opcode in ("parameter", "constant", "tuple")
        for i in computation.instructions
    ):
        return False
    triples = np.array(list(itertools.product(itertools.product(*numbers), repeat=3)))
    a, b, c = ([triples[:, k, n].astype(t.dtype) for n, t in enumerate(types)] for k in range(3))
    start = [np.full(len(triples), number) for number in initial]

    def combined(*sides: list[np.ndarray]) -> list[np.ndarray]:
        total = sides[0]
        for side in sides[1:]:
            found = apply_computation(computation, *total, *side)
            total = list(found) if isinstance(found, tuple) else [found]
        return total

    with np.errstate(all="ignore"):
        wanted = combined(start, a, b, c)
        odd, even = combined(start, b), combined(start, a, c)
        parted = [combined(even, odd), combined(odd, even), combined(start, even, odd)]
    return all(
        np.array_equal(x.astype(np.complex128), y.astype(np.complex128), equal_nan=True)
        for got in parted
        for x, y in zip(wanted, got)
    )


def reduce_together(
    elements: Elements,
    instructions: Sequence[Instruction],
    indices: Sequence[Index],
    condition: Condition | bool = True,
) -> list[list[list[Item]]]:
    """Results [instruction][index][result] of reductions over the same extents, in one pass of the loops."""
    nest = elements.nest
    reducers = [Reducer.of(i) for i in instructions]
    dims = reduced_dims(instructions[0])
    depth = max([0, *(nest.atom(a)[1] for index in indices for x in index for a, _ in x.terms)])
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
        found = start
    else:
        is_row = all(s.vector is None for s in nest.chain[: depth + 1]) and all(
            r.start is not None for r in reducers
        )
        job = Pass(elements, instructions, reducers, list(indices), condition, depth, dims, is_row)
        stored, elements.row_stored = elements.row_stored, set()
        found = job.rows(start) if is_row and not job.is_short else job.columns(start)
        for key in elements.row_stored:
            nest.keep(("filled", *key), depth, (depth,))
        elements.row_stored = stored
    return [[r.narrowed(elements, items) for items in per] for r, per in zip(reducers, found)]


def _converted(elements: Elements, item: Item, source: ElementType, target: ElementType) -> Item:
    if source is target:
        return item
    with elements.nest.at(item.depth) as f:
        return Item(convert(f, item.element, source, target), item.depth)


class Pass:
    """One pass over what is reduced."""

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
        self.is_short = math.prod(dims) <= _UNROLLED and not (is_row and self._is_dear())
        self.loops = Loops((), ()) if self.is_short else choose_loops(dims, self._walk)
        self.is_row = is_row and not self.is_short and condition is True and len(indices) == 1

    def _is_dear(self) -> bool:
        """Whether the elements of a short row take longer than combining the lanes of a vector."""
        probe = Probe()
        self._walk(probe, tuple(Affine.of(Atom("r", 0, max(d - 1, 0))) for d in self.dims))
        return math.prod(self.dims) > 1 and probe.cost >= _DEAR

    def _walk(self, probe: Probe, inner: Index) -> None:
        for instruction in self.instructions:
            at, bounds = operand_index(instruction, self.indices[0], inner, probe.division)
            probe.conditions.extend(bounds)
            for array in instruction.operands[: len(instruction.operands) // 2]:
                probe.visit(array, at)

    def combine(self, accumulators: list[list[list[Item]]], inner: Index) -> list[list[list[Item]]]:
        """All accumulators [instruction][index][result] with the elements at one position among what is
        reduced."""
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

    # -- scalar loops, accumulators as wide as the elements are
    def columns(self, start: list[list[list[Item]]]) -> list[list[list[Item]]]:
        """Walks what is reduced in order; vectors where the result's index varies between lanes."""
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
        atoms = self.loops.atoms()

        def level(k: int, variables: tuple[Affine, ...], carried: list[Value]) -> list[Value]:
            if k == len(atoms):
                depth = self.nest.depth
                inner = self.loops.index(variables, self.nest.division)
                shaped = self._shaped(_unflatten(carried, items, depth))
                found = self.combine(shaped, inner)
                wide = [self.elements.widen(i, lanes) for per in found for row in per for i in row]
                return _flatten(wide)
            return self.nest.loop(
                self.depth + k,
                0,
                self.loops.extents[k],
                1,
                atoms[k],
                lambda _, c: level(k + 1, (*variables, Affine.of(atoms[k])), c),
                carried,
            )

        return self._shaped(_unflatten(level(0, (), flat), items, self.depth))

    def _shaped(self, items: Sequence[Item]) -> list[list[list[Item]]]:
        rest = iter(items)
        return [[[next(rest) for _ in r.types] for _ in self.indices] for r in self.reducers]

    # -- the vectorised loop is here
    def rows(self, start: list[list[list[Item]]]) -> list[list[list[Item]]]:
        """Vector accumulators over the fastest loop, several of them, combined at the end."""
        assert len(self.indices) == 1
        atoms = self.loops.atoms()
        order, probe = self._order(atoms)
        extents = [self.loops.extents[k] for k in order]
        lanes = row_lanes(self.elements, self.reducers)
        count = extents[-1]
        unroll = next((u for u in ((4, 2, 1) if probe.cost <= _CHEAP else (2, 1)) if count >= u * lanes), 1)
        if count % (unroll * lanes) and count < 4 * unroll * lanes and count % lanes == 0:
            unroll = next(u for u in (4, 3, 2, 1) if u <= unroll and count % (u * lanes) == 0)
        bits = elements_bits(self.elements, lanes)
        streams = self._streams(count) if probe.cost <= _CHEAP else 0
        is_even = unroll in (2, 4) and probe.is_even(atoms[order[-1]], bits) and not streams
        # Several registers as one long vector, or several accumulators; then what is left of the row.
        first = (lanes * unroll, 1) if is_even else (lanes, streams or unroll)
        passes = self._passes(count, [first, (lanes, 1), (max(count % lanes, 1), 1)])
        neutral = [r.neutral(w) for r in self.reducers for _, _, w, many in passes for _ in range(many)]
        variables: list[Affine] = [Affine.number(0)] * len(atoms)

        def level(k: int, carried: list[Value]) -> list[Value]:
            atom = atoms[order[k]]
            depth = self.depth + k
            if k < len(order) - 1:
                variables[order[k]] = Affine.of(atom)
                return self.nest.loop(depth, 0, extents[k], 1, atom, lambda _, c: level(k + 1, c), carried)
            return self._row(depth, order[k], variables, passes, carried, neutral, bool(streams))

        found = _slots(level(0, _values(neutral)), neutral)
        each = len(neutral) // len(self.reducers)
        results = []
        for n, reducer in enumerate(self.reducers):
            total = _Lanes(self.elements, reducer, self.depth).total(found[n * each : (n + 1) * each])
            results.append([Item(e, self.depth) for e in total])
        return [
            [reducer.combine(self.elements, per[0], total)]
            for reducer, per, total in zip(self.reducers, start, results)
        ]

    def _streams(self, count: int) -> int:
        """Parts of a long row, each with an accumulator, that are read side by side; 0 where it is walked in order."""
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
            if end > done:
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
        apart: bool,
    ) -> list[Value]:
        """The innermost loops, one after the other, each with accumulators of its own: of vectors side by side, or of
        parts of the row that are far `apart`."""
        members, nest = len(self.reducers), self.nest
        each = len(like) // members

        def stepped(
            width: int, many: int, step: int, atom: Atom, first: int, _: Value, values: list[Value]
        ) -> list[Value]:
            current = _slots(values, like)
            at = nest.depth
            for u in range(many):
                variables[loop] = Affine.of(atom) + Affine.number(u * step)
                inner = self.loops.index(variables, nest.division)
                slots = [n * each + first + u for n in range(members)]
                found = self.combine([[[Item(e, at) for e in current[slot]]] for slot in slots], inner)
                for n, slot in enumerate(slots):
                    current[slot] = [self.elements.widen(x, width).element for x in found[n][0]]
            return _values(current)

        first = 0
        for low, high, width, many in passes:
            step, end, moved = width, high, width * many
            if apart and many > 1:
                step, moved = (high - low) // many, width
                end = low + step
            atom = Atom("v", low, max(end - 1, low + 1))
            body = functools.partial(stepped, width, many, step, atom, first)
            carried = nest.loop(depth, low, end, moved, atom, body, carried, width)
            first += many
        return carried

    def _order(self, atoms: list[Atom]) -> tuple[list[int], Probe]:
        """The loops' order: last the one along which most loads are contiguous."""
        probe = Probe()
        self._walk(probe, self.loops.index([Affine.of(a) for a in atoms], probe.division))
        score = [
            (
                sum(x.address.coefficient(a) in (0, 1) for x in probe.loads)
                - sum(x.address.coefficient(a) not in (0, 1) for x in probe.loads),
                k,
            )
            for k, a in enumerate(atoms)
        ]
        last = max(score)[1]
        return [*(k for k in range(len(atoms)) if k != last), last], probe


def row_lanes(elements: Elements, reducers: Sequence[Reducer]) -> int:
    """Lanes of the accumulators of a row reduction."""
    target = elements.nest.f.module.target
    bits = max(max(t.real.bits, 8) for r in reducers for t in r.types)
    bits = 32 if bits < 32 and any(t in NARROW for r in reducers for t in r.types) else bits
    return target.lanes(bits) if target else 4


def elements_bits(elements: Elements, lanes: int) -> int:
    """Bits of the elements of which so many fill a register."""
    target = elements.nest.f.module.target
    return target.vector_bytes * 8 // lanes if target else 32


class _Lanes:
    """Combines the lanes of a reducer's accumulators, in the scope of a depth."""

    def __init__(self, elements: Elements, reducer: Reducer, depth: int) -> None:
        self.elements, self.reducer, self.depth = elements, reducer, depth

    def total(self, accumulators: list[list[Element]]) -> list[Element]:
        """All lanes of accumulators of several widths, the widest first, combined pairwise."""
        rest = [self._even(a) for a in accumulators]
        while len(rest) > 1:
            following = lanes_of(rest[1][0])
            rest[0] = self._halved(rest[0], following)
            same = [a for a in rest if lanes_of(a[0]) == lanes_of(rest[0][0])]
            paired = [self._step(a, b) for a, b in zip(same[::2], same[1::2])]
            rest = paired + ([same[-1]] if len(same) % 2 else []) + rest[len(same) :]
        return self._halved(rest[0], 1)

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
                map_parts(lambda v, n: _shuffled(f, v, n, listed), e, n)
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
                    sides.append(
                        [map_parts(lambda v, k=listed: _shuffled(f, v, v, k), e) for e in accumulator]
                    )
            accumulator = self._step(*sides)
        return accumulator


def _shuffled(f: Function, a: Value, b: Value, order: Sequence[int]) -> Value:
    if len(order) == 1:
        return f.extract(a, order[0])
    listed = ", ".join(f"i32 {k}" for k in order)
    kind = vector_type(split_vector(a.type)[0], len(order))
    return f.op(kind, f"shufflevector {a}, {b}, <{len(order)} x i32> <{listed}>")


def _values(slots: Sequence[Sequence[Element]]) -> list[Value]:
    return [v for slot in slots for e in slot for v in parts(e)]


def _slots(values: Sequence[Value], like: Sequence[Sequence[Element]]) -> list[list[Element]]:
    """Accumulators of the same forms as `like`, from their values."""
    found = iter(rebuild(values, [e for slot in like for e in slot]))
    return [[next(found) for _ in slot] for slot in like]


def _flatten(items: Sequence[Item]) -> list[Value]:
    return [v for i in items for v in parts(i.element)]


def rebuild(values: Sequence[Value], like: Sequence[Element]) -> list[Element]:
    """Elements of the same forms as `like`, from their values."""
    rest = iter(values)
    return [(next(rest), next(rest)) if is_pair(e) else next(rest) for e in like]


def _unflatten(values: Sequence[Value], like: Sequence[Item], depth: int) -> list[Item]:
    return [Item(e, depth) for e in rebuild(values, [i.element for i in like])]
