"""Bounds of sizes where their symbols have bounds: interval arithmetic, so never too tight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from .sizes import AnySize, Atom, Size

Interval: TypeAlias = tuple[int, int]
"""The lowest and the highest value."""


def bounds(size: AnySize, symbols: Mapping[str, Interval]) -> Interval:
    """Numbers between which a size is, for all values of the symbols in their intervals. Divisors are not 0."""
    if not isinstance(size, Size):
        return size, size
    low = high = 0
    for monomial, coefficient in size.terms:
        term = coefficient, coefficient
        for atom in monomial:
            term = _product(term, _of_atom(atom, symbols))
        low, high = low + term[0], high + term[1]
    return low, high


def _of_atom(atom: Atom, symbols: Mapping[str, Interval]) -> Interval:
    if not atom.operator:
        return symbols[atom.key]
    return _OPERATORS[atom.operator](*(bounds(operand, symbols) for operand in atom.operands))


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    """The divisors are those of the interval that are nearest to 0 and farthest from it, of either sign."""
    nearest = [n for n in (*b, 1, -1) if n and b[0] <= n <= b[1]]
    corners = [x // y for x in a for y in nearest or [1]]
    return min(corners), max(corners)


_OPERATORS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "//": _quotient,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
