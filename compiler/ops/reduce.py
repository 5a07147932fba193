"""Reduce: axes combined into one value with a computation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..ir.element_types import ElementType, element_type_of
from ..ir.module import Computation
from ..ir.shape import Shape
from .numeric import narrow
from .op import Op, attribute, collated, require, require_axes, require_signature

_KINDS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
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
    dimensions: tuple[int, ...] = attribute("dims", "dimensions")
    to_apply: Computation = attribute("computation", "to_apply")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The arrays' dims without `dimensions`."""
        arrays = require_reduction("reduce", operands, self.to_apply, ("reduce_c1", "reduce_c3"))
        require_axes("reduce", "dimensions", self.dimensions, arrays[0].rank, "reduce_c2")
        kept = tuple(d for axis, d in enumerate(arrays[0].dims) if axis not in self.dimensions)
        return collated([a.with_dims(kept) for a in arrays])

    def reference(self, *operands: np.ndarray, call: Callable[..., Any]) -> Any:
        """Neighbours combined pairwise until one is left, that one combined with the initial value. Sums and
        the like of floats are computed in f64 and rounded once."""
        count = len(operands) // 2
        arrays, inits = operands[:count], operands[count:]
        kept = [axis for axis in range(arrays[0].ndim) if axis not in self.dimensions]
        dims = tuple(arrays[0].shape[axis] for axis in kept)
        kind = reducer_kind(self.to_apply)
        if kind is not None:
            return reduce_simply(kind, arrays[0], inits[0], self.dimensions)
        reduced = math.prod(arrays[0].shape[axis] for axis in self.dimensions)
        values = [a.transpose(*self.dimensions, *kept).reshape(reduced, *dims) for a in arrays]
        while (rows := len(values[0])) > 1:
            pairs = together(
                call(self.to_apply, *(v[0 : rows - 1 : 2] for v in values), *(v[1:rows:2] for v in values))
            )
            values = [np.concatenate([p, v[rows - rows % 2 :]]) for p, v in zip(pairs, values)]
        starts = [np.broadcast_to(i, dims) for i in inits]
        if len(values[0]) == 0:
            return starts[0] if count == 1 else tuple(starts)
        return call(self.to_apply, *starts, *(v[0] for v in values))


def reduce_simply(kind: str, array: np.ndarray, init: np.ndarray, dimensions: Sequence[int]) -> np.ndarray:
    """A reduction by one of the ops that `reducer_kind` names."""
    function, dtype = _KINDS[kind], array.dtype
    element = element_type_of(dtype)
    holder = (
        np.float64
        if element.is_float
        else np.complex128
        if element.is_complex
        else np.int8
        if element.bits == 4
        else dtype
    )
    if element.bits == 1 and kind in ("add", "multiply"):
        function = np.bitwise_or if kind == "add" else np.bitwise_and
    with np.errstate(all="ignore"):
        values, start = array.astype(holder), init.astype(holder)
        if array.size == 0:
            dims = [d for axis, d in enumerate(array.shape) if axis not in dimensions]
            return np.broadcast_to(init, dims)
        # Given a type, NumPy sums narrow integers in it, not in a wider one.
        reduced = function.reduce(values, axis=tuple(dimensions), dtype=values.dtype)
        return narrow(function(start, reduced), dtype)


def together(value: Any) -> tuple[np.ndarray, ...]:
    """A tuple as it is, an array as the tuple of one."""
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


def reducer_kind(computation: Computation) -> str | None:
    """add, multiply, maximum, minimum, and, or: when the computation is exactly that op of its two
    parameters."""
    root, parameters = computation.root, computation.parameters
    if len(parameters) == 2 and root.opcode in _KINDS and set(root.operands) == set(parameters):
        return root.opcode
    return None


def neutral_number(kind: str, t: ElementType) -> float | int | bool:
    """What changes nothing when combined by a reducer of that kind (see reducer_kind)."""
    if kind == "add":
        return -0.0 if t.is_float else 0
    if kind == "multiply":
        return 1
    if t is ElementType.PRED:
        return kind in ("and", "minimum")
    if kind in ("and", "or"):
        ones = -1 if t.is_signed else (1 << t.bits) - 1
        return ones if kind == "and" else 0
    low = kind == "maximum"
    if t.is_float:
        largest = 448.0 if t is ElementType.F8E4M3FN else math.inf
        return -largest if low else largest
    high_value = (1 << (t.bits - (1 if t.is_signed else 0))) - 1
    low_value = -high_value - 1 if t.is_signed else 0
    return low_value if low else high_value
