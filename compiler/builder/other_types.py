"""Ops on element types that they do not take themselves: computed in another type, the results converted back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import ShapeError
from ..ir.element_types import COMPLEXES, FLOATS, INTEGERS, ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from ..ops import (
    BitcastConvert,
    Broadcast,
    Cholesky,
    Compare,
    Convert,
    Convolution,
    Dot,
    Elementwise,
    GetTupleElement,
    Iota,
    LuDecomposition,
    Reshape,
    SelfAdjointEig,
    Slice,
    TopK,
    TriangularSolve,
    Tuple,
)
from ..ops.dot import require_product
from ..ops.op import Op
from .core import BuilderCore, Operand

_E = ElementType
_PACKED = {2: _E.U2, 4: _E.U4}
_Write = Callable[[BuilderCore, Op, Sequence[Operand]], Operand]


def apply_on_any_type(b: BuilderCore, op: Op, *operands: Operand) -> Operand:
    """The op; on element types that it does not take, computed in another one.

    Raises: ShapeError  the op's own constraints.
    """
    write = _write(op, [b.shape_of(o) for o in operands])
    return b.apply(op, *operands) if write is None else write(b, op, operands)


def computation_on(op: Op, operands: Sequence[Shape]) -> Computation | None:
    """The computation that the op is a call of, where it does not take the operands' element types; None where it does.

    Raises: ShapeError  the op's own constraints.
    """
    write = _write(op, operands)
    if write is None:
        return None
    b = BuilderCore(op.opcode.replace("-", "_"))
    return b.build(write(b, op, [b.parameter(k, shape) for k, shape in enumerate(operands)]))


def _write(op: Op, operands: Sequence[Shape]) -> _Write | None:
    rule = _RULES.get(type(op))
    return None if rule is None or not all(s.is_array for s in operands) else rule(op, operands)


# -- pred as numbers, and floats below f32


def _converted(b: BuilderCore, operand: Operand, kind: ElementType) -> Operand:
    return operand if b.shape_of(operand).element_type is kind else b.apply(Convert(kind), operand)


def _is_not_zero(b: BuilderCore, operand: Operand) -> Operand:
    shape = b.shape_of(operand)
    zero = b.scalar_like(operand, 0)
    return b.apply(Compare("NE"), operand, b.apply(Broadcast(shape.dims, ()), zero) if shape.dims else zero)


def _product(op: Op, operands: Sequence[Shape]) -> _Write | None:
    assert isinstance(op, Dot | Convolution)
    kinds = [s.element_type for s in operands]
    if len(kinds) != 2:
        return None
    if set(kinds) == {_E.PRED}:
        return _product_of_preds
    try:
        require_product(op.opcode, operands, op.preferred_type, ("", ""))
    except ShapeError:
        return None if _wider(kinds[0], kinds[1], op.preferred_type) is None else _product_in_wider
    return None


def _wider(left: ElementType, right: ElementType, preferred: ElementType | None) -> ElementType | None:
    """The type for a product of two types, or of a type for which the preferred one is of another kind."""
    if preferred is not None and preferred.is_float and not (left.is_complex or right.is_complex):
        return preferred
    for group in (INTEGERS, FLOATS, COMPLEXES):
        if left in group and right in group and left.bits != right.bits:
            return max(left, right, key=lambda t: t.bits)
    return _E.F32 if left.is_float and right.is_float else None


def _product_in_wider(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """Of mixed types, or of integers with a result of floats."""
    assert isinstance(op, Dot | Convolution)
    left, right = (b.shape_of(o).element_type for o in operands)
    wide = _wider(left, right, op.preferred_type)
    assert wide is not None
    plain = op if op.preferred_type is not wide else dataclasses.replace(op, preferred_type=None)
    return b.apply(plain, *(_converted(b, o, wide) for o in operands))


def _product_of_preds(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """Of a result of pred, whether a term is true; of numbers, how many are."""
    assert isinstance(op, Dot | Convolution)
    preferred = op.preferred_type
    counts = _E.S32 if preferred in (None, _E.PRED) else preferred
    assert counts is not None
    plain = dataclasses.replace(op, preferred_type=None)
    result = b.apply(plain, *(_converted(b, o, counts) for o in operands))
    return _is_not_zero(b, result) if preferred in (None, _E.PRED) else result


def _top_k(op: Op, operands: Sequence[Shape]) -> _Write | None:
    return _top_k_of_preds if [s.element_type for s in operands] == [_E.PRED] else None


def _top_k_of_preds(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    best = b.apply(op, b.apply(Convert(_E.U8), operands[0]))
    values = b.apply(GetTupleElement(0), best)
    return b.apply(Tuple(), _is_not_zero(b, values), b.apply(GetTupleElement(1), best))


def _narrow_floats(op: Op, operands: Sequence[Shape]) -> _Write | None:
    kinds = {s.element_type for s in operands}
    return _in_f32 if len(kinds) == 1 and all(k.is_float and k.bits < 32 for k in kinds) else None


def _in_f32(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """The floats of the result, or of several, in the operands' type."""
    kind = b.shape_of(operands[0]).element_type
    result = b.apply(op, *(b.apply(Convert(_E.F32), o) for o in operands))
    if not (leaves := b.shape_of(result).tuple_shapes):
        return b.apply(Convert(kind), result)
    parts = [b.apply(GetTupleElement(k), result) for k in range(len(leaves))]
    floats = [b.apply(Convert(kind), x) if s.element_type is _E.F32 else x for x, s in zip(parts, leaves)]
    return b.apply(Tuple(), *floats)


