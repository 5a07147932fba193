"""Sizes that are known at run time only, in HLO text: `f32[n,2*n+1]`, and what a module says of its symbols."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable

from ...runtime.sizes import AnySize, Assumptions, Size, maximum, symbols_of
from ..ir.module import Module

_MAX_TEXT = 1000
_MAX_TERMS = 64
_MAX_FACTORS = 8
_HINTS = (37, 41, 43, 47, 53, 59, 61, 67)
"""Typical values of symbols, in the order in which a text names them."""
_OPERATORS: dict[type[ast.operator], Callable[[AnySize, AnySize], AnySize]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CHARACTERS = re.compile(r"[\w\s+\-*/%(),]*", re.ASCII)
_NOT_A_NUMBER = re.compile(r"\b\d+[a-zA-Z_]")
_SYMBOL = re.compile(r"(?!max\b)[a-zA-Z_]\w*", re.ASCII)
_DECLARED = re.compile(rf"({_SYMBOL.pattern})(?:>=([0-9]{{1,18}}))?=([0-9]{{1,18}})", re.ASCII)


def is_symbolic_text(text: str) -> bool:
    """Whether a text spells no plain number."""
    return _SYMBOL.search(text) is not None or "(" in text


def split_outside_parentheses(text: str, separator: str = ",") -> list[str]:
    """The parts of a text between separators, without the space around them; a separator in parentheses is none."""
    if "(" not in text:
        return [part.strip() for part in text.split(separator)]
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def parse_size(text: str, assumptions: Assumptions) -> AnySize:
    """A size from its text; new symbols get typical values.

    Raises: ValueError  it is none.
    """
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError("it is too long")
        if not _CHARACTERS.fullmatch(text) or _NOT_A_NUMBER.search(text):
            raise ValueError("it has other characters")
        return _size_of(ast.parse(text.strip(), mode="eval").body, assumptions)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"expected a size like 2*n+1, got {text[:60]!r}: {reason}") from None


def _size_of(node: ast.expr, assumptions: Assumptions) -> AnySize:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int:
            return number
        case ast.Name(id=name) if _SYMBOL.fullmatch(name):
            hint = _HINTS[len(assumptions.symbols) % len(_HINTS)]
            return assumptions.symbol(name, hint)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size_of(operand, assumptions)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            size = _OPERATORS[type(op)](_size_of(left, assumptions), _size_of(right, assumptions))
            return _not_too_large(size)
        case ast.Call(func=ast.Name(id="max"), args=[_, *_] as arguments, keywords=[]):
            return _not_too_large(maximum([_size_of(a, assumptions) for a in arguments]))
        case _:
            raise ValueError("only +, -, *, //, % and max are sizes")


def _not_too_large(size: AnySize) -> AnySize:
    if isinstance(size, Size):
        if len(size.terms) > _MAX_TERMS or any(len(m) > _MAX_FACTORS for m, _ in size.terms):
            raise ValueError(f"it has more than {_MAX_TERMS} terms, or {_MAX_FACTORS} factors")
    elif abs(size) >= 1 << 63:
        raise ValueError("it does not fit into 64 bits")
    return size


def declare_symbols(text: str, assumptions: Assumptions) -> None:
    """Makes the symbols of `{n=37, b>=1=8}`: their typical values, and lower bounds where those are not 2.

    Raises: ValueError.
    """
    inner = text.strip()
    if inner[:1] != "{" or inner[-1:] != "}":
        raise ValueError(f"expected {{symbol=typical value, ...}}, got {text[:60]!r}")
    for part in inner[1:-1].split(",") if inner[1:-1].strip() else ():
        match = _DECLARED.fullmatch(part.strip())
        if match is None or match[1] in assumptions.symbols:
            raise ValueError(f"expected symbol=typical value, each symbol once, got {part.strip()[:60]!r}")
        low = int(match[2] or 2)
        if int(match[3]) < low:
            raise ValueError(f"expected a typical value of at least {low}, got {part.strip()[:60]!r}")
        assumptions.symbol(match[1], int(match[3]), low)


def declared_symbols(module: Module) -> str:
    """The text for `declare_symbols` of the symbols in the shapes of a module's arguments; empty: there are none."""
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves()]
    parts = [
        f"{atom.key}{'' if atom.low == 2 else f'>={atom.low}'}={atom.hint}"
        for atom in symbols_of(d for leaf in leaves for d in leaf.dims)
    ]
    return f"{{{', '.join(parts)}}}" if parts else ""


def size_text(size: AnySize) -> str:
    """A size as part of another text: in parentheses, where it is no number."""
    return str(size) if isinstance(size, int) else f"({size})"


def sizes_text(sizes: Iterable[AnySize]) -> str:
    """`{2,n,3*n}`."""
    return "{" + ",".join(map(str, sizes)) + "}"
