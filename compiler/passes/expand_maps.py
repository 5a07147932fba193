"""Maps of computations that have loops, or that call the user's functions, as loops over the elements.

    y = f32[6] map(x), to_apply=newton             i = 0; y = zeros; while i < 6: y[i] = newton(x[i]); i = i + 1

A loop in each lane of a vector would have to run as long as the slowest one needs, also in lanes that are not wanted.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Call,
    Compare,
    Constant,
    CustomCall,
    DynamicSlice,
    DynamicUpdateSlice,
    GetTupleElement,
    Map,
    Opcode,
    Parameter,
    Reshape,
    Tuple,
    While,
    elementwise,
    size_constant,
)
from ..options import Options


def expand_maps(module: Module, options: Options) -> Module:
    """The module without maps whose computation cannot be done to many elements at once."""
    return module.rewrite_ops([Map], _expand)


def _expand(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, Map) or not _is_one_by_one(op.to_apply):
        return None
    if not instruction.shape.dims:
        return make(
            Call(op.to_apply), *instruction.operands, name=instruction.name, metadata=instruction.metadata
        )
    count = instruction.shape.elements
    flat = [make(Reshape((count,)), o) for o in instruction.operands]
    element_type = instruction.shape.element_type
    zero = make(Constant(Literal(np.zeros((), element_type.dtype))))
    start = make(Tuple(), size_constant(0, ElementType.S64), make(Broadcast((count,), ()), zero), *flat)
    loop = make(
        While(_condition(start.shape, count), _body(start.shape, op.to_apply)),
        start,
        name=instruction.name,
        metadata=instruction.metadata,
    )
    return make(
        Reshape(instruction.shape.dims), make(GetTupleElement(1), loop), metadata=instruction.metadata
    )


def _is_one_by_one(computation: Computation) -> bool:
    return any(
        isinstance(i.op, (CustomCall, While))
        or i.op.has_side_effect
        or any(map(_is_one_by_one, i.op.called()))
        for i in computation.instructions
    )


def _condition(shape: Shape, count: int) -> Computation:
    state = make(Parameter(0, shape), name="state")
    return Computation(
        "more",
        make(Compare("LT"), make(GetTupleElement(0), state), size_constant(count, ElementType.S64)),
        [state],
    )


def _body(shape: Shape, to_apply: Computation) -> Computation:
    """The body of the loop over (i, results, operands...): computes result i from element i of each operand."""
    state = make(Parameter(0, shape), name="state")
    i, results, *operands = (make(GetTupleElement(k), state) for k in range(len(shape.tuple_shapes)))
    elements = [make(Reshape(()), make(DynamicSlice((1,)), o, i)) for o in operands]
    element = make(Reshape((1,)), make(Call(to_apply), *elements))
    following = elementwise(Opcode.ADD, i, size_constant(1, ElementType.S64))
    root = make(Tuple(), following, make(DynamicUpdateSlice(), results, element, i), *operands)
    return Computation(f"{to_apply.name}_of_element", dataclasses.replace(root, name="next"), [state])