# -- bits of pred, and of elements of which several are in a byte


def _bits(op: Op, operands: Sequence[Shape]) -> _Write | None:
    assert isinstance(op, BitcastConvert)
    if len(operands) != 1 or operands[0].element_type is op.element_type:
        return None
    kinds = operands[0].element_type, op.element_type
    is_packed = [k.bits in _PACKED for k in kinds]
    if _E.PRED in kinds:
        return _bits_of_preds
    if is_packed[0] is is_packed[1] or any(k.is_complex for k in kinds):
        return None
    return _bytes_of_packed if is_packed[0] else _packed_in_bytes


def _bits_of_preds(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """A byte each, 0 or 1."""
    assert isinstance(op, BitcastConvert)
    if op.element_type is _E.PRED:
        return _is_not_zero(b, apply_on_any_type(b, BitcastConvert(_E.U8), *operands))
    return apply_on_any_type(b, op, b.apply(Convert(_E.U8), operands[0]))


def _packed_in_bytes(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """The elements of two or four bits in wider ones, those in the low bits first."""
    assert isinstance(op, BitcastConvert)
    bits = op.element_type.bits
    dims = b.shape_of(operands[0]).dims
    count = b.shape_of(operands[0]).element_type.bits // bits
    octets = b.apply(BitcastConvert(_E.U8), operands[0])
    own = b.shape_of(octets).dims
    spread = (*own, 8 // bits)
    wide = b.apply(Broadcast(spread, tuple(range(len(own)))), octets)
    amounts = b.apply(
        Elementwise("multiply"), b.apply(Iota(Shape(_E.U8, spread), len(own))), _full(b, bits, spread)
    )
    parts = b.apply(Elementwise("shift-right-logical"), wide, amounts)
    parts = b.apply(Elementwise("and"), parts, _full(b, (1 << bits) - 1, spread))
    flat = b.apply(Reshape((*dims, count)), b.apply(Convert(_PACKED[bits]), parts))
    return b.apply(op, flat) if op.element_type is not _PACKED[bits] else flat


def _bytes_of_packed(b: BuilderCore, op: Op, operands: Sequence[Operand]) -> Operand:
    """The wider elements that elements of two or four bits are parts of."""
    assert isinstance(op, BitcastConvert)
    shape = b.shape_of(operands[0])
    bits = shape.element_type.bits
    count = op.element_type.bits // bits
    if not shape.rank or shape.dims[-1] != count:
        raise ShapeError(
            f"bitcast-convert: operand is {shape}, a last axis of size {count} is wanted for "
            f"{op.element_type.value} (bitcast_convert_c3)"
        )
    whole = b.apply(BitcastConvert(_PACKED[bits]), operands[0])
    dims = (*shape.dims[:-1], count * bits // 8, 8 // bits)
    parts = b.apply(Reshape(dims), b.apply(Convert(_E.U8), whole))
    octets: Operand | None = None
    for k in range(8 // bits):
        start = (*(0 for _ in dims[:-1]), k)
        part = b.apply(
            Reshape(dims[:-1]), b.apply(Slice(start, (*dims[:-1], k + 1), (1,) * len(dims)), parts)
        )
        part = b.apply(Elementwise("shift-left"), part, _full(b, bits * k, dims[:-1]))
        octets = part if octets is None else b.apply(Elementwise("or"), octets, part)
    assert octets is not None
    if op.element_type.bits == 8:
        octets = b.apply(Reshape(dims[:-2]), octets)
    return octets if op.element_type is _E.U8 else b.apply(op, octets)


def _full(b: BuilderCore, value: int, dims: tuple[int, ...]) -> Operand:
    return b.apply(Broadcast(dims, ()), b.constant(np.uint8(value)))


_RULES: dict[type[Op], Callable[[Op, Sequence[Shape]], _Write | None]] = {
    BitcastConvert: _bits,
    Cholesky: _narrow_floats,
    Convolution: _product,
    Dot: _product,
    LuDecomposition: _narrow_floats,
    SelfAdjointEig: _narrow_floats,
    TopK: _top_k,
    TriangularSolve: _narrow_floats,
}
