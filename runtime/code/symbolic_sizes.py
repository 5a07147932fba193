"""What code for sizes known at run time needs for a call: the sizes' values, from the dims of the arguments."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..sizes import (
    AnySize,
    Assumptions,
    Atom,
    Size,
    compiled,
    decoded,
    encoded,
    evaluate,
    is_symbolic,
    symbols_of,
)

Dims = tuple[AnySize, ...]
Known = tuple[Sequence[AnySize], Sequence[int]]
"""Sizes that are no dims of arguments, and what they are in a call."""
MAX_SIZE = 1 << 62
"""What sizes in code are below."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """What `SymbolicSizes` are in a call: the dims of those parameters and results, by number, that have symbols; the
    bytes of the arena; and the table."""

    parameters: dict[int, tuple[int, ...]]
    results: dict[int, tuple[int, ...]]
    temp_bytes: int
    table: tuple[int, ...]


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
        symbols, outcomes, guards, _ = self._functions
        try:
            compared = guards(*map(values.__getitem__, symbols))
        except ZeroDivisionError:
            compared = []
        if len(compared) == len(outcomes) and all(
            (value < 0 if is_less else value == 0) == outcome
            for value, (is_less, outcome) in zip(compared, outcomes)
        ):
            return values
        return self.assumptions.first_failure(values) or values

    def evaluated(self, values: Mapping[str, int]) -> Bound:
        """What is told of a call by the values of the symbols."""
        symbols, *_, function = self._functions
        numbers = iter(function(*map(values.__getitem__, symbols)))
        parameters, results = (
            {n: tuple(next(numbers) for _ in rows[n]) for n in symbolic_rows(rows)}
            for rows in (self.parameters, self.results)
        )
        return Bound(parameters, results, next(numbers), tuple(numbers))

    @functools.cached_property
    def _functions(
        self,
    ) -> tuple[list[str], list[tuple[bool, bool]], Callable[..., list[int]], Callable[..., list[int]]]:
        """The symbols, the relations of the guards with their outcomes, and two functions of the symbols' values: to
        the sizes that the guards compare, and to those of `evaluated`."""
        symbols, guards = list(self.assumptions.symbols), self.assumptions.guards
        lowest = [
            size - (atom.low or 0) for size in self.assumptions.symbols.values() for atom in size.atoms()
        ]
        outcomes = [(True, False)] * len(lowest) + [(r == "<", outcome) for (r, _), outcome in guards.items()]
        dims = [d for rows in (self.parameters, self.results) for n in symbolic_rows(rows) for d in rows[n]]
        return (
            symbols,
            outcomes,
            compiled([*lowest, *(size for _, size in guards)], symbols),
            compiled([*dims, self.temp_bytes, *self.table], symbols),
        )

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


def symbolic_rows(rows: Sequence[Dims]) -> list[int]:
    """The numbers of the dims in which symbols stand."""
    return [number for number, dims in enumerate(rows) if is_symbolic(dims)]


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
    for number, axis, size in rest:
        unknown = [a for a in symbols_of([size]) if a.key not in values]
        if len(unknown) == 1:
            values |= _solved(size, unknown[0], dims[number][axis], values)
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


def _solved(size: Size, symbol: Atom, dim: int, values: Mapping[str, int]) -> dict[str, int]:
    """The value of the symbol with which a size is the dim, or is nearest to it; none where another operation than a
    product is on the symbol."""
    if any(a.operator for a in size.atoms()) or any(m.count(symbol) > 1 for m, _ in size.terms):
        return {}
    rest, one = (evaluate(size, {**values, symbol.key: value}) for value in (0, 1))
    return {symbol.key: max((dim - rest) // (one - rest), symbol.low or 0)} if one != rest else {}


def _symbol_of(size: Size) -> str:
    """The symbol that a size is; empty for others."""
    ((monomial, factor), *others) = size.terms
    if others or factor != 1 or len(monomial) != 1 or monomial[0].operator:
        return ""
    return monomial[0].key
