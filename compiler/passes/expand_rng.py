"""Random numbers as arithmetic on random bits, whose seed alone is drawn from the run context.

    x = f32[8] rng(a, b), distribution=rng_uniform     s = u64[2] rng(0, 0); bits = rng-bit-generator(s);
                                                       x = a + (b - a) * (bits as a float in 0 <= u < 1)

The seed is an rng too: the draw of two whole u64, which is left as it is. Normal numbers are those of Box and Muller.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np

from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import Instruction, Module, make
from ..ir.shape import Shape, array
from ..ops import (
    BitcastConvert,
    Broadcast,
    Compare,
    Constant,
    Convert,
    Elementwise,
    GetTupleElement,
    Reshape,
    Rng,
    RngBitGenerator,
    Slice,
)
from ..options import Options

SEED = array("u64", 2)
"""The shape of a seed."""

E = ElementType


def expand_rng(module: Module, options: Options) -> Module:
    """The module in which seeds alone are drawn."""
    return module.map_computations(lambda computation: computation.rewrite(_expand))


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
    first, second = (_spread(o, dims) for o in instruction.operands)
    low, high = instruction.operands
    if op.distribution == "rng_normal":
        made = _normal(first, second, kind, dims)
    elif kind.is_float:
        most = _apply("maximum", low, _below(high))
        made = _uniform(first, second, _spread(most, dims), kind, dims)
    else:
        made = _whole(first, second, kind, dims)
    return dataclasses.replace(made, name=instruction.name, metadata=instruction.metadata)


def _apply(name: str, *operands: Instruction) -> Instruction:
    return make(Elementwise(name), *operands)


def _spread(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    return make(Broadcast(dims, ()), x) if dims else x


def _number(value: Any, kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    return _spread(make(Constant(Literal(np.asarray(value).astype(kind.dtype)))), dims)


def _bits(kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    zero = make(Constant(Literal(np.uint64(0))))
    seed = make(Rng("rng_uniform", SEED), zero, zero)
    return make(GetTupleElement(1), make(RngBitGenerator("rng_philox", Shape(kind, dims)), seed))


def _fraction(bits: Instruction) -> Instruction:
    """u32 or u64 as a float of the same width in 0 <= u < 1: as many bits as fit its mantissa."""
    dims, narrow = bits.shape.dims, bits.shape.element_type is E.U32
    kind, shift = (E.F32, 8) if narrow else (E.F64, 11)
    kept = _apply("shift-right-logical", bits, _number(shift, bits.shape.element_type, dims))
    return _apply("multiply", make(Convert(kind), kept), _number(2.0 ** (-24 if narrow else -53), kind, dims))


def _wide(kind: ElementType) -> tuple[ElementType, ElementType]:
    """The float type to compute in, and the bits that it is made of."""
    return (E.F64, E.U64) if kind is E.F64 else (E.F32, E.U32)


def _below(x: Instruction) -> Instruction:
    """The next smaller float, as `ops.rng.below`."""
    kind = x.shape.element_type
    whole = {1: E.S8, 2: E.S16, 4: E.S32, 8: E.S64}[kind.item_bytes]
    bits, one, zero = make(BitcastConvert(whole), x), _number(1, whole, ()), _number(0, kind, ())
    is_positive = make(Compare("GT"), x, zero)
    moved = _apply("select", is_positive, _apply("subtract", bits, one), _apply("add", bits, one))
    tiny = _number(-float(ml_dtypes.finfo(kind.dtype).tiny), kind, ())
    return _apply("select", make(Compare("EQ"), x, zero), tiny, make(BitcastConvert(kind), moved))


def _uniform(
    low: Instruction, high: Instruction, most: Instruction, kind: ElementType, dims: tuple[int, ...]
) -> Instruction:
    compute, bits = _wide(kind)
    a, b = (make(Convert(compute), x) if kind is not compute else x for x in (low, high))
    extent = _apply("maximum", _apply("subtract", b, a), _number(0, compute, dims))
    drawn = _apply("add", a, _apply("multiply", extent, _fraction(_bits(bits, dims))))
    if kind is not compute:
        drawn = make(Convert(kind), drawn)
    return _apply(
        "select", make(Compare("LT"), drawn, high), drawn, most
    )  # it may have been rounded up to high


def _whole(low: Instruction, high: Instruction, kind: ElementType, dims: tuple[int, ...]) -> Instruction:
    bits = _bits(E.U64, dims)

    def wide(x: Instruction) -> Instruction:
        if kind.is_unsigned:
            return make(Convert(E.U64), x) if kind is not E.U64 else x
        return make(BitcastConvert(E.U64), make(Convert(E.S64), x) if kind is not E.S64 else x)

    extent = _apply("subtract", wide(high), wide(low))
    offset = _apply("remainder", bits, _apply("maximum", extent, _number(1, E.U64, dims)))
    found = _apply("select", make(Compare("LT"), low, high), _apply("add", wide(low), offset), bits)
    return make(Convert(kind), found) if kind is not E.U64 else found


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
    size = _apply("log-plus-one", _apply("negate", u))  # log(1 - u): u may be 0, never 1
    radius = _apply("sqrt", _apply("multiply", size, _number(-2, compute, dims)))
    turn = _apply("cosine", _apply("multiply", v, _number(2 * math.pi, compute, dims)))
    a, b = (make(Convert(compute), x) if kind is not compute else x for x in (mean, deviation))
    drawn = _apply("add", a, _apply("multiply", b, _apply("multiply", radius, turn)))
    return make(Convert(kind), drawn) if kind is not compute else drawn
