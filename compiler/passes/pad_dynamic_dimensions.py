"""Sizes known at run time only turned into values, masks and selects; what remains has its bound as its size.

    y = f32[<=8] set-dimension-size(x, n)                   i = s32[8] iota()          m = pred[8] compare(i, n), LT
    s = f32[] reduce(y, zero)                    =>         z = f32[8] select(m, x, zero)
                                                            s = f32[] reduce(z, zero)

Elements beyond a size hold anything: every op that would let them into a result gets its neutral element there
(a reduction its initial value, a product zero), or its result put together anew (concatenate, reverse, sort).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..analysis.dynamic_dimension_inference import Sizes, is_dynamic, result_sizes
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Call,
    Compare,
    Concatenate,
    Conditional,
    Constant,
    Convolution,
    Copy,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    Fusion,
    GetDimensionSize,
    GetTupleElement,
    Iota,
    Op,
    OptimizationBarrier,
    Pad,
    Parameter,
    Reduce,
    ReduceWindow,
    Reverse,
    Scatter,
    SetDimensionSize,
    Sort,
    Tuple,
    While,
)
from ..options import Options
from ..progress import Progress

Nested: TypeAlias = Any
"""The sizes of a value: of an array a mapping by axis, of a tuple a tuple of its parts'."""
Value: TypeAlias = tuple[Instruction, Nested]
_S32, _PRED = Shape(ElementType.S32), Shape(ElementType.PRED)


def resolve_dynamic_sizes(module: Module, options: Options) -> Module:
    """The module without sizes known at run time only. Results that had one are as large as their bound.

    Raises: ShapeError  as `result_sizes`.
    """
    if not is_dynamic(module):
        return module
    entry = module.entry
    parameters = [_bounded(p) for p in entry.parameters]
    resolver = _Resolver()
    root, _ = resolver.run(entry, [(p, _nothing(p.shape)) for p in parameters])
    return Module(module.name, Computation(entry.name, root, parameters, resolver.effects), module.attributes)


def _bounded(parameter: Instruction) -> Instruction:
    shape = parameter.shape.static()
    return make(Parameter(parameter.op.number, shape), name=parameter.name, metadata=parameter.metadata)  # type: ignore[attr-defined]


def _nothing(shape: Shape) -> Nested:
    return tuple(map(_nothing, shape.tuple_shapes)) if shape.is_tuple else {}


def _constant(value: Any, element_type: ElementType = ElementType.S32) -> Instruction:
    return make(Constant(Literal(value, element_type)))


class _Values:
    """The arithmetic of sizes that are s32 scalars of the program."""

    def add(self, a: Instruction, b: Instruction | int) -> Instruction:
        return a if isinstance(b, int) and b == 0 else self._apply("add", a, b)

    def multiply(self, a: Instruction, b: int) -> Instruction:
        return a if b == 1 else self._apply("multiply", a, b)

    def divide(self, a: Instruction, b: int) -> Instruction:
        return a if b == 1 else self._apply("divide", a, b)

    def smaller(self, a: Instruction, b: Instruction | int) -> Instruction:
        return a if a is b else self._apply("minimum", a, b)

    def larger(self, a: Instruction, b: int) -> Instruction:
        return self._apply("maximum", a, b)

    def _apply(self, opcode: str, a: Instruction, b: Instruction | int) -> Instruction:
        return make(Elementwise(opcode), a, _constant(b) if isinstance(b, int) else b)


_VALUES = _Values()


def inside(dims: Sequence[int], sizes: Sizes) -> Instruction:
    """A pred array of these dims: true where every index is below the axis's size."""
    found: Instruction | None = None
    for axis, size in sorted(sizes.items()):
        numbers = make(Iota(Shape(ElementType.S32, tuple(dims)), axis))
        test = make(Compare("LT"), numbers, _spread(size, dims))
        found = test if found is None else make(Elementwise("and"), found, test)
    assert found is not None
    return found


def masked(array: Instruction, sizes: Sizes, fill: Instruction) -> Instruction:
    """The array with the scalar `fill` beyond the sizes."""
    if not sizes:
        return array
    dims = array.shape.dims
    return make(Elementwise("select"), inside(dims, sizes), array, _spread(fill, dims))


def _spread(scalar: Instruction, dims: Sequence[int]) -> Instruction:
    return make(Broadcast(tuple(dims), ()), scalar) if dims else scalar


def _zero(array: Instruction) -> Instruction:
    return _constant(0, array.shape.element_type)


