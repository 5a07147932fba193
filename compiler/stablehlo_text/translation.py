"""How operations of StableHLO are written with a builder: the registry, and what a translation is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..builder.computation_builder import ComputationBuilder, Operand
from ..errors import ShapeError, UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from .operations import Operation

Results: TypeAlias = "Operand | Sequence[Operand]"
Translation: TypeAlias = "Callable[[Context], Results]"

TRANSLATIONS: dict[str, Translation] = {}
"""By the name of an operation."""


@dataclasses.dataclass
class Context:
    """One operation in the computation that is built: its operands, the computations of its regions, the values of
    outside that the regions use, and all functions that it may call."""

    b: ComputationBuilder
    op: Operation
    operands: list[Operand]
    computations: list[Computation]
    captured: list[Operand]
    functions: Mapping[str, Computation]

    def shape(self, number: int = 0) -> Shape:
        """The shape of an operand."""
        return self.b.get_shape(self.operand(number))

    def operand(self, number: int = 0) -> Operand:
        """An operand. Raises: ShapeError  there are fewer."""
        if number >= len(self.operands):
            raise ShapeError(f"{self.op.name}: {len(self.operands)} operands, more are wanted")
        return self.operands[number]

    def all_operands(self, count: int) -> list[Operand]:
        """The operands, which are so many. Raises: ShapeError  there are more or fewer."""
        if len(self.operands) != count:
            raise ShapeError(f"{self.op.name}: {len(self.operands)} operands, {count} are wanted")
        return self.operands

    def with_token(self) -> tuple[list[Operand], Operand]:
        """The operands before the last, and the last, which is a token. Raises: ShapeError  there is none."""
        return self.operands[:-1], self.operand(max(len(self.operands) - 1, 0))

    def result(self, number: int = 0) -> Shape:
        """The type that a result is declared with. Raises: ShapeError  there is none."""
        if number >= len(self.op.types):
            raise ShapeError(f"{self.op.name}: {len(self.op.types)} results, more are wanted")
        return self.op.types[number]

    def element_type(self) -> ElementType:
        """The element type that the result is declared with. Raises: ShapeError  it is no array."""
        if not self.result().is_array:
            raise ShapeError(f"{self.op.name}: the result is {self.result()}, an array is wanted")
        return self.result().element_type

    def computation(self, number: int = 0) -> Computation:
        """The computation of a region. Raises: ShapeError  there is none."""
        if number >= len(self.computations):
            raise ShapeError(f"{self.op.name}: {len(self.computations)} regions, more are wanted")
        return self.computations[number]

    def parts(self, value: Operand, count: int | None = None) -> list[Operand]:
        """The parts of a tuple, or the first of them; what is no tuple, or the one result, is its own part."""
        shape = self.b.get_shape(value)
        if not shape.is_tuple or (len(self.op.types) == 1 and self.op.types[0].is_tuple):
            return [value]
        return [
            self.b.get_tuple_element(value, k)
            for k in range(len(shape.tuple_shapes) if count is None else count)
        ]


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Registers a translation for operations of the dialect stablehlo, or of another one that the name says."""

    def register(translation: Translation) -> Translation:
        TRANSLATIONS.update((n if "." in n else f"stablehlo.{n}", translation) for n in names)
        return translation

    return register


def refuses(reason: str, *names: str) -> None:
    """Registers that operations are not compiled, with the reason."""

    def refuse(c: Context) -> Results:
        raise UnsupportedError(f"{c.op.name} is not compiled: {reason}")

    translates(*names)(refuse)
