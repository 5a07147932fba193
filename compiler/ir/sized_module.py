"""A program for sizes that the caller tells at run time: modules, each for some of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...runtime.code.symbolic_sizes import SymbolicSizes
from ...runtime.size_bounds import bounds
from ...runtime.sizes import AnySize, Size, guard_text
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

    def guards(self, most: Mapping[str, int]) -> list[tuple[str, Size, bool]]:
        """The guards that sizes up to these may break: relation, size and outcome."""
        intervals = {
            name: (atom.low or 0, most[name])
            for name, size in self.symbolic.assumptions.symbols.items()
            for atom in size.atoms()
        }
        return [
            (relation, size, outcome)
            for (relation, size), outcome in self.symbolic.assumptions.guards.items()
            if not _holds(relation, outcome, *bounds(size, intervals))
        ]

    def conditions(self, most: Mapping[str, int]) -> list[str]:
        """What sizes up to these must be besides, for people."""
        fixed = [f"{name} == {number}" for name, number in self.numbers.items()]
        return fixed + [guard_text(*guard) for guard in self.guards(most)]

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
    is the general one: its sizes are those of the results. not_served: an example of sizes that none serves; empty
    where none is known.
    """

    places: Mapping[str, int]
    most: Mapping[str, int]
    variants: Sequence[SizeVariant]
    not_served: Mapping[str, int] = dataclasses.field(default_factory=dict)


def _holds(relation: str, outcome: bool, low: int, high: int) -> bool:
    """Whether all sizes in an interval have this outcome."""
    if relation == "<":
        return high < 0 if outcome else low >= 0
    return low == high == 0 if outcome else low > 0 or high < 0
