"""A program for sizes that the caller tells at run time: modules, each for some of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...runtime.code.symbolic_sizes import SymbolicSizes
from ...runtime.sizes import AnySize
from .module import Module

_ALIGN = 64


@dataclasses.dataclass(frozen=True)
class SizeVariant:
    """A module for the values for which sizes are `numbers` and the assumptions of its other sizes hold.

    symbolic: what its code needs and assumes. module: None where nothing is to be computed.
    """

    numbers: Mapping[str, int]
    symbolic: SymbolicSizes
    module: Module | None

    def serves(self, values: Mapping[str, int]) -> bool:
        """Whether the code is right for values of all sizes."""
        return all(
            values[name] == number for name, number in self.numbers.items()
        ) and self.symbolic.assumptions.hold(values)

    def conditions(self) -> list[str]:
        """What the sizes must be, for people."""
        fixed = [f"{name} == {number}" for name, number in self.numbers.items()]
        return fixed + self.symbolic.assumptions.conditions()

    @property
    def table_bytes(self) -> int:
        """Bytes of temporary memory, before that of the code, for the sizes that the code reads."""
        return -(-8 * len(self.symbolic.table) // _ALIGN) * _ALIGN

    @property
    def temp_bytes(self) -> AnySize:
        """Bytes of temporary memory."""
        return self.symbolic.temp_bytes + self.table_bytes if self.module else 0


@dataclasses.dataclass(frozen=True)
class SizedModule:
    """Variants of a program, the first that serves a run's sizes does it.

    places: which numbers of the caller's list the sizes are, by name. most: what they are at most. The first variant
    is the general one: its sizes are those of the results.
    """

    places: Mapping[str, int]
    most: Mapping[str, int]
    variants: Sequence[SizeVariant]
