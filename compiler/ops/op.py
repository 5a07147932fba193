"""Parts of op classes: attributes, checks of constraints, and the interface of element rules.

Text, hashing, CSE and the builder need nothing per op: they read the fields. `attribute` says how a field is
spelled.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import ShapeError
from ..ir.module import OPS, Computation, Op
from ..ir.shape import Shape

__all__ = [
    "OPS",
    "C",
    "ElementRule",
    "E",
    "N",
    "Indexer",
    "Op",
    "attribute",
    "collated",
    "per_class",
    "require",
    "require_arrays",
    "require_axes",
    "require_signature",
]

T = TypeVar("T")
N = TypeVar("N")
"""An index, to an element rule."""
C = TypeVar("C")
"""A condition on indices."""
E = TypeVar("E")
"""An element."""


def attribute(kind: str, name: str, **keywords: Any) -> Any:
    """A field that HLO text spells `name=...` in the form of `kind`; absent from the text where it has its
    default.

    Kinds: int, bool, word (an unquoted enum), string (in quotes), raw (not parsed), shape, groups
    ({{0,1},{2}}), dims ({0,1}), size (a number, or 2*n+1 of symbols), sizes ({2,n}),
    slices ({[0:4:1]}), padding (0_0x1_1_0), window ({size=.. stride=..}),
    dim_labels, dim (one axis in braces), computation, computations, literal, number (in the operand list:
    parameter(0)). Not spelled as attributes: opcode, result_dims, result_type and result_shape (the text has them as
    opcode and shape of the instruction; a result_type whose default is None is None where the shape rule gives that
    type anyway) and implied (follows from the operands).
    """
    return dataclasses.field(metadata={"kind": kind, "name": name}, **keywords)


class Indexer(Protocol[N, C, E]):
    """The interface of `element` rules: index arithmetic, choice, and elements of operands at an index.

    An index is opaque to the rule (a number, an affine expression of loop variables, or a vector of either);
    an element likewise. Indices of an operand must be inside its shape wherever `condition` holds; elsewhere
    the element read is unspecified but the access is safe.
    """

    def index(self, value: int) -> N:
        """A constant index."""

    def add(self, a: N, b: N) -> N:
        """a + b."""

    def multiply(self, a: N, factor: int) -> N:
        """a * factor."""

    def divide(self, a: N, divisor: int) -> N:
        """a // divisor, a not negative."""

    def remainder(self, a: N, divisor: int) -> N:
        """a % divisor, a not negative."""

    def less(self, a: N, b: N) -> C:
        """Condition a < b."""

    def both(self, a: C, b: C) -> C:
        """Condition a and b."""

    def choose(self, condition: C, then: E, otherwise: E) -> E:
        """The element `then` where the condition holds, else `otherwise` (elements, not callables)."""

    def operand(self, number: int, index: Sequence[N], condition: C | None = None) -> E:
        """Element of operand `number` at `index`, read only where the condition holds."""

    def index_operand(self, number: int, index: Sequence[N], limit: int) -> N:
        """Element of an integer operand, as an index clamped to 0..limit."""

    def number(self, index: N) -> E:
        """An index as an element of the op's result type (iota)."""

    def constant(self, value: np.ndarray) -> E:
        """A scalar as an element."""


class ElementRule(Protocol):
    """The `element` method of an op that has one."""

    def __call__(
        self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape, /
    ) -> E:
        """The element of the result, of that shape, at an index."""


def per_class(function: Callable[[type[Op]], T]) -> Callable[[type[Op]], T]:
    """Remembers the value of a function of an op class for each class."""
    return functools.cache(function)  # type: ignore[return-value]  # a class is hashable; its type says less


def require(condition: bool, message: str, label: str) -> None:
    """The check of one numbered constraint.

    Raises: ShapeError  `message (label)` when the condition does not hold.
    """
    if not condition:
        raise ShapeError(f"{message} ({label})")


def require_arrays(opcode: str, operands: Sequence[Shape], count: int, label: str) -> None:
    """The check that there are `count` operands and that each is an array.

    Raises: ShapeError  otherwise.
    """
    if len(operands) != count:  # messages are only made when they are needed: every op comes here
        require(False, f"{opcode}: {len(operands)} operands given, {count} wanted", label)
    for number, operand in enumerate(operands):
        if not operand.is_array:
            require(False, f"{opcode}: operand {number} is {operand}, an array is wanted", label)


def require_axes(opcode: str, what: str, axes: Sequence[int], rank: int, label: str) -> None:
    """The check that axis numbers are in 0..rank-1 and each occurs once.

    Raises: ShapeError  otherwise.
    """
    if axes and (len(set(axes)) != len(axes) or min(axes) < 0 or max(axes) >= rank):
        require(False, f"{opcode}: {what} is {tuple(axes)}, distinct axes of {rank} are wanted", label)


def require_signature(
    opcode: str, what: str, computation: Computation, parameters: Sequence[Shape], result: Shape, label: str
) -> None:
    """The check that a computation takes these parameters and returns this result, layouts aside.

    Raises: ShapeError  otherwise.
    """
    fits = (
        len(parameters) == len(computation.parameters)
        and computation.root.shape.compatible(result)
        and all(a.compatible(b) for a, b in zip(computation.parameter_shapes, parameters))
    )
    if not fits:
        actual = ", ".join(map(str, computation.parameter_shapes))
        required = ", ".join(map(str, parameters))
        require(
            False,
            f"{opcode}: {what} {computation.name} is ({actual}) -> {computation.root.shape}, "
            f"({required}) -> {result} is wanted",
            label,
        )


def collated(shapes: Sequence[Shape]) -> Shape:
    """One shape as itself, several as a tuple: the result of ops that take several arrays at once."""
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
