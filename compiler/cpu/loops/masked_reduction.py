"""Masks of reductions: the elements from some index on that change nothing, so that loops may end before them.

    m = pred[8] compare(iota, n), direction=LT      s = f32[] reduce(select(m, x, zeros), zero), to_apply=add

The sum is over the first n elements. Such masks stand before reductions over axes whose size is known at run time only
(passes/pad_dynamic_dimensions.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from ...ir.module import Instruction
from ...ops import (
    Broadcast,
    Compare,
    Constant,
    Copy,
    Elementwise,
    Iota,
    Reduce,
    ReduceWindow,
    Reshape,
    Transpose,
    reducer_kind,
)
from ...ops.reduce import neutral_number
from .access_analysis import AccessAnalysis
from .affine import Affine, Symbol
from .indexing import Index

_MOVES = Broadcast | Copy | Reshape | Transpose


@dataclasses.dataclass(frozen=True)
class Mask:
    """Elements count only where `index` is less than the scalar `size` times `factor`."""

    index: Affine
    size: Instruction
    factor: int = 1

    @staticmethod
    def of(index: Affine, size: Instruction) -> Mask:
        """Where an index is less than a size. For a quotient that is where the numerator is less than a multiple."""
        factor = 1
        while len(index.terms) == 1 and not index.constant:
            ((symbol, step),) = index.terms
            if step != 1 or symbol.quotient is None:
                break
            index, divisor = symbol.quotient
            factor *= divisor
        return Mask(index, size, factor)

    def ends(self, symbol: Symbol) -> bool:
        """Whether there is a value of the symbol from which on nothing counts, whatever other symbols are."""
        own = self.index.coefficient(symbol)
        return isinstance(own, int) and own > 0 and symbol not in self._rest(symbol).symbols()

    def before(self, symbol: Symbol, is_known: Callable[[Symbol], bool]) -> tuple[Affine, int]:
        """(rest, step): nothing counts where step * symbol + rest is the limit or more. Symbols that are not known have
        the values that make the rest least."""
        rest = self._rest(symbol)
        values = {a: Affine.number(a.low if c > 0 else a.high) for a, c in rest.terms if not is_known(a)}
        return rest.replaced(values), self.index.coefficient(symbol)

    def _rest(self, symbol: Symbol) -> Affine:
        return self.index - Affine.of(symbol) * self.index.coefficient(symbol)


def masks_of(reduction: Instruction, index: Index) -> list[Mask]:
    """The masks of the element at an index of a reduction's operand, each of which leaves it out by itself."""
    op = reduction.op
    assert isinstance(op, Reduce | ReduceWindow)
    kind = reducer_kind(op.to_apply) if len(reduction.operands) == 2 else None
    if kind is None:
        return []
    accesses = AccessAnalysis()
    value, index = _moved(accesses, reduction.operands[0], index)
    if not (isinstance(value.op, Elementwise) and value.op.name == "select"):
        return []
    other = value.operands[2]
    while isinstance(other.op, Broadcast):
        other = other.operands[0]
    if not isinstance(other.op, Constant):
        return []
    neutral = np.asarray(neutral_number(kind, value.shape.element_type))
    if not (other.op.literal.array == neutral).all():
        return []
    return _conditions(accesses, value.operands[0], index)


def _conditions(accesses: AccessAnalysis, pred: Instruction, index: Index) -> list[Mask]:
    """The comparisons of an index with a scalar that must hold where a pred does."""
    pred, index = _moved(accesses, pred, index)
    if isinstance(pred.op, Elementwise) and pred.op.name == "and":
        return [mask for operand in pred.operands for mask in _conditions(accesses, operand, index)]
    if not isinstance(pred.op, Compare) or pred.op.direction != "LT":
        return []
    number, at = _moved(accesses, pred.operands[0], index)
    size, _ = _moved(accesses, pred.operands[1], index)
    if not isinstance(number.op, Iota) or not size.shape.is_scalar:
        return []
    return [Mask.of(at[number.op.iota_dimension], size)]


def _moved(accesses: AccessAnalysis, value: Instruction, index: Index) -> tuple[Instruction, Index]:
    """Where an element comes from that other ops only move."""
    while isinstance(value.op, _MOVES):
        ((value, index, _),) = accesses.operands(value, index)
    return value, index
