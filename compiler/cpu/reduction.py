"""Reductions, evaluated at an index of their result: loops over what is reduced, with accumulators in
registers.

Where the result's index varies between the lanes of a vectorised loop, the accumulators are vectors and the
loops here scalar (columns). Elsewhere the loop here is the vectorised one: several vector accumulators,
combined at the end (rows); sums made this way have smaller errors than sequential ones.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from ..ir import Computation, Instruction
from ..ops import Reduce, ReduceWindow, reducer_kind
from ..ops.reduce import neutral_number
from ..types import ElementType
from .access import Loops, Probe, choose_loops
from .affine import Affine, Atom, Division
from .element_types import NARROW, Element, constant_element, convert, is_pair, map_parts, parts
from .elements import Condition, Elements, Index, Item, lanes_of
from .elementwise import apply
from .llvm_text import Function, Value, split_vector, vector_type

_UNROLLED = 9  # reductions of at most this many elements have no loop


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
    narrow floats are summed in f32."""

    kind: str | None
    computation: Computation
    types: tuple[ElementType, ...]
    result_types: tuple[ElementType, ...]

    @staticmethod
    def of(instruction: Instruction) -> Reducer:
        """The reducer of a reduce or reduce-window."""
        computation: Computation = instruction.op.to_apply  # type: ignore[attr-defined]
        count = len(instruction.operands) // 2
        kind = reducer_kind(computation) if count == 1 else None
        results = tuple(o.shape.element_type for o in instruction.operands[:count])
        wide = kind in ("add", "multiply")
        types = tuple(ElementType.F32 if wide and t in NARROW else t for t in results)
        return Reducer(kind, computation, types, results)

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

    def neutral(self, lanes: int) -> Element:
        """What changes nothing when combined, of a known kind."""
        assert self.kind is not None
        return constant_element(self.types[0], neutral_number(self.kind, self.types[0]), lanes)


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
        job = _Job(elements, instructions, reducers, list(indices), condition, depth, dims)
        is_row = all(s.vector is None for s in nest.chain[: depth + 1]) and all(r.kind for r in reducers)
        job.is_row = is_row and not job.is_short and condition is True and len(indices) == 1
        stored, elements.row_stored = elements.row_stored, set()
        found = job.rows(start) if is_row and not job.is_short else job.columns(start)
        for key in elements.row_stored:
            nest.keep(("filled", *key), depth, True)
        elements.row_stored = stored
    return [[r.narrowed(elements, items) for items in per] for r, per in zip(reducers, found)]


def _converted(elements: Elements, item: Item, source: ElementType, target: ElementType) -> Item:
    if source is target:
        return item
    with elements.nest.at(item.depth) as f:
        return Item(convert(f, item.element, source, target), item.depth)


