"""TopK: the largest or smallest elements of every line along the last axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of
from ..ir.shape import Shape
from . import numeric
from .op import Op, attribute, require, require_arrays


@dataclasses.dataclass(frozen=True)
class TopK(Op):
    """A tuple of the k largest elements along the last axis in descending order, and their numbers (s32).

    With largest false the k smallest, ascending. Floats are in total order: -NaN, -inf, .., -0, +0, .., inf, NaN. Of
    equal elements the one with the smaller number comes first.
    With order NUMBERS -0 equals 0, and NaN is worse than all numbers. With order HEAP -0 equals 0, and NaN is neither
    better nor worse than a number; a binary heap chooses the elements (see `heap_order`), and the result has its order,
    the worst element first. HEAP_SORTED sorts that heap.
    topk_c1: one operand, an array.
    topk_c2: it has an axis, the last of at least k elements; k is not negative.
    topk_c3: it is of an integer or a float type.
    topk_c4: order is NUMBERS, HEAP, HEAP_SORTED or absent.
    Source: XLA, "topk"; the orders of a heap are those of TensorFlow's TopKV2.
    """

    opcode: ClassVar[str] = "topk"
    k: int = attribute("size", "k")
    largest: bool = attribute("bool", "largest", default=True)
    order: str = attribute("word", "order", default="")

    @property
    def inner_rank(self) -> int:
        """Lines."""
        return 1

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape with k elements in the last axis, twice, the second of s32."""
        require_arrays("topk", operands, 1, "topk_c1")
        operand = operands[0]
        require(
            operand.rank > 0 and 0 <= self.k <= operand.dims[-1],
            f"topk: k is {self.k}, at most the last dim of {operand} is wanted",
            "topk_c2",
        )
        require(
            operand.element_type.is_integer or operand.element_type.is_float,
            f"topk: operand is {operand}, integers or floats are wanted",
            "topk_c3",
        )
        require(
            self.order in ("", "NUMBERS", "HEAP", "HEAP_SORTED"),
            f"topk: order is {self.order}, NUMBERS, HEAP or HEAP_SORTED is wanted",
            "topk_c4",
        )
        dims = (*operand.dims[:-1], self.k)
        return Shape.tuple([Shape(operand.element_type, dims), Shape(ElementType.S32, dims)])

    def reference(self, operand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A stable sort of the elements as integers of the same order; or the heap, element by element."""
        kind = element_type_of(operand.dtype)
        if self.order.startswith("HEAP"):
            key = numeric.wide(operand) if kind.is_float else operand.astype(object)
            lines = (key if self.largest else -key).reshape(-1, operand.shape[-1]).tolist()
            order = np.array(
                [heap_order(line, self.k, self.order == "HEAP_SORTED") for line in lines], np.int64
            )
            order = order.reshape(*operand.shape[:-1], self.k)
            return np.take_along_axis(operand, order, -1), order.astype(np.int32)
        if kind.is_float:
            key = numeric.total_order(operand, are_zeros_equal=bool(self.order))
        else:
            key = operand.astype(np.uint64 if kind.is_unsigned else np.int64)
        key = ~key if self.largest else key
        if self.order and kind.is_float:
            key = np.where(np.isnan(operand), np.iinfo(key.dtype).max, key)
        order = np.argsort(key, -1, kind="stable")[..., : self.k]
        return np.take_along_axis(operand, order, -1), order.astype(np.int32)


def heap_order(line: Sequence[float], k: int, is_sorted: bool) -> list[int]:
    """The numbers of the k largest elements in the order that a heap gives them.

    The heap has the worst element on top. It is built of the first k + 1 elements, whose worst one is removed; each
    later one that is better than the top replaces it: the top is removed, then the element added. Sorted, the
    top is removed again and again. NaN is neither better nor worse than a number: the smaller number is then better.
    """

    def better(a: int, b: int) -> bool:
        return line[a] > line[b] or (not line[a] < line[b] and a < b)

    def rise(at: int, top: int, element: int) -> None:
        """Moves an element from the free position `at` towards the top, to its position in the heap."""
        while at > top and better(heap[parent := (at - 1) // 2], element):
            heap[at], at = heap[parent], parent
        heap[at] = element

    def fill(top: int, size: int, element: int) -> None:
        """Adds an element to a heap whose top is free: the free position sinks to the end first."""
        at = top
        while 2 * at + 2 < size:
            left, right = 2 * at + 1, 2 * at + 2
            child = left if better(heap[right], heap[left]) else right
            heap[at], at = heap[child], child
        if 2 * at + 2 == size:
            heap[at], at = heap[size - 1], size - 1
        rise(at, top, element)

    def remove(size: int) -> None:
        """Moves the top to the end."""
        element, heap[size - 1] = heap[size - 1], heap[0]
        fill(0, size - 1, element)

    if not k:
        return []
    heap = list(range(min(k + 1, len(line))))
    for top in reversed(range(len(heap) // 2)):
        fill(top, len(heap), heap[top])
    if len(heap) > k:
        remove(k + 1)
    for element in range(k + 1, len(line)):
        if better(element, heap[0]):
            remove(k)
            rise(k - 1, 0, element)
    for size in range(k, 1, -1) if is_sorted else ():
        remove(size)
    return heap[:k]
