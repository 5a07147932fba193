"""Rewrites of single ops for operands of dynamic sizes: elements beyond a size do not change the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..analysis import dynamic_dimension_inference
from ..ir.element_types import ElementType, integer_info
from ..ir.literal import Literal
from ..ir.module import Instruction, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Compare,
    Concatenate,
    Constant,
    Convert,
    Convolution,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Iota,
    Op,
    Opcode,
    Pad,
    Reduce,
    ReduceWindow,
    Reverse,
    Scatter,
    elementwise,
    size_constant,
)

Sizes: TypeAlias = dynamic_dimension_inference.Sizes[Instruction]
"""By axis of an array, its size, an s32 scalar, where that is known at run time only."""


_SIZE_TYPE = ElementType.S32


def constant(value: object, element_type: ElementType = _SIZE_TYPE) -> Instruction:
    return make(Constant(Literal(value, element_type)))


class SizeArithmetic:
    """The arithmetic of sizes that are s32 scalars of the program."""

    def add(self, a: Instruction, b: Instruction | int) -> Instruction:
        return a if isinstance(b, int) and b == 0 else self._apply(Opcode.ADD, a, b)

    def multiply(self, a: Instruction, b: int) -> Instruction:
        return a if b == 1 else self._apply(Opcode.MULTIPLY, a, b)

    def divide(self, a: Instruction, b: int) -> Instruction:
        return a if b == 1 else self._apply(Opcode.DIVIDE, a, b)

    def smaller(self, a: Instruction, b: Instruction | int) -> Instruction:
        return a if a is b else self._apply(Opcode.MINIMUM, a, b)

    def larger(self, a: Instruction, b: int) -> Instruction:
        return self._apply(Opcode.MAXIMUM, a, b)

    def _apply(self, opcode: Opcode, a: Instruction, b: Instruction | int) -> Instruction:
        return elementwise(opcode, a, b if isinstance(b, Instruction) else size_constant(b))


SIZES = SizeArithmetic()


def inside(dims: Sequence[int], sizes: Sizes) -> Instruction:
    """A pred array of these dims: true where every index is below the axis's size."""
    mask: Instruction | None = None
    for axis, size in sorted(sizes.items()):
        numbers = make(Iota(Shape(ElementType.S32, tuple(dims)), axis))
        test = make(Compare("LT"), numbers, _broadcast(size, dims))
        mask = test if mask is None else elementwise(Opcode.AND, mask, test)
    assert mask is not None
    return mask


def masked(array: Instruction, sizes: Sizes, fill: Instruction) -> Instruction:
    """The array with the scalar `fill` beyond the sizes."""
    if not sizes:
        return array
    dims = array.shape.dims
    return elementwise(Opcode.SELECT, inside(dims, sizes), array, _broadcast(fill, dims))


def _broadcast(scalar: Instruction, dims: Sequence[int]) -> Instruction:
    return make(Broadcast(tuple(dims), ()), scalar) if dims else scalar


def _zero(array: Instruction) -> Instruction:
    return constant(0, array.shape.element_type)


Rewrite: TypeAlias = Callable[[Any, list[Instruction], list[Sizes]], Instruction]


