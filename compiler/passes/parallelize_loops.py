"""Loops cut along an axis that every step keeps, as the batch of a recurrent network, and run side by side.

    w = (s32[], f32[32,8], f32[9,32,8]) while(init)

becomes

    c = ((f32[16,8]), (f32[16,8])) concurrent((h, xs), (h, xs)), branch_computations={part0, part1}
    r = f32[32,8] concatenate(part 0 of c, part 1 of c), dimensions={0}

where each part runs the loop on its own half. Threads then meet once for a loop and not once for every kernel of every
step. What is summed over that axis into the state (the gradient of weights) is summed in each part and added up at the
end. Loops that do not need each other are branches of one `concurrent`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..analysis.instruction_cost import cycles
from ..analysis.loop_parallel_dims import Axis, LoopAxes
from ..analysis.trip_count import is_unchanged, part_of_state, runs
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Concatenate,
    Concurrent,
    Constant,
    Dot,
    DynamicSlice,
    GetTupleElement,
    Iota,
    Parameter,
    Reshape,
    Slice,
    Tuple,
    While,
)
from ..ops.reduce import neutral_number
from ..options import Options
from ..progress import ordered
from .loop_invariant_code_motion import is_plain
from .rules.rule import apply, full

_LEAST_US = 60.0  # of a loop, that are worth threads
_MOST_STEP_US = 500.0  # of a step whose kernels are better shared by all threads
_LEAST_ROWS = 4  # of a matrix product in a part: fewer read the other matrix too often
_MOST_SHARED = 1.25  # of a core's cache, for matrices that every part reads in every step
_GUESSED_RUNS = 16
_UNEVEN = 1.3  # of the time of loops side by side, above what threads could do
_FLOPS_PER_US, _ELEMENTS_PER_US = 60e3, 24e3
_FREE = frozenset({"parameter", "constant", "get-tuple-element", "broadcast", "iota", "reshape", "while"})
_PARTS = frozenset({"slice", "dynamic-slice", "gather"})  # of their first operand


@dataclasses.dataclass
class Cut:
    """A loop, what it takes on one thread, and, where it can be cut, along which axis of the parts of its state, in how
    many parts at most, and the values that are sums over that axis."""

    loop: Instruction
    microseconds: float
    axes: LoopAxes | None = None
    chosen: Axis | None = None
    size: int = 0
    most: int = 1
    sums: frozenset[int] = frozenset()

    def axis(self, value: Instruction | int, rank: int) -> int | None:
        """Along which axis a value is cut; None where all parts have the same."""
        if self.axes is None or self.chosen is None:
            return None
        return self.axes.axis_in(value, rank, self.chosen)


def shard_loops(module: Module, options: Options) -> Module:
    """The module with loops of the entry cut or put side by side where there are several threads."""
    if options.threads < 2 or options.numerics == "reproducible":
        return module
    entry = _apply(module.entry, decide(module.entry, options.threads, int(_MOST_SHARED * options.l2_bytes)))
    return module if entry is module.entry else Module(module.name, entry, module.attributes)


def decide(computation: Computation, threads: int, most_shared: int) -> list[list[tuple[Cut, int]]]:
    """Loops that run side by side, each with its number of parts, in the order of the groups. `most_shared`: bytes of
    the matrices that all parts read in a step, at most."""
    groups: list[list[tuple[Cut, int]]] = []
    for loops in _independent(computation):
        cuts = [c for c in (_cut(loop, most_shared) for loop in loops) if c is not None]
        if not cuts:
            continue
        total, longest = sum(c.microseconds for c in cuts), max(c.microseconds for c in cuts)
        wanted = threads
        if len(cuts) >= threads and longest * -(-len(cuts) // threads) <= _UNEVEN * total / threads:
            wanted = 1
        elif longest * len(cuts) <= _UNEVEN * total:
            wanted = -(-threads // len(cuts))
        parts = [(c, min(c.most, wanted)) for c in cuts]
        if len(parts) > 1 or parts[0][1] > 1:
            groups.append(parts)
    return groups


def _independent(computation: Computation) -> list[list[Instruction]]:
    """Loops of which none needs another, those first that others need."""
    depth: dict[Instruction, int] = {}
    levels: list[list[Instruction]] = []
    for instruction in computation.instructions:
        depth[instruction] = max((depth[o] for o in instruction.operands), default=0)
        if _is_candidate(instruction, computation):
            if depth[instruction] == len(levels):
                levels.append([])
            levels[depth[instruction]].append(instruction)
            depth[instruction] += 1
    return levels


def _is_candidate(i: Instruction, computation: Computation) -> bool:
    return (
        is_plain(i)
        and not i.has_side_effect
        and i is not computation.root
        and all(isinstance(u.op, GetTupleElement) for u in computation.users[i])
    )


def _cut(loop: Instruction, most_shared: int) -> Cut | None:
    """How a loop can be cut; None for one that is not worth a thread, or better has all in each step."""
    op = loop.op
    assert isinstance(op, While)
    step = sum(map(_microseconds, op.body.instructions))
    count = runs(loop)
    total = step * (_GUESSED_RUNS if count is None else count)
    if total < _LEAST_US or step > _MOST_STEP_US:
        return None
    axes = LoopAxes(op.body)
    sizes: dict[Axis, int] = {}
    for number, shape in enumerate(loop.shape.tuple_shapes):
        for axis, size in enumerate(shape.dims):
            if size > 1 and not is_unchanged(loop, number):
                sizes.setdefault(axes.find((number, axis)), size)
    parted = {axes.find(axis) for axis in axes.parted}
    found = [
        c
        for chosen, size in sizes.items()
        if chosen not in parted
        if (c := _along(Cut(loop, total, axes, chosen, size), step, most_shared)) is not None
    ]
    return max(found, key=lambda c: c.most, default=Cut(loop, total))


def _along(cut: Cut, step: float, most_shared: int) -> Cut | None:
    """The cut with how many parts it may have; None where some value of the loop does not allow it."""
    op = cut.loop.op
    assert isinstance(op, While)
    whole, shared, most = 0.0, 0, cut.size
    try:
        for i in (i for i in op.body.instructions if i.shape.is_array):
            axis = cut.axis(i, i.shape.rank)
            if isinstance(i.op, Dot):
                left, right = (cut.axis(o, o.shape.rank) for o in i.operands)
                shared += sum(o.shape.bytes for o, a in zip(i.operands, (left, right)) if a is None)
                if axis is not None and left is not None and left not in i.op.lhs_batch:
                    most = min(most, cut.size // _LEAST_ROWS)
                if axis is not None and left is None:
                    return None  # columns of the product: every part would read all rows
                whole += _microseconds(i) if left is None and right is None else 0
            elif axis is None and not any(
                cut.axis(o, o.shape.rank) is not None for o in i.operands if o.shape.is_array
            ):
                whole += _microseconds(i)
        for i in op.condition.instructions:
            number = part_of_state(i, op.condition.parameters[0])
            if number is not None and cut.axis(number, i.shape.rank) is not None:
                return None
        sums = _summed_parts(cut, op.body.parameters[0])
    except ValueError:
        return None
    if sums is None or most < 2 or shared > most_shared or whole > 0.1 * step:
        return None
    return dataclasses.replace(cut, most=most, sums=sums)


def _summed_parts(cut: Cut, state: Instruction) -> frozenset[int] | None:
    """The parts of the state to which the body adds sums over the axis; None where such a sum goes elsewhere."""
    op, axes = cut.loop.op, cut.axes
    assert isinstance(op, While) and axes is not None
    partial = {i for i, axis in axes.summed if axes.find(axis) == cut.chosen}
    found: set[int] = set()
    for number, value in enumerate(op.body.root.operands if partial else ()):
        stack, seen, old = [value], set(), 0
        while stack:
            i = stack.pop()
            if part_of_state(i, state) == number:
                old += 1
            elif i in partial:
                seen.add(i)
            elif i.opcode in ("add", "reshape", "transpose"):
                stack.extend(i.operands)
            else:
                break
            if len(op.body.users[i]) != 1 or op.body.root.operands.count(i) > 1:
                break
        else:
            if old == 1 and seen and cut.axis(number, value.shape.rank) is None:
                found.add(number)
                partial -= seen
    return None if partial else frozenset(found)


def _microseconds(i: Instruction) -> float:
    """A rough estimate for one thread."""
    if not i.shape.is_array or i.opcode in _FREE:
        return 0.0
    if isinstance(i.op, Dot):
        depth = math.prod(i.operands[0].shape.dims[a] for a in i.op.lhs_contracting)
        return 2 * i.shape.elements * depth / _FLOPS_PER_US
    touched: Sequence[Instruction] = (i,) if i.opcode in _PARTS else (i, *i.operands)
    if i.opcode == "dynamic-update-slice":
        touched = i.operands[1:2]
    return max(v.shape.elements for v in touched) * cycles(i) / _ELEMENTS_PER_US


# -- apply


def _apply(computation: Computation, groups: list[list[tuple[Cut, int]]]) -> Computation:
    """The computation with the loops of each group as branches of one instruction."""
    group_of = {cut.loop: group for group in groups for cut, _ in group}
    done: dict[Instruction, Instruction] = {}
    results: dict[Instruction, dict[int, Instruction]] = {}

    def needs(i: Instruction) -> Sequence[Instruction]:
        group = group_of.get(i)
        return [o for cut, _ in group for o in cut.loop.operands] if group else i.operands

    for i in ordered(computation.instructions, needs, "shard_loops"):
        if i in group_of:
            if i not in results:
                results.update(_side_by_side(computation, group_of[i], done))
        elif isinstance(i.op, GetTupleElement) and i.operands[0] in results:
            done[i] = results[i.operands[0]][i.op.index]
        else:
            done[i] = i.with_operands(done[o] for o in i.operands)
    if not groups:
        return computation
    return Computation(
        computation.name,
        done[computation.root],
        [done[p] for p in computation.parameters],
        [done[i] for i in computation.effects()],
    )


def _side_by_side(
    computation: Computation, group: list[tuple[Cut, int]], done: dict[Instruction, Instruction]
) -> dict[Instruction, dict[int, Instruction]]:
    """Replaces the loops of a group; returns their results by number."""
    branches: list[Computation] = []
    operands: list[Instruction] = []
    places: list[tuple[Cut, list[int], int, int]] = []  # cut, numbers wanted, first branch, parts
    for cut, parts in group:
        wanted = sorted({u.op.index for u in computation.users[cut.loop]})  # type: ignore[attr-defined]
        wanted = [n for n in wanted if not is_unchanged(cut.loop, n)]
        init = [done[o] for o in cut.loop.operands[0].operands]
        places.append((cut, wanted, len(branches), parts))
        for part in range(parts):
            low, high = (cut.size * k // parts for k in (part, part + 1))
            branch, given = _part(cut, init, wanted, low, high, part, parts)
            branches.append(branch)
            operands.append(make(Tuple(), *given))
    whole = make(
        Concurrent(tuple(branches)), *operands, name=group[0][0].loop.name, metadata=group[0][0].loop.metadata
    )
    results: dict[Instruction, dict[int, Instruction]] = {}
    for cut, wanted, first, parts in places:
        made = [make(GetTupleElement(first + k), whole) for k in range(parts)]
        found = results[cut.loop] = dict(enumerate(done[o] for o in cut.loop.operands[0].operands))
        for place, number in enumerate(wanted):
            shape = cut.loop.shape.tuple_shapes[number]
            pieces = [make(GetTupleElement(place), m) for m in made]
            axis = cut.axis(number, shape.rank) if parts > 1 else None
            found[number] = pieces[0]
            if axis is not None:
                found[number] = make(Concatenate(axis), *pieces)
            elif number in cut.sums:
                for piece in pieces[1:]:
                    found[number] = apply("add", found[number], piece)
    return results


def _part(
    cut: Cut, init: Sequence[Instruction], wanted: Sequence[int], low: int, high: int, part: int, parts: int
) -> tuple[Computation, list[Instruction]]:
    """A computation that runs the loop on elements low..high, and what is given to it."""
    op = cut.loop.op
    assert isinstance(op, While)
    axes = [
        cut.axis(n, shape.rank) if parts > 1 else None for n, shape in enumerate(cut.loop.shape.tuple_shapes)
    ]
    whole = {n for n, axis in enumerate(axes) if axis is not None and _is_read_in_slices(cut, n, axis)}
    given = [v for v in dict.fromkeys(init) if not _is_made_anew(v)]
    parameter = Instruction(Parameter(0, shape := Shape.tuple(v.shape for v in given)), (), shape, "given")
    own = {v: make(GetTupleElement(k), parameter) for k, v in enumerate(given)}
    values = []
    for number, (value, axis) in enumerate(zip(init, axes)):
        if number in cut.sums and part:
            values.append(full(value.shape, neutral_number("add", value.shape.element_type)))
        elif _is_made_anew(value):
            dims = tuple(high - low if k == axis else d for k, d in enumerate(value.shape.dims))
            values.append(make(Broadcast(dims, ()), value.operands[0]) if value.operands else value)
        elif axis is not None and number not in whole:
            start = tuple(low if k == axis else 0 for k in range(value.shape.rank))
            limit = tuple(high if k == axis else d for k, d in enumerate(value.shape.dims))
            values.append(make(Slice(start, limit, (1,) * value.shape.rank), own[value]))
        else:
            values.append(own[value])
    offset = len(values)
    values.append(make(Constant(Literal(low, _index_type(op.body)))))
    state = Instruction(Parameter(0, shape := Shape.tuple(v.shape for v in values)), (), shape, "state")
    condition = _on_part(op.condition, state, None, cut, whole, high - low, offset)
    body = _on_part(op.body, state, op.body.root, cut if parts > 1 else None, whole, high - low, offset)
    loop = make(
        While(condition, body), make(Tuple(), *values), name=cut.loop.name, metadata=cut.loop.metadata
    )
    root = make(Tuple(), *(make(GetTupleElement(n), loop) for n in wanted))
    return Computation(f"{cut.loop.name or 'loop'}.part{part}", root, [parameter]), given


def _is_made_anew(value: Instruction) -> bool:
    """Whether every branch makes a value for itself: a number, or an array of one number."""
    if isinstance(value.op, Broadcast):
        value = value.operands[0]
    return isinstance(value.op, Constant) and value.shape.is_scalar


def _is_read_in_slices(cut: Cut, number: int, axis: int) -> bool:
    """Whether the body only takes slices of a part of the state that it does not change: each part of the loop then
    slices the whole array."""
    op = cut.loop.op
    assert isinstance(op, While)
    body = op.body
    readers = [
        u
        for p in body.users[body.parameters[0]]
        if part_of_state(p, body.parameters[0]) == number
        for u in body.users[p]
        if u is not body.root
    ]
    index = _index_type(body)
    return (
        is_unchanged(cut.loop, number)
        and bool(readers)
        and all(
            isinstance(u.op, DynamicSlice)
            and u.operands[1].shape.element_type is index
            and u.op.slice_sizes[axis] == u.operands[0].shape.dims[axis]
            for u in readers
        )
    )


def _index_type(body: Computation) -> ElementType:
    """The type of the indices of the first dynamic slice."""
    return next(
        (
            i.operands[1].shape.element_type
            for i in body.instructions
            if isinstance(i.op, DynamicSlice) and len(i.operands) > 1
        ),
        ElementType.S32,
    )


def _on_part(
    computation: Computation,
    state: Instruction,
    root: Instruction | None,
    cut: Cut | None,
    whole: set[int],
    size: int,
    offset: int,
) -> Computation:
    """A loop's body or condition on a part of the state, which has one value more: where the part begins."""
    old_state = computation.parameters[0]
    done: dict[Instruction, Instruction] = {old_state: state}
    at = make(GetTupleElement(offset), state)
    for i in computation.instructions:
        if i is old_state:
            continue
        operands = [done[o] for o in i.operands]
        if i is root:
            done[i] = make(Tuple(), *operands, at, name=i.name)
            continue
        axis = (
            cut.axis(i, i.shape.rank) if cut is not None and root is not None and i.shape.is_array else None
        )
        op = i.op
        if axis is not None:
            dims = tuple(size if k == axis else d for k, d in enumerate(i.shape.dims))
            if isinstance(op, (Broadcast, Reshape)):
                op = dataclasses.replace(op, result_dims=dims)
            elif isinstance(op, Iota):
                op = dataclasses.replace(op, shape=i.shape.with_dims(dims))
            elif isinstance(op, Slice):
                op = dataclasses.replace(
                    op, limit=tuple(size if k == axis else d for k, d in enumerate(op.limit))
                )
            elif isinstance(op, DynamicSlice):
                op = dataclasses.replace(op, slice_sizes=dims)
                if part_of_state(i.operands[0], old_state) in whole:
                    operands[1 + axis] = at
        shape = op.infer([o.shape for o in operands])
        done[i] = Instruction(op, tuple(operands), shape, i.name, i.metadata)
    return Computation(computation.name, done[computation.root], [state])
