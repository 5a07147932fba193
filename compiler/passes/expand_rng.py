"""Random numbers as arithmetic on random bits, whose seed alone is drawn from the run context.

    x = f32[8] rng(a, b), distribution=rng_uniform     s = u64[2] rng(0, 0); bits = rng-bit-generator(s);
                                                       x = a + (b - a) * (bits as a float in 0 <= u < 1)

The seed is an rng too: the draw of two whole u64, which is not expanded. Normal numbers are those of Box and Muller.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..ir.element_types import ElementType, float_info
from ..ir.literal import Literal
from ..ir.module import Instruction, Module, make
from ..ir.shape import Shape, array
from ..ops import (
    BitcastConvert,
    Broadcast,
    Compare,
    Constant,
    Convert,
    DynamicSlice,
    GetTupleElement,
    Opcode,
    Reshape,
    Rng,
    RngBitGenerator,
    Slice,
    elementwise,
)
from ..ops.rng import below_each
from ..options import Options

SEED = array("u64", 2)
"""The shape of a seed."""

E = ElementType


def expand_rng(module: Module, options: Options) -> Module:
    """The module in which seeds alone are drawn."""
    return module.rewrite_ops([Rng], _expand)


def is_seed(instruction: Instruction) -> bool:
    """Whether this is the draw of a seed."""
    return instruction.shape == SEED and all(
        isinstance(o.op, Constant) and not o.op.literal.array for o in instruction.operands
    )


def _expand(instruction: Instruction) -> Instruction | None:
    op = instruction.op
    if not isinstance(op, Rng) or is_seed(instruction):
        return None
    kind, dims = instruction.shape.element_type, instruction.shape.dims
    first, second = (_broadcast(o, dims) for o in instruction.operands)
    low, high = instruction.operands
    if op.distribution == "rng_normal":
        sample = _normal(first, second, kind, dims)
    elif kind.is_float:
        last = elementwise(Opcode.MAXIMUM, low, _below(high))
        sample = _uniform(first, second, _broadcast(last, dims), kind, dims)
    else:
        sample = _whole(first, second, kind, dims)
    return dataclasses.replace(sample, name=instruction.name, metadata=instruction.metadata)


def _broadcast(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    return make(Broadcast(dims, ()), x) if dims else x


def _number(value: object, kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    return _broadcast(make(Constant(Literal(np.asarray(value).astype(kind.dtype)))), dims)


def _bits(kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    zero = make(Constant(Literal(np.uint64(0))))
    seed = make(Rng("rng_uniform", SEED), zero, zero)
    return make(GetTupleElement(1), make(RngBitGenerator("rng_philox", Shape(kind, dims)), seed))


def _fraction(bits: Instruction) -> Instruction:
    """u32 or u64 as a float of the same width in 0 <= u < 1: as many bits as fit its mantissa."""
    dims, narrow = bits.shape.dims, bits.shape.element_type is E.U32
    kind, shift = (E.F32, 8) if narrow else (E.F64, 11)
    mantissa = elementwise(Opcode.SHIFT_RIGHT_LOGICAL, bits, _number(shift, bits.shape.element_type, dims))
    return elementwise(
        Opcode.MULTIPLY, make(Convert(kind), mantissa), _number(2.0 ** (-24 if narrow else -53), kind, dims)
    )


def _wide(kind: ElementType) -> tuple[ElementType, ElementType]:
    """The float type of the arithmetic, and the integer type of its bits."""
    return (kind.accumulator, E.U64 if kind.accumulator is E.F64 else E.U32)


def _below(x: Instruction) -> Instruction:
    """The next smaller float, as `ops.rng.below`."""
    kind = x.shape.element_type
    if kind.bits <= 8:
        number = make(Convert(E.S32), make(BitcastConvert({4: E.U4, 8: E.U8}[kind.bits]), x))
        return make(Reshape(()), make(DynamicSlice((1,)), make(Constant(Literal(below_each(kind)))), number))
    whole = {2: E.S16, 4: E.S32, 8: E.S64}[kind.item_bytes]
    bits, one, zero = make(BitcastConvert(whole), x), _number(1, whole, ()), _number(0, kind, ())
    is_positive = make(Compare("GT"), x, zero)
    moved = elementwise(
        Opcode.SELECT,
        is_positive,
        elementwise(Opcode.SUBTRACT, bits, one),
        elementwise(Opcode.ADD, bits, one),
    )
    tiny = _number(-float(float_info(kind.dtype).tiny), kind, ())
    return elementwise(Opcode.SELECT, make(Compare("EQ"), x, zero), tiny, make(BitcastConvert(kind), moved))


def _uniform(
    low: Instruction, high: Instruction, last: Instruction, kind: ElementType, dims: tuple[int, ...]
) -> Instruction:
    compute, bits = _wide(kind)
    a, b = (make(Convert(compute), x) if kind is not compute else x for x in (low, high))
    extent = elementwise(Opcode.MAXIMUM, elementwise(Opcode.SUBTRACT, b, a), _number(0, compute, dims))
    drawn = elementwise(Opcode.ADD, a, elementwise(Opcode.MULTIPLY, extent, _fraction(_bits(bits, dims))))
    if kind is not compute:
        drawn = make(Convert(kind), drawn)
    return elementwise(
        Opcode.SELECT, make(Compare("LT"), drawn, high), drawn, last
    )  # it may have been rounded up to high


def _whole(low: Instruction, high: Instruction, kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    bits = _bits(E.U64, dims)

    def wide(x: Instruction) -> Instruction:
        if kind.is_unsigned:
            return make(Convert(E.U64), x) if kind is not E.U64 else x
        return make(BitcastConvert(E.U64), make(Convert(E.S64), x) if kind is not E.S64 else x)

    extent = elementwise(Opcode.SUBTRACT, wide(high), wide(low))
    offset = elementwise(Opcode.REMAINDER, bits, elementwise(Opcode.MAXIMUM, extent, _number(1, E.U64, dims)))
    scaled = elementwise(
        Opcode.SELECT, make(Compare("LT"), low, high), elementwise(Opcode.ADD, wide(low), offset), bits
    )
    return make(Convert(kind), scaled) if kind is not E.U64 else scaled


def _normal(
    mean: Instruction, deviation: Instruction, kind: ElementType, dims: tuple[int, ...]
) -> Instruction:
    compute, bits = _wide(kind)
    both = _bits(bits, (2, *dims))
    halves = [
        make(Reshape(dims), make(Slice((k, *[0] * len(dims)), (k + 1, *dims), (1,) * (len(dims) + 1)), both))
        for k in range(2)
    ]
    u, v = map(_fraction, halves)
    size = elementwise(Opcode.LOG_PLUS_ONE, elementwise(Opcode.NEGATE, u))  # log(1 - u): u may be 0, never 1
    radius = elementwise(Opcode.SQRT, elementwise(Opcode.MULTIPLY, size, _number(-2, compute, dims)))
    turn = elementwise(Opcode.COSINE, elementwise(Opcode.MULTIPLY, v, _number(2 * math.pi, compute, dims)))
    a, b = (make(Convert(compute), x) if kind is not compute else x for x in (mean, deviation))
    drawn = elementwise(
        Opcode.ADD, a, elementwise(Opcode.MULTIPLY, b, elementwise(Opcode.MULTIPLY, radius, turn))
    )
    return make(Convert(kind), drawn) if kind is not compute else drawn
