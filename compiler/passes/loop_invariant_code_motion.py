"""Work that a loop repeats, done once before it, for all steps together where each has a part of it.

    body { x = f32[1,8,4] dynamic-slice(xs, n, 0, 0)        p = f32[9,8,6] dot(xs, w)
           y = f32[8,6] dot(reshape(x), w)            =>    body { y = reshape(dynamic-slice(p, n, 0, 0)) ... }
           ... }

1. What depends only on values that the loop does not change is computed before it.
2. A matrix product of a slice with a matrix that does not change becomes a slice of one large product; where the slice
   is a part of a concatenation, the product is first taken apart.
3. A list to which every step appends one and the same value, or step n element n of another list, is that value in
   every place, or that list: it is not written. A slice of such a list is the value.

4. A sum over all steps of products of two values is one product of the lists of both, after the loop. Where a count
   ends is known.

All but the first need a count of steps known when compiling: else rows could be computed that no step reads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ..analysis.trip_count import counters, is_unchanged, part_of_state, runs
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
    GetTupleElement,
    Parameter,
    Reshape,
    Slice,
    Tuple,
    While,
)
from ..options import Options
from .rules.rule import apply, full

_MOST_ROWS = 64  # of a product in one step: more make it fast by themselves
_MOST_BYTES = 16 << 20  # of the products of all steps
_FEW_UNUSED = 1.25  # rows computed, by rows that steps read
_LEAST_FLOPS = 1 << 14  # of a product in one step
_LEAST_SUM_BYTES = 64 << 10  # of a sum of products: a smaller one stays in the nearest cache
_PASSED_ON = frozenset(
    {"constant", "parameter", "get-tuple-element", "broadcast", "iota", "reshape", "tuple"}
)
_MOVES = frozenset(
    {"dot", "convolution", "transpose", "slice", "concatenate", "reduce", "gather", "pad", "reverse"}
)


def lift_from_loops(module: Module, options: Options) -> Module:
    """The module with what loops repeat done before them."""
    return module.map_computations(_apply)


def is_plain(loop: Instruction) -> bool:
    """A loop over a tuple of arrays whose body makes a tuple, parts of which are read by number alone."""
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
            lift = _Lift(new)
            lifted, results = lift.loop()
            changed |= lifted is not new or bool(results)
            lists.update({(lifted, n): value for n, value in results.items()})
            new = lifted
        done[old] = new
    if not changed:
        return computation
    return Computation(
        computation.name,
        done[computation.root],
        [done[p] for p in computation.parameters],
        [done[i] for i in computation.effects()],
    )


@dataclasses.dataclass
class _Rows:
    """A product of a slice, as slices of the products of all rows."""

    product: Instruction
    slice: Instruction


class _Lift:
    """A loop while it is lifted from."""

    def __init__(self, loop: Instruction) -> None:
        assert isinstance(loop.op, While)
        self.old, self.op, self.body = loop, loop.op, loop.op.body
        self.state = self.body.parameters[0]
        self.init = loop.operands[0].operands
        self.counters, self.runs = counters(loop), runs(loop)
        self._outside: dict[Instruction, Instruction | None] = {}
        for i in self.body.instructions:
            self.outside(i)
        self.values: dict[
            Instruction, Instruction
        ] = {}  # what is read in place of an instruction of the body
        self.rows: dict[Instruction, list[_Rows | tuple[Instruction, Instruction]]] = {}
        self.kept: dict[Instruction, int] = {}  # values of which there is a list, by the number of that
        self.lists = {n: value for n in range(len(self.init)) if (value := self._list(n)) is not None}
        place = next((n for n, count in self.counters.items() if count == (0, 1)), None)
        self.place = None if self.runs is None else place
        self.sums = {n: d for n in range(len(self.init)) if (d := self._summed(n)) is not None}
        for i in self.body.instructions:
            self._decide(i)

    # -- decide
    def outside(self, i: Instruction) -> Instruction | None:
        """The same value before the loop; None where steps change it."""
        if i not in self._outside:
            self._outside[i] = self._made_outside(i)
        return self._outside[i]

    def _made_outside(self, i: Instruction) -> Instruction | None:
        number = part_of_state(i, self.state)
        if number is not None:
            return self.init[number] if is_unchanged(self.old, number) else None
        if (
            i is self.state
            or i is self.body.root
            or i.has_side_effect
            or not i.shape.is_array
            or isinstance(i.op, While)
        ):
            return None
        operands = [self.outside(o) for o in i.operands]
        return None if None in operands else i.with_operands(operands)  # type: ignore[arg-type]

    def _decide(self, i: Instruction) -> None:
        if (value := self._element_of_all(i)) is not None:
            self.values[i] = value
        elif isinstance(i.op, Dot) and (parts := self._products(i, i.op)):
            self.rows[i] = parts
        elif (
            i.opcode not in _PASSED_ON
            and (i.op.is_elementwise or i.opcode in _MOVES)
            and (value := self.outside(i)) is not None
            and not i.shape.is_scalar
            and i.shape.bytes <= 2 * sum(o.shape.bytes for o in i.operands)
            and any(self.outside(u) is None for u in self.body.users[i])
        ):
            self.values[i] = value

    def _element_of_all(self, i: Instruction) -> Instruction | None:
        """A slice of an array that has the same in every place along the axes where it is cut."""
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

    def _products(self, i: Instruction, op: Dot) -> list[_Rows | tuple[Instruction, Instruction]]:
        """The product as a sum of slices of larger products and of products (left, right) with what is left."""
        left, right = i.operands
        matrix = self.outside(right)
        if (
            matrix is None
            or op.lhs_batch
            or len(op.lhs_contracting) != 1
            or op.preferred_type is not None
            or not i.shape.element_type.is_float
            or self.runs is None
        ):
            return []
        depth = op.lhs_contracting[0]
        if (rows := self._rows(left, matrix, op, i)) is not None:
            return [rows]
        if not isinstance(left.op, Concatenate) or left.op.dimension != depth:
            return []
        parts: list[_Rows | tuple[Instruction, Instruction]] = []
        at, axis = 0, op.rhs_contracting[0]
        for part in left.operands:
            size = part.shape.dims[depth]
            start = tuple(at if k == axis else 0 for k in range(right.shape.rank))
            limit = tuple(at + size if k == axis else d for k, d in enumerate(right.shape.dims))
            piece = make(Slice(start, limit, (1,) * right.shape.rank), matrix)
            parts.append(self._rows(part, piece, op, i) or (part, piece))
            at += size
        return parts if any(isinstance(p, _Rows) for p in parts) and len(parts) == 2 else []

    def _rows(self, left: Instruction, matrix: Instruction, op: Dot, i: Instruction) -> _Rows | None:
        """The product with a slice of one place along the first axis, reshaped to what is left of it."""
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
            steps > _FEW_UNUSED * (self.runs or 0)
            or rows > _MOST_ROWS
            or flops < _LEAST_FLOPS
            or steps * i.shape.bytes > _MOST_BYTES
        ):
            return None
        product = make(
            Dot((op.lhs_contracting[0] + 1,), op.rhs_contracting, (), ()),
            source,
            matrix,
            name=i.name,
            metadata=i.metadata,
        )
        return _Rows(product, cut)

    def _list(self, number: int) -> Instruction | None:
        """What is in a list after the loop, if every step writes the next place and it can be told beforehand."""
        write = self.body.root.operands[number]
        if (
            not isinstance(write.op, DynamicUpdateSlice)
            or part_of_state(write.operands[0], self.state) != number
            or self.body.users[write.operands[0]] != [write]
            or self.body.users[write] != [self.body.root]
        ):
            return None
        dims, update = write.shape.dims, write.operands[1]
        if not dims:
            return None
        place = part_of_state(write.operands[2], self.state)
        if (
            update.shape.dims != (1, *dims[1:])
            or self.runs is None
            or self.runs < dims[0]
            or self.counters.get(-1 if place is None else place) != (0, 1)
        ):
            return None
        value = update.operands[0] if isinstance(update.op, Reshape) else update
        if value.shape.dims == dims[1:] and (made := self.outside(value)) is not None:
            return make(Broadcast(dims, tuple(range(1, len(dims)))), made)
        if isinstance(value.op, DynamicSlice) and value.shape.dims == (1, *dims[1:]):
            source = self.outside(value.operands[0])
            start = part_of_state(value.operands[1], self.state)
            if (
                source is not None
                and source.shape == write.shape
                and self.counters.get(-1 if start is None else start) == (0, 1)
            ):
                return source
        return None

    def _summed(self, number: int) -> Instruction | None:
        """The product that every step adds to a part of the state that it does not read else."""
        total = self.body.root.operands[number]
        if total.opcode != "add" or self.place is None or self.body.users[total] != [self.body.root]:
            return None
        old, product = total.operands
        if part_of_state(old, self.state) != number:
            old, product = product, old
        op = product.op
        if (
            part_of_state(old, self.state) != number
            or not isinstance(op, Dot)
            or op.lhs_batch
            or self.body.users[old] != [total]
            or self.body.users[product] != [total]
            or not total.shape.element_type.is_float
            or op.preferred_type is not None
            or self.body.root.operands.count(total) != 1
        ):
            return None
        rows = math.prod(product.operands[0].shape.dims[a] for a in op.lhs_contracting)
        if (
            rows > _MOST_ROWS
            or total.shape.bytes < _LEAST_SUM_BYTES
            or any((self.runs or 0) * o.shape.bytes > _MOST_BYTES for o in product.operands)
        ):
            return None
        return product

    # -- apply
    def loop(self) -> tuple[Instruction, dict[int, Instruction]]:
        """The loop with less to do, itself where nothing is lifted, and those of its results that are known."""
        known = (
            {}
            if self.runs is None
            else {
                n: make(Constant(Literal(start + self.runs * step, self.init[n].shape.element_type)))
                for n, (start, step) in self.counters.items()
                if abs(start) + self.runs * abs(step) < 1 << 31 and self.init[n].shape.element_type.bits >= 32
            }
        )
        if not (self.values or self.rows or self.lists or self.sums):
            return self.old, known
        more: dict[Instruction, None] = dict.fromkeys(self.values.values())
        for parts in self.rows.values():
            more.update(dict.fromkeys(p.product if isinstance(p, _Rows) else p[1] for p in parts))
        number = {value: len(self.init) + k for k, value in enumerate(more)}
        kept = list(dict.fromkeys(o for product in self.sums.values() for o in product.operands))
        self.kept = {value: len(self.init) + len(more) + k for k, value in enumerate(kept)}
        init = [*self.init, *more, *(full(self._all_steps(v), 0) for v in kept)]
        shape = Shape.tuple(v.shape for v in init)
        state = Instruction(Parameter(0, shape), (), shape, self.state.name)
        body = self._rewritten(self.body, state, number)
        condition = self._rewritten(self.op.condition, state, number)
        made = make(
            While(condition, body), make(Tuple(), *init), name=self.old.name, metadata=self.old.metadata
        )
        for n, product in self.sums.items():
            lists = [make(GetTupleElement(self.kept[o]), made) for o in product.operands]
            assert isinstance(product.op, Dot)
            left, right = (
                (0, *(a + 1 for a in axes))
                for axes in (product.op.lhs_contracting, product.op.rhs_contracting)
            )
            total = make(Dot(left, right, (), ()), *lists, name=product.name, metadata=product.metadata)
            known[n] = apply("add", self.init[n], total)
        return made, known | self.lists

    def _all_steps(self, value: Instruction) -> Shape:
        return value.shape.with_dims((self.runs or 0, *value.shape.dims))

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
                lists = [self._with_step(state, at, done[value]) for value, at in self.kept.items()]
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
        """The list that is part `at` of the state, with the step's value in its place."""
        place = make(GetTupleElement(self.place or 0), state)
        zero = make(Constant(Literal(0, place.shape.element_type)))
        row = make(Reshape((1, *value.shape.dims)), value)
        return make(
            DynamicUpdateSlice(), make(GetTupleElement(at), state), row, place, *[zero] * value.shape.rank
        )

    def _sum(
        self,
        i: Instruction,
        parts: Sequence[_Rows | tuple[Instruction, Instruction]],
        done: dict[Instruction, Instruction],
        element: Callable[[Instruction], Instruction],
    ) -> Instruction:
        made: list[Instruction] = []
        for part in parts:
            if isinstance(part, _Rows):
                first, sizes = part.slice.operands[1], (1, *part.product.shape.dims[1:])
                zero = make(Constant(Literal(0, first.shape.element_type)))
                cut = make(
                    DynamicSlice(sizes), element(part.product), done[first], *[zero] * (len(sizes) - 1)
                )
                made.append(make(Reshape(sizes[1:]), cut))
            else:
                made.append(make(i.op, done[part[0]], element(part[1]), name=i.name, metadata=i.metadata))
        total = made[0]
        for value in made[1:]:
            total = apply("add", total, value)
        return total
