"""Elements of tuples in HLO text: operands like `x#0#1`, and custom calls that take and give tuples in tuples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ..errors import ShapeError
from ..ir.module import NO_METADATA, Instruction, Metadata
from ..ir.shape import Shape
from ..ops import CustomCall, GetTupleElement, Tuple


def element(operand: Instruction, number: int) -> Instruction:
    """One element of a tuple. Raises: ShapeError  there is none."""
    op = GetTupleElement(number)
    return Instruction(op, (operand,), op.infer([operand.shape]), f"{operand.name}_{number}")


def element_at(operand: Instruction, path: str) -> Instruction:
    """What `#0#1` behind a name is of that instruction. Raises: ShapeError  there is none."""
    for number in path.split("#")[1:]:
        if len(number) > 9:
            raise ShapeError(f"{operand.name} has no element {number:.20}")
        operand = element(operand, int(number))
    return operand


def leaves(operand: Instruction) -> Iterator[Instruction]:
    """The parts of a tuple that are no tuples; what is no tuple itself."""
    stack = [operand]
    while stack:
        part = stack.pop()
        if part.shape.is_tuple:
            stack += [element(part, k) for k in reversed(range(len(part.shape.tuple_shapes)))]
        else:
            yield part


def without_tuples(op: CustomCall, operands: Sequence[Instruction]) -> tuple[CustomCall, list[Instruction]]:
    """A custom call whose operands, and results, are in one tuple at most, as functions are given them."""
    if any(o.shape.is_tuple for o in operands):
        operands = [leaf for operand in operands for leaf in leaves(operand)]
    if any(part.is_tuple for part in op.shape.tuple_shapes):
        op = dataclasses.replace(op, shape=Shape.tuple(op.shape.leaves()))
    return op, list(operands)


def nested(flat: Instruction, shape: Shape, name: str, metadata: Metadata = NO_METADATA) -> Instruction:
    """The parts of a flat tuple as a tuple of this shape."""
    number = 0

    def build(shape: Shape, name: str) -> Instruction:
        nonlocal number
        if not shape.is_tuple:
            number += 1
            return element(flat, number - 1)
        parts = [build(part, f"{name}_{k}") for k, part in enumerate(shape.tuple_shapes)]
        op = Tuple()
        return Instruction(op, tuple(parts), op.infer([p.shape for p in parts]), name, metadata)

    return build(shape, name)
