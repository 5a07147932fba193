"""Indices of elements: where an element lies in memory, and which elements of its operands a reduction reads."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.sizes import surely_less
from ...errors import UnsupportedError
from ...ir.module import Instruction
from ...ops import BitcastConvert, Reduce, ReduceWindow
from ...ops.op import ElementRule
from .affine import Affine, Division

Index = tuple[Affine, ...]


def is_bitcast(instruction: Instruction) -> bool:
    """A bitcast-convert between types of one width: elementwise."""
    return (
        isinstance(instruction.op, BitcastConvert)
        and instruction.shape.dims == instruction.operands[0].shape.dims
    )


def element_rule(instruction: Instruction) -> ElementRule:
    """The rule of an instruction's op for one element.

    Raises: UnsupportedError  it has none.
    """
    rule: ElementRule | None = getattr(instruction.op, "element", None)
    if rule is None:
        raise UnsupportedError(f"{instruction.opcode}: has no rule for one element")
    return rule


def reduced_dims(instruction: Instruction) -> tuple[int, ...]:
    """Dims of the elements that one element of the result combines."""
    op = instruction.op
    if isinstance(op, ReduceWindow):
        return op.window.size
    assert isinstance(op, Reduce)
    return tuple(instruction.operands[0].shape.dims[axis] for axis in op.dimensions)


def operand_index(
    instruction: Instruction, index: Index, inner: Sequence[Affine], division: Division
) -> tuple[Index, list[Affine]]:
    """(index of the operands, affines that must be negative for it to be inside) for a result's index and the
    position `inner` among the reduced elements."""
    op = instruction.op
    if isinstance(op, Reduce):
        outer, rest = iter(index), dict(zip(op.dimensions, inner, strict=True))
        rank = instruction.operands[0].shape.rank
        return tuple(rest[axis] if axis in rest else next(outer) for axis in range(rank)), []
    assert isinstance(op, ReduceWindow)
    window = op.window
    at: list[Affine] = []
    bounds: list[Affine] = []
    for axis, (i, k) in enumerate(zip(index, inner, strict=True)):
        dim, step = instruction.operands[0].shape.dims[axis], window.base_dilation[axis]
        if window.reversal[axis]:
            k = Affine.number(window.size[axis] - 1) - k
        position = (
            i * window.stride[axis] + k * window.window_dilation[axis] - Affine.number(window.pad_low[axis])
        )
        outside = [Affine.number(-1) - position, position - Affine.number((dim - 1) * step + 1)]
        if step > 1:
            outside.append(division.remainder(position, step) - Affine.number(1))
            position = division.divide(position, step)
        bounds.extend(x for x in outside if not surely_less(x.high, 0))
        at.append(position)
    return tuple(at), bounds