def _reduction(op: Reduce | ReduceWindow, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Initial values beyond the sizes of the axes that are reduced."""
    count = len(operands) // 2
    arrays = [masked(a, _reduced(op, axes), i) for a, axes, i in zip(operands, sizes, operands[count:])]
    return make(op, *arrays, *operands[count:])


def _reduced(op: Reduce | ReduceWindow, sizes: Sizes) -> Sizes:
    if isinstance(op, Reduce):
        return {axis: size for axis, size in sizes.items() if axis in op.dimensions}
    w = op.window
    return {
        axis: size
        for axis, size in sizes.items()
        if (w.size[axis], w.stride[axis], w.pad_low[axis], w.pad_high[axis]) != (1, 1, 0, 0)
    }


def _dot(op: Dot, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Zeros beyond the sizes of contracted axes, in both factors: zero times NaN is NaN."""
    masks: list[dict[int, Instruction]] = [{}, {}]
    for left, right in zip(op.lhs_contracting, op.rhs_contracting):
        lengths = [s[a] for s, a in zip(sizes, (left, right)) if a in s]
        for size in lengths:
            masks[0][left] = masks[1][right] = size if len(lengths) == 1 else SIZES.smaller(*lengths)
    return make(op, *(masked(o, m, _zero(o)) for o, m in zip(operands, masks)))


def _convolution(op: Convolution, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Zeros beyond the sizes of features, in both factors, and of spatial axes."""
    d = op.dims
    lengths = [s[a] for s, a in zip(sizes, (d.input_feature, d.kernel_input_feature)) if a in s]
    spatial = {axis: size for axis, size in sizes[0].items() if axis in d.input_spatial}
    masks: list[dict[int, Instruction]] = [spatial, {}]
    if lengths:
        size = lengths[0] if len(lengths) == 1 else SIZES.smaller(*lengths)
        masks[0][d.input_feature] = masks[1][d.kernel_input_feature] = size
    return make(op, *(masked(o, m, _zero(o)) for o, m in zip(operands, masks)))


def _pad(op: Pad, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """The padding value beyond the sizes, so that padding begins where the elements end."""
    return make(op, masked(operands[0], sizes[0], operands[1]), operands[1])


def _concatenate(op: Concatenate, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Every operand written at the end of the one before it; the next one overwrites the elements beyond its size."""
    if not any(op.dimension in operand_sizes for operand_sizes in sizes[:-1]):
        return make(op, *operands)
    result, at = make(op, *operands), constant(0)
    for operand, operand_sizes in zip(operands, sizes):
        starts = [at if axis == op.dimension else constant(0) for axis in range(operand.shape.rank)]
        result = make(DynamicUpdateSlice(), result, operand, *starts)
        at = SIZES.add(at, operand_sizes.get(op.dimension) or operand.shape.dims[op.dimension])
    return result


def _reverse(op: Reverse, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """The valid elements are the last ones after the reversal: they are moved to the front."""
    shape = operands[0].shape
    reversed_sizes = {axis: size for axis, size in sizes[0].items() if axis in op.dimensions}
    result = make(op, *operands)
    if not reversed_sizes:
        return result
    rank = range(shape.rank)
    room = Pad(
        (0,) * shape.rank, tuple(shape.dims[a] if a in reversed_sizes else 0 for a in rank), (0,) * shape.rank
    )
    starts = [
        SIZES.add(SIZES.multiply(reversed_sizes[a], -1), shape.dims[a])
        if a in reversed_sizes
        else constant(0)
        for a in rank
    ]
    return make(DynamicSlice(shape.dims), make(room, result, _zero(result)), *starts)


def _gather(op: Gather, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Indices beyond the size of the one axis that they are of become the last one, as those beyond the bound do."""
    array, indices = operands
    axis = op.start_index_map[0] if len(op.start_index_map) == 1 else -1
    if axis not in sizes[0] or op.slice_sizes[axis] != 1:
        return make(op, array, indices)
    if indices.shape.element_type.bits < _SIZE_TYPE.bits:
        indices = make(Convert(_SIZE_TYPE), indices)
    kind = indices.shape.element_type
    if kind.is_signed:
        last = make(Convert(kind), SIZES.add(sizes[0][axis], size_constant(-1)))
        indices = elementwise(Opcode.MINIMUM, indices, _broadcast(last, indices.shape.dims))
    return make(op, array, indices)


def _scatter(op: Scatter, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """Indices out of bounds, which are skipped, for updates beyond the sizes."""
    count = len(operands) // 2
    indices = operands[count]
    rest = [a for a in range(operands[-1].shape.rank) if a not in op.update_window_dims]
    batch = [a for a in range(indices.shape.rank) if a != op.index_vector_dim]
    index_sizes = dict(sizes[count])
    for updates in sizes[count + 1 :]:
        for axis, size in updates.items():
            index_axis = batch[rest.index(axis)]
            index_sizes[index_axis] = (
                SIZES.smaller(index_sizes[index_axis], size) if index_axis in index_sizes else size
            )
    largest = int(integer_info(indices.shape.element_type.dtype).max)
    outside = constant(largest, indices.shape.element_type)
    return make(op, *operands[:count], masked(indices, index_sizes, outside), *operands[count + 1 :])


def _update(op: DynamicUpdateSlice, operands: list[Instruction], sizes: list[Sizes]) -> Instruction:
    """The old elements beyond the update's sizes."""
    array, update, *starts = operands
    if sizes[1]:
        before = make(DynamicSlice(update.shape.dims), array, *starts)
        update = elementwise(Opcode.SELECT, inside(update.shape.dims, sizes[1]), update, before)
    return make(op, array, update, *starts)


REWRITES: dict[type[Op], Rewrite] = {
    Concatenate: _concatenate,
    Convolution: _convolution,
    Dot: _dot,
    DynamicUpdateSlice: _update,
    Gather: _gather,
    Pad: _pad,
    Reduce: _reduction,
    ReduceWindow: _reduction,
    Reverse: _reverse,
    Scatter: _scatter,
}
"""Ops whose results depend on elements beyond a size, but for sort."""
