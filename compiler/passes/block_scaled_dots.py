"""Dots with weights of four bits that a graph unpacks, as dots that read them packed.

    u = s8[k,n] ...halves of p = s8[k,n/2]...
    w = (convert(u) - convert(gather(zeros, blocks))) * gather(scales, blocks)
    y = dot(x, w)                               =>      y = block-scaled-dot(x, p, scales, zeros, blocks)

The zeros, or scales and zeros, may be absent, and a number for each column be a factor or a divisor of the weights:
keras.quantizers makes all of these.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...runtime.sizes import is_symbolic
from ..analysis.packed_weights import packed_weights
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Instruction, Module, make
from ..ops import BlockScaledDot, Broadcast, Constant, Convert, Dot, Elementwise, Gather, Opcode, is_op
from ..options import Options
from .rules.rule import full, reshaped

_F32 = ElementType.F32
_MOST_ROWS = 256  # of values: for more it pays to unpack the weights once, into memory


def block_scaled_dots(module: Module, options: Options) -> Module:
    """The module whose dots read packed weights where there are some."""
    return module.rewrite_ops([Dot], _packed_dot)


def _packed_dot(dot: Instruction) -> Instruction | None:
    op = dot.op
    if not isinstance(op, Dot):
        return None
    values, weights = dot.operands
    types, rank = (
        {dot.shape.element_type, values.shape.element_type, weights.shape.element_type},
        values.shape.rank,
    )
    if types != {_F32} or weights.shape.rank != 2 or is_symbolic(values.shape.dims):
        return None
    if op.rhs_batch or op.rhs_contracting != (0,) or op.lhs_contracting != (rank - 1,):
        return None
    depth, columns = weights.shape.dims
    if values.shape.elements > _MOST_ROWS * depth:
        return None
    operands = _operands(weights)
    if operands is None or not dot.shape.elements or not depth:
        return None
    packed, scales, zeros, blocks = operands
    if scales is None:
        scales = make(Constant(Literal(np.ones((1, columns), np.float32))))
    rows = reshaped(values, (values.shape.elements // depth, depth))
    others = [o for o in (zeros, blocks) if o is not None]
    packed_op = BlockScaledDot(0 if blocks is not None else depth, zeros is not None)
    product = make(packed_op, rows, packed, scales, *others, metadata=dot.metadata)
    return dataclasses.replace(reshaped(product, dot.shape.dims), name=dot.name, metadata=dot.metadata)


_Operands = tuple[Instruction, Instruction | None, Instruction | None, Instruction | None]


def _operands(weights: Instruction) -> _Operands | None:
    """(packed weights, scales, zeros, blocks of rows) of weights that a dot reads."""
    scales = zeros = blocks = None
    if (scales := _scales_of_columns(weights)) is not None:
        weights = weights.operands[0]
    elif is_op(weights, Opcode.MULTIPLY):
        for value, other in (weights.operands, weights.operands[::-1]):
            rows = _rows_of(other)
            if rows is not None:
                weights, (scales, blocks) = value, rows
                break
        else:
            return None
        if is_op(weights, Opcode.SUBTRACT):
            of_zeros = _rows_of(_converted(weights.operands[1]))
            if of_zeros is None or of_zeros[1] is not blocks:
                return None
            weights, zeros = weights.operands[0], of_zeros[0]
            if zeros.shape.element_type is not ElementType.S8 or zeros.shape.dims != scales.shape.dims:
                return None
    integers = _converted(weights)
    if integers is None or (scales is not None and scales.shape.element_type is not _F32):
        return None
    packed = packed_weights(integers)
    return None if packed is None else (packed, scales, zeros, blocks)


def _scales_of_columns(weights: Instruction) -> Instruction | None:
    """The numbers, a matrix of one row, by which the columns of weights are multiplied, or the inverse of their
    divisors."""
    if not is_op(weights, Opcode.MULTIPLY, Opcode.DIVIDE):
        return None
    other = weights.operands[1]
    if not isinstance(other.op, Broadcast) or other.op.dimensions != (1,):
        return None
    vector = other.operands[0]
    if is_op(weights, Opcode.DIVIDE):
        vector = make(Elementwise(Opcode.DIVIDE.value), full(vector.shape, np.float32(1)), vector)
    return reshaped(vector, (1, *vector.shape.dims))


def _converted(value: Instruction) -> Instruction | None:
    """The integers that a value is converted from."""
    return value.operands[0] if isinstance(value.op, Convert) else None


def _rows_of(value: Instruction | None) -> tuple[Instruction, Instruction] | None:
    """A matrix and the numbers of its rows, s32, that a value consists of."""
    if value is None or not isinstance(value.op, Gather):
        return None
    matrix, numbers = value.operands
    is_vector = numbers.shape.rank == 1 and numbers.shape.element_type is ElementType.S32
    return (matrix, numbers) if is_vector and value.op.takes_rows(matrix.shape, numbers.shape) else None
