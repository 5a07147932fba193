"""Sizes as expressions of the languages that bindings are written in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ....runtime.sizes import AnySize, Atom, Size
from .model import Model


@dataclasses.dataclass(frozen=True)
class Language:
    """How a language writes them. quotient, larger: its functions for division, rounded down, and the larger one of two
    numbers. large: a number that does not fit into 32 bits, with `{}` for its digits."""

    quotient: str
    larger: str
    large: str = "{}"


C = Language("tfbridge_quotient", "tfbridge_larger", "TFBRIDGE_CAST(int64_t, {}ll)")
RUST = Language("quotient", "larger")
JAVASCRIPT = Language("quotient", "Math.max")
_PLAIN = 1 << 31


def expression(size: AnySize, symbols: Mapping[str, str], language: Language) -> str:
    """A size as an expression of signed 64-bit integers (of JavaScript's numbers); `symbols`: what the symbols are."""
    if not isinstance(size, Size):
        return _number(size, language)
    terms = []
    for monomial, coefficient in size.terms:
        factors = [_number(coefficient, language)] if coefficient != 1 or not monomial else []
        terms.append(" * ".join([*factors, *(_atom(atom, symbols, language) for atom in monomial)]))
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def expressions(model: Model, sizes: Sequence[AnySize], list_: str, language: Language = C) -> list[str]:
    """Sizes of a model, where the values of those that change are in a list of that name."""
    symbols = {size.name: f"{list_}[{place}]" for place, size in enumerate(model.sizes.listed)}
    return [expression(size, symbols, language) for size in sizes]


def _atom(atom: Atom, symbols: Mapping[str, str], language: Language) -> str:
    if not atom.operator:
        return symbols[atom.key]
    operands = (expression(operand, symbols, language) for operand in atom.operands)
    function = {"//": language.quotient, "max": language.larger}[atom.operator]
    return f"{function}({', '.join(operands)})"


def _number(number: int, language: Language) -> str:
    """A number, in parentheses where it is negative."""
    text = str(number) if abs(number) < _PLAIN else language.large.format(number)
    return text if number >= 0 else f"({text})"