class _Job:
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
    ) -> None:
        self.elements, self.nest = elements, elements.nest
        self.instructions, self.reducers, self.indices = instructions, reducers, indices
        self.condition, self.depth = condition, depth
        self.is_short = math.prod(dims) <= _UNROLLED
        self.loops = Loops((), ()) if self.is_short else choose_loops(dims, self._walk)
        self.dims = dims
        self.is_row = False

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
        if count < lanes:
            return self.columns(start)
        unroll = next((u for u in ((4, 2, 1) if probe.cost <= 12 else (2, 1)) if count >= u * lanes), 1)
        if count % (unroll * lanes) and count < 4 * unroll * lanes and count % lanes == 0:
            unroll = next(u for u in (4, 3, 2, 1) if u <= unroll and count % (u * lanes) == 0)
        bits = elements_bits(self.elements, lanes)
        is_even = unroll in (2, 4) and probe.is_even(atoms[order[-1]], bits)
        # Several registers as one long vector, or several accumulators; then what is left of the row.
        first = (lanes * unroll, 1) if is_even else (lanes, unroll)
        passes = self._passes(count, [first, (lanes, 1), (1, 1)])
        neutral = [r.neutral(w) for r in self.reducers for _, _, w, many in passes for _ in range(many)]
        variables: list[Affine] = [Affine.number(0)] * len(atoms)

        def level(k: int, carried: list[Value]) -> list[Value]:
            atom = atoms[order[k]]
            depth = self.depth + k
            if k < len(order) - 1:
                variables[order[k]] = Affine.of(atom)
                return self.nest.loop(depth, 0, extents[k], 1, atom, lambda _, c: level(k + 1, c), carried)
            return self._row(depth, order[k], variables, passes, carried, neutral)

        found = rebuild(level(0, [v for e in neutral for v in parts(e)]), neutral)
        each = len(neutral) // len(self.reducers)
        results = []
        with self.nest.at(self.depth) as f:
            for n, reducer in enumerate(self.reducers):
                results.append(_total(f, reducer, found[n * each : (n + 1) * each]))
        return [
            [reducer.combine(self.elements, per[0], [Item(total, self.depth)])]
            for reducer, per, total in zip(self.reducers, start, results)
        ]

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
        like: list[Element],
    ) -> list[Value]:
        """The innermost loops, one after the other, each with accumulators of its own."""
        members, nest = len(self.reducers), self.nest
        each = len(like) // members

        def stepped(
            width: int, many: int, atom: Atom, first: int, _: Value, values: list[Value]
        ) -> list[Value]:
            current = rebuild(values, like)
            at = nest.depth
            for u in range(many):
                variables[loop] = Affine.of(atom) + Affine.number(u * width)
                inner = self.loops.index(variables, nest.division)
                slots = [n * each + first + u for n in range(members)]
                found = self.combine([[[Item(current[slot], at)]] for slot in slots], inner)
                for n, slot in enumerate(slots):
                    current[slot] = self.elements.widen(found[n][0][0], width).element
            return [v for e in current for v in parts(e)]

        first = 0
        for low, high, width, many in passes:
            atom = Atom("v", low, max(high - 1, low + 1))
            body = functools.partial(stepped, width, many, atom, first)
            carried = nest.loop(depth, low, high, width * many, atom, body, carried, width)
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


def horizontal(f: Function, reducer: Reducer, element: Element, lanes: int, until: int = 1) -> Element:
    """Lanes of an element combined, pairwise, until so many are left."""
    while lanes > until:
        half = lanes // 2

        def part(value: Value, first: int, half: int = half, lanes: int = lanes) -> Value:
            kind = split_vector(value.type)[0]
            listed = ", ".join(f"i32 {first + k}" for k in range(half))
            if half == 1:
                return f.extract(value, first)
            return f.op(
                vector_type(kind, half),
                f"shufflevector {value}, {value.type} poison, <{half} x i32> <{listed}>",
            )

        low = map_parts(lambda v: part(v, 0), element)
        high = map_parts(lambda v, h=half: part(v, h), element)
        element = reducer.step(f, low, high)
        lanes = half
    return element


def _total(f: Function, reducer: Reducer, accumulators: list[Element]) -> Element:
    """All lanes of accumulators of several widths, the widest first, combined pairwise."""
    rest = list(accumulators)
    while len(rest) > 1:
        wide, following = lanes_of(rest[0]), lanes_of(rest[1])
        if following < wide:
            rest[0] = horizontal(f, reducer, rest[0], wide, following)
        same = [e for e in rest if lanes_of(e) == lanes_of(rest[0])]
        paired = [reducer.step(f, a, b) for a, b in zip(same[::2], same[1::2])]
        rest = paired + ([same[-1]] if len(same) % 2 else []) + rest[len(same) :]
    return horizontal(f, reducer, rest[0], lanes_of(rest[0]))


def _flatten(items: Sequence[Item]) -> list[Value]:
    return [v for i in items for v in parts(i.element)]


def rebuild(values: Sequence[Value], like: Sequence[Element]) -> list[Element]:
    """Elements of the same forms as `like`, from their values."""
    rest = iter(values)
    return [(next(rest), next(rest)) if is_pair(e) else next(rest) for e in like]


def _unflatten(values: Sequence[Value], like: Sequence[Item], depth: int) -> list[Item]:
    return [Item(e, depth) for e in rebuild(values, [i.element for i in like])]
