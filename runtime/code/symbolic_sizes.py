"""What code for sizes known at run time needs for a call: the sizes' values, from the dims of the arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..sizes import AnySize, Assumptions, Size, decoded, encoded, evaluate, symbols_of

Dims = tuple[AnySize, ...]
Known = tuple[Sequence[AnySize], Sequence[int]]
"""Sizes that are no dims of arguments, and what they are in a call."""
MAX_SIZE = 1 << 62
"""What sizes in code are below."""


@dataclasses.dataclass(frozen=True)
class SymbolicSizes:
    """The dims of an artifact's parameters and results, the bytes of its arena, and the sizes that its code reads, in
    their order, where symbols stand in them. The code is right where the assumptions hold."""

    parameters: tuple[Dims, ...]
    results: tuple[Dims, ...]
    temp_bytes: AnySize
    table: Dims
    assumptions: Assumptions

    def values_for(self, dims: Sequence[Sequence[int]], more: Sequence[Known] = ()) -> dict[str, int] | str:
        """The values of the symbols for arguments of these dims; the reason why the code does not serve them."""
        sizes, numbers = zip(*more) if more else ((), ())
        values = values_for((*self.parameters, *sizes), (*dims, *numbers), self.assumptions)
        if isinstance(values, str):
            return values
        return self.assumptions.first_failure(values) or values

    def to_json(self) -> dict[str, object]:
        """As lists and numbers."""
        return {
            **self.assumptions.to_json(),
            **{
                name: [[encoded(d) for d in dims] for dims in getattr(self, name)]
                for name in ("parameters", "results")
            },
            "temp_bytes": encoded(self.temp_bytes),
            "table": [encoded(size) for size in self.table],
        }

    @classmethod
    def of_json(cls, data: Any) -> SymbolicSizes:
        """What `to_json` made."""
        assumptions = Assumptions.of_json(data)
        parameters, results = (
            tuple(tuple(decoded(d, assumptions) for d in dims) for dims in data[name])
            for name in ("parameters", "results")
        )
        return cls(
            parameters,
            results,
            decoded(data["temp_bytes"], assumptions),
            tuple(decoded(size, assumptions) for size in data["table"]),
            assumptions,
        )


def values_for(
    parameters: Sequence[Sequence[AnySize]], dims: Sequence[Sequence[int]], assumptions: Assumptions
) -> dict[str, int] | str:
    """The values of the symbols in the dims of parameters for arguments of these dims; what does not fit."""
    values: dict[str, int] = {}
    rest: list[tuple[int, int, Size]] = []
    for number, (expected, actual) in enumerate(zip(parameters, dims, strict=True)):
        if len(expected) != len(actual):
            return f"argument {number} has {len(actual)} axes, not {len(expected)}"
        for axis, (size, dim) in enumerate(zip(expected, actual)):
            if isinstance(size, int):
                if size != dim:
                    return f"axis {axis} of argument {number} is {dim}, not {size}"
            elif (name := _symbol_of(size)) and name not in values:
                values[name] = dim
                if dim < (low := size.lower() or 0):
                    return f"axis {axis} of argument {number} is {dim}, {name} is at least {low}"
            else:
                rest.append((number, axis, size))
    symbols = {
        *assumptions.symbols,
        *(a.key for a in symbols_of(size for sizes in parameters for size in sizes)),
    }
    if missing := sorted(symbols - values.keys()):
        return f"no argument has an axis of size {', '.join(missing)}"
    for number, axis, size in rest:
        if (value := evaluate(size, values)) != (dim := dims[number][axis]):
            known = ", ".join(f"{a.key} = {values[a.key]}" for a in symbols_of([size]))
            return f"axis {axis} of argument {number} is {dim}, {size} is {value} for {known}"
    return values


def _symbol_of(size: Size) -> str:
    """The symbol that a size is; empty for others."""
    ((monomial, factor), *others) = size.terms
    if others or factor != 1 or len(monomial) != 1 or monomial[0].operator:
        return ""
    return monomial[0].key
