"""Ops without arithmetic: constant, parameter, tuples, copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from ..ir.literal import Literal
from ..ir.module import Value
from ..ir.shape import Shape
from .op import Op, attribute, require


@dataclasses.dataclass(frozen=True)
class Constant(Op):
    """A literal.

    constant_c1: no operands.
    """

    opcode: ClassVar[str] = "constant"
    literal: Literal = attribute("literal", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The literal's shape."""
        require(not operands, f"constant: {len(operands)} operands given, none is wanted", "constant_c1")
        return self.literal.shape

    def reference(self) -> Value:
        """The literal's array, or a tuple of its parts' values."""

        def value(literal: Literal) -> Value:
            return tuple(map(value, literal.parts)) if literal.shape.is_tuple else literal.array

        return value(self.literal)


@dataclasses.dataclass(frozen=True)
class Parameter(Op):
    """An argument of the computation, by number. Has no reference: whoever runs the computation has its
    value.

    parameter_c1: no operands.
    parameter_c2: the number is not negative.
    """

    opcode: ClassVar[str] = "parameter"
    number: int = attribute("number", "")
    shape: Shape = attribute("result_shape", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        require(not operands, f"parameter: {len(operands)} operands given, none is wanted", "parameter_c1")
        require(self.number >= 0, f"parameter: number is {self.number}, 0 or more is wanted", "parameter_c2")
        return self.shape


@dataclasses.dataclass(frozen=True)
class Tuple(Op):
    """The operands, of any shapes, as one value.

    Source: operation semantics, Tuple.
    """

    opcode: ClassVar[str] = "tuple"
    forwards_operands: ClassVar[bool] = True

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The tuple of the operands' shapes."""
        return Shape.tuple(operands)

    def reference(self, *operands: Value) -> Value:
        """A Python tuple."""
        return operands


@dataclasses.dataclass(frozen=True)
class GetTupleElement(Op):
    """One part of a tuple.

    get_tuple_element_c1: one operand, a tuple.
    get_tuple_element_c2: index is the number of one of its parts.
    Source: operation semantics, GetTupleElement.
    """

    opcode: ClassVar[str] = "get-tuple-element"
    forwards_operands: ClassVar[bool] = True
    index: int = attribute("int", "index")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The part's shape."""
        if len(operands) != 1 or not operands[0].is_tuple:
            require(
                False,
                f"get-tuple-element: operands are {list(operands)}, one tuple is wanted",
                "get_tuple_element_c1",
            )
        parts = operands[0].tuple_shapes
        if not 0 <= self.index < len(parts):
            require(
                False,
                f"get-tuple-element: index is {self.index}, {operands[0]} has {len(parts)} parts",
                "get_tuple_element_c2",
            )
        return parts[self.index]

    def reference(self, operand: Value) -> Value:
        """The part."""
        return operand[self.index]


@dataclasses.dataclass(frozen=True)
class Copy(Op):
    """The operand's value in memory of its own, possibly in another layout.

    copy_c1: one operand.
    """

    opcode: ClassVar[str] = "copy"
    is_index_map: ClassVar[bool] = True

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape; a pass may give the instruction another layout."""
        require(len(operands) == 1, f"copy: {len(operands)} operands given, 1 wanted", "copy_c1")
        return operands[0]

    def reference(self, operand: Value) -> Value:
        """The operand."""
        return operand
