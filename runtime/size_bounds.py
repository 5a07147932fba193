"""Bounds of sizes where their symbols have bounds: interval arithmetic, so never too tight."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
        term = _product((coefficient, coefficient), _of_monomial(monomial, symbols))
        low, high = low + term[0], high + term[1]
    return low, high


def _of_monomial(monomial: Sequence[Atom], symbols: Mapping[str, Interval]) -> Interval:
    """Of a product. A quotient times its divisor is about the dividend, whatever the divisor is."""
    for atom, divisor in itertools.permutations(monomial, 2):
        if _has_quotient(atom, divisor) and _of_atom(divisor, symbols)[0] >= 0:
            rest = list(monomial)
            rest.remove(atom)
            rest.remove(divisor)
            return _product(_multiplied(atom, divisor, symbols), _of_monomial(rest, symbols))
    product = 1, 1
    for atom in monomial:
        product = _product(product, _of_atom(atom, symbols))
    return product


def _has_quotient(atom: Atom, divisor: Atom) -> bool:
    """Whether an atom is a quotient with that divisor, or the larger of two sizes of which one has such a term."""
    if atom.operator == "//":
        return isinstance(b := atom.operands[1], Size) and b.terms == (((divisor,), 1),)
    sizes = [operand for operand in atom.operands if isinstance(operand, Size)]
    return any(
        _has_quotient(factor, divisor) for s in sizes for monomial, _ in s.terms for factor in monomial
    )


def _multiplied(atom: Atom, divisor: Atom, symbols: Mapping[str, Interval]) -> Interval:
    """Of an atom that `_has_quotient`, times the divisor, which is not negative, and not 0."""
    if atom.operator == "//":
        low, high = bounds(atom.operands[0], symbols)
        return low - _of_atom(divisor, symbols)[1] + 1, high
    factor = Size((((divisor,), 1),))
    return _OPERATORS[atom.operator](*(bounds(operand * factor, symbols) for operand in atom.operands))


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
