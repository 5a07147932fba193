"""Dynamic sizes as values, masks and selects: every array gets its bound as its size.

    y = f32[<=8] set-dimension-size(x, n)                   i = s32[8] iota()          m = pred[8] compare(i, n), LT
    s = f32[] reduce(y, zero)                    =>         z = f32[8] select(m, x, zero)
                                                            s = f32[] reduce(z, zero)

Elements beyond a size hold anything: every op that would let them into a result gets its neutral element there
(a reduction its initial value, a product zero), or a different program for its result (concatenate, reverse, sort).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..analysis.dynamic_dimension_inference import is_dynamic, result_sizes
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Call,
    Conditional,
    Copy,
    Fusion,
    GetDimensionSize,
    GetTupleElement,
    Op,
    Opcode,
    OptimizationBarrier,
    Parameter,
    SetDimensionSize,
    Sort,
    Tuple,
    While,
    elementwise,
)
from ..options import Options
from ..progress import Progress
from .dynamic_rewrites import REWRITES, SIZES, Rewrite, Sizes, constant, inside

Nested: TypeAlias = Any
"""The sizes of a value: of an array a mapping by axis, of a tuple a tuple of its parts'."""
Value: TypeAlias = tuple[Instruction, Nested]
_S32, _PRED = Shape(ElementType.S32), Shape(ElementType.PRED)


def pad_dynamic_dimensions(module: Module, options: Options) -> Module:
    """The module without sizes known at run time only. Results that had one are as large as their bound.

    Raises: ShapeError  as `result_sizes`.
    """
    if not is_dynamic(module):
        return module
    entry = module.entry
    parameters = [_bounded(p) for p in entry.parameters]
    resolver = _Resolver()
    root, _ = resolver.run(entry, [(p, _nothing(p.shape)) for p in parameters])
    return module.with_entry(Computation(entry.name, root, parameters, resolver.effects))


def _bounded(parameter: Instruction) -> Instruction:
    assert isinstance(parameter.op, Parameter)
    bounded = Parameter(parameter.op.number, parameter.shape.static())
    return make(bounded, name=parameter.name, metadata=parameter.metadata)


def _nothing(shape: Shape) -> Nested:
    return tuple(map(_nothing, shape.tuple_shapes)) if shape.is_tuple else {}


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
            instruction_ = value[0]
            if instruction_.has_side_effect:
                self.effects.append(instruction_)
            done[instruction] = value
        return done[computation.root]

    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        op, arrays = instruction.op, [o[0] for o in operands]
        sizes = [o[1] for o in operands]
        match op:
            case SetDimensionSize():
                bound = arrays[0].shape.dims[op.dimension]
                size = SIZES.larger(SIZES.smaller(arrays[1], bound), 0)
                return arrays[0], {**sizes[0], op.dimension: size}
            case GetDimensionSize() if op.dimension in sizes[0]:
                return sizes[0][op.dimension], {}
            case Tuple():
                return self.again(instruction, arrays), tuple(sizes)
            case GetTupleElement():
                return self.again(instruction, arrays), sizes[0][op.index]
            case Copy() | OptimizationBarrier():
                return self.again(instruction, arrays), sizes[0]
            case Call() | Fusion():
                return self.run(next(op.called()), operands)
            case While():
                return self.loop(instruction, op, operands[0])
            case Conditional():
                return self.choice(instruction, op, operands)
        if not any(sizes) or not all(o.shape.is_array for o in arrays):
            return self.again(instruction, arrays), _nothing(instruction.shape)
        result = result_sizes(op, [o.shape for o in arrays], sizes, SIZES)
        rewrite = _REWRITES.get(type(op))
        value = rewrite(op, arrays, sizes) if rewrite is not None else make(op, *arrays)
        value = dataclasses.replace(value, name=instruction.name, metadata=instruction.metadata)
        return value, tuple(result for _ in value.shape.tuple_shapes) if value.shape.is_tuple else result

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
            "pad_dynamic_dimensions", 1 + sum(1 + leaf.rank for leaf in shape.leaves() if leaf.is_array)
        )
        while True:
            progress.step(instruction)
            wider = _joined(shape, marks, _marks(shape, self.trial(op.body, shape, marks)))
            if wider == marks:
                break
            marks = wider
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
        operand_marks = [_marks(v.shape, s) for v, s in operands[1:]]
        marks: Sequence[tuple[int, ...]] = [()] * len(list(result.leaves()))
        for branch, (value, _), mark in zip(op.branches, operands[1:], operand_marks):
            marks = _joined(result, marks, _marks(result, self.trial(branch, value.shape, mark)))
        states = [
            make(Tuple(), v, *_listed(v.shape, s, mark)) for (v, s), mark in zip(operands[1:], operand_marks)
        ]
        branches = tuple(
            self.packed(b, v.shape, mark, state.shape, keep=True, result_marks=marks)
            for b, (v, _), mark, state in zip(op.branches, operands[1:], operand_marks, states)
        )
        conditional = make(
            Conditional(branches, op.by_index),
            operands[0][0],
            *states,
            name=instruction.name,
            metadata=instruction.metadata,
        )
        return _unpacked(conditional, result, marks)

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
        result_marks: Sequence[tuple[int, ...]] | None = None,
    ) -> Computation:
        """The computation on a tuple of its value and the sizes; with `keep` it returns such a tuple."""
        parameter = make(Parameter(0, state), name="state")
        resolver = _Resolver()
        root, sizes = resolver.run(computation, [_unpacked(parameter, shape, marks)])
        if keep:
            root = make(
                Tuple(), root, *_listed(root.shape, sizes, marks if result_marks is None else result_marks)
            )
        return Computation(computation.name, root, [parameter], resolver.effects)


