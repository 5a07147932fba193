"""Layers in loops, such as those of an LSTM: their weights, and what values are in every step.

Weights enter a loop as elements of its state. Where they are constants that no step changes, the body gets the
constants themselves. Values of a body are observed as further elements of the state, in which each step stores its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..analysis.trip_count import is_invariant, state_index, trip_count
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make, topological
from ..ir.shape import Shape
from ..ops import (
    Constant,
    DynamicUpdateSlice,
    Elementwise,
    GetTupleElement,
    Opcode,
    Parameter,
    Reshape,
    Tuple,
    While,
)
from ..passes.rules.rule import full


def is_counted(instruction: Instruction) -> bool:
    """Whether it is a loop over arrays whose steps, one or more, are counted when compiling."""
    op = instruction.op
    return (
        isinstance(op, While)
        and isinstance(op.body.root.op, Tuple)
        and isinstance(instruction.operands[0].op, Tuple)
        and all(s.is_array for s in instruction.shape.tuple_shapes)
        and (trip_count(instruction) or 0) > 0
    )


def body_of(loop: Instruction) -> Computation:
    """The body of a loop."""
    assert isinstance(loop.op, While)
    return loop.op.body


def sink_constants(module: Module) -> Module:
    """The module whose counted loops have constants of their own in the place of elements of their state that are
    constant. No two loops have one body then.

    Source: XLA, WhileLoopConstantSinking.
    """
    return module.with_entry(module.entry.rewrite(lambda i: _with_constants(i) if is_counted(i) else None))


def _with_constants(loop: Instruction) -> Instruction:
    body, (init,) = body_of(loop), loop.operands
    (old_state,) = body.parameters
    state = dataclasses.replace(old_state)
    constants = {
        number: value
        for number, value in enumerate(init.operands)
        if isinstance(value.op, Constant) and is_invariant(loop, number)
    }
    done: dict[Instruction, Instruction] = {old_state: state}
    for old in body.instructions[1:]:
        number = state_index(old, old_state)
        done[old] = old.with_operands(done[o] for o in old.operands)
        if number in constants:
            value = constants[number]
            done[old] = make(value.op, metadata=value.metadata)
    # The elements themselves go on from step to step; nothing reads them.
    elements = [
        make(GetTupleElement(number), state) if number in constants else done[o]
        for number, o in enumerate(body.root.operands)
    ]
    done[body.root] = make(Tuple(), *elements)
    assert isinstance(loop.op, While)
    return dataclasses.replace(loop, op=dataclasses.replace(loop.op, body=body.mapped(done)))


def with_values(module: Module, values: Sequence[Instruction]) -> Module:
    """The module with values of its entry, and of the bodies of its loops, as further results, all of them flat.

    Shapes: of a loop's body values are (steps, ...).
    """
    entry = module.entry
    # What a value needs may be what nothing else does, and so no instruction of its computation.
    needs = {value: topological([value]) for value in values}
    loops = [i for i in entry.instructions if is_counted(i)]
    of_loops = {loop: [v for v in needs if body_of(loop).parameters[0] in needs[v]] for loop in loops}
    own = [v for v in needs if not any(v in of_body for of_body in of_loops.values())]
    done: dict[Instruction, Instruction] = {}
    stored: dict[Instruction, Instruction] = {}
    for old in topological([*entry.instructions, *own]):
        done[old] = old.with_operands(done[o] for o in old.operands)
        if of_body := of_loops.get(old):
            done[old], arrays = _storing(done[old], of_body)
            stored.update(zip(of_body, arrays))
    root = done[entry.root]
    results = [root]
    if root.shape.is_tuple:
        results = [make(GetTupleElement(k), root) for k in range(len(root.shape.tuple_shapes))]
    results += [stored[v] if v in stored else done[v] for v in values]
    effects = [done[i] for i in entry.effects()]
    parameters = [done[p] for p in entry.parameters]
    return Module(module.name, Computation(entry.name, make(Tuple(), *results), parameters, effects))


def _storing(loop: Instruction, values: Sequence[Instruction]) -> tuple[Instruction, list[Instruction]]:
    """The value of a loop, and arrays of what values of its body are in every step."""
    op, (init,) = loop.op, loop.operands
    assert isinstance(op, While)
    steps, count = trip_count(loop) or 0, len(init.operands)
    arrays = [Shape(v.shape.element_type, (steps, *v.shape.dims)) for v in values]
    number = _integer(0)
    wider_init = make(Tuple(), *init.operands, number, *(full(array, 0) for array in arrays))
    body_state, body = _on_wider_state(op.body, values, wider_init.shape, count)
    condition_state, condition = _on_wider_state(op.condition, (), wider_init.shape, count)
    step = make(GetTupleElement(count), body_state)
    following = [make(GetTupleElement(k), body[op.body.root]) for k in range(count)]
    following.append(make(Elementwise(Opcode.ADD.value), step, _integer(1)))
    for k, value in enumerate(values, count + 1):
        array, one = make(GetTupleElement(k), body_state), make(Reshape((1, *value.shape.dims)), body[value])
        zeros = [_integer(0)] * value.shape.rank
        following.append(make(DynamicUpdateSlice(), array, one, step, *zeros))
    root, tests = condition[op.condition.root], [condition[i] for i in op.condition.effects()]
    effects = [body[i] for i in op.body.effects()]
    wider_op = While(
        Computation(op.condition.name, root, [condition_state], tests),
        Computation(op.body.name, make(Tuple(), *following), [body_state], effects),
    )
    wider = make(wider_op, wider_init, metadata=loop.metadata)
    elements = [make(GetTupleElement(k), wider) for k in range(count + 1 + len(values))]
    return make(Tuple(), *elements[:count]), elements[count + 1 :]


def _on_wider_state(
    computation: Computation, values: Sequence[Instruction], shape: Shape, count: int
) -> tuple[Instruction, Mapping[Instruction, Instruction]]:
    """A parameter whose first elements are the state of a computation, and new instructions by the old ones."""
    state = make(Parameter(0, shape), name="state")
    own = make(Tuple(), *(make(GetTupleElement(k), state) for k in range(count)))
    done: dict[Instruction, Instruction] = {computation.parameters[0]: own}
    for old in topological([*computation.instructions[1:], *values]):
        if old not in done:
            done[old] = old.with_operands(done[o] for o in old.operands)
    return state, done


def _integer(number: int) -> Instruction:
    return make(Constant(Literal(np.int32(number))))
