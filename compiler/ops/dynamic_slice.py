"""Dynamic-slice and dynamic-update-slice: a box at an offset known at run time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.module import Instruction
from ..ir.shape import Shape
from .op import C, E, Indexer, N, Op, attribute, require, require_arrays


def _require_starts(opcode: str, operand: Shape, starts: Sequence[Shape], label: str) -> None:
    types = {s.element_type for s in starts}
    require(
        len(starts) == operand.rank
        and all(s.is_scalar and s.element_type.is_integer for s in starts)
        and len(types) <= 1,
        f"{opcode}: starts are {list(starts)}, {operand.rank} integer scalars of one type are wanted "
        f"for {operand}",
        label,
    )


def _box(operand: np.ndarray, sizes: Sequence[int], starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    clamped = [min(max(int(start), 0), dim - size) for start, dim, size in zip(starts, operand.shape, sizes)]
    return tuple(slice(start, start + size) for start, size in zip(clamped, sizes))


@dataclasses.dataclass(frozen=True)
class DynamicSlice(Op):
    """The box of slice_sizes that begins at the starts, each clamped to 0..dim - size so that the box lies
    inside.

    Operands: the array, then one integer scalar per axis.
    dynamic_slice_c1: the first operand is an array.
    dynamic_slice_c2: then come as many integer scalars of one type as it has axes.
    dynamic_slice_c3: slice_sizes has one entry per axis, between 0 and the size of the axis.
    Source: operation semantics, DynamicSlice.
    """

    opcode: ClassVar[str] = "dynamic-slice"
    is_index_map: ClassVar[bool] = True
    reads_part: ClassVar[bool] = True
    slice_sizes: tuple[int, ...] = attribute("sizes", "dynamic_slice_sizes")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's type with slice_sizes."""
        require_arrays("dynamic-slice", operands[:1], 1, "dynamic_slice_c1")
        operand = operands[0]
        _require_starts("dynamic-slice", operand, operands[1:], "dynamic_slice_c2")
        require(
            len(self.slice_sizes) == operand.rank
            and all(0 <= size <= dim for size, dim in zip(self.slice_sizes, operand.dims)),
            f"dynamic-slice: slice_sizes is {self.slice_sizes}, operand is {operand}",
            "dynamic_slice_c3",
        )
        return operand.with_dims(self.slice_sizes)

    def reference(self, operand: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        """The box."""
        return operand[_box(operand, self.slice_sizes, starts)]

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The operand's element at start + index."""
        return e.operand(
            0,
            [
                i if dim == size else e.add(i, e.index_operand(axis + 1, [], dim - size))
                for axis, (i, dim, size) in enumerate(zip(index, operands[0].dims, self.slice_sizes))
            ],
        )


@dataclasses.dataclass(frozen=True)
class DynamicUpdateSlice(Op):
    """The array with the box that begins at the starts replaced by the update; the starts are clamped as in
    dynamic-slice.

    Operands: the array, the update, then one integer scalar per axis.
    dynamic_update_slice_c1: the first two operands are arrays of one element type.
    dynamic_update_slice_c2: then come as many integer scalars of one type as the array has axes.
    dynamic_update_slice_c3: the update has the array's rank and no axis larger than the array's.
    Source: operation semantics, DynamicUpdateSlice.
    """

    opcode: ClassVar[str] = "dynamic-update-slice"

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """The array that the update goes into."""
        return ((0, 0),)

    def updated_bytes(self, instruction: Instruction) -> int:
        """Those of the update, which are only written."""
        return instruction.operands[1].shape.bytes

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The array's shape."""
        require_arrays("dynamic-update-slice", operands[:2], 2, "dynamic_update_slice_c1")
        operand, update = operands[:2]
        require(
            operand.element_type is update.element_type,
            f"dynamic-update-slice: operands {operand} and {update} differ in element type",
            "dynamic_update_slice_c1",
        )
        _require_starts("dynamic-update-slice", operand, operands[2:], "dynamic_update_slice_c2")
        require(
            update.rank == operand.rank and all(u <= d for u, d in zip(update.dims, operand.dims)),
            f"dynamic-update-slice: update {update} does not fit into {operand}",
            "dynamic_update_slice_c3",
        )
        return operand.without_layout()

    def reference(self, operand: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        """A copy with the box overwritten."""
        result = operand.copy()
        result[_box(operand, update.shape, starts)] = update
        return result

    def element(self, e: Indexer[N, C, E], index: Sequence[N], operands: Sequence[Shape], shape: Shape) -> E:
        """The update's element where the index is inside the box, else the array's."""
        operand, update = operands[:2]
        if 0 in update.dims:
            return e.operand(0, index)
        inner, condition = [], None
        for axis, (i, dim, size) in enumerate(zip(index, operand.dims, update.dims)):
            if dim == size:
                inner.append(i)
                continue
            position = e.add(i, e.multiply(e.index_operand(axis + 2, [], dim - size), -1))
            check = e.both(e.less(e.index(-1), position), e.less(position, e.index(size)))
            condition = check if condition is None else e.both(condition, check)
            inner.append(position)
        new = e.operand(1, inner, condition)
        return new if condition is None else e.choose(condition, new, e.operand(0, index))
