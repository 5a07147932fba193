"""Dots with contiguous rows and columns: an operand whose axes do not collapse is transposed.

    dot(x[b,i,j], y[j,k,i])  over i, j     becomes     dot(x, transpose(y) [i,j,k])

Operands of different types, of dots and convolutions, are converted to one that holds both, but for bytes that kernels
multiply as they are, and for weights in a narrower type, which they convert in registers. The sum of a batch of dots
(as in gradients of weights) becomes one dot:

    reduce(dot(x[b,i,k], y[b,i,n]), add) over b     becomes     dot(x, y)  over b, i
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ..analysis.convolution_problem import convolution_problem
from ..analysis.gemm_problem import are_converted, columns_run, contracting_run, gemm_problem
from ..analysis.quads import SMALL
from ..errors import UnsupportedError
from ..ir.element_types import ElementType, accumulator_of
from ..ir.module import Computation, Instruction, Module, make
from ..ops import Constant, Convert, Convolution, Dot, Opcode, Reduce, Transpose, reducer_kind
from ..options import Options


def canonicalize_dots(module: Module, options: Options) -> Module:
    """Converts operands of different types to one; sums batches within the dot; transposes operands of dots
    whose contracting axes, or free axes on the right, are no single run in memory."""

    def change(instruction: Instruction) -> Instruction:
        return _one_type(_change(instruction) or instruction)

    return module.map_computations(lambda c: _summed(c).rewrite(change) if c.has_op(Dot, Convolution) else c)


def _summed(computation: Computation) -> Computation:
    """Sums over batch axes of dots without other users, as one dot each."""
    users, root = computation.users, computation.root
    sums = iter(
        [
            _sums_batch(i) and users[i.operands[0]] == [i] and root is not i.operands[0]
            for i in computation.instructions
        ]
    )
    return computation.rewrite(lambda instruction: _sum_inside(instruction) if next(sums) else None)


def _sums_batch(instruction: Instruction) -> bool:
    """Whether an instruction sums a dot of full-width numbers over batch axes."""
    op, dot = instruction.op, instruction.operands[0] if instruction.operands else None
    if not isinstance(op, Reduce) or dot is None or not isinstance(dot.op, Dot):
        return False
    init = instruction.operands[1]
    return (
        len(instruction.operands) == 2
        and reducer_kind(op.to_apply) is Opcode.ADD
        and all(a < len(dot.op.lhs_batch) for a in op.dimensions)
        and dot.shape.element_type.bits >= 32
        and isinstance(init.op, Constant)
        and not init.op.literal.array.any()
    )


def _sum_inside(reduction: Instruction) -> Instruction | None:
    """A dot that contracts the axes of the sum too; None where they do not collapse with the contracting ones."""
    dot = reduction.operands[0]
    op = dot.op
    assert isinstance(op, Dot) and isinstance(reduction.op, Reduce)
    axes = reduction.op.dimensions
    batch_axes = [n for n in range(len(op.lhs_batch)) if n not in axes]
    wider = dataclasses.replace(
        op,
        lhs_batch=tuple(op.lhs_batch[n] for n in batch_axes),
        rhs_batch=tuple(op.rhs_batch[n] for n in batch_axes),
        lhs_contracting=(*(op.lhs_batch[n] for n in axes), *op.lhs_contracting),
        rhs_contracting=(*(op.rhs_batch[n] for n in axes), *op.rhs_contracting),
    )
    lhs, rhs = dot.operands
    if contracting_run(wider, lhs.shape, rhs.shape) is None:
        return None
    return dataclasses.replace(reduction, op=wider, operands=dot.operands)


def _one_type(instruction: Instruction) -> Instruction:
    op = instruction.op
    if not isinstance(op, (Dot, Convolution)):
        return instruction
    instruction = _with_small_weights(_with_stored_weights(instruction))
    left, right = (o.shape.element_type for o in instruction.operands)
    result = instruction.shape.element_type
    if left is right or are_converted(left, right, result) or _is_product_of_bytes(instruction):
        return instruction
    wide = (
        result
        if result.bits > 32
        else ElementType.S32
        if result.is_integer
        else accumulator_of([left, right])
    )
    return dataclasses.replace(
        instruction,
        op=dataclasses.replace(op, preferred_type=result),
        operands=tuple(make(Convert(wide), o, metadata=instruction.metadata) for o in instruction.operands),
    )


def _with_stored_weights(contraction: Instruction) -> Instruction:
    """A contraction that reads its right operand as it is stored, where kernels convert what they read."""
    left, right = contraction.operands
    result = contraction.shape.element_type
    if not isinstance(right.op, Convert) or right.shape.element_type is not left.shape.element_type:
        return contraction
    (stored,) = right.operands
    if not are_converted(left.shape.element_type, stored.shape.element_type, result):
        return contraction
    assert isinstance(contraction.op, Dot | Convolution)
    op = dataclasses.replace(contraction.op, preferred_type=result)
    return dataclasses.replace(contraction, op=op, operands=(left, stored))


def _with_small_weights(contraction: Instruction) -> Instruction:
    """Says of a contraction of unsigned bytes with constant ones whether these are small; of no other one."""
    (left, right), op = contraction.operands, contraction.op
    assert isinstance(op, Dot | Convolution)
    is_small = (
        left.shape.element_type is ElementType.U8
        and right.shape.element_type is ElementType.S8
        and isinstance(right.op, Constant)
        and bool((np.abs(right.op.literal.array.astype(np.int16)) <= SMALL).all())
    )
    if is_small == op.has_small_rhs:
        return contraction
    return dataclasses.replace(contraction, op=dataclasses.replace(op, has_small_rhs=is_small))


def _is_product_of_bytes(contraction: Instruction) -> bool:
    """Whether kernels multiply the operands as they are: bytes, one operand with signs and one without."""
    result = contraction.shape.element_type
    if isinstance(contraction.op, Convolution):
        problem = convolution_problem(contraction, result)
        return bool(problem.quads) or problem.is_of_bytes
    try:
        return bool(gemm_problem(contraction, result).quads)
    except UnsupportedError:
        return False


def _change(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, Dot):
        return None
    lhs, rhs = instruction.operands
    if contracting_run(op, lhs.shape, rhs.shape) is not None and columns_run(op, rhs.shape) is not None:
        return None
    left = (*op.lhs_batch, *op.lhs_free(lhs.shape.rank), *op.lhs_contracting)
    right = (*op.rhs_batch, *op.rhs_contracting, *op.rhs_free(rhs.shape.rank))
    batch, contracting = len(op.lhs_batch), len(op.lhs_contracting)
    free = lhs.shape.rank - batch - contracting
    canonical = dataclasses.replace(
        op,
        lhs_batch=tuple(range(batch)),
        rhs_batch=tuple(range(batch)),
        lhs_contracting=tuple(range(batch + free, lhs.shape.rank)),
        rhs_contracting=tuple(range(batch, batch + contracting)),
    )
    return dataclasses.replace(
        instruction,
        op=canonical,
        operands=tuple(
            o
            if order == tuple(range(o.shape.rank))
            else make(Transpose(order), o, metadata=instruction.metadata)
            for o, order in ((lhs, left), (rhs, right))
        ),
    )
