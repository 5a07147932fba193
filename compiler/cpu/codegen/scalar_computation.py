"""Code for computations of scalars (comparators, reducers, update functions) on elements in register form."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, Value
from ....runtime.llvm.vector_value import VectorValue
from ...errors import UnsupportedError
from ...ir.module import Computation, Instruction
from ...ops import (
    BitcastConvert,
    Broadcast,
    Call,
    Conditional,
    Constant,
    Copy,
    Fusion,
    GetTupleElement,
    Map,
    OptimizationBarrier,
    Reshape,
    Transpose,
    Tuple,
    While,
)
from .elementwise import apply
from .memory_types import Element, constant_element, is_pair, parts, select_element, single

_SAME_ELEMENTS = (Broadcast, Copy, OptimizationBarrier, Reshape, Transpose, Tuple)


def apply_scalars(
    f: Function, computation: Computation, arguments: Sequence[Element], lanes: int = 1
) -> list[Element]:
    """Writes a computation of scalars, applied to leaves of that many lanes each; returns its root's leaves.

    Raises: UnsupportedError  it has an instruction that is not about single elements.
    """
    rest = iter(arguments)
    values: dict[Instruction, list[Element]] = {
        p: [next(rest) for _ in p.shape.leaves()] for p in computation.parameters
    }
    for instruction in computation.instructions:
        if instruction not in values:
            values[instruction] = _apply(f, instruction, [values[o] for o in instruction.operands], lanes)
    return values[computation.root]


def _apply(f: Function, instruction: Instruction, operands: list[list[Element]], lanes: int) -> list[Element]:
    op = instruction.op
    if isinstance(op, Constant):
        return [constant_element(instruction.shape.element_type, op.literal.array.flat[0], lanes)]
    if isinstance(op, GetTupleElement):
        shapes = instruction.operands[0].shape.tuple_shapes
        skip = sum(len(list(s.leaves())) for s in shapes[: op.index])
        return operands[0][skip : skip + len(list(shapes[op.index].leaves()))]
    leaves = [leaf for operand in operands for leaf in operand]
    if isinstance(op, _SAME_ELEMENTS):
        return leaves
    if isinstance(op, (Call, Map, Fusion)):
        return apply_scalars(f, next(op.called()), leaves, lanes)
    if isinstance(op, Conditional):
        return _conditional(f, op, operands, lanes)
    if isinstance(op, While):
        return _while(f, op, leaves, lanes)
    if op.is_elementwise or isinstance(op, BitcastConvert):
        attributes = {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}
        return [
            apply(
                f,
                instruction.opcode,
                attributes,
                [o.shape.element_type for o in instruction.operands],
                instruction.shape.element_type,
                leaves,
            )
        ]
    raise UnsupportedError(f"{instruction.opcode}: in a computation of scalars")


def _conditional(f: Function, op: Conditional, operands: list[list[Element]], lanes: int) -> list[Element]:
    """Code for all branches, then a select of the result: nothing in them traps."""
    selector = VectorValue.of(f, single(operands[0][0]))
    results = [apply_scalars(f, b, o, lanes) for b, o in zip(op.branches, operands[1:], strict=True)]
    if not op.by_index:
        return [select_element(f, selector, a, b) for a, b in zip(*results)]
    chosen = results[-1]
    for number, result in enumerate(results[:-1]):
        meant = selector.equals(number)
        chosen = [select_element(f, meant, a, b) for a, b in zip(result, chosen)]
    return chosen


def _while(f: Function, op: While, state: list[Element], lanes: int) -> list[Element]:
    """Steps of all lanes while the condition holds in any; the others keep their state."""

    def rebuilt(values: Sequence[Value]) -> list[Element]:
        rest = iter(values)
        return [(next(rest), next(rest)) if is_pair(e) else next(rest) for e in state]

    def flat(elements: Sequence[Element]) -> list[Value]:
        return [value for element in elements for value in parts(element)]

    def goes_on(elements: Sequence[Element]) -> VectorValue:
        return VectorValue.of(f, single(apply_scalars(f, op.condition, elements, lanes)[0]))

    with f.repeat(running=goes_on(state), state=flat(state)) as loop:
        loop.while_(loop.running.any())
        old = rebuilt(loop.state)
        stepped = apply_scalars(f, op.body, old, lanes)
        new = [select_element(f, loop.running, a, b) for a, b in zip(stepped, old, strict=True)]
        loop.running = loop.running & goes_on(new)
        loop.state = flat(new)
    return rebuilt(loop.state)
