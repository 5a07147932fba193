"""Sort: elements along an axis ordered by a comparator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of
from ..ir.module import Computation, Evaluate, Instruction, Value, array_of
from ..ir.shape import Shape
from .constant import Parameter
from .elementwise import Compare
from .numeric import total_order
from .op import Op, attribute, collated, require, require_signature


@dataclasses.dataclass(frozen=True)
class Sort(Op):
    """The arrays reordered together along `dimension`, so that an element comes before another where to_apply
    says so.

    to_apply takes the two elements of the first array, then the two of the second, and so on. It is a strict
    weak order; with NaN that takes a total-order comparison. With is_stable, elements neither of which comes
    first keep their order. Several arrays give a tuple.
    Where to_apply is no more than a comparison of floats, NaN is sorted as in total order, by its sign.
    sort_c1: at least one operand; all are arrays of the same dims.
    sort_c2: dimension is an axis of them.
    sort_c3: to_apply is (T0, T0, T1, T1, ..) -> pred, all scalars.
    Source: operation semantics, Sort.
    """

    opcode: ClassVar[str] = "sort"
    dimension: int = attribute("dim", "dimensions")
    to_apply: Computation = attribute("computation", "to_apply")
    is_stable: bool = attribute("bool", "is_stable", default=False)

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """All arrays."""
        return [(k, k) for k in range(len(instruction.operands))]

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operands' shapes."""
        require(
            len(operands) > 0 and all(o.is_array and o.dims == operands[0].dims for o in operands),
            f"sort: operands are {', '.join(map(str, operands))}, arrays of the same dims are wanted",
            "sort_c1",
        )
        require(
            0 <= self.dimension < operands[0].rank,
            f"sort: dimension is {self.dimension}, operand {operands[0]} has {operands[0].rank} axes",
            "sort_c2",
        )
        scalars = [Shape(o.element_type) for o in operands for _ in range(2)]
        require_signature("sort", "to_apply", self.to_apply, scalars, Shape(ElementType.PRED), "sort_c3")
        return collated([o.without_layout() for o in operands])

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """A merge sort of all rows at once, stable always."""

        def before(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            pairs = (np.take_along_axis(row, number, 0) for row in rows for number in (a, b))
            return array_of(call(self.to_apply, *pairs))

        rows = [np.moveaxis(o, self.dimension, 0) for o in operands]
        by = order_of(self.to_apply)
        if by and element_type_of(operands[by.array].dtype).is_float:
            return _reordered(rows, by.permutation(rows[by.array]), self.dimension)
        order = np.broadcast_to(np.arange(len(rows[0])).reshape(-1, *[1] * (rows[0].ndim - 1)), rows[0].shape)
        width = 1
        while width < len(order):
            order = _merge(order, width, before)
            width *= 2
        return _reordered(rows, order, self.dimension)


@dataclasses.dataclass(frozen=True)
class Order:
    """By the value of one array's elements. `is_total`: -0 comes before +0, and NaNs at the ends."""

    array: int
    descending: bool
    is_total: bool

    def permutation(self, rows: np.ndarray) -> np.ndarray:
        """Where the elements of floats in this order, along axis 0, come from."""
        key = total_order(rows, are_zeros_equal=not self.is_total)
        return np.argsort(~key if self.descending else key, 0, kind="stable")


def order_of(comparator: Computation) -> Order | None:
    """The order by one array's values that a comparator is; None when it is something else."""
    op, operands = comparator.root.op, comparator.root.operands
    if not isinstance(op, Compare) or op.direction not in ("LT", "GT"):
        return None
    numbers = [o.op.number for o in operands if isinstance(o.op, Parameter)]
    if len(numbers) != 2 or numbers[0] // 2 != numbers[1] // 2 or numbers[0] == numbers[1]:
        return None
    descending = (op.direction == "GT") == (numbers[0] < numbers[1])
    return Order(numbers[0] // 2, descending, op.type == "TOTALORDER")


def _reordered(rows: Sequence[np.ndarray], order: np.ndarray, axis: int) -> Value:
    result = tuple(np.moveaxis(np.take_along_axis(row, order, 0), 0, axis) for row in rows)
    return result[0] if len(result) == 1 else result


def _merge(
    order: np.ndarray, width: int, before: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Merges sorted runs of `width` along axis 0, two by two.

    An element moves to its number in its own run plus how many of the other run come before it, found by
    bisection: for an element of the left run those strictly before it, for one of the right run also those
    that are equal.
    """
    size = len(order)
    number = np.arange(size).reshape(-1, *[1] * (order.ndim - 1))
    start = number // (2 * width) * (2 * width)
    in_left = number < start + width
    other = np.where(in_left, start + width, start)
    low = np.broadcast_to(np.minimum(other, size), order.shape)
    high = np.broadcast_to(np.minimum(other + width, size), order.shape)
    first = low
    while np.any(low < high):
        middle = (low + high) // 2
        seen = np.take_along_axis(order, np.minimum(middle, size - 1), 0)
        goes_on = np.where(in_left, before(seen, order), ~before(order, seen)) & (low < high)
        low, high = np.where(goes_on, middle + 1, low), np.where(goes_on | (low >= high), high, middle)
    own = number - np.where(in_left, start, start + width)
    result = np.zeros_like(order)  # of a comparator that is no order, several elements have one place
    np.put_along_axis(result, start + own + (low - first), order, 0)
    return result
