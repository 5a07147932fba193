"""Reduce: axes combined into one value with a computation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of, float_info
from ..ir.module import Computation, Evaluate, Instruction, Value
from ..ir.shape import Shape
from .elementwise import Opcode, is_op
from .numeric import narrow, wide
from .op import Op, attribute, collated, require, require_axes, require_signature

_KINDS: dict[Opcode, np.ufunc] = {
    Opcode.ADD: np.add,
    Opcode.MULTIPLY: np.multiply,
    Opcode.MAXIMUM: np.maximum,
    Opcode.MINIMUM: np.minimum,
    Opcode.AND: np.bitwise_and,
    Opcode.OR: np.bitwise_or,
}


@dataclasses.dataclass(frozen=True)
class Reduce(Op):
    """The elements along `dimensions` combined by to_apply, starting from the initial values.

    Operands: N arrays, then N initial scalars. to_apply takes N values reduced so far, then N new ones, and
    returns N. The order is unspecified and the initial value may be used more than once, so to_apply should
    be associative and the initial value neutral. Several arrays give a tuple.
    reduce_c1: N arrays of the same dims, then N scalars of their element types, N at least 1.
    reduce_c2: dimensions are distinct axes of the arrays.
    reduce_c3: to_apply is (T0, .., T0, ..) -> T0 or (T0, ..), all scalars.
    Source: operation semantics, Reduce.
    """

    opcode: ClassVar[str] = "reduce"
    is_reduction: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")
    to_apply: Computation = attribute("computation", "to_apply")

    def flops(self, instruction: Instruction) -> int:
        """Those of to_apply for each element of an operand."""
        return instruction.operands[0].shape.elements * combine_flops(self.to_apply)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The arrays' dims without `dimensions`."""
        arrays = require_reduction("reduce", operands, self.to_apply, ("reduce_c1", "reduce_c3"))
        require_axes("reduce", "dimensions", self.dimensions, arrays[0].rank, "reduce_c2")
        dims = tuple(d for axis, d in enumerate(arrays[0].dims) if axis not in self.dimensions)
        return collated([a.with_dims(dims) for a in arrays])

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """Pairs of neighbours combined until one remains, then combined with the initial value. Sums, products and
        extremes of floats are computed in f64 and rounded once."""
        count = len(operands) // 2
        arrays, inits = operands[:count], operands[count:]
        result_axes = [axis for axis in range(arrays[0].ndim) if axis not in self.dimensions]
        dims = tuple(arrays[0].shape[axis] for axis in result_axes)
        kind = reducer_kind(self.to_apply)
        if kind is not None:
            return reduce_simply(kind, arrays[0], inits[0], self.dimensions)
        reduced = math.prod(arrays[0].shape[axis] for axis in self.dimensions)
        values = [a.transpose(*self.dimensions, *result_axes).reshape(reduced, *dims) for a in arrays]
        while (rows := len(values[0])) > 1:
            pairs = together(
                call(self.to_apply, *(v[0 : rows - 1 : 2] for v in values), *(v[1:rows:2] for v in values))
            )
            values = [np.concatenate([p, v[rows - rows % 2 :]]) for p, v in zip(pairs, values)]
        starts = [np.broadcast_to(i, dims) for i in inits]
        if len(values[0]) == 0:
            return starts[0] if count == 1 else tuple(starts)
        return call(self.to_apply, *starts, *(v[0] for v in values))


def reduce_simply(kind: Opcode, array: np.ndarray, init: np.ndarray, dimensions: Sequence[int]) -> np.ndarray:
    """A reduction by one of the ops that `reducer_kind` returns."""
    function, dtype = _KINDS[kind], array.dtype
    element = element_type_of(dtype)
    if element.bits == 1 and kind in (Opcode.ADD, Opcode.MULTIPLY):
        function = np.bitwise_or if kind is Opcode.ADD else np.bitwise_and
    with np.errstate(all="ignore"):
        values, start = wide(array), wide(init)
        if array.size == 0:
            dims = [d for axis, d in enumerate(array.shape) if axis not in dimensions]
            return np.broadcast_to(init, dims)
        # Given a type, NumPy sums narrow integers in it, not in a wider one.
        reduced = function.reduce(values, axis=tuple(dimensions), dtype=values.dtype)
        return narrow(function(start, reduced), dtype)


def together(value: object) -> tuple[np.ndarray, ...]:
    """A tuple unchanged, an array as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def require_reduction(
    opcode: str, operands: Sequence[Shape], to_apply: Computation, labels: tuple[str, str]
) -> Sequence[Shape]:
    """Checks the operands and the computation of a reduction; returns the arrays' shapes.

    Raises: ShapeError  labels[0]: operands are not N arrays of the same dims and N scalars of their types;
    labels[1]: the computation does not combine such scalars.
    """
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    fits = (
        count > 0
        and len(inits) == count
        and all(o.is_array for o in operands)
        and all(a.dims == arrays[0].dims and i == Shape(a.element_type) for a, i in zip(arrays, inits))
    )
    require(
        fits,
        f"{opcode}: operands are {', '.join(map(str, operands))}, arrays of the same dims and as many "
        f"initial scalars of their types are wanted",
        labels[0],
    )
    require_signature(opcode, "to_apply", to_apply, [*inits, *inits], collated(inits), labels[1])
    return arrays


def combine_flops(to_apply: Computation) -> int:
    """Arithmetic operations of the computation that a reduction applies; at least one."""
    return max(1, sum(i.op.flops(i) for i in to_apply.instructions if i.op.is_elementwise))


def reducer_kind(computation: Computation) -> Opcode | None:
    """add, multiply, maximum, minimum, and, or: when the computation is exactly that op of its two
    parameters."""
    root, parameters = computation.root, computation.parameters
    if len(parameters) != 2 or set(root.operands) != set(parameters):
        return None
    return next((kind for kind in _KINDS if is_op(root, kind)), None)


def neutral_number(kind: Opcode, t: ElementType) -> float | int | bool:
    """The neutral element of a reducer of that kind (see reducer_kind)."""
    if kind is Opcode.ADD:
        return -0.0 if t.is_float else 0
    if kind is Opcode.MULTIPLY:
        return 1
    if t is ElementType.PRED:
        return kind in (Opcode.AND, Opcode.MINIMUM)
    if kind in (Opcode.AND, Opcode.OR):
        ones = -1 if t.is_signed else (1 << t.bits) - 1
        return ones if kind is Opcode.AND else 0
    low = kind is Opcode.MAXIMUM
    if t.is_float:
        if t.has_infinity:
            return -math.inf if low else math.inf
        limits = float_info(t.dtype)
        return float(limits.min if low else limits.max)
    high_value = (1 << (t.bits - (1 if t.is_signed else 0))) - 1
    low_value = -high_value - 1 if t.is_signed else 0
    return low_value if low else high_value
