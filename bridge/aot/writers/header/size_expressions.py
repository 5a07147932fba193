"""Sizes as expressions of C."""

from __future__ import annotations

from collections.abc import Mapping

from .....runtime.sizes import AnySize, Atom, Size

_FUNCTIONS = {"//": "tfbridge_quotient", "max": "tfbridge_larger"}
_PLAIN = 1 << 31


def c_expression(size: AnySize, symbols: Mapping[str, str]) -> str:
    """A size as an expression of type int64_t; `symbols`: what the symbols are."""
    if not isinstance(size, Size):
        return c_number(size)
    terms = []
    for monomial, coefficient in size.terms:
        factors = [c_number(coefficient)] if coefficient != 1 or not monomial else []
        terms.append(" * ".join([*factors, *(_atom(atom, symbols) for atom in monomial)]))
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _atom(atom: Atom, symbols: Mapping[str, str]) -> str:
    if not atom.operator:
        return symbols[atom.key]
    operands = (c_expression(operand, symbols) for operand in atom.operands)
    return f"{_FUNCTIONS[atom.operator]}({', '.join(operands)})"


def c_product(sizes: tuple[AnySize, ...], symbols: Mapping[str, str]) -> str:
    """The product of sizes."""
    return " * ".join(c_expression(size, symbols) for size in sizes) or "1"


def c_number(number: int) -> str:
    """A number, in parentheses where it is negative."""
    text = str(number) if abs(number) < _PLAIN else f"TFBRIDGE_CAST(int64_t, {number}ll)"
    return text if number >= 0 else f"({text})"