def _unpacked(state: Instruction, shape: Shape, marks: Sequence[tuple[int, ...]]) -> Value:
    numbers, leaves = iter(range(1, 1 + sum(map(len, marks)))), iter(marks)
    sizes = _map_leaves(
        shape, lambda _: {axis: make(GetTupleElement(next(numbers)), state) for axis in next(leaves)}
    )
    return make(GetTupleElement(0), state), sizes


def _map_leaves(shape: Shape, function: Callable[[Shape], Sizes]) -> Nested:
    if shape.is_tuple:
        return tuple(_map_leaves(s, function) for s in shape.tuple_shapes)
    return function(shape)


def _leaves(shape: Shape, sizes: Nested) -> list[Sizes]:
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
        leaf.get(axis) or constant(part.dims[axis])
        for part, leaf, axes in zip(shape.leaves(), _leaves(shape, sizes), marks)
        for axis in axes
    ]


def _sort(op: Sort, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Elements beyond the size after all others: whether an element is valid is another key, compared first."""
    lengths = [s[op.dimension] for s in sizes if op.dimension in s]
    if not lengths:
        return make(op, *operands)
    size = lengths[0]
    for other in lengths[1:]:
        size = SIZES.smaller(size, other)
    counts = inside(operands[0].shape.dims, {op.dimension: size})
    compare = op.to_apply
    parameters = [make(Parameter(k, s)) for k, s in enumerate((*compare.parameter_shapes, _PRED, _PRED))]
    *pairs, one, other_one = parameters
    before = elementwise(
        Opcode.AND,
        elementwise(Opcode.AND, one, other_one),
        _Resolver().run(compare, [(p, {}) for p in pairs])[0],
    )
    alone = elementwise(Opcode.AND, one, elementwise(Opcode.NOT, other_one))
    comparator = Computation(compare.name, elementwise(Opcode.OR, alone, before), parameters)
    sorted_arrays = make(Sort(op.dimension, comparator, op.is_stable), *operands, counts)
    parts = [make(GetTupleElement(k), sorted_arrays) for k in range(len(operands))]
    return parts[0] if len(parts) == 1 else make(Tuple(), *parts)


_REWRITES: dict[type[Op], Rewrite] = {**REWRITES, Sort: _sort}
