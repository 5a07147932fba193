"""Products of arrays that a formula of letters says: `ab,bc->ac`. An older StableHLO has them."""

from __future__ import annotations

import re

from ...builder.computation_builder import Operand
from ...builder.derived import binary_computation
from ...errors import ShapeError, UnsupportedError
from ...ops import Dot, Reduce, Transpose
from ..translation import Context, Results, translates
from .contractions import preferred

_FORMULA = re.compile(r"([a-zA-Z]*)(?:,([a-zA-Z]*))?->([a-zA-Z]*)")


@translates("einsum")
def einsum(c: Context) -> Results:
    letters, result = _letters(c, 2)
    operands = [
        _summed(c, operand, own, {*other, *result})
        for operand, own, other in zip(c.operands, letters, reversed(letters))
    ]
    left, right = ([x for x in own if x in {*other, *result}] for own, other in (letters, letters[::-1]))
    batch = [x for x in left if x in right and x in result]
    contracted = [x for x in left if x in right and x not in result]
    axes = [tuple(map(own.index, pair)) for pair in (contracted, batch) for own in (left, right)]
    op = Dot(axes[0], axes[1], axes[2], axes[3], preferred(c))
    free = [x for own in (left, right) for x in own if x not in batch and x not in contracted]
    return _ordered(c, c.b.apply(op, *operands), [*batch, *free], result)


@translates("unary_einsum")
def unary_einsum(c: Context) -> Results:
    (letters,), result = _letters(c, 1)
    rest = [x for x in letters if x in result]
    return _ordered(c, _summed(c, c.operand(), letters, {*result}), rest, result)


def _letters(c: Context, count: int) -> tuple[list[str], str]:
    """The letters of the operands' axes, and those of the result's.

    Raises: UnsupportedError  another formula, or one in which an axis is named twice.
    """
    text = c.op.string("config" if c.op.has("config") else "einsum_config").replace(" ", "")
    match = _FORMULA.fullmatch(text)
    parts = [part for part in match.groups() if part is not None] if match else []
    if len(parts) != count + 1 or any(len({*part}) != len(part) for part in parts):
        raise UnsupportedError(f"{c.op.name}: the formula {text[:60]!r} is not compiled")
    shapes = [c.b.get_shape(o) for o in c.all_operands(count)]
    if any(s.rank != len(part) for s, part in zip(shapes, parts)) or not {*parts[-1]} <= {
        *"".join(parts[:-1])
    }:
        raise ShapeError(
            f"{c.op.name}: operands are {', '.join(map(str, shapes))} in the formula {text[:60]!r}"
        )
    return parts[:-1], parts[-1]


def _summed(c: Context, operand: Operand, letters: str, kept: set[str]) -> Operand:
    """The sum over the axes that nothing else names."""
    axes = tuple(k for k, x in enumerate(letters) if x not in kept)
    if not axes:
        return operand
    kind = c.b.get_shape(operand).element_type
    return c.b.apply(Reduce(axes, binary_computation("add", kind)), operand, c.b.scalar_like(operand, 0))


def _ordered(c: Context, operand: Operand, letters: list[str], result: str) -> Operand:
    """The axes in the order of the result's letters."""
    return c.b.apply(Transpose(tuple(map(letters.index, result))), operand)
