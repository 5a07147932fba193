"""Splits loops along an axis that every step preserves, such as the batch of a recurrent network, and runs the parts in
parallel.

    w = (s32[], f32[32,8], f32[9,32,8]) while(init)

becomes

    c = ((f32[16,8]), (f32[16,8])) concurrent((h, xs), (h, xs)), branch_computations={part0, part1}
    r = f32[32,8] concatenate(part 0 of c, part 1 of c), dimensions={0}

where each part runs the loop on its own half. Threads then synchronize once for a loop, not once for every kernel of
every step. A sum over that axis in the state (the gradient of weights) is summed in each part and added at the end.
Independent loops are branches of one `concurrent`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ...runtime.sizes import heuristic
from ..analysis.instruction_cost import cycles
from ..analysis.loop_parallel_dims import Axis, ParallelDims
from ..analysis.trip_count import is_invariant, state_index, trip_count
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Concatenate,
    Concurrent,
    Constant,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    GetTupleElement,
    Iota,
    Opcode,
    Parameter,
    Reshape,
    Slice,
    Transpose,
    Tuple,
    While,
    elementwise,
    is_op,
    size_constant,
)
from ..ops.reduce import neutral_number
from ..options import Options
from ..progress import ordered
from .loop_invariant_code_motion import is_plain
from .rules.rule import full

_MIN_US = 60.0  # of a loop that is worth threads
_MAX_STEP_US = 500.0  # of a step: kernels of longer ones have enough work for all threads
_MIN_ROWS = 4  # of a dot in a part: fewer reuse the other matrix too little
_MAX_SHARED = 1.25  # of a core's cache: matrices that every part reads in every step
_ASSUMED_TRIP_COUNT = 16
_UNEVEN = 1.3  # of the time of parallel loops, relative to a perfect distribution
_FLOPS_PER_US, _ELEMENTS_PER_US = 60e3, 24e3
_FREE = (Broadcast, Constant, GetTupleElement, Iota, Parameter, Reshape, While)


@dataclasses.dataclass
class Cut:
    """How a loop can be split.

    microseconds: on one thread. axis_set: the axes along which it is split, None where it cannot be. size: of these
    axes. sums: elements of the state that are sums over them.
    """

    loop: Instruction
    microseconds: float
    axes: ParallelDims | None = None
    axis_set: Axis | None = None
    size: int = 0
    max_parts: int = 1
    sums: frozenset[int] = frozenset()

    def axis(self, value: Instruction | int, rank: int) -> int | None:
        """The axis along which a value is split; None where all parts have the whole value."""
        if self.axes is None or self.axis_set is None:
            return None
        return self.axes.axis_in(value, rank, self.axis_set)


def parallelize_loops(module: Module, options: Options) -> Module:
    """The module with loops of the entry split, or run in parallel, where there are several threads."""
    if options.threads < 2 or options.numerics == "reproducible":
        return module
    entry = _apply(module.entry, decide(module.entry, options.threads, int(_MAX_SHARED * options.l2_bytes)))
    return module.with_entry(entry)


def decide(computation: Computation, threads: int, max_shared: int) -> list[list[tuple[Cut, int]]]:
    """Groups of loops that run in parallel, each loop with its number of parts. `max_shared`: upper limit of the bytes
    of matrices that all parts read in a step."""
    groups: list[list[tuple[Cut, int]]] = []
    for loops in _independent(computation):
        cuts = [c for c in (_cut(loop, max_shared) for loop in loops) if c is not None]
        if not cuts:
            continue
        total, longest = sum(c.microseconds for c in cuts), max(c.microseconds for c in cuts)
        parts_each = threads
        if len(cuts) >= threads and longest * -(-len(cuts) // threads) <= _UNEVEN * total / threads:
            parts_each = 1
        elif longest * len(cuts) <= _UNEVEN * total:
            parts_each = -(-threads // len(cuts))
        parts = [(c, min(parts_each, c.max_parts)) for c in cuts]
        if len(parts) > 1 or parts[0][1] > 1:
            groups.append(parts)
    return groups


def _independent(computation: Computation) -> list[list[Instruction]]:
    """Lists of independent loops, in an order of dependence."""
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


def _cut(loop: Instruction, max_shared: int) -> Cut | None:
    """How a loop can be split; None for one that is too short for threads, or whose steps are long enough for them."""
    op = loop.op
    assert isinstance(op, While)
    step = sum(map(_microseconds, op.body.instructions))
    count = trip_count(loop)
    total = step * (_ASSUMED_TRIP_COUNT if count is None else count)
    if total < _MIN_US or step > _MAX_STEP_US:
        return None
    axes = ParallelDims(op.body)
    sizes: dict[Axis, int] = {}
    for number, shape in enumerate(loop.shape.tuple_shapes):
        for axis, size in enumerate(shape.dims):
            if size > 1 and not is_invariant(loop, number):
                sizes.setdefault(axes.find((number, axis)), size)
    restricted = {axes.find(axis) for axis in axes.restricted}
    cuts = [
        c
        for axis_set, size in sizes.items()
        if axis_set not in restricted
        if (c := _along(Cut(loop, total, axes, axis_set, size), step, max_shared)) is not None
    ]
    return max(cuts, key=lambda c: c.max_parts, default=Cut(loop, total))


def _along(cut: Cut, step: float, max_shared: int) -> Cut | None:
    """The split with its largest number of parts; None where a value of the loop does not allow it."""
    op = cut.loop.op
    assert isinstance(op, While)
    whole, shared, max_parts = 0.0, 0, cut.size
    try:
        for i in (i for i in op.body.instructions if i.shape.is_array):
            axis = cut.axis(i, i.shape.rank)
            if isinstance(i.op, Dot):
                left, right = (cut.axis(o, o.shape.rank) for o in i.operands)
                shared += sum(o.shape.bytes for o, a in zip(i.operands, (left, right)) if a is None)
                if axis is not None and left is not None and left not in i.op.lhs_batch:
                    max_parts = min(max_parts, cut.size // _MIN_ROWS)
                if axis is not None and left is None:
                    return None  # columns of the dot: every part would read all rows
                whole += _microseconds(i) if left is None and right is None else 0
            elif axis is None and not any(
                cut.axis(o, o.shape.rank) is not None for o in i.operands if o.shape.is_array
            ):
                whole += _microseconds(i)
        for i in op.condition.instructions:
            number = state_index(i, op.condition.parameters[0])
            if number is not None and cut.axis(number, i.shape.rank) is not None:
                return None
        sums = _summed_parts(cut, op.body.parameters[0])
    except ValueError:
        return None
    if sums is None or max_parts < 2 or shared > max_shared or whole > 0.1 * step:
        return None
    return dataclasses.replace(cut, max_parts=max_parts, sums=sums)


def _summed_parts(cut: Cut, state: Instruction) -> frozenset[int] | None:
    """The elements of the state to which the body adds sums over the axis; None where such a sum has other uses."""
    op, axes = cut.loop.op, cut.axes
    assert isinstance(op, While) and axes is not None
    partial = {i for i, axis in axes.reduced if axes.find(axis) == cut.axis_set}
    sums: set[int] = set()
    for number, value in enumerate(op.body.root.operands if partial else ()):
        stack, seen, old = [value], set(), 0
        while stack:
            i = stack.pop()
            if state_index(i, state) == number:
                old += 1
            elif i in partial:
                seen.add(i)
            elif is_op(i, Opcode.ADD) or isinstance(i.op, (Reshape, Transpose)):
                stack.extend(i.operands)
            else:
                break
            if len(op.body.users[i]) != 1 or op.body.root.operands.count(i) > 1:
                break
        else:
            if old == 1 and seen and cut.axis(number, value.shape.rank) is None:
                sums.add(number)
                partial -= seen
    return None if partial else frozenset(sums)


@heuristic()
def _microseconds(i: Instruction) -> float:
    """A rough estimate for one thread."""
    if not i.shape.is_array or isinstance(i.op, _FREE):
        return 0.0
    if isinstance(i.op, Dot):
        depth = math.prod(i.operands[0].shape.dims[a] for a in i.op.lhs_contracting)
        return 2 * i.shape.elements * depth / _FLOPS_PER_US
    touched: Sequence[Instruction] = (i,) if i.op.reads_part else (i, *i.operands)
    if isinstance(i.op, DynamicUpdateSlice):
        touched = i.operands[1:2]
    return max(v.shape.elements for v in touched) * cycles(i) / _ELEMENTS_PER_US


# -- apply


def _apply(computation: Computation, groups: list[list[tuple[Cut, int]]]) -> Computation:
    """The computation with the loops of each group as branches of one instruction."""
    if not groups:
        return computation
    group_of = {cut.loop: group for group in groups for cut, _ in group}
    done: dict[Instruction, Instruction] = {}
    results: dict[Instruction, dict[int, Instruction]] = {}

    def needs(i: Instruction) -> Sequence[Instruction]:
        group = group_of.get(i)
        return [o for cut, _ in group for o in cut.loop.operands] if group else i.operands

    for i in ordered(computation.instructions, needs, "parallelize_loops"):
        if i in group_of:
            if i not in results:
                results.update(_side_by_side(computation, group_of[i], done))
        elif isinstance(i.op, GetTupleElement) and i.operands[0] in results:
            done[i] = results[i.operands[0]][i.op.index]
        else:
            done[i] = i.with_operands(done[o] for o in i.operands)
    return computation.mapped(done)


def _side_by_side(
    computation: Computation, group: list[tuple[Cut, int]], done: dict[Instruction, Instruction]
) -> dict[Instruction, dict[int, Instruction]]:
    """Replaces the loops of a group; returns their results by number."""
    branches: list[Computation] = []
    operands: list[Instruction] = []
    cuts: list[tuple[Cut, list[int], int, int]] = []  # cut, numbers wanted, first branch, parts
    for cut, parts in group:
        users = computation.users[cut.loop]
        outputs = sorted({u.op.index for u in users if isinstance(u.op, GetTupleElement)})
        outputs = [n for n in outputs if not is_invariant(cut.loop, n)]
        init = [done[o] for o in cut.loop.operands[0].operands]
        cuts.append((cut, outputs, len(branches), parts))
        for part in range(parts):
            low, high = (cut.size * k // parts for k in (part, part + 1))
            branch, inputs = _part(cut, init, outputs, low, high, part, parts)
            branches.append(branch)
            operands.append(make(Tuple(), *inputs))
    whole = make(
        Concurrent(tuple(branches)), *operands, name=group[0][0].loop.name, metadata=group[0][0].loop.metadata
    )
    results: dict[Instruction, dict[int, Instruction]] = {}
    for cut, outputs, first, parts in cuts:
        branch_results = [make(GetTupleElement(first + k), whole) for k in range(parts)]
        values = results[cut.loop] = dict(enumerate(done[o] for o in cut.loop.operands[0].operands))
        for position, number in enumerate(outputs):
            shape = cut.loop.shape.tuple_shapes[number]
            pieces = [make(GetTupleElement(position), m) for m in branch_results]
            axis = cut.axis(number, shape.rank) if parts > 1 else None
            values[number] = pieces[0]
            if axis is not None:
                values[number] = make(Concatenate(axis), *pieces)
            elif number in cut.sums:
                for piece in pieces[1:]:
                    values[number] = elementwise(Opcode.ADD, values[number], piece)
    return results


def _part(
    cut: Cut, init: Sequence[Instruction], outputs: Sequence[int], low: int, high: int, part: int, parts: int
) -> tuple[Computation, list[Instruction]]:
    """A computation that runs the loop on elements low..high, and its arguments."""
    op = cut.loop.op
    assert isinstance(op, While)
    axes = [
        cut.axis(n, shape.rank) if parts > 1 else None for n, shape in enumerate(cut.loop.shape.tuple_shapes)
    ]
    whole = {n for n, axis in enumerate(axes) if axis is not None and _is_read_in_slices(cut, n, axis)}
    inputs = [v for v in dict.fromkeys(init) if not _is_recomputed(v)]
    parameter = Instruction(Parameter(0, shape := Shape.tuple(v.shape for v in inputs)), (), shape, "given")
    own = {v: make(GetTupleElement(k), parameter) for k, v in enumerate(inputs)}
    values = []
    for number, (value, axis) in enumerate(zip(init, axes)):
        if number in cut.sums and part:
            values.append(full(value.shape, neutral_number(Opcode.ADD, value.shape.element_type)))
        elif _is_recomputed(value):
            dims = tuple(high - low if k == axis else d for k, d in enumerate(value.shape.dims))
            values.append(make(Broadcast(dims, ()), value.operands[0]) if value.operands else value)
        elif axis is not None and number not in whole:
            start = tuple(low if k == axis else 0 for k in range(value.shape.rank))
            limit = tuple(high if k == axis else d for k, d in enumerate(value.shape.dims))
            values.append(make(Slice(start, limit, (1,) * value.shape.rank), own[value]))
        else:
            values.append(own[value])
    offset = len(values)
    values.append(size_constant(low, _index_type(op.body)))
    state = Instruction(Parameter(0, shape := Shape.tuple(v.shape for v in values)), (), shape, "state")
    condition = _on_part(op.condition, state, None, cut, whole, high - low, offset)
    body = _on_part(op.body, state, op.body.root, cut if parts > 1 else None, whole, high - low, offset)
    loop = make(
        While(condition, body), make(Tuple(), *values), name=cut.loop.name, metadata=cut.loop.metadata
    )
    root = make(Tuple(), *(make(GetTupleElement(n), loop) for n in outputs))
    return Computation(f"{cut.loop.name or 'loop'}.part{part}", root, [parameter]), inputs


def _is_recomputed(value: Instruction) -> bool:
    """Whether every branch computes a value again: a scalar constant, or a broadcast of one."""
    if isinstance(value.op, Broadcast):
        value = value.operands[0]
    return isinstance(value.op, Constant) and value.shape.is_scalar


def _is_read_in_slices(cut: Cut, number: int, axis: int) -> bool:
    """Whether the body only slices an invariant element of the state: each part of the loop then slices the whole
    array."""
    op = cut.loop.op
    assert isinstance(op, While)
    body = op.body
    readers = [
        u
        for p in body.users[body.parameters[0]]
        if state_index(p, body.parameters[0]) == number
        for u in body.users[p]
        if u is not body.root
    ]
    index = _index_type(body)
    return (
        is_invariant(cut.loop, number)
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
    """A loop's body or condition on a part of the state, which has one more element: the start of the part."""
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
                if state_index(i.operands[0], old_state) in whole:
                    operands[1 + axis] = at
        shape = op.infer([o.shape for o in operands])
        done[i] = Instruction(op, tuple(operands), shape, i.name, i.metadata)
    return Computation(computation.name, done[computation.root], [state])
