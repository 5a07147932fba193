"""The topk of many elements as a sort.

    t = (f32[9000], s32[9000]) topk(x), k=9000     i = iota; s = sort(x, i); t = tuple(slices of s)

Choosing few elements takes one pass over a line; choosing many would take as many steps as a heap sort. Where the
order is that of a heap.
"""

from __future__ import annotations

import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ir.shape import Shape
from ..ops import (
    Broadcast,
    Compare,
    Constant,
    Convert,
    GetTupleElement,
    Iota,
    Opcode,
    Parameter,
    Slice,
    Sort,
    TopK,
    Tuple,
    elementwise,
)
from ..options import Options

MAX_WITHOUT_SORT = 128
"""Elements that are chosen without a sort."""


def expand_top_k(module: Module, options: Options) -> Module:
    """The module without a topk of more than MAX_WITHOUT_SORT elements."""
    return module.rewrite_ops([TopK], _expand)


def _expand(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, TopK) or op.k <= MAX_WITHOUT_SORT or op.order.startswith("HEAP"):
        return None
    operand = instruction.operands[0]
    kind = operand.shape.element_type
    if kind.lacks_signs:
        operand = make(Convert(kind.accumulator), operand)
    shape = operand.shape
    axis = shape.rank - 1
    numbers = make(Iota(Shape(ElementType.S32, shape.dims), axis))
    is_total = shape.element_type.is_float and not op.order
    if shape.element_type.is_float and op.order:  # NaN's sign decides at which end it is
        nan = np.copysign(np.nan, -1 if op.largest else 1).astype(shape.element_type.dtype)
        last = make(Broadcast(shape.dims, ()), make(Constant(Literal(nan, shape.element_type))))
        operand = elementwise(Opcode.SELECT, make(Compare("NE"), operand, operand), last, operand)
    sort = make(
        Sort(axis, _better(shape.element_type, op.largest, is_total), is_stable=True), operand, numbers
    )
    first = Slice((0,) * shape.rank, (*shape.dims[:-1], op.k), (1,) * shape.rank)
    values, order = (make(first, make(GetTupleElement(k), sort)) for k in range(2))
    if kind.lacks_signs:
        values = make(Convert(kind), values)
    return make(Tuple(), values, order, name=instruction.name, metadata=instruction.metadata)


def _better(element_type: ElementType, largest: bool, is_total: bool) -> Computation:
    """Whether the first of two elements with their numbers comes before the second."""
    scalars = [Shape(t) for t in (element_type, ElementType.S32) for _ in range(2)]
    parameters = [make(Parameter(k, s), name=f"p{k}") for k, s in enumerate(scalars)]
    op = Compare("GT" if largest else "LT", "TOTALORDER" if is_total else "")
    return Computation("better", make(op, *parameters[:2]), parameters)
