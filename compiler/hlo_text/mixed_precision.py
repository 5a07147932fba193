"""Floats of several types among the operands and the result of one instruction, as XLA allows them in HLO text: the
operands become the widest of these types, and what is computed in it becomes the declared one.

    c = bf16[4] add(f32[4] a, bf16[4] b)      =>      wide = f32[4] convert(b)
                                                      sum = f32[4] add(a, wide)
                                                      c = bf16[4] convert(sum)
"""

from __future__ import annotations

from ..ir.element_types import ElementType
from ..ir.module import Instruction, Metadata
from ..ir.shape import Shape
from ..ops import (
    Compare,
    Concatenate,
    Convert,
    DynamicUpdateSlice,
    Elementwise,
    Pad,
    Reduce,
    ReduceWindow,
    Tuple,
)
from ..ops.op import Op
from .metadata import as_another_op
from .tuples import element


def may_be_mixed(op: Op) -> bool:
    """Whether the operands and the result of an op may be floats of several types."""
    return isinstance(
        op, Compare | Concatenate | DynamicUpdateSlice | Elementwise | Pad | Reduce | ReduceWindow
    )


def of_one_type(op: Op, operands: list[Instruction], declared: Shape | None) -> list[Instruction]:
    """The operands of an op that may be mixed, converted where they are floats of several types; `declared` is the
    result's shape in the text."""
    if isinstance(op, Reduce | ReduceWindow):
        wanted = [p.element_type for p in op.to_apply.parameter_shapes]
        count = len(operands) // 2
        if len(wanted) != len(operands) or len(operands) != 2 * count:
            return operands
        return [_converted(o, kind) for o, kind in zip(operands, wanted[:count] * 2)]
    floats = {o.shape.element_type for o in operands if o.shape.element_type.is_float}
    if floats and declared is not None and declared.is_array and declared.element_type.is_float:
        floats.add(declared.element_type)
    if len(floats) < 2:
        return operands
    wide = _widest(floats)
    return [_converted(o, wide) for o in operands]


def _widest(kinds: set[ElementType]) -> ElementType:
    bits = max(kind.bits for kind in kinds)
    widest = [kind for kind in kinds if kind.bits == bits]
    return widest[0] if len(widest) == 1 else ElementType.F32


def _converted(operand: Instruction, kind: ElementType) -> Instruction:
    """A float that becomes one of at least as many bits; what is no such float is left as it is."""
    own = operand.shape.element_type
    if own is kind or not (own.is_float and kind.is_float) or own.bits > kind.bits:
        return operand
    op = Convert(kind)
    return Instruction(op, (operand,), op.infer([operand.shape]), f"{operand.name}_{kind.value}")


def differs_in_precision(declared: Shape, inferred: Shape) -> bool:
    """Whether two shapes are different, in the types of floats alone."""
    if declared.is_tuple or inferred.is_tuple:
        parts = declared.tuple_shapes, inferred.tuple_shapes
        return len(parts[0]) == len(parts[1]) and any(map(differs_in_precision, *parts))
    kinds = declared.element_type, inferred.element_type
    return (
        kinds[0] is not kinds[1] and all(kind.is_float for kind in kinds) and declared.dims == inferred.dims
    )


def as_declared(result: Instruction, declared: Shape, name: str, metadata: Metadata) -> Instruction:
    """The result, or the parts of a tuple, as floats of the declared types."""
    metadata = as_another_op(metadata)
    if not result.shape.is_tuple:
        op = Convert(declared.element_type)
        return Instruction(op, (result,), op.infer([result.shape]), name, metadata)
    parts = [element(result, k) for k in range(len(result.shape.tuple_shapes))]
    parts = [
        as_declared(part, shape, f"{part.name}_{shape.element_type.value}", metadata)
        if differs_in_precision(shape, part.shape)
        else part
        for part, shape in zip(parts, declared.tuple_shapes)
    ]
    tuple_op = Tuple()
    return Instruction(tuple_op, tuple(parts), tuple_op.infer([p.shape for p in parts]), name, metadata)
