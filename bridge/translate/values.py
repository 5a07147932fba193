"""What flows along the edges of a graph while it is translated: arrays, variables, tensor lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...compiler.builder.computation_builder import ComputationBuilder, Operand
from ...compiler.errors import UnsupportedError
from ...compiler.ir.shape import Shape


class UnknownElementsError(UnsupportedError):
    """A list, an array or a stack is read before its element shape is known."""


@dataclasses.dataclass(eq=False)
class Variable:
    """A resource variable inside a cluster: the handle's value while translating.

    `value` is its content now (None: not read yet and not written); `written` tells whether the cluster changed it.
    """

    name: str
    value: Operand | None
    written: bool = False

    def parts(self) -> list[Operand]:
        """The arrays that it consists of.

        Raises: UnsupportedError  it has no value.
        """
        if self.value is None:
            raise UnsupportedError(f"variable {self.name} is used before it has a value")
        return [self.value]

    def rebuilt(self, arrays: list[Operand]) -> Variable:
        """One of the same kind made of these arrays."""
        return Variable(self.name, arrays[0], self.written)

    def take(self, other: Variable) -> None:
        """Becomes what a loop or a branch has made of it."""
        self.value, self.written = other.value, True


@dataclasses.dataclass(eq=False)
class TensorArray(Variable):
    """A TensorArray of TensorFlow 1: `value` is [length, *element dims], None while the element shape is not known.

    gradients: the arrays made for its gradients, by their source; writes there are `added`. The flows between
    its ops keep their order, and are zeros.
    """

    length: int = 0
    added: bool = False
    owner: TensorArray | None = None
    gradients: dict[str, TensorArray] = dataclasses.field(default_factory=dict)

    def parts(self) -> list[Operand]:
        return [*super().parts(), *(o for _, g in sorted(self.gradients.items()) for o in g.parts())]

    def rebuilt(self, arrays: list[Operand]) -> TensorArray:
        copy = dataclasses.replace(self, value=arrays[0], gradients={})
        for (source, gradient), array in zip(sorted(self.gradients.items()), arrays[1:], strict=True):
            copy.gradients[source] = dataclasses.replace(gradient, value=array, owner=copy)
        return copy

    def take(self, other: Variable) -> None:
        super().take(other)
        assert isinstance(other, TensorArray)
        for source, gradient in self.gradients.items():
            gradient.value = other.gradients[source].value

    def write(self, value: Operand) -> None:
        """Replaces the elements."""
        self.value = value
        for array in (self, self.owner):
            if array is not None:
                array.written = True


@dataclasses.dataclass(eq=False)
class Stack(Variable):
    """A stack of TensorFlow 1: `value` is [capacity, *element dims]; the first `size` are its elements.

    A capacity below zero is not known yet; `is_full` as for TensorList. `constant_element` is the value of all pushed
    elements, such as shapes of a loop's values, unless it `differs`.
    """

    size: Operand | None = None
    capacity: int = -1
    is_full: bool = False
    constant_element: np.ndarray | None = None
    differs: bool = False

    def note(self, value: np.ndarray | None) -> None:
        """Notes the value of an element that is pushed; None where it is not a compile-time constant."""
        self.differs |= (
            value is None
            or self.constant_element is not None
            and not np.array_equal(value, self.constant_element)
        )
        self.constant_element = value if self.constant_element is None else self.constant_element

    def parts(self) -> list[Operand]:
        assert self.size is not None
        return [*super().parts(), self.size]

    def rebuilt(self, arrays: list[Operand]) -> Stack:
        return dataclasses.replace(self, value=arrays[0], size=arrays[1])

    def take(self, other: Variable) -> None:
        super().take(other)
        assert isinstance(other, Stack)
        self.size, self.constant_element, self.differs = other.size, other.constant_element, other.differs


@dataclasses.dataclass(frozen=True, eq=False)
class TensorList:
    """A TensorList of elements of one shape: `buffer` is [capacity, *element dims], `size` an s32 scalar.

    A list of unknown element shape has no buffer; `capacity` is its length until then (negative: no bound is known).

    is_full: a loop has set the capacity and has run; nothing can be appended.
    items: (index, element) of a list of zeros without a buffer, because its length is unknown: it gets the length of
        the list that it is added to.
    element, parts: of a list of lists or of optionals, in place of a buffer: an element, and [capacity, *dims] of
        each array that an element consists of.
    varies: the size may be less than the capacity.
    beyond: what a write beyond the capacity does: "bail_out", "reallocate", or "" where that does not happen.
    constant_element, differs: as for Stack; a list that was not empty at first differs.
    """

    buffer: Operand | None
    size: Operand
    capacity: int
    is_full: bool = False
    items: tuple[tuple[Operand, Operand], ...] = ()
    element: TensorList | Optional | None = None
    parts: tuple[Operand, ...] = ()
    varies: bool = False
    beyond: str = "bail_out"
    constant_element: np.ndarray | None = None
    differs: bool = True

    @property
    def has_buffers(self) -> bool:
        """Whether its element shape is known."""
        return self.buffer is not None or self.element is not None

    @property
    def arrays(self) -> tuple[Operand, ...]:
        """What holds its elements."""
        return self.parts if self.buffer is None else (self.buffer,)

    def with_arrays(self, arrays: Sequence[Operand]) -> TensorList:
        """The list with other elements in place of `arrays`."""
        if self.element is None:
            return dataclasses.replace(self, buffer=arrays[0])
        return dataclasses.replace(self, parts=tuple(arrays))


@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """Values or none, as the branches of a condition hand them to its gradient.

    `has_value` is a pred scalar. `kinds` are its possible contents, at most one for each branch; those that it does not
    have are zeros. No kinds: its content is unknown.
    """

    has_value: Operand
    kinds: tuple[tuple[Value, ...], ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """Constant strings, which messages are made of."""

    values: np.ndarray


Value = Operand | Variable | TensorList | Optional | Text


def flatten(value: Value) -> list[Operand]:
    """The arrays that a value consists of, for the state of a loop or a call.

    Raises: UnsupportedError  a variable without value.
    """
    if isinstance(value, Operand):
        return [value]
    if isinstance(value, Text):
        return []
    if isinstance(value, Variable):
        return value.parts()
    if isinstance(value, Optional):
        return [value.has_value, *(o for kind in value.kinds for v in kind for o in flatten(v))]
    return [*value.arrays, value.size]


def rebuild(like: Value, arrays: list[Operand]) -> Value:
    """The value of the same kind as `like` made of these arrays (as many as `flatten(like)` gives)."""
    if isinstance(like, Operand):
        return arrays[0]
    if isinstance(like, Text):
        return like
    if isinstance(like, Variable):
        return like.rebuilt(arrays)
    if isinstance(like, Optional):
        values = iter(rebuild_all([v for kind in like.kinds for v in kind], arrays[1:]))
        return Optional(arrays[0], tuple(tuple(next(values) for _ in kind) for kind in like.kinds))
    if like.items:
        raise UnsupportedError("a list of zeros of unknown length crosses a loop or a call")
    copy = dataclasses.replace(like, size=arrays[-1])
    return copy.with_arrays(arrays[:-1]) if like.has_buffers else copy


def rebuild_all(like: Sequence[Value], arrays: Sequence[Operand]) -> list[Value]:
    """Values of the same kinds, one after the other, made of these arrays."""
    values, at = [], 0
    for value in like:
        count = len(flatten(value))
        values.append(rebuild(value, list(arrays[at : at + count])))
        at += count
    return values


def shapes(builder: ComputationBuilder, value: Value) -> list[Shape]:
    """The shapes of `flatten(value)`."""
    return [builder.get_shape(o) for o in flatten(value)]
