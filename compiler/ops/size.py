"""Size: a number that follows from the sizes of the arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...runtime.sizes import AnySize
from ..ir.element_types import INTEGERS, ElementType, integer_info
from ..ir.literal import Literal
from ..ir.module import Instruction, make
from ..ir.shape import Shape
from .constant import Constant
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class SizeConstant(Op):
    """A polynomial of the symbols that stand in shapes, as a scalar of an integer type.

    size_c1: no operands.
    size_c2: an integer type.
    size_c3: a number that is known is one of the type.
    """

    opcode: ClassVar[str] = "size"
    is_index_map: ClassVar[bool] = True
    value: AnySize = attribute("size", "value")
    result_type: ElementType = attribute("result_type", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A scalar."""
        require_arrays("size", operands, 0, "size_c1")
        require(self.result_type in INTEGERS, f"size: {self.result_type} is no integer type", "size_c2")
        if isinstance(self.value, int):
            limits = integer_info(self.result_type.dtype)
            fits = limits.min <= self.value <= limits.max
            require(fits, f"size: {self.value} is no number of type {self.result_type}", "size_c3")
        return Shape(self.result_type)

    def reference(self) -> np.ndarray:
        """The number; an object where it is not known."""
        if isinstance(self.value, int):
            return np.asarray(self.value, self.result_type.dtype)
        value = np.empty((), object)
        value[()] = self.value
        return value

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The number."""
        return e.number(e.index(self.value))


def size_constant(value: AnySize, element_type: ElementType = ElementType.S32) -> Instruction:
    """A scalar: a constant, unless it is known at run time only."""
    if isinstance(value, int):
        return make(Constant(Literal(value, element_type)))
    return make(SizeConstant(value, element_type))
