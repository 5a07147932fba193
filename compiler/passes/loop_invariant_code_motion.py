"""Moves work out of loops: invariant values, and dots that all steps can share.

    body { x = f32[1,8,4] dynamic-slice(xs, n, 0, 0)        p = f32[9,8,6] dot(xs, w)
           y = f32[8,6] dot(reshape(x), w)            =>    body { y = reshape(dynamic-slice(p, n, 0, 0)) ... }
           ... }

1. Invariant values are computed before the loop.
2. The dot of a slice with an invariant matrix becomes a slice of one large dot before the loop. Where the slice is an
   operand of a concatenation, the dot is split first.
3. A list to which every step appends the same invariant value, or step n element n of another list, is a broadcast of
   that value, or the other list: the loop does not write it. A slice of such a broadcast is the value.
4. A sum over all steps of dots of two values becomes one dot of the lists of both, after the loop.

All but the first need a trip count that is known when compiling: else rows could be computed that no step reads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ...runtime.sizes import estimate
from ..analysis.trip_count import induction_variables, is_invariant, state_index, trip_count
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Concatenate,
    Constant,
    CustomCall,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    GetTupleElement,
    Iota,
    Opcode,
    Pad,
    Parameter,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Transpose,
    Tuple,
    While,
    elementwise,
    is_op,
    size_constant,
)
from ..options import Options
from .rules.rule import full

_MAX_ROWS = 64  # of a dot in one step: a dot of more rows is fast in the loop
_MAX_BYTES = 16 << 20  # of the dots of all steps
_FEW_UNUSED = 1.25  # rows computed, by rows that steps read
_MIN_FLOPS = 1 << 14  # of a dot in one step
_MIN_SUM_BYTES = 64 << 10  # of a sum of dots: a smaller one stays in the L1 cache
_PASSED_ON = (Broadcast, Constant, GetTupleElement, Iota, Parameter, Reshape, Tuple)
_WORTH_STORING = (Concatenate, Gather, Pad, Reduce, Reverse, Slice, Transpose)


def loop_invariant_code_motion(module: Module, options: Options) -> Module:
    """The module with work moved before and after its loops."""
    return module.map_computations(lambda c: _apply(c) if c.has_op(While) else c)


def is_plain(loop: Instruction) -> bool:
    """Whether a loop carries a tuple of arrays that is read by get-tuple-element alone."""
    op = loop.op
    return (
        isinstance(op, While)
        and loop.shape.is_tuple
        and all(s.is_array for s in loop.shape.tuple_shapes)
        and isinstance(op.body.root.op, Tuple)
        and isinstance(loop.operands[0].op, Tuple)
        and not op.body.users[op.body.root]
        and all(
            isinstance(u.op, GetTupleElement)
            for c in (op.body, op.condition)
            for u in c.users[c.parameters[0]]
        )
    )


def _only_checks(loop: Instruction) -> bool:
    """Whether the steps of a loop have no side effects but checks that end the run."""
    return not loop.has_side_effect or all(
        isinstance(i.op, CustomCall) and i.op.is_check or (not i.op.has_side_effect and _only_checks(i))
        for called in loop.op.called()
        for i in called.instructions
        if i.has_side_effect
    )


def _apply(computation: Computation) -> Computation:
    done: dict[Instruction, Instruction] = {}
    lists: dict[tuple[Instruction, int], Instruction] = {}
    changed = False
    for old in computation.instructions:
        new = old.with_operands([done[o] for o in old.operands])
        if isinstance(new.op, GetTupleElement) and (new.operands[0], new.op.index) in lists:
            new = lists[new.operands[0], new.op.index]
        elif (
            is_plain(new)
            and _only_checks(new)
            and old is not computation.root
            and all(isinstance(u.op, GetTupleElement) for u in computation.users[old])
        ):
            hoisting = _LoopHoisting(new)
            hoisted, results = hoisting.loop()
            changed |= hoisted is not new or bool(results)
            lists.update({(hoisted, n): value for n, value in results.items()})
            new = hoisted
        done[old] = new
    if not changed:
        return computation
    return computation.mapped(done)


@dataclasses.dataclass
class _BatchedDot:
    """A dot of a slice as a slice of the dot of all rows."""

    dot: Instruction
    slice: Instruction


class _LoopHoisting:
    """One loop: the constructor decides, `loop` builds the new one."""

    def __init__(self, loop: Instruction) -> None:
        assert isinstance(loop.op, While)
        self.old, self.op, self.body = loop, loop.op, loop.op.body
        self.state = self.body.parameters[0]
        self.init = loop.operands[0].operands
        self.induction_variables, self.trip_count = induction_variables(loop), trip_count(loop)
        self._outside: dict[Instruction, Instruction | None] = {}
        for i in self.body.instructions:
            self.outside(i)
        self.values: dict[
            Instruction, Instruction
        ] = {}  # replacements of instructions of the body, from outside
        self.rows: dict[Instruction, list[_BatchedDot | tuple[Instruction, Instruction]]] = {}
        self.summand_lists: dict[
            Instruction, int
        ] = {}  # values of sums, with the element of the state that lists them
        self.lists = {n: value for n in range(len(self.init)) if (value := self._list(n)) is not None}
        step = next((n for n, count in self.induction_variables.items() if count == (0, 1)), None)
        self.step = None if self.trip_count is None else step
        self.sums = {n: d for n in range(len(self.init)) if (d := self._summed(n)) is not None}
        for i in self.body.instructions:
            self._decide(i)

    # -- decide
    def outside(self, i: Instruction) -> Instruction | None:
        """The invariant value before the loop; None where steps change it."""
        if i not in self._outside:
            self._outside[i] = self._hoisted(i)
        return self._outside[i]

    def _hoisted(self, i: Instruction) -> Instruction | None:
        number = state_index(i, self.state)
        if number is not None:
            return self.init[number] if is_invariant(self.old, number) else None
        if (
            i is self.state
            or i is self.body.root
            or i.has_side_effect
            or not i.shape.is_array
            or isinstance(i.op, While)
        ):
            return None
        operands = [invariant for o in i.operands if (invariant := self.outside(o)) is not None]
        return i.with_operands(operands) if len(operands) == len(i.operands) else None

    def _decide(self, i: Instruction) -> None:
        if (value := self._element_of_all(i)) is not None:
            self.values[i] = value
        elif isinstance(i.op, Dot) and (parts := self._hoisted_dots(i, i.op)):
            self.rows[i] = parts
        elif (
            not isinstance(i.op, _PASSED_ON)
            and (i.op.is_elementwise or i.op.is_contraction or isinstance(i.op, _WORTH_STORING))
            and (value := self.outside(i)) is not None
            and not i.shape.is_scalar
            and i.shape.bytes <= 2 * sum(o.shape.bytes for o in i.operands)
            and any(self.outside(u) is None for u in self.body.users[i])
        ):
            self.values[i] = value

    def _element_of_all(self, i: Instruction) -> Instruction | None:
        """The value of a slice of a broadcast along the broadcast axes."""
        source = self.outside(i.operands[0]) if isinstance(i.op, DynamicSlice) else None
        if source is None or not isinstance(source.op, Broadcast) or not source.operands[0].shape.dims:
            return None
        mapped = source.op.dimensions
        if any(i.shape.dims[a] != source.shape.dims[a] for a in mapped) or any(
            source.operands[0].shape.dims[k] != source.shape.dims[a] for k, a in enumerate(mapped)
        ):
            return None
        if tuple(sorted(mapped)) != mapped or i.shape.elements != source.operands[0].shape.elements:
            return None
        return make(Reshape(i.shape.dims), source.operands[0])

    def _hoisted_dots(self, i: Instruction, op: Dot) -> list[_BatchedDot | tuple[Instruction, Instruction]]:
        """The dot as a sum of slices of larger dots, and of dots of the remaining (left, right) operands."""
        left, right = i.operands
        matrix = self.outside(right)
        if (
            matrix is None
            or op.lhs_batch
            or len(op.lhs_contracting) != 1
            or op.preferred_type is not None
            or not i.shape.element_type.is_float
            or self.trip_count is None
        ):
            return []
        depth = op.lhs_contracting[0]
        if (rows := self._rows(left, matrix, op, i)) is not None:
            return [rows]
        if not isinstance(left.op, Concatenate) or left.op.dimension != depth:
            return []
        parts: list[_BatchedDot | tuple[Instruction, Instruction]] = []
        at, axis = 0, op.rhs_contracting[0]
        for part in left.operands:
            size = part.shape.dims[depth]
            start = tuple(at if k == axis else 0 for k in range(right.shape.rank))
            limit = tuple(at + size if k == axis else d for k, d in enumerate(right.shape.dims))
            piece = make(Slice(start, limit, (1,) * right.shape.rank), matrix)
            parts.append(self._rows(part, piece, op, i) or (part, piece))
            at += size
        return parts if any(isinstance(p, _BatchedDot) for p in parts) and len(parts) == 2 else []

    def _rows(self, left: Instruction, matrix: Instruction, op: Dot, i: Instruction) -> _BatchedDot | None:
        """The dot of one row of an invariant array along its first axis, as a row of the dot of all rows."""
        cut = left.operands[0] if isinstance(left.op, Reshape) else left
        if (
            not isinstance(cut.op, DynamicSlice)
            or left.shape.dims != cut.shape.dims[1:]
            or cut.shape.dims[0] != 1
            or not left.shape.dims
        ):
            return None
        source = self.outside(cut.operands[0])
        if source is None or source.shape.dims[1:] != cut.shape.dims[1:]:
            return None
        steps, rows = (
            source.shape.dims[0],
            left.shape.elements // max(1, left.shape.dims[op.lhs_contracting[0]]),
        )
        flops = 2 * i.shape.elements * left.shape.dims[op.lhs_contracting[0]]
        if (
            estimate(steps) > _FEW_UNUSED * estimate(self.trip_count or 0)
            or estimate(rows) > _MAX_ROWS
            or estimate(flops) < _MIN_FLOPS
            or steps * i.shape.bytes > _MAX_BYTES
        ):
            return None
        dot = make(
            Dot((op.lhs_contracting[0] + 1,), op.rhs_contracting, (), ()),
            source,
            matrix,
            name=i.name,
            metadata=i.metadata,
        )
        return _BatchedDot(dot, cut)

    def _list(self, number: int) -> Instruction | None:
        """The value of a list after the loop, if every step writes the next element and the elements are invariant."""
        write = self.body.root.operands[number]
        if (
            not isinstance(write.op, DynamicUpdateSlice)
            or state_index(write.operands[0], self.state) != number
            or self.body.users[write.operands[0]] != [write]
            or self.body.users[write] != [self.body.root]
        ):
            return None
        dims, update = write.shape.dims, write.operands[1]
        if not dims:
            return None
        step_number = state_index(write.operands[2], self.state)
        if (
            update.shape.dims != (1, *dims[1:])
            or self.trip_count is None
            or self.trip_count < dims[0]
            or self.induction_variables.get(-1 if step_number is None else step_number) != (0, 1)
        ):
            return None
        value = update.operands[0] if isinstance(update.op, Reshape) else update
        if value.shape.dims == dims[1:] and (invariant := self.outside(value)) is not None:
            return make(Broadcast(dims, tuple(range(1, len(dims)))), invariant)
        if isinstance(value.op, DynamicSlice) and value.shape.dims == (1, *dims[1:]):
            source = self.outside(value.operands[0])
            start = state_index(value.operands[1], self.state)
            if (
                source is not None
                and source.shape == write.shape
                and self.induction_variables.get(-1 if start is None else start) == (0, 1)
            ):
                return source
        return None

    def _summed(self, number: int) -> Instruction | None:
        """The dot that every step adds to an element of the state without other users."""
        total = self.body.root.operands[number]
        if not is_op(total, Opcode.ADD) or self.step is None or self.body.users[total] != [self.body.root]:
            return None
        old, dot = total.operands
        if state_index(old, self.state) != number:
            old, dot = dot, old
        op = dot.op
        if (
            state_index(old, self.state) != number
            or not isinstance(op, Dot)
            or op.lhs_batch
            or self.body.users[old] != [total]
            or self.body.users[dot] != [total]
            or not total.shape.element_type.is_float
            or op.preferred_type is not None
            or self.body.root.operands.count(total) != 1
        ):
            return None
        rows = math.prod(dot.operands[0].shape.dims[a] for a in op.lhs_contracting)
        if (
            rows > _MAX_ROWS
            or total.shape.bytes < _MIN_SUM_BYTES
            or any((self.trip_count or 0) * o.shape.bytes > _MAX_BYTES for o in dot.operands)
        ):
            return None
        return dot

    # -- apply
    def loop(self) -> tuple[Instruction, dict[int, Instruction]]:
        """The new loop, itself where nothing is hoisted, and results that are known without it."""
        results = (
            {}
            if self.trip_count is None
            else {
                n: size_constant(start + self.trip_count * step, self.init[n].shape.element_type)
                for n, (start, step) in self.induction_variables.items()
                if abs(start) + self.trip_count * abs(step) < 1 << 31
                and self.init[n].shape.element_type.bits >= 32
            }
        )
        if not (self.values or self.rows or self.lists or self.sums):
            return self.old, results
        more: dict[Instruction, None] = dict.fromkeys(self.values.values())
        for parts in self.rows.values():
            more.update(dict.fromkeys(p.dot if isinstance(p, _BatchedDot) else p[1] for p in parts))
        number = {value: len(self.init) + k for k, value in enumerate(more)}
        summands = list(dict.fromkeys(o for dot in self.sums.values() for o in dot.operands))
        self.summand_lists = {value: len(self.init) + len(more) + k for k, value in enumerate(summands)}
        init = [*self.init, *more, *(full(self._all_steps(v), 0) for v in summands)]
        shape = Shape.tuple(v.shape for v in init)
        state = Instruction(Parameter(0, shape), (), shape, self.state.name)
        body = self._rewritten(self.body, state, number)
        condition = self._rewritten(self.op.condition, state, number)
        loop = make(
            While(condition, body), make(Tuple(), *init), name=self.old.name, metadata=self.old.metadata
        )
        for n, dot in self.sums.items():
            lists = [make(GetTupleElement(self.summand_lists[o]), loop) for o in dot.operands]
            assert isinstance(dot.op, Dot)
            left, right = (
                (0, *(a + 1 for a in axes)) for axes in (dot.op.lhs_contracting, dot.op.rhs_contracting)
            )
            total = make(Dot(left, right, (), ()), *lists, name=dot.name, metadata=dot.metadata)
            results[n] = elementwise(Opcode.ADD, self.init[n], total)
        return loop, results | self.lists

    def _all_steps(self, value: Instruction) -> Shape:
        return value.shape.with_dims((self.trip_count or 0, *value.shape.dims))

    def _rewritten(
        self, computation: Computation, state: Instruction, number: dict[Instruction, int]
    ) -> Computation:
        done: dict[Instruction, Instruction] = {computation.parameters[0]: state}

        def element(value: Instruction) -> Instruction:
            return make(GetTupleElement(number[value]), state)

        for i in computation.instructions:
            if i in done:
                continue
            operands = [done[o] for o in i.operands]
            if computation is self.body and i is self.body.root:
                for n in (*self.lists, *self.sums):
                    operands[n] = make(GetTupleElement(n), state)
                lists = [self._with_step(state, at, done[value]) for value, at in self.summand_lists.items()]
                done[i] = make(Tuple(), *operands, *map(element, number), *lists, name=i.name)
            elif computation is self.body and i in self.values:
                done[i] = element(self.values[i])
            elif computation is self.body and i in self.rows:
                done[i] = self._sum(i, self.rows[i], done, element)
            else:
                done[i] = Instruction(i.op, tuple(operands), i.shape, i.name, i.metadata)
        checks = [done[i] for i in computation.instructions if i.has_side_effect]
        return Computation(computation.name, done[computation.root], [state], checks)

    def _with_step(self, state: Instruction, at: int, value: Instruction) -> Instruction:
        """The list that is element `at` of the state, with the value of this step."""
        step = make(GetTupleElement(self.step or 0), state)
        zero = make(Constant(Literal(0, step.shape.element_type)))
        row = make(Reshape((1, *value.shape.dims)), value)
        return make(
            DynamicUpdateSlice(), make(GetTupleElement(at), state), row, step, *[zero] * value.shape.rank
        )

    def _sum(
        self,
        i: Instruction,
        parts: Sequence[_BatchedDot | tuple[Instruction, Instruction]],
        done: dict[Instruction, Instruction],
        element: Callable[[Instruction], Instruction],
    ) -> Instruction:
        terms: list[Instruction] = []
        for part in parts:
            if isinstance(part, _BatchedDot):
                first, sizes = part.slice.operands[1], (1, *part.dot.shape.dims[1:])
                zero = make(Constant(Literal(0, first.shape.element_type)))
                cut = make(DynamicSlice(sizes), element(part.dot), done[first], *[zero] * (len(sizes) - 1))
                terms.append(make(Reshape(sizes[1:]), cut))
            else:
                terms.append(make(i.op, done[part[0]], element(part[1]), name=i.name, metadata=i.metadata))
        total = terms[0]
        for value in terms[1:]:
            total = elementwise(Opcode.ADD, total, value)
        return total
