"""Factors of a layer's features become part of its constant weights.

    y = f32[8,3] dot(x, constant.w)                        y = f32[8,3] dot(x, constant.w * constant.s)
    f = f32[8,3] broadcast(constant.s), dimensions={1}
    r = f32[8,3] multiply(y, f)                    =>

A batch normalisation after a convolution is one sum then, which costs nothing (cpu/gemm/tile_end.py).
"""

from __future__ import annotations

import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Computation, Instruction, Module, make
from ..ops import Broadcast, Constant, Convolution, Dot, Opcode, is_op
from ..options import Options


def scale_weights(module: Module, options: Options) -> Module:
    """The module with products that nothing but a multiplication reads, of the factor's product with their weights."""
    return module.map_computations(_scale)


def _scale(computation: Computation) -> Computation:
    if not computation.has_op(Convolution, Dot) or not computation.has_op(Constant):
        return computation
    done: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        new = old.with_operands(done[o] for o in old.operands)
        done[old] = _scaled(computation, old, new) or new
    return computation.mapped(done)


def _scaled(computation: Computation, old: Instruction, new: Instruction) -> Instruction | None:
    """The product with other weights, in the place of a multiplication; `old` is the instruction in the computation,
    `new` that with its new operands."""
    if not is_op(old, Opcode.MULTIPLY):
        return None
    for number, factor in ((0, new.operands[1]), (1, new.operands[0])):
        product = new.operands[number]
        axes = _feature_axes(product)
        users = computation.users[old.operands[number]]
        if axes is None or len(users) != 1 or old.operands[number] is computation.root:
            continue
        weights, channel_axis, feature_axis = product.operands[1], *axes
        factors = _factors(factor, feature_axis)
        if factors is None or not isinstance(weights.op, Constant):
            continue
        shape = [-1 if axis == channel_axis else 1 for axis in range(weights.shape.rank)]
        with np.errstate(all="ignore"):
            scaled = weights.op.literal.array * factors.reshape(shape if factors.ndim else ())
        if not np.isfinite(scaled).all():
            return None
        constant = make(Constant(Literal(scaled, weights.shape.element_type)), metadata=weights.metadata)
        return make(product.op, product.operands[0], constant, name=old.name, metadata=product.metadata)
    return None


def _feature_axes(product: Instruction) -> tuple[int, int] | None:
    """The axis of the features in a product's weights, its second operand, and in its result."""
    op = product.op
    types = {product.shape.element_type, *(o.shape.element_type for o in product.operands)}
    if len(types) != 1 or not types <= {ElementType.F32, ElementType.F64}:
        return None
    if isinstance(op, Convolution):
        is_plain = op.batch_groups == 1
        return (op.dims.kernel_output_feature, op.dims.output_feature) if is_plain else None
    if isinstance(op, Dot):
        free = op.rhs_free(product.operands[1].shape.rank)
        return (free[0], product.shape.rank - 1) if len(free) == 1 else None
    return None


def _factors(value: Instruction, axis: int) -> np.ndarray | None:
    """A constant number for each feature, or one for all."""
    numbers = per_feature(value, axis)
    if numbers is None or not isinstance(numbers.op, Constant):
        return None
    array: np.ndarray = numbers.op.literal.array
    return array.reshape(-1 if array.size > 1 else ())


def per_feature(value: Instruction, axis: int) -> Instruction | None:
    """What a value repeats along all axes but this one; None where it is no such broadcast."""
    if not isinstance(value.op, Broadcast):
        return None
    (numbers,) = value.operands
    is_other = any(a != axis and size != 1 for size, a in zip(numbers.shape.dims, value.op.dimensions))
    return None if is_other else numbers
