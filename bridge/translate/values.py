"""What flows along the edges of a graph while it is translated: arrays, variables, tensor lists."""

from __future__ import annotations

import dataclasses

from ...compiler.builder import ComputationBuilder, Operand
from ...compiler.errors import UnsupportedError
from ...compiler.shape import Shape


@dataclasses.dataclass(eq=False)
class Variable:
    """A resource variable inside a cluster: the handle's value while translating.

    `value` is its content now (None: not read yet and not written); `written` tells whether the cluster changed it.
    """

    name: str
    value: Operand | None
    written: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class TensorList:
    """A TensorList of elements of one shape: `buffer` is [capacity, *element dims], `size` an s32 scalar.

    A list whose element shape is not known yet has no buffer; `capacity` holds its length till then (negative: no
    bound is known). `is_full` when a loop set the capacity and has run: nothing can be appended. `items` are (index,
    element) of a list of zeros that has no buffer because its length is not known: it is that of a list it is added to.
    """

    buffer: Operand | None
    size: Operand
    capacity: int
    is_full: bool = False
    items: tuple[tuple[Operand, Operand], ...] = ()


Value = Operand | Variable | TensorList


def flatten(value: Value) -> list[Operand]:
    """The arrays that a value consists of, for the state of a loop or a call.

    Raises: UnsupportedError  a variable without value or a list without element shape.
    """
    if isinstance(value, Operand):
        return [value]
    if isinstance(value, Variable):
        if value.value is None:
            raise UnsupportedError(f"variable {value.name} is used before it has a value")
        return [value.value]
    if value.buffer is None:
        raise UnsupportedError("a tensor list of unknown element shape crosses a loop or a call")
    return [value.buffer, value.size]


def rebuild(like: Value, arrays: list[Operand]) -> Value:
    """The value of the same kind as `like` made of these arrays (as many as `flatten(like)` gives)."""
    if isinstance(like, Operand):
        return arrays[0]
    if isinstance(like, Variable):
        return Variable(like.name, arrays[0], like.written)
    return TensorList(arrays[0], arrays[1], like.capacity, like.is_full)


def shapes(builder: ComputationBuilder, value: Value) -> list[Shape]:
    """The shapes of `flatten(value)`."""
    return [builder.get_shape(o) for o in flatten(value)]
