"""Loops over arrays: a number of steps known when compiling, or until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...ir.element_types import ElementType
from ...ir.shape import Shape
from ..control import ControlOperations
from ..core import Operand
from ..derived import binary_computation

_S32, _PRED = ElementType.S32, ElementType.PRED
B = TypeVar("B", bound=ControlOperations)
Step = Callable[[B, Operand, list[Operand]], Sequence[Operand]]


def repeated(b: B, count: int, values: Sequence[Operand], step: Step[B]) -> list[Operand]:
    """The values after step(builder, number, values) for number = 0 .. count - 1."""

    def more(b: B, number: Operand, _: list[Operand]) -> Operand:
        return b.lt(number, b.constant(count, _S32))

    return _loop(b, values, more, step)


def until(b: B, max_steps: int, values: Sequence[Operand], step: Step[B]) -> list[Operand]:
    """The values after step(builder, number, values) while the last of them, an array of booleans that says what is
    unfinished, has a true element; at most `most` times."""

    def more(b: B, number: Operand, values: list[Operand]) -> Operand:
        rank = b.get_shape(values[-1]).rank
        left = b.reduce(values[-1], b.constant(False, _PRED), binary_computation("or", _PRED), range(rank))
        return b.and_(left, b.lt(number, b.constant(max_steps, _S32)))

    return _loop(b, values, more, step)


def _loop(
    b: B,
    values: Sequence[Operand],
    more: Callable[[B, Operand, list[Operand]], Operand],
    step: Step[B],
) -> list[Operand]:
    shape = Shape.tuple([Shape(_S32), *(b.get_shape(v) for v in values)])
    test = b.create_sub_builder("more")
    number, *inner = _unpacked(test, test.parameter(0, shape, "state"), len(values) + 1)
    condition = test.build(more(test, number, inner))
    body = b.create_sub_builder("step")
    number, *inner = _unpacked(body, body.parameter(0, shape, "state"), len(values) + 1)
    body_computation = body.build(body.tuple([number + body.constant(1, _S32), *step(body, number, inner)]))
    return _unpacked(
        b, b.while_(condition, body_computation, b.tuple([b.constant(0, _S32), *values])), len(values) + 1
    )[1:]


def _unpacked(b: B, packed: Operand, count: int) -> list[Operand]:
    return [b.get_tuple_element(packed, k) for k in range(count)]


def slice_at(b: B, operand: Operand, number: Operand, axis: int) -> Operand:
    """The slice with that number along an axis, without the axis."""
    dims = b.shape_of(operand).dims
    sizes = [1 if a == axis else d for a, d in enumerate(dims)]
    part = b.dynamic_slice(operand, _starts(b, number, axis, len(dims)), sizes)
    return b.reshape(part, (*dims[:axis], *dims[axis + 1 :]))


def with_slice(b: B, operand: Operand, part: Operand, number: Operand, axis: int) -> Operand:
    """The operand with the slice of that number along an axis replaced by a part, which has not the axis."""
    dims = b.shape_of(part).dims
    part = b.reshape(part, (*dims[:axis], 1, *dims[axis:]))
    return b.dynamic_update_slice(operand, part, _starts(b, number, axis, len(dims) + 1))


def _starts(b: B, number: Operand, axis: int, rank: int) -> list[Operand]:
    zero = b.scalar_like(number, 0)
    return [number if a == axis else zero for a in range(rank)]