class _Resolver:
    """Rewrites computations, one after the other; instructions with side effects are collected in `effects`."""

    def __init__(self) -> None:
        self.effects: list[Instruction] = []

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The computation's root on these arguments, rewritten."""
        done: dict[Instruction, Value] = {}
        for instruction in computation.instructions:
            if isinstance(instruction.op, Parameter):
                done[instruction] = arguments[instruction.op.number]
                continue
            value = self.instruction(instruction, [done[o] for o in instruction.operands])
            made = value[0]
            if made.has_side_effect:
                self.effects.append(made)
            done[instruction] = value
        return done[computation.root]

    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        op, made = instruction.op, [o[0] for o in operands]
        sizes = [o[1] for o in operands]
        match op:
            case SetDimensionSize():
                bound = made[0].shape.dims[op.dimension]
                size = _VALUES.larger(_VALUES.smaller(made[1], bound), 0)
                return made[0], {**sizes[0], op.dimension: size}
            case GetDimensionSize() if op.dimension in sizes[0]:
                return sizes[0][op.dimension], {}
            case Tuple():
                return self.again(instruction, made), tuple(sizes)
            case GetTupleElement():
                return self.again(instruction, made), sizes[0][op.index]
            case Copy() | OptimizationBarrier():
                return self.again(instruction, made), sizes[0]
            case Call() | Fusion():
                return self.run(next(op.called()), operands)
            case While():
                return self.loop(instruction, op, operands[0])
            case Conditional():
                return self.choice(instruction, op, operands)
        if not any(sizes) or not all(o.shape.is_array for o in made):
            return self.again(instruction, made), _nothing(instruction.shape)
        found = result_sizes(op, [o.shape for o in made], sizes, _VALUES)
        rewrite = _REWRITES.get(type(op))
        value = rewrite(op, made, sizes) if rewrite is not None else make(op, *made)
        value = dataclasses.replace(value, name=instruction.name, metadata=instruction.metadata)
        return value, tuple(found for _ in value.shape.tuple_shapes) if value.shape.is_tuple else found

    def again(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """The same op on other operands."""
        op = instruction.op
        shape = instruction.shape
        if instruction.shape.is_dynamic or tuple(operands) != instruction.operands:
            shape = op.infer([o.shape for o in operands])
            shape = (
                instruction.shape
                if shape == instruction.shape.static() and not instruction.shape.is_dynamic
                else shape
            )
        return Instruction(op, tuple(operands), shape, instruction.name, instruction.metadata)

    def loop(self, instruction: Instruction, op: While, start: Value) -> Value:
        """A loop whose state holds the sizes too."""
        value, sizes = start
        shape = value.shape
        marks = _marks(shape, sizes)
        progress = Progress(
            "resolve_dynamic_sizes", 1 + sum(1 + leaf.rank for leaf in shape.leaves() if leaf.is_array)
        )
        while True:
            progress.step(instruction)
            wanted = _joined(shape, marks, _marks(shape, self.trial(op.body, shape, marks)))
            if wanted == marks:
                break
            marks = wanted
        state = make(Tuple(), value, *_listed(shape, sizes, marks))
        body = self.packed(op.body, shape, marks, state.shape, keep=True)
        condition = self.packed(op.condition, shape, marks, state.shape, keep=False)
        return _unpacked(
            make(While(condition, body), state, name=instruction.name, metadata=instruction.metadata),
            shape,
            marks,
        )

    def choice(self, instruction: Instruction, op: Conditional, operands: Sequence[Value]) -> Value:
        """A conditional whose branches take and give the sizes too."""
        result = instruction.shape.static()
        taken = [_marks(v.shape, s) for v, s in operands[1:]]
        marks: Sequence[tuple[int, ...]] = [()] * len(list(result.leaves()))
        for branch, (value, _), mark in zip(op.branches, operands[1:], taken):
            marks = _joined(result, marks, _marks(result, self.trial(branch, value.shape, mark)))
        states = [make(Tuple(), v, *_listed(v.shape, s, mark)) for (v, s), mark in zip(operands[1:], taken)]
        branches = tuple(
            self.packed(b, v.shape, mark, state.shape, keep=True, given=marks)
            for b, (v, _), mark, state in zip(op.branches, operands[1:], taken, states)
        )
        made = make(
            Conditional(branches, op.by_index),
            operands[0][0],
            *states,
            name=instruction.name,
            metadata=instruction.metadata,
        )
        return _unpacked(made, result, marks)

    def trial(self, computation: Computation, shape: Shape, marks: Sequence[tuple[int, ...]]) -> Nested:
        """The sizes that the computation's root has when its parameter has these."""
        parameter = make(Parameter(0, shape))
        stand_in = make(Parameter(1, _S32))
        leaves = iter(marks)
        return _Resolver().run(
            computation, [(parameter, _map_leaves(shape, lambda _: dict.fromkeys(next(leaves), stand_in)))]
        )[1]

    def packed(
        self,
        computation: Computation,
        shape: Shape,
        marks: Sequence[tuple[int, ...]],
        state: Shape,
        *,
        keep: bool,
        given: Sequence[tuple[int, ...]] | None = None,
    ) -> Computation:
        """The computation on a tuple of its value and the sizes; with `keep` it gives such a tuple."""
        parameter = make(Parameter(0, state), name="state")
        resolver = _Resolver()
        root, sizes = resolver.run(computation, [_unpacked(parameter, shape, marks)])
        if keep:
            root = make(Tuple(), root, *_listed(root.shape, sizes, marks if given is None else given))
        return Computation(computation.name, root, [parameter], resolver.effects)


def _unpacked(state: Instruction, shape: Shape, marks: Sequence[tuple[int, ...]]) -> Value:
    numbers, leaves = iter(range(1, 1 + sum(map(len, marks)))), iter(marks)
    sizes = _map_leaves(
        shape, lambda _: {axis: make(GetTupleElement(next(numbers)), state) for axis in next(leaves)}
    )
    return make(GetTupleElement(0), state), sizes


def _map_leaves(shape: Shape, function: Callable[[Shape], Any]) -> Nested:
    if shape.is_tuple:
        return tuple(_map_leaves(s, function) for s in shape.tuple_shapes)
    return function(shape)


def _leaves(shape: Shape, sizes: Nested) -> list[Mapping[int, Any]]:
    if shape.is_tuple:
        return [leaf for part, size in zip(shape.tuple_shapes, sizes) for leaf in _leaves(part, size)]
    return [sizes]


def _marks(shape: Shape, sizes: Nested) -> list[tuple[int, ...]]:
    """By leaf, the axes that have a size."""
    return [tuple(sorted(leaf)) for leaf in _leaves(shape, sizes)]


def _joined(
    shape: Shape, one: Sequence[tuple[int, ...]], other: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    return [tuple(sorted({*a, *b})) for a, b in zip(one, other)]


def _listed(shape: Shape, sizes: Nested, marks: Sequence[tuple[int, ...]]) -> list[Instruction]:
    """The size of every marked axis, the bound where it has none of its own."""
    return [
        leaf.get(axis) or _constant(part.dims[axis])
        for part, leaf, axes in zip(shape.leaves(), _leaves(shape, sizes), marks)
        for axis in axes
    ]


Rewrite: TypeAlias = Callable[[Any, list[Instruction], list[Sizes]], Instruction]


def _reduction(op: Reduce | ReduceWindow, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Initial values beyond the sizes of the axes that are reduced."""
    count = len(operands) // 2
    arrays = [masked(a, _reduced(op, known), i) for a, known, i in zip(operands, sizes, operands[count:])]
    return make(op, *arrays, *operands[count:])


def _reduced(op: Reduce | ReduceWindow, sizes: Sizes) -> Sizes:
    if isinstance(op, Reduce):
        return {axis: size for axis, size in sizes.items() if axis in op.dimensions}
    w = op.window
    return {
        axis: size
        for axis, size in sizes.items()
        if (w.size[axis], w.stride[axis], w.pad_low[axis], w.pad_high[axis]) != (1, 1, 0, 0)
    }


def _dot(op: Dot, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Zeros beyond the sizes of contracted axes, in both factors: zero times NaN is NaN."""
    masks: list[dict[int, Any]] = [{}, {}]
    for left, right in zip(op.lhs_contracting, op.rhs_contracting):
        found = [s[a] for s, a in zip(sizes, (left, right)) if a in s]
        for size in found:
            masks[0][left] = masks[1][right] = size if len(found) == 1 else _VALUES.smaller(*found)
    return make(op, *(masked(o, m, _zero(o)) for o, m in zip(operands, masks)))


def _convolution(op: Convolution, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Zeros beyond the sizes of features, in both factors, and of spatial axes."""
    d = op.dims
    found = [s[a] for s, a in zip(sizes, (d.input_feature, d.kernel_input_feature)) if a in s]
    spatial = {axis: size for axis, size in sizes[0].items() if axis in d.input_spatial}
    masks: list[dict[int, Any]] = [spatial, {}]
    if found:
        size = found[0] if len(found) == 1 else _VALUES.smaller(*found)
        masks[0][d.input_feature] = masks[1][d.kernel_input_feature] = size
    return make(op, *(masked(o, m, _zero(o)) for o, m in zip(operands, masks)))


def _pad(op: Pad, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """The padding value beyond the sizes, so that padding begins where the elements end."""
    return make(op, masked(operands[0], sizes[0], operands[1]), operands[1])


def _concatenate(op: Concatenate, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Every operand written where the one before it ends; what lies beyond its size is written over by the next."""
    if not any(op.dimension in known for known in sizes[:-1]):
        return make(op, *operands)
    made, at = make(op, *operands), _constant(0)
    for operand, known in zip(operands, sizes):
        starts = [at if axis == op.dimension else _constant(0) for axis in range(operand.shape.rank)]
        made = make(DynamicUpdateSlice(), made, operand, *starts)
        at = _VALUES.add(at, known.get(op.dimension) or operand.shape.dims[op.dimension])
    return made


def _reverse(op: Reverse, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """The elements that count are the last ones after the reversal: they are moved to the front."""
    shape = operands[0].shape
    known = {axis: size for axis, size in sizes[0].items() if axis in op.dimensions}
    made = make(op, *operands)
    if not known:
        return made
    rank = range(shape.rank)
    room = Pad((0,) * shape.rank, tuple(shape.dims[a] if a in known else 0 for a in rank), (0,) * shape.rank)
    starts = [
        _VALUES.add(_VALUES.multiply(known[a], -1), shape.dims[a]) if a in known else _constant(0)
        for a in rank
    ]
    return make(DynamicSlice(shape.dims), make(room, made, _zero(made)), *starts)


def _scatter(op: Scatter, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Places outside the arrays, which are skipped, for updates beyond the sizes."""
    count = len(operands) // 2
    indices = operands[count]
    rest = [a for a in range(operands[-1].shape.rank) if a not in op.update_window_dims]
    batch = [a for a in range(indices.shape.rank) if a != op.index_vector_dim]
    known = dict(sizes[count])
    for updates in sizes[count + 1 :]:
        for axis, size in updates.items():
            place = batch[rest.index(axis)]
            known[place] = _VALUES.smaller(known[place], size) if place in known else size
    largest = np.iinfo(indices.shape.element_type.dtype).max if indices.shape.element_type.bits > 4 else 7
    outside = _constant(largest, indices.shape.element_type)
    return make(op, *operands[:count], masked(indices, known, outside), *operands[count + 1 :])


def _update(op: DynamicUpdateSlice, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Beyond the update's sizes, what was there before."""
    array, update, *starts = operands
    if sizes[1]:
        before = make(DynamicSlice(update.shape.dims), array, *starts)
        update = make(Elementwise("select"), inside(update.shape.dims, sizes[1]), update, before)
    return make(op, array, update, *starts)


def _sort(op: Sort, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Elements beyond the size after all others: whether an element counts is sorted with it and compared first."""
    known = [s[op.dimension] for s in sizes if op.dimension in s]
    if not known:
        return make(op, *operands)
    size = known[0]
    for other in known[1:]:
        size = _VALUES.smaller(size, other)
    counts = inside(operands[0].shape.dims, {op.dimension: size})
    compare = op.to_apply
    parameters = [make(Parameter(k, s)) for k, s in enumerate((*compare.parameter_shapes, _PRED, _PRED))]
    *pairs, one, other_one = parameters
    before = make(
        Elementwise("and"),
        make(Elementwise("and"), one, other_one),
        _Resolver().run(compare, [(p, {}) for p in pairs])[0],
    )
    alone = make(Elementwise("and"), one, make(Elementwise("not"), other_one))
    comparator = Computation(compare.name, make(Elementwise("or"), alone, before), parameters)
    made = make(Sort(op.dimension, comparator, op.is_stable), *operands, counts)
    parts = [make(GetTupleElement(k), made) for k in range(len(operands))]
    return parts[0] if len(parts) == 1 else make(Tuple(), *parts)


_REWRITES: dict[type[Op], Rewrite] = {
    Concatenate: _concatenate,
    Convolution: _convolution,
    Dot: _dot,
    DynamicUpdateSlice: _update,
    Pad: _pad,
    Reduce: _reduction,
    ReduceWindow: _reduction,
    Reverse: _reverse,
    Scatter: _scatter,
    Sort: _sort,
}
"""Ops whose results would hold, or be made from, elements beyond a size."""
